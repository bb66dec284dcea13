/*
 * Matmuls of one token. A round is 16 items, one for each warp: a warp keeps its part of the input in
 * registers and multiplies it with one tile after the other. Partial sums meet in shared memory and are added
 * in the order of their columns.
 */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/words.cuh"

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

/* Four columns from `at` on, to bytes. */
KERNEL_INLINE void put_bytes(uint8_t *panel, uint32_t padded, uint32_t at, float4 four)
{
    float *scales = (float *)(panel + padded);
    int *halves = (int *)(scales + padded / 32);
    const rounded_four rounded = round_four(four);
    *(uint32_t *)(panel + at) = rounded.bytes;
    if (at % 32 == 0)
        scales[at / 32] = rounded.scale;
    if (at % 16 == 0)
        halves[at / 16] = rounded.sum;
}

KERNEL_INLINE float to_half_and_back(float value)
{
    return __half2float(__float2half_rn(fminf(fmaxf(value, -65504), 65504) + (value != value ? value : 0)));
}

KERNEL_INLINE void put_floats(uint8_t *panel, uint32_t rounding, uint32_t at, float4 four)
{
    if (rounding == ROUNDING_F16)
        four = make_float4(to_half_and_back(four.x), to_half_and_back(four.y), to_half_and_back(four.z),
            to_half_and_back(four.w));
    *(float4 *)((float *)panel + at / 32 * 36 + at % 32) = four;
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
    if (round.rounding == ROUNDING_Q8)
        put_bytes(panel, columns, at, four);
    else
        put_floats(panel, round.rounding, at, four);
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

/* The factor of an rms norm, from the squares that the warps have summed. */
KERNEL_INLINE float norm_factor(const float *sums, const cuda_vector &vector)
{
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < CUDA_WARPS / 4; i++) {
        const float4 four = *(const float4 *)(sums + 4 * i);
        sum.x += four.x, sum.y += four.y, sum.z += four.z, sum.w += four.w;
    }
    return rsqrtf(__fdividef((sum.x + sum.y) + (sum.z + sum.w), (float)vector.columns) + vector.epsilon);
}

/*
 * The common case: one vector, PIECES times four columns in the registers of each thread at a time, perhaps
 * through an rms norm. Bytes are made of what is not yet multiplied by the norm's factor, so that nobody
 * waits for it: finish_rows has it from `sums`, [CUDA_WARPS].
 */
template <int PIECES>
KERNEL_INLINE void round_vector(shared_head &head, const cuda_vector &vector, float *sums)
{
    DYNAMIC_SHARED(shared);
    uint8_t *panel = shared + head.machine.panels_at + vector.panel;
    const uint32_t columns = vector.columns, padded = panel_columns(columns);
    const float *weight = vector.norm ? (const float *)vector.weight : nullptr;
    const bool to_bytes = vector.rounding == ROUNDING_Q8;
    float squares = 0;
    for (uint32_t first = this_thread() * 4; first < padded; first += PIECES * CUDA_WORKERS * 4) {
        float4 values[PIECES], weights[PIECES];
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const uint32_t at = first + i * CUDA_WORKERS * 4;
            weights[i] =
                weight && at < columns ? __ldg((const float4 *)(weight + at)) : make_float4(1, 1, 1, 1);
        }
        take_fours<PIECES>(head, vector.from, first, CUDA_WORKERS * 4, columns, values);
        if (weight) {
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                squares = fmaf(values[i].x, values[i].x, fmaf(values[i].y, values[i].y, squares));
                squares = fmaf(values[i].z, values[i].z, fmaf(values[i].w, values[i].w, squares));
                values[i].x *= weights[i].x, values[i].y *= weights[i].y;
                values[i].z *= weights[i].z, values[i].w *= weights[i].w;
            }
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const uint32_t at = first + i * CUDA_WORKERS * 4;
            if (at >= padded)
                continue; /* whole warps */
            if (to_bytes)
                put_bytes(panel, padded, at, values[i]);
            else
                put_floats(panel, weight ? (uint32_t)ROUNDING_F32 : vector.rounding, at, values[i]);
        }
    }
    if (!weight)
        return;
    squares = warp_sum(squares);
    if (this_thread() % 32 == 0)
        sums[this_thread() / 32] = squares;
    if (to_bytes)
        return;
    sync_threads<CUDA_WORKERS>(); /* other roundings need the factor first */
    const float factor = norm_factor(sums, vector);
    for (uint32_t at = this_thread() * 4; at < padded; at += CUDA_WORKERS * 4) {
        float4 four = *(float4 *)((float *)panel + at / 32 * 36 + at % 32);
        four.x *= factor, four.y *= factor, four.z *= factor, four.w *= factor;
        put_floats(panel, vector.rounding, at, four);
    }
}

/*
 * The input of RWKV's matmuls: a layer norm, mixed with that of the token before. `sums` has room for two
 * times CUDA_WARPS.
 */
template <int PIECES> KERNEL_INLINE void mix_vector(shared_head &head, const cuda_vector &vector, float *sums)
{
    DYNAMIC_SHARED(shared);
    uint8_t *panel = shared + head.machine.panels_at + vector.panel;
    const uint32_t columns = vector.columns, padded = panel_columns(columns), first = this_thread() * 4;
    const float4 nothing = make_float4(0, 0, 0, 0);
    float *folded = (float *)head.machine.folded +
                    (uint64_t)head.row.slot * 2 * head.machine.folded_elements + vector.state;
    const float *before = folded + head.row.version * head.machine.folded_elements;
    float *after = folded + (1 - head.row.version) * head.machine.folded_elements;
    const bool mixes = vector.lerp, has_before = mixes && head.row.run_first != 0;
    float4 values[PIECES], weights[PIECES], biases[PIECES], lerps[PIECES], others[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = first + i * CUDA_WORKERS * 4;
        const bool on = at < columns;
        weights[i] = on ? __ldg((const float4 *)((const float *)vector.weight + at)) : nothing;
        biases[i] = on ? __ldg((const float4 *)((const float *)vector.bias + at)) : nothing;
        lerps[i] = on && mixes ? __ldg((const float4 *)((const float *)vector.lerp + at)) : nothing;
        others[i] = on && has_before ? __ldcg((const float4 *)(before + at)) : nothing;
    }
    take_fours<PIECES>(head, vector.from, first, CUDA_WORKERS * 4, columns, values);
    uint32_t turn = 0;
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        sum += (values[i].x + values[i].y) + (values[i].z + values[i].w);
    const float mean = __fdividef(block_sum<CUDA_WORKERS>(sum, sums, turn), (float)columns);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (first + i * CUDA_WORKERS * 4 < columns) {
            values[i].x -= mean, values[i].y -= mean, values[i].z -= mean, values[i].w -= mean;
            squares = fmaf(values[i].x, values[i].x, fmaf(values[i].y, values[i].y, squares));
            squares = fmaf(values[i].z, values[i].z, fmaf(values[i].w, values[i].w, squares));
        }
    }
    const float variance = __fdividef(block_sum<CUDA_WORKERS>(squares, sums, turn), (float)columns);
    const float scale = rsqrtf(variance + vector.epsilon);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = first + i * CUDA_WORKERS * 4;
        if (at >= padded)
            continue; /* whole warps */
        float4 y;
        y.x = fmaf(values[i].x * scale, weights[i].x, biases[i].x);
        y.y = fmaf(values[i].y * scale, weights[i].y, biases[i].y);
        y.z = fmaf(values[i].z * scale, weights[i].z, biases[i].z);
        y.w = fmaf(values[i].w * scale, weights[i].w, biases[i].w);
        if (vector.keeps && at < columns)
            *(float4 *)(after + at) = y;
        y.x = fmaf(others[i].x - y.x, lerps[i].x, y.x);
        y.y = fmaf(others[i].y - y.y, lerps[i].y, y.y);
        y.z = fmaf(others[i].z - y.z, lerps[i].z, y.z);
        y.w = fmaf(others[i].w - y.w, lerps[i].w, y.w);
        if (vector.rounding == ROUNDING_Q8)
            put_bytes(panel, padded, at, y);
        else
            put_floats(panel, vector.rounding, at, y);
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

/* One warp's part in a block's share: sums of its parts, [tiles][parts_per_round][8]. */
template <int TYPE>
KERNEL_INLINE void multiply(
    shared_head &head, const cuda_share &share, const uint8_t *panel, float *partials, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    const uint8_t *ring = shared + head.machine.ring_at;
    const uint32_t thread = this_thread(), warp = thread / 32, lane = thread % 32,
                   ring_bytes = head.machine.ring_bytes;
    const uint32_t each = share.parts_per_round, tiles_at_once = share.tiles_per_round;
    const uint32_t first_tile = warp * share.parts_reciprocal >> 16, number = warp - first_tile * each;
    const uint32_t tile_bytes = each * item_format<TYPE>::bytes, columns = share.parts * CUDA_ITEM_COLUMNS;
    const uint32_t all_tiles = share.tiles, chunk_tiles = share.tiles_per_chunk, parts = share.parts;
    const uint32_t groups = share.part_groups;
    for (uint32_t group = 0; group < groups; group++) {
        const uint32_t part = group * each + number;
        typename lane_input<TYPE>::type x = {};
        if (part < parts)
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
}

KERNEL_INLINE void multiply_any(
    shared_head &head, const cuda_share &share, const uint8_t *panel, float *partials, ring_walk &walk)
{
    switch (share.type) {
#define MULTIPLY(type, ...)                                        \
    case TYPE_##type:                                              \
        multiply<TYPE_##type>(head, share, panel, partials, walk); \
        break;
        CUDA_ITEM_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
}

/* ---- Results ---- */

/* The sum of row `row` of a block's rows: over its parts, in order. */
KERNEL_INLINE float finish_sum(uint32_t each, const float *partials, uint32_t row)
{
    const float *place = partials + row / CUDA_ITEM_ROWS * each * CUDA_ITEM_ROWS + row % CUDA_ITEM_ROWS;
    float sum = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < each; i++)
        sum += place[i * CUDA_ITEM_ROWS];
    return sum;
}

/* `seen` is what this thread saw of what its first row is added to. */
KERNEL_INLINE void finish_rows(
    shared_head &head, const cuda_matmul_record &record, const float *sums, uint64_t seen)
{
    DYNAMIC_SHARED(shared);
    const float *partials = (const float *)(shared + head.machine.partials_at);
    const float *up_partials =
        partials + record.shares[0].tiles * record.shares[0].parts_per_round * CUDA_ITEM_ROWS;
    const bool scales =
        record.vector.norm == CUDA_NORM_RMS && record.vector.from && record.vector.rounding == ROUNDING_Q8;
    const bool has_glu = record.glu != ACTIVATION_NONE;
    const float *bias = (const float *)record.bias, *up_bias = (const float *)record.up_bias;
    const uint32_t each = record.shares[0].parts_per_round, up_each = record.shares[1].parts_per_round;
    for (uint32_t i = this_thread(); i < record.rows; i += CUDA_WORKERS) {
        const float factor = scales ? norm_factor(sums, record.vector) : 1;
        float sum = finish_sum(each, partials, i) * factor;
        if (bias)
            sum += bias[i];
        if (record.activation != ACTIVATION_NONE)
            sum = activated(record.activation, sum);
        if (has_glu) {
            const float other = finish_sum(up_each, up_partials, i) * factor;
            sum = gated(record.glu, sum) * (up_bias ? other + up_bias[i] : other);
        }
        if (record.cap > 0)
            sum = record.cap * tanhf(sum / record.cap);
        if (record.before)
            sum += !head.machine.tagged ? __ldcg((const float *)record.before + i)
                                        : wait_for_word(head, (const uint64_t *)record.before + i,
                                              i < CUDA_WORKERS ? seen : 0);
        if (record.is_plain)
            __stcg((float *)record.out + i, sum);
        else
            put_value(head, record.out, i, sum);
    }
}

/* The block's input, rounded. Some warps may still be at the results of the record before: sums of squares
 * take turns. */
KERNEL_INLINE float *squares_of(shared_head &head)
{
    return head.sums + progress_of(head)[PROGRESS_TURN] % 2 * CUDA_WARPS;
}

/* Functions of their own: what takes many registers would have others written to local memory. */
template <int PIECES> __device__ __noinline__ void prepare_mixed()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    mix_vector<PIECES>(head, current_record(shared)->matmul.vector, head.mixed_sums);
}

__device__ __noinline__ void prepare_long()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    round_vector<4>(head, current_record(shared)->matmul.vector, squares_of(head));
}

KERNEL_INLINE void prepare_input(shared_head &head, const cuda_vector &vector)
{
    if (vector.norm == CUDA_NORM_LAYER) {
        if (vector.columns <= 4 * CUDA_WORKERS)
            prepare_mixed<1>();
        else
            prepare_mixed<CUDA_MIXED_COLUMNS / CUDA_WORKERS / 4>();
    } else if (vector.columns <= 4 * CUDA_WORKERS) {
        round_vector<1>(head, vector, squares_of(head));
    } else {
        prepare_long();
    }
}

KERNEL_INLINE void multiply_shares(shared_head &head, const cuda_matmul_record &record)
{
    DYNAMIC_SHARED(shared);
    const uint8_t *panel = shared + head.machine.panels_at + record.vector.panel;
    float *partials = (float *)(shared + head.machine.partials_at);
    const uint32_t shares = record.glu == ACTIVATION_NONE ? 1 : 2;
    ring_walk walk;
    walk.index = progress_of(head)[PROGRESS_CHUNK];
    walk.position = progress_of(head)[PROGRESS_PLACE];
    for (uint32_t i = 0; i < shares && !head.failed; i++) {
        multiply_any(head, record.shares[i], panel, partials, walk);
        partials += record.shares[0].tiles * record.shares[0].parts_per_round * CUDA_ITEM_ROWS;
    }
    __syncwarp();
    if (this_thread() % 32 == 0) {
        progress_of(head)[PROGRESS_CHUNK] = walk.index;
        progress_of(head)[PROGRESS_PLACE] = walk.position;
    }
}

/* All of a block's share in a matmul, which is the current record. When it returns, the next record has come,
 * and all warps know. */
KERNEL_INLINE void run_matmul(shared_head &head)
{
    DYNAMIC_SHARED(shared);
    const uint64_t before = current_record(shared)->matmul.before;
    uint64_t seen = 0;
    if (before && head.machine.tagged && this_thread() < current_record(shared)->matmul.rows)
        seen = look_at_word((const uint64_t *)before + this_thread());
    if (current_record(shared)->matmul.vector.from) {
        prepare_input(head, current_record(shared)->matmul.vector);
        sync_threads<CUDA_WORKERS>();
    }
    multiply_shares(head, current_record(shared)->matmul);
    wait_for_older_copies(); /* the next record */
    sync_threads<CUDA_WORKERS>();
    if (!head.failed)
        finish_rows(head, current_record(shared)->matmul, squares_of(head), seen);
}

#endif
