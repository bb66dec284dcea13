/*
 * The input of a matmul of one token. The latency of dependent instructions dominates, so a warp loads and
 * rounds only the columns that it multiplies.
 */
#ifndef CUDA_MATVEC_INPUT_CUH
#define CUDA_MATVEC_INPUT_CUH

#include "backend/cuda/kernels/common/int8_terms.cuh"
#include "backend/cuda/kernels/decode/tagged_words.cuh"

/* ---- Rounding the input ---- */

/* Packed inputs: the input in parts of CUDA_TILE_COLUMNS. A part is int8 terms, scales of 32 of them, and
 * second terms if there are any; or four times 32 floats, padded so that lanes read them without bank
 * conflicts. */
KERNEL_INLINE uint32_t part_bytes(uint32_t rounding)
{
    return rounding == ROUNDING_Q8 ? (uint32_t)CUDA_PART_BYTES : (uint32_t)CUDA_PART_FLOAT_BYTES;
}

KERNEL_INLINE float *float_place(uint8_t *part, uint32_t at)
{
    return (float *)part + at / 32 * 36 + at % 32;
}

/* Four columns from `at` on of a part. */
template <int TERMS>
KERNEL_INLINE void put_rounded_four(uint8_t *part, uint32_t at, const rounded_four<TERMS> &rounded)
{
    float *scales = (float *)(part + CUDA_TILE_COLUMNS);
    *(uint32_t *)(part + at) = rounded.terms[0];
    if (TERMS == 2)
        *(uint32_t *)(part + CUDA_PART_SECOND_TERMS + at) = rounded.terms[TERMS - 1];
    if (at % 32 == 0)
        scales[at / 32] = rounded.scale;
}

template <int TERMS> KERNEL_INLINE void put_bytes(uint8_t *part, uint32_t at, float4 four)
{
    put_rounded_four(part, at, round_four<TERMS>(four));
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

template <int TERMS>
KERNEL_INLINE void put_rounded(uint8_t *part, uint32_t rounding, uint32_t at, float4 four)
{
    if (rounding == ROUNDING_Q8)
        put_bytes<TERMS>(part, at, four);
    else
        put_floats(part, rounding, at, four);
}

KERNEL_INLINE uint32_t packed_input_columns(uint32_t columns)
{
    return (columns + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS * CUDA_TILE_COLUMNS;
}

/* Stores four columns from `at` on of a vector in shared memory in its packed input; columns beyond the last
 * are zeros. */
KERNEL_INLINE void round_columns(
    const cuda_round &round, uint32_t at, const float *vectors, uint8_t *packed_inputs, bool early)
{
    const float *x = vectors + round.place;
    uint8_t *part = packed_inputs + round.packed_input + at / CUDA_TILE_COLUMNS * part_bytes(round.rounding);
    float4 four;
    four.x = at < round.columns ? x[at] : 0;
    four.y = at + 1 < round.columns ? x[at + 1] : 0;
    four.z = at + 2 < round.columns ? x[at + 2] : 0;
    four.w = at + 3 < round.columns ? x[at + 3] : 0;
    if (early || round.fine)
        put_rounded<2>(part, round.rounding, at % CUDA_TILE_COLUMNS, four);
    else
        put_rounded<1>(part, round.rounding, at % CUDA_TILE_COLUMNS, four);
}

/* All vectors of a phase, whose columns lie one after the other for this: a warp has 128 of one vector.
 * `early`: all to two terms. */
template <int THREADS>
KERNEL_INLINE void round_vectors(
    const cuda_round *rounds, uint32_t count, const float *vectors, uint8_t *packed_inputs, bool early)
{
    uint32_t begin = 0, index = 0, end = count ? packed_input_columns(rounds[0].columns) : 0;
    for (uint32_t at = this_thread() * 4;; at += THREADS * 4) {
        while (index < count && at >= end) {
            begin = end;
            if (++index < count)
                end += packed_input_columns(rounds[index].columns);
        }
        if (index >= count)
            break;
        round_columns(rounds[index], at - begin, vectors, packed_inputs, early);
    }
}

/* ---- The columns of a warp ---- */

/* Parts `number`, `number` + each, ... of a matrix, and tile rows `first_tile_row`, first_tile_row +
 * tile_rows_per_pass, ... of them. */
struct warp_share {
    uint32_t number, first_tile_row;
    bool works;
};

KERNEL_INLINE warp_share share_of_warp(const cuda_share &share, uint32_t warp)
{
    warp_share own;
    own.first_tile_row = warp * share.parts_reciprocal >> 16;
    own.number = warp - own.first_tile_row * share.parts_per_pass;
    own.works = own.first_tile_row < min(share.tile_rows_per_pass, share.tile_rows);
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
 * The common case: a vector as it is, or through an rms norm. Bytes are made before the multiplication with
 * the norm's factor, so that no warp waits for it: finish_row computes it from `sums`, [CUDA_WARPS].
 */
template <int PIECES, int TERMS>
KERNEL_INLINE void round_parts(shared_head &head, const cuda_vector &vector, const cuda_share &share,
    uint8_t *own_packed_input, float *sums)
{
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32;
    const warp_share own = share_of_warp(share, warp);
    const uint32_t columns = vector.columns, groups = own.works ? share.part_groups : 0;
    const uint32_t step = share.parts_per_pass * CUDA_TILE_COLUMNS, each = part_bytes(vector.rounding);
    const float *weight = vector.norm ? (const float *)vector.weight : nullptr;
    const bool to_bytes = vector.rounding == ROUNDING_Q8;
    const uint64_t from = vector.from;
    uint32_t at = own.number * CUDA_TILE_COLUMNS + lane * 4;
    uint8_t *part = own_packed_input;
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
                put_bytes<TERMS>(part, lane * 4, x);
            else
                put_floats(part, weight ? (uint32_t)ROUNDING_F32 : vector.rounding, lane * 4, x);
            part += each;
        }
        at += PIECES * step;
    }
    if (weight) {
        squares = warp_sum(squares);
        if (lane == 0)
            sums[warp] = own.works && own.first_tile_row == 0 ? squares : 0; /* each part once */
        if (!to_bytes) { /* other roundings need the factor first */
            sync_threads<CUDA_WORKERS>();
            const float factor = norm_factor(sums, __fdividef(1.0f, (float)columns), vector.epsilon);
            for (uint32_t group = 0; group < groups; group++) {
                part = own_packed_input + group * each;
                float4 x = *(float4 *)float_place(part, lane * 4);
                x.x *= factor, x.y *= factor, x.z *= factor, x.w *= factor;
                put_floats(part, vector.rounding, lane * 4, x);
            }
        }
    }
    __syncwarp();
}

/* Mean and scale of a layer norm, from the results of the warps for their columns: sums, sums of squares of
 * the distances to their own means, numbers of columns; [3][CUDA_WARPS]. */
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

KERNEL_INLINE void put_moments(float *moments, const warp_share &own, float sum, float squares, float count)
{
    const uint32_t warp = this_thread() / 32;
    const bool counts = own.first_tile_row == 0; /* each part once */
    if (this_thread() % 32 == 0) {
        moments[warp] = counts ? sum : 0;
        moments[CUDA_WARPS + warp] = counts ? squares : 0;
        moments[2 * CUDA_WARPS + warp] = counts ? count : 0;
    }
}

KERNEL_INLINE float squares_from(float4 x, float mean)
{
    x.x -= mean, x.y -= mean, x.z -= mean, x.w -= mean;
    return fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w)));
}

KERNEL_INLINE uint32_t columns_of_part(uint32_t columns, uint32_t part)
{
    const uint32_t first = part * CUDA_TILE_COLUMNS;
    return first < columns ? min(columns - first, (uint32_t)CUDA_TILE_COLUMNS) : 0;
}

KERNEL_INLINE float4 vector_four(uint64_t vector, uint32_t at, bool on)
{
    return on ? __ldg((const float4 *)((const float *)vector + at)) : make_float4(0, 0, 0, 0);
}

/* Norm weight and bias, mix factor and previous token of four columns. */
struct mix_four {
    float4 weight, bias, lerp, other;
};

KERNEL_INLINE float *state_of_version(const shared_head &head, const cuda_vector &vector, uint32_t version)
{
    return (float *)head.machine.recurrent +
           ((uint64_t)head.row.slot * 2 + version) * head.machine.recurrent_elements + vector.state;
}

KERNEL_INLINE float *kept_state(const shared_head &head, const cuda_vector &vector)
{
    return state_of_version(head, vector, 1 - head.row.version);
}

KERNEL_INLINE mix_four load_mix(const shared_head &head, const cuda_vector &vector, uint32_t at, bool on)
{
    const bool has_before = on && vector.lerp && head.row.run_first != 0;
    mix_four mix;
    mix.weight = vector_four(vector.weight, at, on);
    mix.bias = vector_four(vector.bias, at, on);
    mix.lerp = vector_four(vector.lerp, at, on && vector.lerp);
    mix.other = has_before ? __ldcg((const float4 *)(state_of_version(head, vector, head.row.version) + at))
                           : make_float4(0, 0, 0, 0);
    return mix;
}

/* Normed, kept where `kept` is not null, and mixed. */
KERNEL_INLINE float4 mixed_four(const mix_four &mix, float4 x, float2 norm, float *kept)
{
    float4 y;
    y.x = fmaf((x.x - norm.x) * norm.y, mix.weight.x, mix.bias.x);
    y.y = fmaf((x.y - norm.x) * norm.y, mix.weight.y, mix.bias.y);
    y.z = fmaf((x.z - norm.x) * norm.y, mix.weight.z, mix.bias.z);
    y.w = fmaf((x.w - norm.x) * norm.y, mix.weight.w, mix.bias.w);
    if (kept)
        *(float4 *)kept = y;
    y.x = fmaf(mix.other.x - y.x, mix.lerp.x, y.x);
    y.y = fmaf(mix.other.y - y.y, mix.lerp.y, y.y);
    y.z = fmaf(mix.other.z - y.z, mix.lerp.z, y.z);
    y.w = fmaf(mix.other.w - y.w, mix.lerp.w, y.w);
    return y;
}

/* The input of RWKV's matmuls: a layer norm, mixed with the previous token's norm. */
template <int PIECES, int TERMS>
KERNEL_INLINE void mix_parts(shared_head &head, const cuda_vector &vector, const cuda_share &share,
    uint8_t *own_packed_input, float *moments)
{
    constexpr bool EARLY =
        PIECES <= 2; /* loads that do not depend on the input come before the wait for it */
    const uint32_t thread = this_thread(), lane = thread % 32;
    const warp_share own = share_of_warp(share, thread / 32);
    const uint32_t columns = vector.columns, groups = own.works ? share.part_groups : 0;
    const uint32_t step = share.parts_per_pass * CUDA_TILE_COLUMNS;
    const uint32_t first = own.works ? own.number * CUDA_TILE_COLUMNS + lane * 4 : columns;
    mix_four mixes[EARLY ? PIECES : 1];
    if (EARLY) {
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            mixes[EARLY ? i : 0] = load_mix(head, vector, first + i * step, first + i * step < columns);
    }
    constexpr int AT_ONCE = PIECES < 4 ? PIECES : 4; /* more loads in flight would not fit into registers */
    float4 values[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i += AT_ONCE)
        take_fours<AT_ONCE>(
            head, vector.from, first + i * step, step, columns, *(float4(*)[AT_ONCE]) & values[i]);
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
    for (int i = 0; i < PIECES; i++)
        squares += first + i * step < columns ? squares_from(values[i], mean) : 0;
    put_moments(moments, own, sum, warp_sum(squares), count);
    sync_threads<CUDA_WORKERS>();
    const float2 norm = merge_moments(moments, columns, vector.epsilon);
    const bool keeps = vector.keeps && own.first_tile_row == 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const uint32_t at = first + i * step;
        if (i >= groups)
            break; /* whole warps */
        if (!EARLY)
            mixes[0] = load_mix(head, vector, at, at < columns);
        float *kept = keeps && at < columns ? kept_state(head, vector) + at : nullptr;
        put_rounded<TERMS>(own_packed_input + i * part_bytes(vector.rounding), vector.rounding, lane * 4,
            mixed_four(mixes[EARLY ? i : 0], values[i], norm, kept));
    }
    __syncwarp();
}

#endif
