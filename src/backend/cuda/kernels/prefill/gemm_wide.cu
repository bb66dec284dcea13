/*
 * Matmuls of many tokens by weights in F16 with products of warpgroups, where there are such.
 *
 *   salvo_gemm_wide_64(machine, gemm), _64_glu      a block has 64 tokens,
 *   salvo_gemm_wide_128(machine, gemm), _128_glu    128
 *
 * Grid, threads and shared memory: cuda_gemm_launch; blocks of x have tokens, of y rows. Each of two
 * warpgroups has 64 rows, with a glu the same ones of both matrices, and they share the inputs. Weights and
 * inputs come to shared memory in a ring of stages, half a part (64 columns) each. A lane's weights are those
 * that it has brought itself, in registers; the inputs are read by the products.
 *
 * One barrier of all threads for each stage: a thread that arrives has issued the products of this stage, and
 * has waited for those of the stage before and for its own copies of the next. After it the next stage may be
 * read, and the place of the one before is free. So products run during the barrier.
 *
 * Tensor cores add up with fewer bits than a float has, so that sums of one part are kept separate and then
 * added as floats.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"

#if HAS_WARPGROUPS

template <int TOKENS, int MATRICES> struct wide_layout {
    static constexpr uint32_t stages = TOKENS == 128 ? GEMM_WIDE_STAGES_128 : GEMM_WIDE_STAGES_64;
    static constexpr uint32_t planes = GEMM_WIDE_COLUMNS / 32; /* of a weight tile: 8 columns of each lane */
    static constexpr uint32_t stages_per_part = CUDA_TILE_COLUMNS / GEMM_WIDE_COLUMNS;
    static constexpr uint32_t warp_bytes = 2 * planes * 512; /* weights: two tile rows */
    static constexpr uint32_t weight_bytes = GEMM_WIDE_THREADS / 32 * warp_bytes;
    static constexpr uint32_t stage_bytes =
        weight_bytes + GEMM_WIDE_COLUMNS * 2 / 16 * wide_inputs<TOKENS>::chunk_bytes;
    static constexpr int rows = GEMM_WIDE_ROWS / MATRICES;                      /* of a matrix */
    static constexpr int sums = MATRICES * GEMM_MANY_TOKENS * sum_stride<rows>; /* of as many tokens */
    static_assert(TOKENS / GEMM_MANY_TOKENS * sums * 4 <= stages * stage_bytes, "sums are there in the end");
    static_assert(stages >= 3, "one that is read, one that arrives, one that is free");
};

/* ---- Loads to shared memory ---- */

/* The weights of a warp, half a weight tile after the other. */
template <class LAYOUT> struct wide_weights {
    const uint8_t *low, *high; /* a lane's place in the weight tiles of two tile rows */
    uint32_t half, part, parts_per_pass, left, jump;

    KERNEL_INLINE wide_weights(const cuda_matrix &matrix, uint32_t tile_row, uint32_t lane)
        : low(gemm_tile(matrix, tile_row, 0) + lane * 16),
          high(gemm_tile(matrix, tile_row + 1, 0) + lane * 16), half(0), part(0),
          parts_per_pass(matrix.parts_per_pass), left(matrix.parts * LAYOUT::stages_per_part),
          jump((matrix.tile_rows_per_block - 1) * matrix.parts_per_pass * matrix.tile_bytes)
    {
    }

    KERNEL_INLINE void fetch(uint8_t *to)
    {
        if (left == 0)
            return;
        left--;
#pragma unroll
        for (uint32_t plane = 0; plane < LAYOUT::planes; plane++) {
            copy_async(to + plane * 512, low + plane * 512);
            copy_async(to + (LAYOUT::planes + plane) * 512, high + plane * 512);
        }
        uint32_t step = LAYOUT::planes * 512;
        if (++half == LAYOUT::stages_per_part) {
            half = 0;
            if (++part ==
                parts_per_pass) { /* weight tiles of the next pass follow those of the other tile rows */
                part = 0;
                step += jump;
            }
        }
        low += step;
        high += step;
    }
};

/* ---- Products ---- */

/* A lane's weights of a stage. */
template <class LAYOUT> struct stage_weights {
    uint32_t words[LAYOUT::planes * 2][4];

    KERNEL_INLINE explicit stage_weights(const uint8_t *from)
    {
#pragma unroll
        for (uint32_t plane = 0; plane < LAYOUT::planes; plane++) {
            const uint4 low = *(const uint4 *)(from + plane * 512),
                        high = *(const uint4 *)(from + (LAYOUT::planes + plane) * 512);
            uint32_t(&first)[4] = words[plane * 2], (&second)[4] = words[plane * 2 + 1];
            first[0] = low.x, first[1] = high.x, first[2] = low.y, first[3] = high.y;
            second[0] = low.z, second[1] = high.z, second[2] = low.w, second[3] = high.w;
        }
    }
};

/* Begins the products of a stage. */
template <class LAYOUT, int TOKENS>
KERNEL_INLINE void multiply_stage(
    const stage_weights<LAYOUT> &weights, const uint8_t *inputs, bool adds, float (&sums)[TOKENS / 8][4])
{
    products_begin();
#pragma unroll
    for (uint32_t i = 0; i < LAYOUT::planes * 2; i++)
        multiply_wide(
            weights.words[i], inputs + i * 2 * wide_inputs<TOKENS>::chunk_bytes, adds || i != 0, sums);
    products_commit();
}

/* Stores the sums, GEMM_MANY_TOKENS at a time. */
template <class LAYOUT, int TOKENS, int MATRICES>
KERNEL_INLINE void finish_wide(
    const cuda_gemm &gemm, const gemm_block &block, uint32_t first_token, uint32_t live, const float *place)
{
#pragma unroll 1
    for (uint32_t first = 0; first < live; first += GEMM_MANY_TOKENS) {
        const uint32_t some = min(live - first, (uint32_t)GEMM_MANY_TOKENS);
        const uint64_t early =
            early_tokens<GEMM_MANY_TOKENS>(gemm, first_token + first, some, threadIdx.x % 32);
        gemm_finish<MATRICES, GEMM_MANY_TOKENS, LAYOUT::rows> finish(gemm, block, first_token + first, some);
        finish.run(first_token + first, 1, place, early);
        place += LAYOUT::sums;
    }
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_wide(const cuda_machine *machine, const cuda_gemm &gemm)
{
    using layout = wide_layout<TOKENS, MATRICES>;
    DYNAMIC_SHARED(shared);
    const gemm_block block = find_gemm_block<layout::rows>(gemm, blockIdx.y);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix_number = warp / 4 % MATRICES,
                   row = warp * 16 % layout::rows, first_token = blockIdx.x * TOKENS;
    const cuda_matrix &matrix = gemm.matmuls[block.matmul + matrix_number].matrix;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    uint8_t *own_weights = shared + warp * layout::warp_bytes + lane * 16;
    wide_weights<layout> weights(matrix, (block.first_row + row) / CUDA_TILE_ROWS, lane);
    invite_next_launch();
#pragma unroll 1
    for (uint32_t i = 0; i < layout::stages - 1; i++)
        weights.fetch(own_weights + i * layout::stage_bytes);
    wait_for_last_launch();
    const uint32_t live = live_rows(step, gemm.rows, first_token, TOKENS);
    if (live == 0) {
        copy_commit();
        copy_wait<0>();
        return;
    }
    input_copies<TOKENS, GEMM_WIDE_COLUMNS, GEMM_WIDE_THREADS> rows(
        gemm.packed_input, first_token, live, 0, matrix.parts * layout::stages_per_part);
#pragma unroll 1
    for (uint32_t i = 0; i < layout::stages - 1; i++) {
        rows.fetch(shared + i * layout::stage_bytes + layout::weight_bytes);
        copy_commit();
    }
    copy_wait<layout::stages - 2>();
    publish_inputs();
    __syncthreads();
    float sums[TOKENS / 8][4] = {};
    stage_weights<layout> next(own_weights);
    uint32_t stage = 0, free_stage = (layout::stages - 1) * layout::stage_bytes; /* bytes */
#pragma unroll 1
    for (uint32_t part = 0; part < matrix.parts; part++) {
        float part_sums[TOKENS / 8][4];
#pragma unroll
        for (uint32_t half = 0; half < layout::stages_per_part; half++) {
            multiply_stage<layout, TOKENS>(next, shared + stage + layout::weight_bytes, half != 0, part_sums);
            products_wait<1>();
            copy_wait<layout::stages - 3>();
            publish_inputs();
            __syncthreads();
            weights.fetch(own_weights + free_stage);
            rows.fetch(shared + free_stage + layout::weight_bytes);
            copy_commit();
            free_stage = stage;
            stage += layout::stage_bytes;
            if (stage == layout::stages * layout::stage_bytes)
                stage = 0;
            next = stage_weights<layout>(own_weights + stage); /* after the last: nobody's */
        }
        products_wait<0>();
        hold_sums(part_sums);
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[j][i] += part_sums[j][i];
        }
    }
    __syncthreads();
#pragma unroll
    for (int first = 0; first < TOKENS / 8; first += GEMM_MANY_TOKENS / 8) {
        float some[GEMM_MANY_TOKENS / 8][4];
#pragma unroll
        for (int j = 0; j < GEMM_MANY_TOKENS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                some[j][i] = sums[first + j][i];
        }
        leave_sums<MATRICES, GEMM_MANY_TOKENS, layout::rows>(some, 0, matrix_number, row, lane,
            (float *)shared + first / (GEMM_MANY_TOKENS / 8) * layout::sums);
    }
    __syncthreads();
    finish_wide<layout, TOKENS, MATRICES>(gemm, block, first_token, live, (const float *)shared);
}

#define DEFINE_GEMM_WIDE(tokens)                                                                            \
    extern "C" __global__ void __launch_bounds__(GEMM_WIDE_THREADS, 1)                                      \
        salvo_gemm_wide_##tokens(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)       \
    {                                                                                                       \
        gemm_wide<tokens, 1>(machine, gemm);                                                                \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(GEMM_WIDE_THREADS, 1)                                      \
        salvo_gemm_wide_##tokens##_glu(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm) \
    {                                                                                                       \
        gemm_wide<tokens, 2>(machine, gemm);                                                                \
    }

DEFINE_GEMM_WIDE(64)
DEFINE_GEMM_WIDE(128)

#endif
