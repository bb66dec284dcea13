/*
 * Matmuls of many tokens by weights in F16, BF16 and F32.
 *
 *   salvo_gemm_f16_few(machine, gemm), _few_glu     a block has GEMM_FEW_TOKENS,
 *   salvo_gemm_f16_some(machine, gemm), _some_glu   GEMM_SOME_TOKENS,
 *   salvo_gemm_f16_many(machine, gemm), _many_glu   GEMM_MANY_TOKENS
 *   salvo_gemm_f32_few, _few_glu, ...                the same for BF16 and F32, with inputs in F32
 *
 * Grid, threads and shared memory: cuda_gemm_launch. A product of 16 rows by 8 tokens may read K in any
 * order, if weights and inputs have the same: a lane copies its 32 elements of a weight tile to shared memory
 * and uses them where they are. The lanes with l % 4 = c copy elements 32c .. 32c+31 of a part; packed inputs
 * of halves have them in the order of the products. Pairs of warps, 16 rows each, alternate between parts and
 * share their inputs. Weights depend on no other kernel: the loads of the first part start before the
 * previous launch has ended.
 *
 * Tensor cores accumulate with fewer bits than a float has, so the sum of each part is separate, and these
 * sums are added as floats. F32 weights and inputs are cut into two pieces (two_pieces.cuh). BF16 weights are
 * exact, and their inputs are three pieces of 8 bits.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"
#include "backend/cuda/kernels/prefill/two_pieces.cuh"

template <int TYPE> struct float_layout {
    static constexpr bool halves = TYPE == TYPE_F16;        /* the inputs */
    static constexpr int planes = TYPE == TYPE_F32 ? 8 : 4; /* of 16 bytes a lane, of a weight tile */
    static constexpr int chunks = halves ? 16 : 32;         /* of 16 bytes, of a token's part */
    static constexpr int group_bytes = 144;                 /* of 32 floats in shared memory */
    static constexpr int token_bytes = halves ? 256 + 16 : 4 * group_bytes;
    static constexpr int plane_input = halves ? 64 : TYPE == TYPE_BF16 ? 32 : 16; /* from one to the next */
    static constexpr int tile_bytes = planes * 512;
    static_assert(
        token_bytes == (halves ? GEMM_F16_TOKEN_BYTES : GEMM_F32_TOKEN_BYTES), "as the host counts");
};

/* ---- Pieces of floats ---- */

/* The upper halves of two words; that of the first is the lower half of the result. */
KERNEL_INLINE uint32_t upper_halves(float first, float second)
{
    return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
}

/* A float minus the float that its upper half represents. */
KERNEL_INLINE float without_upper_half(float x)
{
    return x - __uint_as_float(__float_as_uint(x) & 0xffff0000);
}

/* ---- Products ---- */

KERNEL_INLINE void multiply_f32_plane(const uint4 &low, const uint4 &high, const uint8_t *x, float (&sum)[4])
{
    const uint4 b = *(const uint4 *)x;
    const two_pieces first[4] = {
        cut_in_two(low.x), cut_in_two(high.x), cut_in_two(low.y), cut_in_two(high.y)};
    const two_pieces second[4] = {
        cut_in_two(low.z), cut_in_two(high.z), cut_in_two(low.w), cut_in_two(high.w)};
    multiply_f32_step(first, cut_in_two(b.x), cut_in_two(b.y), sum);
    multiply_f32_step(second, cut_in_two(b.z), cut_in_two(b.w), sum);
}

KERNEL_INLINE void multiply_f16_plane(const uint4 &low, const uint4 &high, const uint8_t *x, float (&sum)[4])
{
    uint32_t b[4];
    load_matrices(x, b);
    multiply_halves(low.x, high.x, low.y, high.y, b[0], b[1], sum);
    multiply_halves(low.z, high.z, low.w, high.w, b[2], b[3], sum);
}

KERNEL_INLINE void multiply_bf16_plane(const uint4 &low, const uint4 &high, const uint8_t *x, float (&sum)[4])
{
    float4 first = ((const float4 *)x)[0], second = ((const float4 *)x)[1];
#pragma unroll
    for (int piece = 0; piece < 3; piece++) {
        multiply_bfloats(low.x, high.x, low.y, high.y, upper_halves(first.x, first.y),
            upper_halves(first.z, first.w), sum);
        multiply_bfloats(low.z, high.z, low.w, high.w, upper_halves(second.x, second.y),
            upper_halves(second.z, second.w), sum);
        first = make_float4(without_upper_half(first.x), without_upper_half(first.y),
            without_upper_half(first.z), without_upper_half(first.w));
        second = make_float4(without_upper_half(second.x), without_upper_half(second.y),
            without_upper_half(second.z), without_upper_half(second.w));
    }
}

/* ---- Weights and inputs in shared memory ---- */

/* The weight tiles of a warp's two tile rows, for a glu of each of its two matrices; a lane reads the bytes
 * that it copied itself. */
template <int TYPE, int MATRICES> struct float_tiles {
    uint8_t bytes[MATRICES * 2][float_layout<TYPE>::tile_bytes];

    KERNEL_INLINE void fetch(
        const cuda_gemm &gemm, uint32_t matmul, uint32_t tile_row, uint32_t part, uint32_t lane)
    {
#pragma unroll 1
        for (uint32_t i = 0; i < MATRICES * 2; i++) {
            const uint8_t *from =
                gemm_tile(gemm.matmuls[matmul + i / 2].matrix, tile_row + i % 2, part) + lane * 16;
#pragma unroll
            for (int plane = 0; plane < float_layout<TYPE>::planes; plane++)
                copy_async(bytes[i] + plane * 512 + lane * 16, from + plane * 512);
        }
    }
};

/* Addresses of the input rows. */
struct float_rows {
    uint64_t values, row_bytes;
    uint32_t live;

    KERNEL_INLINE float_rows(
        const cuda_packed_input &packed_input, uint32_t element, uint32_t first_token, uint32_t live_)
        : values(packed_input.values + (uint64_t)first_token * packed_input.stride * element),
          row_bytes((uint64_t)packed_input.stride * element), live(live_)
    {
    }

    /* Starts the copy of a part of TOKENS tokens, by a pair of warps. Rows beyond the last token, and columns
     * beyond the last, are zeros. */
    template <int TYPE, int TOKENS>
    KERNEL_INLINE void fetch(uint32_t part, uint32_t thread, uint8_t *to) const
    {
        using layout = float_layout<TYPE>;
        constexpr uint32_t step = 64 / layout::chunks; /* tokens at once */
        const uint32_t chunk = thread % layout::chunks, first = thread / layout::chunks,
                       byte = (part * layout::chunks + chunk) * 16;
        to += first * layout::token_bytes +
              (layout::halves ? chunk * 16 : chunk / 8 * layout::group_bytes + chunk % 8 * 16);
        uint64_t from = values + first * row_bytes + byte;
#pragma unroll 2
        for (uint32_t token = first; token < TOKENS; token += step) {
            const bool on = token < live && byte < row_bytes;
            copy_async(to, (const uint8_t *)(on ? from : values), on);
            to += step * layout::token_bytes;
            from += step * row_bytes;
        }
    }
};

/* ---- A part ---- */

/* Weight tiles of two tile rows in shared memory, and the address of those of the next part, or NULL. The
 * copy of a plane starts as soon as the plane that it overwrites has been read. */
struct tile_row_pair {
    uint8_t *low, *high;
    const uint8_t *next_low, *next_high;
};

template <int TYPE, int TOKENS>
KERNEL_INLINE void multiply_part(
    tile_row_pair tile_rows, const uint8_t *inputs, uint32_t lane, float (&sums)[TOKENS / 8][4])
{
    using layout = float_layout<TYPE>;
    /* For halves: the row whose address this lane gives to ldmatrix. */
    const uint8_t *x =
        inputs + (layout::halves ? lane % 8 * layout::token_bytes + lane / 8 * 16
                                 : lane / 4 * layout::token_bytes + lane % 4 * layout::group_bytes);
    float part[TOKENS / 8][4] = {};
#pragma unroll 1
    for (uint32_t i = 0, at = lane * 16; i < layout::planes; i++, at += 512, x += layout::plane_input) {
        const uint4 a = *(const uint4 *)(tile_rows.low + at), b = *(const uint4 *)(tile_rows.high + at);
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            if constexpr (TYPE == TYPE_F32)
                multiply_f32_plane(a, b, x + j * 8 * layout::token_bytes, part[j]);
            else if constexpr (TYPE == TYPE_F16)
                multiply_f16_plane(a, b, x + j * 8 * layout::token_bytes, part[j]);
            else
                multiply_bf16_plane(a, b, x + j * 8 * layout::token_bytes, part[j]);
        }
        if (tile_rows.next_low) {
            copy_async(tile_rows.low + at, tile_rows.next_low + at);
            copy_async(tile_rows.high + at, tile_rows.next_high + at);
        }
    }
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[j][i] += part[j][i];
    }
}

template <int TYPE, int TOKENS, int MATRICES>
__device__ __noinline__ void gemm_float(const cuda_machine *machine, const cuda_gemm &gemm, gemm_block block)
{
    DYNAMIC_SHARED(shared);
    using layout = float_layout<TYPE>;
    using tiles_of_part = float_tiles<TYPE, MATRICES>;
    static_assert(sizeof(tiles_of_part) <= MATRICES * GEMM_FLOAT_TILE_BYTES, "as the host counts it");
    const uint32_t thread = threadIdx.x % 64, pair = threadIdx.x / 64, pairs = blockDim.x / 64,
                   half = thread / 32, lane = thread % 32;
    const uint32_t parts = gemm.matmuls[block.matmul].matrix.parts,
                   tile_row = block.first_row / CUDA_TILE_ROWS + half * 2;
    uint8_t *inputs = shared + pair * TOKENS * layout::token_bytes;
    tiles_of_part &tiles = *(tiles_of_part *)(shared + pairs * TOKENS * layout::token_bytes +
                                              threadIdx.x / 32 * sizeof(tiles_of_part));
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    invite_next_launch();
    if (pair < parts)
        tiles.fetch(gemm, block.matmul, tile_row, pair, lane);
    const uint32_t first_token = blockIdx.y * TOKENS, live = live_rows(step, gemm.rows, first_token, TOKENS);
    wait_for_last_launch();
    if (live == 0) {
        copy_commit();
        copy_wait<0>();
        return;
    }
    const uint64_t early = early_tokens<TOKENS>(gemm, first_token, live, lane);
    const float_rows rows(gemm.inputs[block.matmul], layout::halves ? 2 : 4, first_token, live);
    float sums[MATRICES][TOKENS / 8][4] = {};
#pragma unroll 1
    for (uint32_t part = pair; part - pair < parts; part += pairs) {
        if (part < parts)
            rows.fetch<TYPE, TOKENS>(part, thread, inputs);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        if (part < parts) {
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                tile_row_pair tile_rows = {tiles.bytes[m * 2], tiles.bytes[m * 2 + 1], nullptr, nullptr};
                if (part + pairs < parts) {
                    const cuda_matrix &matrix = gemm.matmuls[block.matmul + m].matrix;
                    tile_rows.next_low = gemm_tile(matrix, tile_row, part + pairs);
                    tile_rows.next_high = gemm_tile(matrix, tile_row + 1, part + pairs);
                }
                multiply_part<TYPE, TOKENS>(tile_rows, inputs, lane, sums[m]);
            }
        }
        __syncthreads();
    }
    gemm_finish<MATRICES, TOKENS> finish(gemm, block, first_token, live);
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
        leave_sums<MATRICES, TOKENS>(sums[m], pair, m, half * 16, lane, (float *)shared);
    __syncthreads();
    finish.run(first_token, pairs, (const float *)shared, early);
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_f16(const cuda_machine *machine, const cuda_gemm &gemm)
{
    gemm_float<TYPE_F16, TOKENS, MATRICES>(machine, gemm, find_gemm_block(gemm, blockIdx.x));
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_f32(const cuda_machine *machine, const cuda_gemm &gemm)
{
    const gemm_block block = find_gemm_block(gemm, blockIdx.x);
    if (gemm.matmuls[block.matmul].matrix.type == TYPE_BF16)
        gemm_float<TYPE_BF16, TOKENS, MATRICES>(machine, gemm, block);
    else
        gemm_float<TYPE_F32, TOKENS, MATRICES>(machine, gemm, block);
}

DEFINE_GEMM(salvo_gemm_f16_few, gemm_f16, GEMM_FEW_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f16_few_glu, gemm_f16, GEMM_FEW_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f16_some, gemm_f16, GEMM_SOME_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f16_some_glu, gemm_f16, GEMM_SOME_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f16_many, gemm_f16, GEMM_MANY_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f16_many_glu, gemm_f16, GEMM_MANY_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_few, gemm_f32, GEMM_FEW_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_few_glu, gemm_f32, GEMM_FEW_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_some, gemm_f32, GEMM_SOME_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_some_glu, gemm_f32, GEMM_SOME_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_many, gemm_f32, GEMM_MANY_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_f32_many_glu, gemm_f32, GEMM_MANY_TOKENS, 2, GEMM_WARPS)
