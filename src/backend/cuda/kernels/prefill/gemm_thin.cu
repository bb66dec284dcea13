/*
 * Matmuls of halves for few tokens or small matrices, on devices with kernels for warpgroups. Inputs have the
 * layout that gemm_halves.cu reads. Such a launch takes its latency and the time of reading the weights, if
 * enough loads are in flight. A block has GEMM_FEW_TOKENS tokens, by y of the grid.
 *
 *   salvo_gemm_thin_16, salvo_gemm_thin_16_glu    a block has 16 rows of each matrix
 *   salvo_gemm_thin_32                            32 rows
 *
 * The warps of a block divide the columns: warp w has parts w, w + warps, ... Weights go from memory to
 * registers; a warp requests those of its first part before it waits for the last launch. Each block
 * reads the inputs of its tokens, from the L2 cache. The warps of a block meet once, to add their sums.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"
#include "backend/cuda/kernels/prefill/weight_halves.cuh"

#if HAS_WARPGROUPS

/* Where the weight tiles of a warp begin. Tile rows beyond the last are the last one, and their results are
 * not used. */
template <int MATRICES, int PAIRS> struct thin_tiles {
    const uint8_t *rows[MATRICES * PAIRS * 2];
    uint32_t per_block, per_pass, tile_bytes;

    KERNEL_INLINE thin_tiles(const cuda_gemm &gemm, const gemm_block &block)
    {
        const cuda_matrix &first = gemm.matmuls[block.matmul].matrix;
        per_block = first.tile_rows_per_block;
        per_pass = first.parts_per_pass;
        tile_bytes = first.tile_bytes;
#pragma unroll
        for (int i = 0; i < MATRICES * PAIRS * 2; i++)
            rows[i] = gemm_tile(gemm.matmuls[block.matmul + i / (PAIRS * 2)].matrix,
                block.first_row / CUDA_TILE_ROWS + i % (PAIRS * 2), 0);
    }

    template <int TYPE>
    KERNEL_INLINE void load(uint32_t part, uint32_t lane, lane_codes<TYPE> (&out)[MATRICES * PAIRS * 2]) const
    {
        const uint32_t pass = part / per_pass;
        const uint64_t offset = (uint64_t)(pass * per_block * per_pass + part - pass * per_pass) * tile_bytes;
#pragma unroll
        for (int i = 0; i < MATRICES * PAIRS * 2; i++)
            out[i] = load_codes<TYPE>(rows[i] + offset, (int)lane);
    }
};

/* The inputs of eight tokens in a part, as products take them: words 2i and 2i + 1 are those of product i. */
KERNEL_INLINE void load_thin_inputs(const uint32_t *group, uint32_t lane, uint32_t (&out)[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        out[i] = __ldcg(group + i * (CUDA_INPUT_CHUNK_BYTES / 4) + lane);
}

/* Sixteen rows by eight tokens of a part, added to `sums`. Tensor cores add up with fewer bits than a float
 * has, so that the sums of a part are added as floats. */
KERNEL_INLINE void multiply_thin(
    const uint32_t (&low)[16], const uint32_t (&high)[16], const uint32_t (&inputs)[16], float (&sums)[4])
{
    float part[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++)
        multiply_halves(
            low[2 * i], high[2 * i], low[2 * i + 1], high[2 * i + 1], inputs[2 * i], inputs[2 * i + 1], part);
#pragma unroll
    for (int i = 0; i < 4; i++)
        sums[i] += part[i];
}

/* False: no token is live. */
template <int TYPE, int MATRICES, int PAIRS>
KERNEL_INLINE bool multiply_thin_rows(
    const cuda_gemm &gemm, const gemm_block &block, const cuda_step *step, float *place)
{
    using format = tile_format<TYPE>;
    constexpr int ROWS = PAIRS * 16, TILES = MATRICES * PAIRS * 2,
                  WORDS = format::planes_16 * 4 + format::planes_8 * 2 + format::planes_4 +
                          (format::row_scale != 0) + (format::lane_scale != 0);
    constexpr bool AHEAD = TILES * WORDS <= 20; /* registers hold the codes of two parts */
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32,
                   parts = gemm.matmuls[block.matmul].matrix.parts;
    const cuda_packed_input &input = gemm.inputs[block.matmul];
    const thin_tiles<MATRICES, PAIRS> tiles(gemm, block);
    const uint32_t part_words = input.grouped / 8 * (CUDA_INPUT_GROUP_BYTES / 4);
    const uint32_t first_token = blockIdx.y * GEMM_FEW_TOKENS;
    const uint32_t *group = (const uint32_t *)input.values + (uint64_t)warp * part_words +
                            first_token / 8 * (CUDA_INPUT_GROUP_BYTES / 4);
    lane_codes<TYPE> codes[TILES], next[TILES];
    tiles.load(warp, lane, codes);
    const uint32_t live = live_rows(step, gemm.rows, first_token, GEMM_FEW_TOKENS);
    wait_for_last_launch();
    if (live == 0)
        return false;
    const bool both = live > 8;
    float sums[MATRICES * PAIRS][GEMM_FEW_TOKENS / 8][4] = {};
#pragma unroll 1
    for (uint32_t part = warp; part < parts; part += warps) {
        uint32_t inputs[2][16];
        load_thin_inputs(group, lane, inputs[0]);
        if (both)
            load_thin_inputs(group + CUDA_INPUT_GROUP_BYTES / 4, lane, inputs[1]);
        group += warps * part_words;
        if (AHEAD && part + warps < parts)
            tiles.load(part + warps, lane, next);
#pragma unroll
        for (int pair = 0; pair < MATRICES * PAIRS; pair++) {
            uint32_t low[16], high[16];
            halves_of_codes<TYPE>(codes[2 * pair], low);
            halves_of_codes<TYPE>(codes[2 * pair + 1], high);
            multiply_thin(low, high, inputs[0], sums[pair][0]);
            if (both)
                multiply_thin(low, high, inputs[1], sums[pair][1]);
        }
        if (AHEAD) {
#pragma unroll
            for (int i = 0; i < TILES; i++)
                codes[i] = next[i];
        } else if (part + warps < parts) {
            tiles.load(part + warps, lane, codes);
        }
    }
#pragma unroll
    for (int pair = 0; pair < MATRICES * PAIRS; pair++)
        leave_sums<MATRICES, GEMM_FEW_TOKENS, ROWS>(
            sums[pair], warp, pair / PAIRS, pair % PAIRS * 16, lane, place);
    return true;
}

template <int MATRICES, int PAIRS>
KERNEL_INLINE bool multiply_thin_any(
    const cuda_gemm &gemm, const gemm_block &block, const cuda_step *step, float *place)
{
    switch (gemm.matmuls[block.matmul].matrix.type) {
#define MULTIPLY(name, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit)          \
    case TYPE_##name:                                                                          \
        if constexpr (TYPE_##name != TYPE_F32 && TYPE_##name != TYPE_BF16)                     \
            return multiply_thin_rows<TYPE_##name, MATRICES, PAIRS>(gemm, block, step, place); \
        break;
        CUDA_TILE_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
    wait_for_last_launch();
    return false;
}

template <int MATRICES, int PAIRS>
KERNEL_INLINE void gemm_thin(const cuda_machine *machine, const cuda_gemm &gemm)
{
    constexpr int ROWS = PAIRS * 16;
    DYNAMIC_SHARED(shared);
    float *place = (float *)shared;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    const gemm_block block = find_gemm_block<ROWS>(gemm, blockIdx.x);
    const uint32_t first_token = blockIdx.y * GEMM_FEW_TOKENS;
    invite_next_launch();
    if (!multiply_thin_any<MATRICES, PAIRS>(gemm, block, step, place))
        return;
    const uint32_t live = live_rows(step, gemm.rows, first_token, GEMM_FEW_TOKENS);
    gemm_finish<MATRICES, GEMM_FEW_TOKENS, ROWS> finish(gemm, block, first_token, live);
    __syncthreads();
    finish.run(first_token, blockDim.x / 32, place, 0); /* halves have one term */
}

#define DEFINE_GEMM_THIN(name, matrices, pairs)                                   \
    extern "C" __global__ void __launch_bounds__(GEMM_THIN_WARPS * 32, 1)         \
        name(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm) \
    {                                                                             \
        gemm_thin<matrices, pairs>(machine, gemm);                                \
    }

DEFINE_GEMM_THIN(salvo_gemm_thin_16, 1, 1)
DEFINE_GEMM_THIN(salvo_gemm_thin_32, 1, 2)
DEFINE_GEMM_THIN(salvo_gemm_thin_16_glu, 2, 1)

#endif
