/*
 * Matmuls of one token. A round is 16 items, one for each warp: a warp keeps its part of the input in
 * registers and multiplies it with one tile after the other. Partial sums meet in shared memory and are added
 * in the order of their columns.
 */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/stream.cuh"

/* ---- Rounding the input ---- */

KERNEL_INLINE uint32_t panel_columns(uint32_t columns)
{
    return (columns + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS * CUDA_ITEM_COLUMNS;
}

/* Four neighbouring columns to bytes; the eight threads of a group of 32 work together. */
struct rounded_four {
    uint32_t bytes;
    float scale;
    int sum; /* of the 16 columns of four threads */
};

KERNEL_INLINE rounded_four round_four(float4 x)
{
    uint32_t largest = __float_as_uint(x.x) & 0x7fffffff; /* as integers: NaN is larger than all */
    largest = max(largest, __float_as_uint(x.y) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.z) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.w) & 0x7fffffff);
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2)
        largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
    rounded_four out;
    const float scale = __uint_as_float(largest) * (1.0f / 127);
    const bool finite = largest < 0x7f800000, usable = finite && scale >= 1.17549435e-38f;
    const float inverse = usable ? __fdividef(127.0f, __uint_as_float(largest)) : 0;
    out.scale = usable ? scale : finite ? 0 : __int_as_float(0x7fffffff);
    const int a = usable ? __float2int_rn(x.x * inverse) : 0, b = usable ? __float2int_rn(x.y * inverse) : 0,
              c = usable ? __float2int_rn(x.z * inverse) : 0, d = usable ? __float2int_rn(x.w * inverse) : 0;
    out.bytes = (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (uint32_t)d << 24;
    out.sum = a + b + c + d;
    out.sum += __shfl_xor_sync(~0u, out.sum, 1);
    out.sum += __shfl_xor_sync(~0u, out.sum, 2);
    return out;
}

/* Four columns from `at` on of a vector in shared memory to its panel; columns beyond the last are zeros. */
KERNEL_INLINE void round_columns(const cuda_round &round, uint32_t at, const float *vectors, uint8_t *panels)
{
    const uint32_t columns = panel_columns(round.columns);
    const float *x = vectors + round.place;
    uint8_t *panel = panels + round.panel;
    float4 four;
    four.x = at < round.columns ? x[at] : 0;
    four.y = at + 1 < round.columns ? x[at + 1] : 0;
    four.z = at + 2 < round.columns ? x[at + 2] : 0;
    four.w = at + 3 < round.columns ? x[at + 3] : 0;
    if (round.rounding == ROUNDING_Q8) {
        float *scales = (float *)(panel + columns);
        int *sums = (int *)(scales + columns / 32);
        const rounded_four rounded = round_four(four);
        *(uint32_t *)(panel + at) = rounded.bytes;
        if (at % 32 == 0)
            scales[at / 32] = rounded.scale;
        if (at % 16 == 0)
            sums[at / 16] = rounded.sum;
        return;
    }
    if (round.rounding == ROUNDING_F16) {
        float *values = &four.x;
        for (int i = 0; i < 4; i++)
            values[i] = __half2float(__float2half_rn(
                fminf(fmaxf(values[i], -65504), 65504) + (values[i] != values[i] ? values[i] : 0)));
    }
    *(float4 *)((float *)panel + at / 32 * 36 + at % 32) = four;
}

/* All vectors of a phase, whose columns lie one after the other for this: a warp has 128 of one vector. */
template <int THREADS>
KERNEL_INLINE void round_vectors(
    const cuda_round *rounds, uint32_t count, const float *vectors, uint8_t *panels)
{
    uint32_t begin = 0, index = 0, end = count ? panel_columns(rounds[0].columns) : 0;
    for (uint32_t at = threadIdx.x * 4;; at += THREADS * 4) {
        while (index < count && at >= end) {
            begin = end;
            if (++index < count)
                end += panel_columns(rounds[index].columns);
        }
        if (index >= count)
            break;
        round_columns(rounds[index], at - begin, vectors, panels);
    }
}

/*
 * The common case: a vector of up to PIECES * 4 * CUDA_WORKERS columns, four of them in the registers of each
 * thread, through an rms norm if there is a weight, and to bytes. `from` is memory or, when it is NULL, `x`
 * shared memory.
 */
template <int PIECES>
KERNEL_INLINE void round_from_registers(const float *from, const float *x, uint32_t columns,
    const float *weight, float epsilon, float *sums, uint8_t *panel)
{
    const uint32_t padded = panel_columns(columns);
    float4 values[PIECES], weights[PIECES];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = (i * CUDA_WORKERS + threadIdx.x) * 4;
        values[i] = weights[i] = make_float4(0, 0, 0, 0);
        if (at < columns) {
            if (weight)
                weights[i] = __ldg((const float4 *)(weight + at));
            values[i] = from ? __ldcg((const float4 *)(from + at)) : *(const float4 *)(x + at);
        }
        squares = fmaf(values[i].x, values[i].x, fmaf(values[i].y, values[i].y, squares));
        squares = fmaf(values[i].z, values[i].z, fmaf(values[i].w, values[i].w, squares));
    }
    if (weight) {
        uint32_t turn = 0;
        const float sum = block_sum<CUDA_WORKERS>(squares, sums, turn);
        const float scale = rsqrtf(__fdividef(sum, (float)columns) + epsilon);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            values[i].x *= scale * weights[i].x, values[i].y *= scale * weights[i].y;
            values[i].z *= scale * weights[i].z, values[i].w *= scale * weights[i].w;
        }
    }
    float *scales = (float *)(panel + padded);
    int *halves = (int *)(scales + padded / 32);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = (i * CUDA_WORKERS + threadIdx.x) * 4;
        if (at >= padded)
            continue; /* whole warps */
        const rounded_four rounded = round_four(values[i]);
        *(uint32_t *)(panel + at) = rounded.bytes;
        if (at % 32 == 0)
            scales[at / 32] = rounded.scale;
        if (at % 16 == 0)
            halves[at / 16] = rounded.sum;
    }
}

/* ---- A lane's share of the input ---- */

struct lane_bytes {
    uint32_t words[8];
    float scale;
    int sums[2];
};

struct lane_floats {
    float values[32];
};

template <int TYPE> struct lane_input {
    using type = lane_bytes;
};
template <> struct lane_input<TYPE_F32> {
    using type = lane_floats;
};
template <> struct lane_input<TYPE_F16> {
    using type = lane_floats;
};
template <> struct lane_input<TYPE_BF16> {
    using type = lane_floats;
};

KERNEL_INLINE void load_input(const uint8_t *panel, uint32_t columns, uint32_t block, lane_bytes &out)
{
    const uint4 a = *(const uint4 *)(panel + block * 32), b = *(const uint4 *)(panel + block * 32 + 16);
    const float *scales = (const float *)(panel + columns);
    const int2 sums = *((const int2 *)(scales + columns / 32) + block);
    out.words[0] = a.x, out.words[1] = a.y, out.words[2] = a.z, out.words[3] = a.w;
    out.words[4] = b.x, out.words[5] = b.y, out.words[6] = b.z, out.words[7] = b.w;
    out.scale = scales[block];
    out.sums[0] = sums.x, out.sums[1] = sums.y;
}

KERNEL_INLINE void load_input(const uint8_t *panel, uint32_t, uint32_t block, lane_floats &out)
{
    const float4 *from = (const float4 *)((const float *)panel + block * 36);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 four = from[i];
        out.values[4 * i] = four.x, out.values[4 * i + 1] = four.y;
        out.values[4 * i + 2] = four.z, out.values[4 * i + 3] = four.w;
    }
}

/* ---- Products ---- */

template <int TYPE> KERNEL_INLINE float multiply_lane(const uint8_t *item, int lane, const lane_bytes &x)
{
    using format = item_format<TYPE>;
    const lane_codes<TYPE> codes = load_codes<TYPE>(item, lane);
    const lane_scales scales = unpack_scales<TYPE>(codes);
    uint32_t words[8];
    unpack_codes<TYPE>(codes, words);
    int first = 0, last = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first = dot_bytes(words[i], x.words[i], first);
        last = dot_bytes(words[i + 4], x.words[i + 4], last);
    }
    float sum;
    if (format::group == 16) {
        sum = (float)first * (scales.scale[0] * x.scale);
        sum = fmaf((float)last, scales.scale[1] * x.scale, sum);
        if (format::offsets) {
            sum = fmaf(scales.offset[0], x.scale * (float)x.sums[0], sum);
            sum = fmaf(scales.offset[1], x.scale * (float)x.sums[1], sum);
        }
    } else {
        sum = (float)(first + last) * (scales.scale[0] * x.scale);
        if (format::offsets)
            sum = fmaf(scales.offset[0], x.scale * (float)(x.sums[0] + x.sums[1]), sum);
    }
    return sum;
}

template <int TYPE> KERNEL_INLINE float multiply_lane(const uint8_t *item, int lane, const lane_floats &x)
{
    const lane_codes<TYPE> codes = load_codes<TYPE>(item, lane);
    float sum = 0;
#pragma unroll
    for (int piece = 0; piece < 4; piece++) {
        float w[8];
        unpack_floats<TYPE>(codes, piece, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(w[i], x.values[piece * 8 + i], sum);
    }
    return sum;
}

/*
 * One warp's part in a matmul. Everything that a phase works with is found through shared memory, here as in
 * the other functions that are not inlined: what were in registers across such a call would be written to
 * local memory, for which there is next to no cache.
 */
template <int TYPE>
__device__ __noinline__ void multiply(uint32_t matrix_at, uint32_t panel_at, uint32_t partials_at)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_matrix &matrix = *(const cuda_matrix *)(shared + matrix_at);
    const uint8_t *panel = shared + panel_at, *ring = shared + head.machine.ring_at;
    float *partials = (float *)(shared + partials_at);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, ring_bytes = head.machine.ring_bytes;
    const uint32_t each = matrix.parts_per_round, tiles_at_once = matrix.tiles_per_round;
    const uint32_t first_tile = warp * matrix.parts_reciprocal >> 16, number = warp - first_tile * each;
    const uint32_t tile_bytes = each * item_format<TYPE>::bytes, columns = matrix.parts * CUDA_ITEM_COLUMNS;
    const uint32_t all_tiles = matrix.tiles_per_block, chunk_tiles = matrix.tiles_per_chunk;
    ring_walk walk;
    walk.index = head.chunks[warp], walk.position = head.positions[warp];
    for (uint32_t group = 0; group < matrix.part_groups; group++) {
        const uint32_t part = group * each + number;
        typename lane_input<TYPE>::type x = {};
        if (part < matrix.parts)
            load_input(panel, columns, part * 4 + lane % 4, x);
        for (uint32_t first = 0; first < all_tiles; first += chunk_tiles) {
            const uint32_t tiles = min(chunk_tiles, all_tiles - first);
            const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
            const uint8_t *chunk = ring + walk.place(tiles * tile_bytes, ring_bytes);
            if (!chunk_barrier_wait(head.machine, &head.full[slot], parity)) {
                head.failed = 1;
                return;
            }
            if (first_tile < tiles_at_once) {
#pragma unroll 2
                for (uint32_t tile = first_tile; tile < tiles; tile += tiles_at_once) {
                    float sum = multiply_lane<TYPE>(
                        chunk + tile * tile_bytes + number * item_format<TYPE>::bytes, (int)lane, x);
                    sum += __shfl_xor_sync(~0u, sum, 1);
                    sum += __shfl_xor_sync(~0u, sum, 2);
                    float *place = partials + ((first + tile) * each + number) * CUDA_ITEM_ROWS + lane / 4;
                    if (lane % 4 == 0)
                        *place = group ? *place + sum : sum;
                }
            }
            __syncwarp();
            if (lane == 0)
                chunk_barrier_arrive(&head.empty[slot]);
        }
    }
    if (lane == 0)
        head.chunks[warp] = walk.index, head.positions[warp] = walk.position;
    __syncwarp();
}

KERNEL_INLINE void multiply_any(uint32_t type, uint32_t matrix_at, uint32_t panel_at, uint32_t partials_at)
{
    switch (type) {
#define MULTIPLY(type, ...)                                      \
    case TYPE_##type:                                            \
        multiply<TYPE_##type>(matrix_at, panel_at, partials_at); \
        break;
        CUDA_ITEM_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
}

/* The sum of row `row` of a block's rows. */
KERNEL_INLINE float finish_sum(const cuda_matmul &matmul, const float *partials, uint32_t row)
{
    const uint32_t each = matmul.matrix.parts_per_round;
    const float *place =
        partials + matmul.partial + row / CUDA_ITEM_ROWS * each * CUDA_ITEM_ROWS + row % CUDA_ITEM_ROWS;
    float sum = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < each; i++)
        sum += place[i * CUDA_ITEM_ROWS];
    return sum;
}

#endif
