/*
 * Matmuls of many tokens by weights in F16, BF16 and F32.
 *
 *   salvo_gemm_f16_few(machine, gemm), _few_glu      capacities up to GEMM_FEW_TOKENS: 256 threads
 *   salvo_gemm_f16_many(machine, gemm), _many_glu    128 threads
 *   salvo_gemm_f32_few, _few_glu, _many, _many_glu   the same for BF16 and F32, with inputs in F32
 *
 * Grid and shared memory: cuda_gemm_launch. A product of 16 rows by 8 tokens does not care in which order it
 * sees K, as long as weights and inputs agree: a lane takes its 32 elements of an item from memory and uses
 * them where they are. Elements 32c .. 32c+31 of a part are what the lanes with l % 4 = c bring.
 *
 * Tensor cores add up with fewer bits than a float has, so that sums of one part are kept apart and then
 * added as floats. F32 weights and inputs are cut into two pieces of 11 bits or more, of whose products the
 * smallest is left out; BF16 weights are exact, and their inputs three pieces of 8 bits.
 */
#include "backend/cuda/gemm.cuh"

/* Planes of 16 bytes a lane of both tiles that are in registers together. */
enum { UNIT_PLANES = 4 };

struct weight_unit {
    uint4 planes[2][UNIT_PLANES];
};

template <int TYPE> struct float_layout {
    static constexpr bool halves = TYPE == TYPE_F16;       /* the inputs */
    static constexpr int units = TYPE == TYPE_F32 ? 2 : 1; /* of an item */
    static constexpr int chunks = halves ? 16 : 32;        /* of 16 bytes, of a token's part */
    static constexpr int group_bytes = halves ? 80 : 144;  /* of 32 elements in shared memory */
    static constexpr int token_bytes = 4 * group_bytes;
};

KERNEL_INLINE void load_unit(const uint8_t *const (&items)[2], uint32_t unit, uint32_t lane, weight_unit &out)
{
#pragma unroll
    for (int i = 0; i < 2 * UNIT_PLANES; i++)
        out.planes[i / UNIT_PLANES][i % UNIT_PLANES] =
            __ldg((const uint4 *)(items[i / UNIT_PLANES] + (unit * UNIT_PLANES + i % UNIT_PLANES) * 512 +
                                  lane * 16));
}

/* ---- Pieces of floats ---- */

struct two_pieces {
    uint32_t high, low;
};

KERNEL_INLINE two_pieces cut_in_two(uint32_t bits)
{
    const uint32_t mask = 0xffffe000, high = bits & mask;
    return {high, __float_as_uint(__uint_as_float(bits) - __uint_as_float(high)) & mask};
}

/* The upper halves of two words, the first one's below. */
KERNEL_INLINE uint32_t upper_halves(float first, float second)
{
    return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
}

/* What is left of a float without its upper half. */
KERNEL_INLINE float without_upper_half(float x)
{
    return x - __uint_as_float(__float_as_uint(x) & 0xffff0000);
}

/* ---- Products ---- */

KERNEL_INLINE void multiply_f32_step(
    const two_pieces (&a)[4], uint32_t b0_bits, uint32_t b1_bits, float (&sum)[4])
{
    const two_pieces b0 = cut_in_two(b0_bits), b1 = cut_in_two(b1_bits);
    multiply_short_floats(a[0].low, a[1].low, a[2].low, a[3].low, b0.high, b1.high, sum);
    multiply_short_floats(a[0].high, a[1].high, a[2].high, a[3].high, b0.low, b1.low, sum);
    multiply_short_floats(a[0].high, a[1].high, a[2].high, a[3].high, b0.high, b1.high, sum);
}

KERNEL_INLINE void multiply_f32_plane(const uint4 &low, const uint4 &high, const uint8_t *x, float (&sum)[4])
{
    const uint4 b = *(const uint4 *)x;
    const two_pieces first[4] = {
        cut_in_two(low.x), cut_in_two(high.x), cut_in_two(low.y), cut_in_two(high.y)};
    const two_pieces second[4] = {
        cut_in_two(low.z), cut_in_two(high.z), cut_in_two(low.w), cut_in_two(high.w)};
    multiply_f32_step(first, b.x, b.y, sum);
    multiply_f32_step(second, b.z, b.w, sum);
}

KERNEL_INLINE void multiply_f16_plane(const uint4 &low, const uint4 &high, const uint8_t *x, float (&sum)[4])
{
    const uint4 b = *(const uint4 *)x;
    multiply_halves(low.x, high.x, low.y, high.y, b.x, b.y, sum);
    multiply_halves(low.z, high.z, low.w, high.w, b.z, b.w, sum);
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

template <int TYPE, int TOKENS>
KERNEL_INLINE void multiply_unit(const weight_unit &w, uint32_t unit, const uint8_t *inputs, uint32_t live,
    uint32_t lane, float (&sums)[TOKENS / 8][4])
{
    using layout = float_layout<TYPE>;
    const uint8_t *x = inputs + lane / 4 * layout::token_bytes + lane % 4 * layout::group_bytes;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++, x += 8 * layout::token_bytes) {
        if ((uint32_t)j * 8 >= live)
            break;
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < UNIT_PLANES; i++) {
            if constexpr (TYPE == TYPE_F32)
                multiply_f32_plane(w.planes[0][i], w.planes[1][i], x + (unit * UNIT_PLANES + i) * 16, sum);
            else if constexpr (TYPE == TYPE_F16)
                multiply_f16_plane(w.planes[0][i], w.planes[1][i], x + i * 16, sum);
            else
                multiply_bf16_plane(w.planes[0][i], w.planes[1][i], x + i * 32, sum);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[j][i] += sum[i];
    }
}

/* Brings the inputs of one round, SPLIT parts, to shared memory. Tokens that do not live are zeros. */
template <int TYPE, int SPLIT, int TOKENS>
KERNEL_INLINE void fetch_inputs(const cuda_panel &panel, uint32_t first_token, uint32_t live,
    uint32_t first_part, uint32_t parts, uint8_t *to)
{
    using layout = float_layout<TYPE>;
    const uint32_t stride = panel.stride, element = layout::halves ? 2 : 4;
    const uint64_t row_bytes = (uint64_t)stride * element, values = panel.values;
    for (uint32_t i = threadIdx.x; i < SPLIT * TOKENS * layout::chunks; i += SPLIT * 64) {
        const uint32_t chunk = i % layout::chunks, row = i / layout::chunks, token = row % TOKENS;
        const uint32_t part = first_part + row / TOKENS, group = chunk / (layout::chunks / 4);
        const uint32_t byte = (part * layout::chunks + chunk) * 16;
        const bool on = token < live && part < parts && byte < row_bytes;
        const uint64_t at = on ? (first_token + token) * row_bytes + byte : 0;
        copy_async(
            to + row * layout::token_bytes + group * layout::group_bytes + chunk % (layout::chunks / 4) * 16,
            (const uint8_t *)values + at, on);
    }
}

template <int TYPE, int SPLIT, int TOKENS, int MATRICES>
__device__ __noinline__ void gemm_float(const cuda_machine *machine, const cuda_gemm &gemm, gemm_block block)
{
    DYNAMIC_SHARED(shared);
    using layout = float_layout<TYPE>;
    constexpr int units = MATRICES * layout::units;
    constexpr uint32_t input_bytes = TOKENS * layout::token_bytes;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = warp % 2, pair = warp / 2;
    const cuda_matrix &matrix = gemm.matmuls[block.matmul].matrix;
    const uint32_t parts = matrix.parts, tile = block.first_row / 8 + half * 2;
    /* Unit number `unit` of the matrices at a part. */
    const auto load = [&](uint32_t part, int unit, weight_unit &out) {
        const cuda_matrix &from = gemm.matmuls[block.matmul + unit / layout::units].matrix;
        const uint8_t *const items[2] = {gemm_item(from, tile, part), gemm_item(from, tile + 1, part)};
        load_unit(items, unit % layout::units, lane, out);
    };

    const uint32_t first_token = blockIdx.y * TOKENS;
    weight_unit now = {}, next = {};
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    invite_next_launch();
    wait_for_last_launch();
    const uint32_t live = live_rows(step, gemm.rows, first_token, TOKENS);
    if (live == 0)
        return;
    fetch_inputs<TYPE, SPLIT, TOKENS>(gemm.panel, first_token, live, 0, parts, shared);
    copy_commit();
    if (SPLIT < parts)
        fetch_inputs<TYPE, SPLIT, TOKENS>(
            gemm.panel, first_token, live, SPLIT, parts, shared + SPLIT * input_bytes);
    copy_commit();
    if (pair < parts)
        load(pair, 0, now);

    float sums[MATRICES][TOKENS / 8][4] = {};
    uint32_t slot = 0;
    for (uint32_t first = 0; first < parts; first += SPLIT, slot ^= 1) {
        uint8_t *inputs = shared + slot * SPLIT * input_bytes;
        const uint32_t part = first + pair;
        copy_wait<1>();
        __syncthreads();
        if (part < parts) {
#pragma unroll
            for (int unit = 0; unit < units; unit++) {
                if (unit + 1 < units)
                    load(part, unit + 1, next);
                else if (part + SPLIT < parts)
                    load(part + SPLIT, 0, next);
                multiply_unit<TYPE, TOKENS>(now, unit % layout::units, inputs + pair * input_bytes, live,
                    lane, sums[unit / layout::units]);
                now = next;
            }
        }
        __syncthreads();
        if (first + 2 * SPLIT < parts)
            fetch_inputs<TYPE, SPLIT, TOKENS>(
                gemm.panel, first_token, live, first + 2 * SPLIT, parts, inputs);
        copy_commit();
    }
    gemm_finish<MATRICES, TOKENS> finish(gemm, block, first_token, live);
#pragma unroll
    for (int m = 0; m < MATRICES; m++)
        leave_sums<MATRICES, TOKENS>(sums[m], pair, m, half * 16, lane, (float *)shared);
    __syncthreads();
    finish.run(first_token, SPLIT, (const float *)shared);
}

template <int SPLIT, int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_f16(const cuda_machine *machine, const cuda_gemm &gemm)
{
    static_assert(
        MATRICES * SPLIT * TOKENS * SUM_STRIDE * sizeof(float) <= 2 * SPLIT * TOKENS * GEMM_F16_TOKEN_BYTES,
        "sums lie where the inputs were");
    static_assert(float_layout<TYPE_F16>::token_bytes == GEMM_F16_TOKEN_BYTES, "as the host counts it");
    gemm_float<TYPE_F16, SPLIT, TOKENS, MATRICES>(machine, gemm, find_gemm_block(gemm, blockIdx.x));
}

template <int SPLIT, int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_f32(const cuda_machine *machine, const cuda_gemm &gemm)
{
    static_assert(float_layout<TYPE_F32>::token_bytes == GEMM_F32_TOKEN_BYTES, "as the host counts it");
    const gemm_block block = find_gemm_block(gemm, blockIdx.x);
    if (gemm.matmuls[block.matmul].matrix.type == TYPE_BF16)
        gemm_float<TYPE_BF16, SPLIT, TOKENS, MATRICES>(machine, gemm, block);
    else
        gemm_float<TYPE_F32, SPLIT, TOKENS, MATRICES>(machine, gemm, block);
}

#define DEFINE_GEMM(name, function, split, tokens, matrices, blocks)              \
    extern "C" __global__ void __launch_bounds__((split)*64, blocks)              \
        name(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm) \
    {                                                                             \
        function<split, tokens, matrices>(machine, gemm);                         \
    }

DEFINE_GEMM(salvo_gemm_f16_few, gemm_f16, GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 1, 2)
DEFINE_GEMM(salvo_gemm_f16_few_glu, gemm_f16, GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 2, 1)
DEFINE_GEMM(salvo_gemm_f16_many, gemm_f16, GEMM_MANY_SPLIT, GEMM_MANY_FLOAT_TOKENS, 1, 3)
DEFINE_GEMM(salvo_gemm_f16_many_glu, gemm_f16, GEMM_MANY_SPLIT, GEMM_MANY_FLOAT_TOKENS, 2, 2)
DEFINE_GEMM(salvo_gemm_f32_few, gemm_f32, GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 1, 1)
DEFINE_GEMM(salvo_gemm_f32_few_glu, gemm_f32, GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 2, 1)
DEFINE_GEMM(salvo_gemm_f32_many, gemm_f32, GEMM_MANY_SPLIT, GEMM_MANY_FLOAT_TOKENS, 1, 2)
DEFINE_GEMM(salvo_gemm_f32_many_glu, gemm_f32, GEMM_MANY_SPLIT, GEMM_MANY_FLOAT_TOKENS, 2, 2)
