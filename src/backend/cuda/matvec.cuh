/*
 * Matmuls of one token. A round is 16 items, one for each warp: a warp keeps its part of the input in
 * registers and multiplies it with one tile after the other. Partial sums meet in shared memory and are added
 * in the order of their columns.
 *
 * Latency is everything here, and most of it is that of instructions that wait for each other. So a warp
 * takes only those columns that it multiplies, and rounds them for itself: the warps of a block meet once in
 * a matmul, before the results are added.
 */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/words.cuh"

/* ---- Rounding the input ---- */

/* Four neighbouring columns to bytes; the eight threads of a group of 32 work together. */
struct rounded_four {
    uint32_t bytes;
    float scale;
    int sum; /* of the 16 columns of four threads */
};

KERNEL_INLINE float reciprocal_of(float x)
{
#ifdef CUDA_EMULATOR
    return 1 / x;
#else
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
#endif
}

/* To the nearest integer, in the lowest bits. */
KERNEL_INLINE uint32_t nearest(float x)
{
    return __float_as_uint(x + 12582912.0f);
}

/* Also adds up `sum` over the warp: shuffles that do not wait for each other take turns. */
KERNEL_INLINE rounded_four round_four_and_add(float4 x, float &sum)
{
    uint32_t largest = __float_as_uint(x.x) & 0x7fffffff; /* as integers: NaN is larger than all */
    largest = max(largest, __float_as_uint(x.y) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.z) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.w) & 0x7fffffff);
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, largest, distance);
        const float more = __shfl_xor_sync(~0u, sum, distance);
        largest = max(largest, other);
        sum += more;
    }
    const float more = __shfl_xor_sync(~0u, sum, 8);
    rounded_four out;
    const float scale = __uint_as_float(largest) * (1.0f / 127);
    const bool finite = largest < 0x7f800000, usable = finite && scale >= 1.17549435e-38f;
    const float inverse = usable ? 127.0f * reciprocal_of(__uint_as_float(largest)) : 0;
    out.scale = usable ? scale : finite ? 0 : __int_as_float(0x7fffffff);
    sum += more;
    const float last = __shfl_xor_sync(~0u, sum, 16);
    const uint32_t low = permute_bytes(nearest(x.x * inverse), nearest(x.y * inverse), 0x0040),
                   high = permute_bytes(nearest(x.z * inverse), nearest(x.w * inverse), 0x0040);
    out.bytes = permute_bytes(low, high, 0x5410);
    out.sum = dot_bytes(out.bytes, 0x01010101, 0);
    out.sum += __shfl_xor_sync(~0u, out.sum, 1);
    out.sum += __shfl_xor_sync(~0u, out.sum, 2);
    sum += last;
    return out;
}

KERNEL_INLINE rounded_four round_four(float4 x)
{
    float nothing = 0;
    return round_four_and_add(x, nothing);
}

/* Panels: the input in parts of CUDA_ITEM_COLUMNS. A part is bytes, scales of 32 and sums of 16 of them; or
 * four times 32 floats, apart so that lanes read them without conflicts. */
KERNEL_INLINE uint32_t part_bytes(uint32_t rounding)
{
    return rounding == ROUNDING_Q8 ? (uint32_t)CUDA_PART_BYTES : (uint32_t)CUDA_PART_FLOAT_BYTES;
}

KERNEL_INLINE float *float_place(uint8_t *part, uint32_t at)
{
    return (float *)part + at / 32 * 36 + at % 32;
}

/* Four columns from `at` on of a part. */
KERNEL_INLINE void put_rounded_four(uint8_t *part, uint32_t at, const rounded_four &rounded)
{
    float *scales = (float *)(part + CUDA_ITEM_COLUMNS);
    int *halves = (int *)(scales + CUDA_ITEM_COLUMNS / 32);
    *(uint32_t *)(part + at) = rounded.bytes;
    if (at % 32 == 0)
        scales[at / 32] = rounded.scale;
    if (at % 16 == 0)
        halves[at / 16] = rounded.sum;
}

KERNEL_INLINE void put_bytes(uint8_t *part, uint32_t at, float4 four)
{
    put_rounded_four(part, at, round_four(four));
}

KERNEL_INLINE float to_half_and_back(float value)
{
    return __half2float(__float2half_rn(fminf(fmaxf(value, -65504), 65504) + (value != value ? value : 0)));
}

KERNEL_INLINE void put_floats(uint8_t *part, uint32_t rounding, uint32_t at, float4 four)
{
    if (rounding == ROUNDING_F16)
        four = make_float4(to_half_and_back(four.x), to_half_and_back(four.y), to_half_and_back(four.z),
            to_half_and_back(four.w));
    *(float4 *)float_place(part, at) = four;
}

KERNEL_INLINE void put_rounded(uint8_t *part, uint32_t rounding, uint32_t at, float4 four)
{
    if (rounding == ROUNDING_Q8)
        put_bytes(part, at, four);
    else
        put_floats(part, rounding, at, four);
}

KERNEL_INLINE uint32_t panel_columns(uint32_t columns)
{
    return (columns + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS * CUDA_ITEM_COLUMNS;
}

/* Four columns from `at` on of a vector in shared memory to its panel; columns beyond the last are zeros. */
KERNEL_INLINE void round_columns(const cuda_round &round, uint32_t at, const float *vectors, uint8_t *panels)
{
    const float *x = vectors + round.place;
    uint8_t *part = panels + round.panel + at / CUDA_ITEM_COLUMNS * part_bytes(round.rounding);
    float4 four;
    four.x = at < round.columns ? x[at] : 0;
    four.y = at + 1 < round.columns ? x[at + 1] : 0;
    four.z = at + 2 < round.columns ? x[at + 2] : 0;
    four.w = at + 3 < round.columns ? x[at + 3] : 0;
    put_rounded(part, round.rounding, at % CUDA_ITEM_COLUMNS, four);
}

/* All vectors of a phase, whose columns lie one after the other for this: a warp has 128 of one vector. */
template <int THREADS>
KERNEL_INLINE void round_vectors(
    const cuda_round *rounds, uint32_t count, const float *vectors, uint8_t *panels)
{
    uint32_t begin = 0, index = 0, end = count ? panel_columns(rounds[0].columns) : 0;
    for (uint32_t at = this_thread() * 4;; at += THREADS * 4) {
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

/* ---- What a warp takes of the input ---- */

/* Parts `number`, `number` + each, ... of a matrix, and tiles `first_tile`, first_tile + tiles_per_round, ...
 * of them. */
struct warp_share {
    uint32_t number, first_tile;
    bool works;
};

KERNEL_INLINE warp_share share_of_warp(const cuda_share &share, uint32_t warp)
{
    warp_share own;
    own.first_tile = warp * share.parts_reciprocal >> 16;
    own.number = warp - own.first_tile * share.parts_per_round;
    own.works = own.first_tile < min(share.tiles_per_round, share.tiles);
    return own;
}

/* The factor of an rms norm, from the squares that the warps have summed; per_column: 1 / columns. */
KERNEL_INLINE float norm_factor(const float *sums, float per_column, float epsilon)
{
    float4 sum = *(const float4 *)sums;
#pragma unroll
    for (int i = 1; i < CUDA_WARPS / 4; i++) {
        const float4 four = *(const float4 *)(sums + 4 * i);
        sum.x += four.x, sum.y += four.y, sum.z += four.z, sum.w += four.w;
    }
    return rsqrtf(fmaf((sum.x + sum.y) + (sum.z + sum.w), per_column, epsilon));
}

/*
 * The common case: a vector as it is, or through an rms norm. Bytes are made of what is not yet multiplied by
 * the norm's factor, so that nobody waits for it: finish_row has it from `sums`, [CUDA_WARPS].
 */
template <int PIECES>
KERNEL_INLINE void round_parts(
    shared_head &head, const cuda_vector &vector, const cuda_share &share, uint8_t *own_panel, float *sums)
{
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32;
    const warp_share own = share_of_warp(share, warp);
    const uint32_t columns = vector.columns, groups = own.works ? share.part_groups : 0;
    const uint32_t step = share.parts_per_round * CUDA_ITEM_COLUMNS, each = part_bytes(vector.rounding);
    const float *weight = vector.norm ? (const float *)vector.weight : nullptr;
    const bool to_bytes = vector.rounding == ROUNDING_Q8;
    const uint64_t from = vector.from;
    uint32_t at = own.number * CUDA_ITEM_COLUMNS + lane * 4;
    uint8_t *part = own_panel;
    float squares = 0;
    for (uint32_t group = 0; group < groups; group += PIECES) {
        float4 values[PIECES], weights[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            weights[i] = weight && at + i * step < columns ? __ldg((const float4 *)(weight + at + i * step))
                                                           : make_float4(1, 1, 1, 1);
        take_fours<PIECES>(head, from, at, step, columns, values);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            float4 &x = values[i];
            if (weight) {
                squares = fmaf(x.x, x.x, fmaf(x.y, x.y, squares));
                squares = fmaf(x.z, x.z, fmaf(x.w, x.w, squares));
                x.x *= weights[i].x, x.y *= weights[i].y, x.z *= weights[i].z, x.w *= weights[i].w;
            }
            if (group + i >= groups)
                break; /* whole warps */
            if (to_bytes)
                put_bytes(part, lane * 4, x);
            else
                put_floats(part, weight ? (uint32_t)ROUNDING_F32 : vector.rounding, lane * 4, x);
            part += each;
        }
        at += PIECES * step;
    }
    if (weight) {
        squares = warp_sum(squares);
        if (lane == 0)
            sums[warp] = own.works && own.first_tile == 0 ? squares : 0; /* each part once */
        if (!to_bytes) { /* other roundings need the factor first */
            sync_threads<CUDA_WORKERS>();
            const float factor = norm_factor(sums, __fdividef(1.0f, (float)columns), vector.epsilon);
            for (uint32_t group = 0; group < groups; group++) {
                part = own_panel + group * each;
                float4 x = *(float4 *)float_place(part, lane * 4);
                x.x *= factor, x.y *= factor, x.z *= factor, x.w *= factor;
                put_floats(part, vector.rounding, lane * 4, x);
            }
        }
    }
    __syncwarp();
}

/* Mean and scale of a layer norm, from what the warps have found in their columns: sums, sums of squares of
 * the distances to their own means, how many columns they have; [3][CUDA_WARPS]. */
KERNEL_INLINE float2 merge_moments(const float *moments, uint32_t columns, float epsilon)
{
    const float *squares = moments + CUDA_WARPS, *counts = squares + CUDA_WARPS;
    float sum = 0, all = 0;
#pragma unroll
    for (int i = 0; i < CUDA_WARPS; i++)
        sum += moments[i];
    const float mean = __fdividef(sum, (float)columns);
#pragma unroll
    for (int i = 0; i < CUDA_WARPS; i++) {
        const float distance = counts[i] > 0 ? __fdividef(moments[i], counts[i]) - mean : 0;
        all += fmaf(distance * distance, counts[i], squares[i]);
    }
    return make_float2(mean, rsqrtf(__fdividef(all, (float)columns) + epsilon));
}

KERNEL_INLINE void put_moments(float *moments, uint32_t warp, uint32_t lane, const warp_share &own, float sum,
    float squares, float count)
{
    const bool counts = own.first_tile == 0; /* each part once */
    if (lane == 0) {
        moments[warp] = counts ? sum : 0;
        moments[CUDA_WARPS + warp] = counts ? squares : 0;
        moments[2 * CUDA_WARPS + warp] = counts ? count : 0;
    }
}

KERNEL_INLINE uint32_t columns_of_part(uint32_t columns, uint32_t part)
{
    const uint32_t first = part * CUDA_ITEM_COLUMNS;
    return first < columns ? min(columns - first, (uint32_t)CUDA_ITEM_COLUMNS) : 0;
}

KERNEL_INLINE float4 vector_four(uint64_t vector, uint32_t at, bool on)
{
    return on ? __ldg((const float4 *)((const float *)vector + at)) : make_float4(0, 0, 0, 0);
}

/* The input of RWKV's matmuls: a layer norm, mixed with that of the token before. */
template <int PIECES>
KERNEL_INLINE void mix_parts(
    shared_head &head, const cuda_vector &vector, const cuda_share &share, uint8_t *own_panel, float *moments)
{
    constexpr bool EARLY = PIECES == 1; /* what does not depend on the input is there before it comes */
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32;
    const warp_share own = share_of_warp(share, warp);
    const uint32_t columns = vector.columns, groups = own.works ? share.part_groups : 0;
    const uint32_t step = share.parts_per_round * CUDA_ITEM_COLUMNS;
    const uint32_t first = own.works ? own.number * CUDA_ITEM_COLUMNS + lane * 4 : columns;
    float *folded = (float *)head.machine.folded +
                    (uint64_t)head.row.slot * 2 * head.machine.folded_elements + vector.state;
    const float *before = folded + head.row.version * head.machine.folded_elements;
    float *after = folded + (1 - head.row.version) * head.machine.folded_elements;
    const bool has_before = vector.lerp && head.row.run_first != 0;
    float4 values[PIECES], weight, bias, lerp, other;
    auto load = [&](uint32_t at) {
        const bool on = at < columns;
        weight = vector_four(vector.weight, at, on);
        bias = vector_four(vector.bias, at, on);
        lerp = vector_four(vector.lerp, at, on && vector.lerp);
        other = on && has_before ? __ldcg((const float4 *)(before + at)) : make_float4(0, 0, 0, 0);
    };
    if (EARLY)
        load(first);
    take_fours<PIECES>(head, vector.from, first, step, columns, values);
    float sum = 0, squares = 0, count = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        sum += (values[i].x + values[i].y) + (values[i].z + values[i].w);
        count += first + i * step < columns ? 4 : 0;
    }
    sum = warp_sum(sum);
    count = warp_sum(count);
    const float mean = count > 0 ? __fdividef(sum, count) : 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const float4 x =
            make_float4(values[i].x - mean, values[i].y - mean, values[i].z - mean, values[i].w - mean);
        float more = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w)));
        squares += first + i * step < columns ? more : 0;
    }
    squares = warp_sum(squares);
    put_moments(moments, warp, lane, own, sum, squares, count);
    sync_threads<CUDA_WORKERS>();
    const float2 norm = merge_moments(moments, columns, vector.epsilon);
    const bool keeps = vector.keeps && own.first_tile == 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = first + i * step;
        if (i >= groups)
            break; /* whole warps */
        if (!EARLY)
            load(at);
        float4 y;
        y.x = fmaf((values[i].x - norm.x) * norm.y, weight.x, bias.x);
        y.y = fmaf((values[i].y - norm.x) * norm.y, weight.y, bias.y);
        y.z = fmaf((values[i].z - norm.x) * norm.y, weight.z, bias.z);
        y.w = fmaf((values[i].w - norm.x) * norm.y, weight.w, bias.w);
        if (keeps && at < columns)
            *(float4 *)(after + at) = y;
        y.x = fmaf(other.x - y.x, lerp.x, y.x);
        y.y = fmaf(other.y - y.y, lerp.y, y.y);
        y.z = fmaf(other.z - y.z, lerp.z, y.z);
        y.w = fmaf(other.w - y.w, lerp.w, y.w);
        put_rounded(own_panel + i * part_bytes(vector.rounding), vector.rounding, lane * 4, y);
    }
    __syncwarp();
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

/* Block `block` of 32 columns of a part. */
KERNEL_INLINE void load_input(const uint8_t *part, uint32_t block, lane_bytes &out)
{
    const uint4 a = *(const uint4 *)(part + block * 32), b = *(const uint4 *)(part + block * 32 + 16);
    const float *scales = (const float *)(part + CUDA_ITEM_COLUMNS);
    const int2 sums = *((const int2 *)(scales + CUDA_ITEM_COLUMNS / 32) + block);
    out.words[0] = a.x, out.words[1] = a.y, out.words[2] = a.z, out.words[3] = a.w;
    out.words[4] = b.x, out.words[5] = b.y, out.words[6] = b.z, out.words[7] = b.w;
    out.scale = scales[block];
    out.sums[0] = sums.x, out.sums[1] = sums.y;
}

KERNEL_INLINE void load_input(const uint8_t *part, uint32_t block, lane_floats &out)
{
    const float4 *from = (const float4 *)((const float *)part + block * 36);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 four = from[i];
        out.values[4 * i] = four.x, out.values[4 * i + 1] = four.y;
        out.values[4 * i + 2] = four.z, out.values[4 * i + 3] = four.w;
    }
}

/* ---- Products ---- */

template <int TYPE> KERNEL_INLINE float multiply_codes(const lane_codes<TYPE> &codes, const lane_bytes &x)
{
    using format = item_format<TYPE>;
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

template <int TYPE> KERNEL_INLINE float multiply_codes(const lane_codes<TYPE> &codes, const lane_floats &x)
{
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

/* Where a warp finds the part that it multiplies, and the next ones: bytes of shared memory. */
struct part_walk {
    uint32_t first, step;
};

/* A panel that all warps share. */
KERNEL_INLINE part_walk walk_panel(uint32_t panel, const cuda_share &share, uint32_t each)
{
    return {panel + share_of_warp(share, this_thread() / 32).number * each, share.parts_per_round * each};
}

/* One column block after the other of COUNT rows: what the four lanes of a row have comes together. Each lane
 * gets the sum of one item, number lane % COUNT, for row lane / 4. */
template <int COUNT> KERNEL_INLINE float sum_lanes(const float (&x)[COUNT], uint32_t lane)
{
    const bool odd = lane & 1, upper = lane & 2;
    float sum;
    if constexpr (COUNT == 1)
        sum = x[0] + __shfl_xor_sync(~0u, x[0], 1);
    else
        sum = (odd ? x[1] : x[0]) + __shfl_xor_sync(~0u, odd ? x[0] : x[1], 1);
    if constexpr (COUNT < 4)
        return sum + __shfl_xor_sync(~0u, sum, 2);
    const float second =
        (odd ? x[COUNT - 1] : x[COUNT - 2]) + __shfl_xor_sync(~0u, odd ? x[COUNT - 2] : x[COUNT - 1], 1);
    return (upper ? second : sum) + __shfl_xor_sync(~0u, upper ? sum : second, 2);
}

/* COUNT items at once, `item_step` bytes and their sums `place_step` floats apart: there is much to wait for
 * in one. */
template <int TYPE, int COUNT>
KERNEL_INLINE void multiply_items(const uint8_t *item, uint32_t item_step, uint32_t lane,
    const typename lane_input<TYPE>::type &x, float *place, uint32_t place_step, bool adds)
{
    lane_codes<TYPE> codes[COUNT];
    float sums[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        codes[i] = load_codes<TYPE>(item + i * item_step, (int)lane);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sums[i] = multiply_codes<TYPE>(codes[i], x);
    const float sum = sum_lanes<COUNT>(sums, lane);
    float *own = place + lane % COUNT * place_step + lane / 4;
    if (lane % 4 < COUNT)
        *own = adds ? *own + sum : sum;
}

/* One warp's part in a block's share: sums of its parts, [tiles][parts_per_round][8]. */
template <int TYPE>
KERNEL_INLINE void multiply(
    shared_head &head, const cuda_share &share, part_walk input, float *partials, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    constexpr int MOST = item_format<TYPE>::group ? 4 : 1; /* floats keep enough busy */
    const uint8_t *ring = shared + head.machine.ring_at;
    const uint32_t thread = this_thread(), lane = thread % 32, ring_bytes = head.machine.ring_bytes;
    const uint32_t each = share.parts_per_round, step = share.tiles_per_round;
    const warp_share own = share_of_warp(share, thread / 32);
    const uint32_t tile_bytes = each * item_format<TYPE>::bytes, place_step = step * each * CUDA_ITEM_ROWS;
    const uint32_t all_tiles = share.tiles, chunk_tiles = share.tiles_per_chunk;
    const uint32_t groups = share.part_groups;
    for (uint32_t group = 0; group < groups; group++) {
        typename lane_input<TYPE>::type x = {};
        if (group * each + own.number < share.parts && own.works)
            load_input(shared + input.first + group * input.step, lane % 4, x);
        for (uint32_t first = 0; first < all_tiles; first += chunk_tiles) {
            const uint32_t tiles = min(chunk_tiles, all_tiles - first);
            const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
            const uint8_t *item = ring + walk.place(tiles * tile_bytes, ring_bytes) +
                                  own.first_tile * tile_bytes + own.number * item_format<TYPE>::bytes;
            float *place = partials + ((first + own.first_tile) * each + own.number) * CUDA_ITEM_ROWS;
            if (!chunk_barrier_wait(head.machine, &head.full[slot], parity)) {
                head.failed = 1;
                return;
            }
            uint32_t tile = own.works ? own.first_tile : tiles;
            if constexpr (MOST == 4) {
                for (; tile + 3 * step < tiles; tile += 4 * step) {
                    multiply_items<TYPE, 4>(item, step * tile_bytes, lane, x, place, place_step, group);
                    item += 4 * step * tile_bytes;
                    place += 4 * place_step;
                }
                if (tile + step < tiles) {
                    multiply_items<TYPE, 2>(item, step * tile_bytes, lane, x, place, place_step, group);
                    tile += 2 * step;
                    item += 2 * step * tile_bytes;
                    place += 2 * place_step;
                }
            }
            for (; tile < tiles; tile += step) {
                multiply_items<TYPE, 1>(item, step * tile_bytes, lane, x, place, place_step, group);
                item += step * tile_bytes;
                place += place_step;
            }
            __syncwarp();
            if (lane == 0)
                chunk_barrier_arrive(&head.empty[slot]);
        }
    }
}

KERNEL_INLINE void multiply_any(
    shared_head &head, const cuda_share &share, part_walk input, float *partials, ring_walk &walk)
{
    switch (share.type) {
#define MULTIPLY(type, ...)                                        \
    case TYPE_##type:                                              \
        multiply<TYPE_##type>(head, share, input, partials, walk); \
        break;
        CUDA_ITEM_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
}

/* ---- Results ---- */

/* What the end of a matmul needs: read before its results are there. */
struct matmul_end {
    uint64_t out, before;
    uint64_t seen; /* what this thread saw of what its first row is added to */
    uint32_t rows, flags, each, up_partials, tag;
    float per_column, epsilon;
};

KERNEL_INLINE matmul_end describe_end(
    const shared_head &head, const cuda_matmul_record &record, uint32_t thread)
{
    matmul_end end;
    end.out = record.out;
    end.before = record.before;
    end.rows = record.rows;
    end.flags = record.flags;
    end.each = record.shares[0].parts_per_round;
    end.up_partials = record.up_partials;
    end.tag = head.tag;
    end.per_column = record.per_column;
    end.epsilon = record.vector.epsilon;
    end.seen = end.flags & MATMUL_ADDS && end.flags & MATMUL_TAGGED && thread < end.rows
                   ? look_at_word((const uint64_t *)end.before + thread)
                   : 0;
    return end;
}

/* The sum of row `row` of a block's rows, over its parts. */
KERNEL_INLINE float sum_of_row(uint32_t each, const float *partials, uint32_t row)
{
    const float *place = partials + row / CUDA_ITEM_ROWS * each * CUDA_ITEM_ROWS + row % CUDA_ITEM_ROWS;
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < CUDA_WARPS; i++) {
        if (i < each)
            sums[i % 4] += place[i * CUDA_ITEM_ROWS];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* What few matmuls have at their end: a function of its own, so that others need not skip it. */
static __device__ __noinline__ float finish_specially(
    const cuda_matmul_record *record, float sum, uint32_t row)
{
    if (record->bias)
        sum += ((const float *)record->bias)[row];
    if (record->activation != ACTIVATION_NONE)
        sum = activated(record->activation, sum);
    if (record->cap > 0)
        sum = record->cap * tanhf(sum / record->cap);
    return sum;
}

KERNEL_INLINE void finish_row(shared_head &head, const cuda_matmul_record &record, const matmul_end &end,
    const float *partials, const float *sums, uint32_t row)
{
    float sum = sum_of_row(end.each, partials, row), factor = 1;
    if (end.flags & MATMUL_DEFERS)
        factor = norm_factor(sums, end.per_column, end.epsilon);
    sum *= factor;
    if (end.flags & MATMUL_SPECIAL)
        sum = finish_specially(&record, sum, row);
    if (end.flags & MATMUL_GLU) {
        float other = sum_of_row(record.shares[1].parts_per_round, partials + end.up_partials, row) * factor;
        if (record.up_bias)
            other += ((const float *)record.up_bias)[row];
        sum = gated(record.glu, sum) * other;
    }
    if (end.flags & MATMUL_ADDS)
        sum += end.flags & MATMUL_TAGGED ? wait_for_word(head, (const uint64_t *)end.before + row,
                                               row < CUDA_WORKERS ? end.seen : 0)
                                         : __ldcg((const float *)end.before + row);
    if ((end.flags & (MATMUL_PLAIN | MATMUL_TAGGED)) == MATMUL_TAGGED)
        put_word((uint64_t *)end.out + row, sum, end.tag);
    else
        __stcg((float *)end.out + row, sum);
}

/* ---- All of it ---- */

struct matmul_result {
    ring_walk walk;
    bool goes_on;
};

KERNEL_INLINE void prepare_input(
    shared_head &head, const cuda_matmul_record &record, uint8_t *own_panel, float *squares)
{
    const cuda_share &share = record.shares[0];
    if (record.vector.norm == CUDA_NORM_LAYER) {
        if (share.part_groups == 1)
            mix_parts<1>(head, record.vector, share, own_panel, head.moments);
        else
            mix_parts<CUDA_MIXED_GROUPS>(head, record.vector, share, own_panel, head.moments);
    } else if (share.part_groups == 1) {
        round_parts<1>(head, record.vector, share, own_panel, squares);
    } else {
        round_parts<4>(head, record.vector, share, own_panel, squares);
    }
}

/*
 * All of a block's share in a matmul. When it returns, the next record has come, and all warps know; false:
 * something gave up. Some warps may still be at the results of the record before: partial sums and sums of
 * squares take turns, and where the former are too many for that, everybody waits. A function of its own, as
 * those in matvec_short.cuh: what one needs many registers for would have others written to local memory.
 */
static __device__ __noinline__ matmul_result run_matmul(uint32_t turn, ring_walk walk)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_matmul_record &record = place_of_record(shared, turn)->matmul;
    float *partials = (float *)(shared + head.machine.partials_at +
                                (record.is_wide ? 0 : turn % 2 * head.machine.half_of_partials));
    float *squares = head.sums + turn % 2 * CUDA_WARPS;
    const matmul_end end = describe_end(head, record, this_thread());
    if (record.is_wide)
        sync_threads<CUDA_WORKERS>();
    const uint32_t each = part_bytes(record.vector.rounding);
    const uint32_t panel = head.machine.panels_at + record.vector.panel;
    part_walk input;
    if (record.vector.from) {
        input = {panel + this_thread() / 32 * record.shares[0].part_groups * each, each};
        prepare_input(head, record, shared + input.first, squares);
    } else {
        input = walk_panel(panel, record.shares[0], each);
    }
    multiply_any(head, record.shares[0], input, partials, walk);
    if (record.glu != ACTIVATION_NONE) {
        if (!record.vector.from)
            input = walk_panel(
                head.machine.panels_at + record.up_panel, record.shares[1], part_bytes(record.up_rounding));
        multiply_any(head, record.shares[1], input, partials + end.up_partials, walk);
    }
    wait_for_older_copies(); /* the next record */
    if (sync_any<CUDA_WORKERS>(head.failed))
        return {walk, false};
    for (uint32_t row = this_thread(); row < end.rows; row += CUDA_WORKERS)
        finish_row(head, record, end, partials, squares, row);
    if (record.is_wide)
        sync_threads<CUDA_WORKERS>();
    return {walk, true};
}

#endif
