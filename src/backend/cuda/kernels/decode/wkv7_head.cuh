/*
 * One head of RWKV-7's wkv7 with the ops around it, as its record says: a block loads all inputs at once, one
 * value per thread. A lane has two keys, and four values of each of the head's columns in its warp.
 *
 * With d = k * weight, the direction before it is made as long as 1, f = 1 / (d . d) and e = d * a, a value's
 * part of the new state and its result are
 *     s'[j] = s[j] w[j] - (s . d) f e[j] + v key[j]
 *     y = r . s' = s . (r w) - (s . d) f (r . e) + v (r . key),
 * so that all sums over keys are of what is there at the beginning, and nobody waits for the new state.
 */
#ifndef CUDA_WKV7_HEAD_CUH
#define CUDA_WKV7_HEAD_CUH

#include "backend/cuda/kernels/decode/tagged_words.cuh"

/* At the beginning of the partial sums. */
struct wkv7_room {
    float in[CUDA_WKV7_INPUTS][CUDA_WKV7_COLUMNS];
    float along[CUDA_WKV7_COLUMNS], read[CUDA_WKV7_COLUMNS]; /* s . d and s . (r w) */
    float sums[4];                                           /* d . d, r . e, r . key, and the bonus */
};
static_assert(sizeof(wkv7_room) <= 2 * CUDA_WORKERS * sizeof(float), "cuda_partial_floor has less");
static_assert(CUDA_WKV7_COLUMNS == 64 && CUDA_WARPS == 16, "two keys a lane, four values a warp");

/* The sums of four numbers over a warp: each lane gets one of them, number lane % 4. */
KERNEL_INLINE float sum_four(float4 x, uint32_t lane)
{
    const bool odd = lane & 1, upper = lane & 2;
    const float first = (odd ? x.y : x.x) + __shfl_xor_sync(~0u, odd ? x.x : x.y, 1),
                second = (odd ? x.w : x.z) + __shfl_xor_sync(~0u, odd ? x.z : x.w, 1);
    float sum = (upper ? second : first) + __shfl_xor_sync(~0u, upper ? first : second, 2);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

KERNEL_INLINE float4 two_rows(float4 x, float a, float4 y, float b)
{
    return make_float4(
        fmaf(y.x, b, x.x * a), fmaf(y.y, b, x.y * a), fmaf(y.z, b, x.z * a), fmaf(y.w, b, x.w * a));
}

KERNEL_INLINE float4 new_row(float4 row, float w, float4 u, float e, float4 v, float key)
{
    return make_float4(fmaf(v.x, key, fmaf(u.x, e, row.x * w)), fmaf(v.y, key, fmaf(u.y, e, row.y * w)),
        fmaf(v.z, key, fmaf(u.z, e, row.z * w)), fmaf(v.w, key, fmaf(u.w, e, row.w * w)));
}

/* v with its share of the first layer's: `share` is 0 where there is none, and so is `first`. */
KERNEL_INLINE float mixed_value(float v, float first, float share)
{
    return share == 0 ? v : fmaf(first - v, share, v);
}

/* The thread's word as loaded so far; a neutral value if there is no such input. */
KERNEL_INLINE uint32_t load_pending_input(const shared_head &head, uint64_t from, uint32_t index)
{
    if (!from)
        return tagged_word(index < CUDA_WKV7_GATE * CUDA_WKV7_COLUMNS ? 0 : 1, head.tag);
    if (!head.machine.tagged)
        return tagged_word(__ldcg((const float *)from + index % CUDA_WKV7_COLUMNS), head.tag);
    return load_word((const uint32_t *)from + index % CUDA_WKV7_COLUMNS);
}

/* The head's results, by one warp: the norm, the bonus, the gate. `norm` and `bias` are its weights. */
KERNEL_INLINE void finish_wkv7(const shared_head &head, const wkv7_room &room, uint32_t lane, float2 norm,
    float2 bias, float epsilon, bool has_norm, float4 sums, float factor, uint64_t out)
{
    const float2 along = *((const float2 *)room.along + lane), read = *((const float2 *)room.read + lane),
                 v = *((const float2 *)room.in[CUDA_WKV7_V] + lane),
                 first = *((const float2 *)room.in[CUDA_WKV7_V_FIRST] + lane),
                 share = *((const float2 *)room.in[CUDA_WKV7_V_SHARE] + lane),
                 gate = *((const float2 *)room.in[CUDA_WKV7_GATE] + lane);
    const float value_0 = mixed_value(v.x, first.x, share.x), value_1 = mixed_value(v.y, first.y, share.y);
    const float erased = factor * sums.y;
    float y_0 = fmaf(value_0, sums.z, fmaf(-along.x, erased, read.x)),
          y_1 = fmaf(value_1, sums.z, fmaf(-along.y, erased, read.y));
    if (has_norm) {
        /* Both moments at once, of distances from the first value: it is no further from the mean than eight
         * times the deviation, so that little cancels. */
        const float base = __shfl_sync(~0u, y_0, 0), d_0 = y_0 - base, d_1 = y_1 - base;
        float sum = d_0 + d_1, squares = fmaf(d_0, d_0, d_1 * d_1);
#pragma unroll
        for (int distance = 16; distance; distance /= 2) {
            sum += __shfl_xor_sync(~0u, sum, distance);
            squares += __shfl_xor_sync(~0u, squares, distance);
        }
        const float mean = sum * (1.0f / CUDA_WKV7_COLUMNS);
        const float variance = fmaxf(fmaf(squares, 1.0f / CUDA_WKV7_COLUMNS, -(mean * mean)), 0);
        const float scale = rsqrtf(variance + epsilon);
        y_0 = fmaf((d_0 - mean) * scale, norm.x, bias.x);
        y_1 = fmaf((d_1 - mean) * scale, norm.y, bias.y);
    }
    put_value(head, out, 2 * lane, fmaf(sums.w, value_0, y_0) * gate.x);
    put_value(head, out, 2 * lane + 1, fmaf(sums.w, value_1, y_1) * gate.y);
}

/* The current record. */
__device__ __noinline__ void run_wkv7_head()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_wkv7_record &record = current_record(shared)->wkv7;
    wkv7_room &room = *(wkv7_room *)(shared + head.machine.partials_at);
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32;
    const uint64_t from = record.in[thread / CUDA_WKV7_COLUMNS];
    uint32_t seen = load_pending_input(head, from, thread);

    /* Loads that do not depend on the token's values are in flight during the wait for them. */
    const uint64_t elements = head.machine.recurrent_elements;
    float *base = (float *)head.machine.recurrent + (uint64_t)head.row.slot * 2 * elements + record.state +
                  lane * (2 * CUDA_WKV7_COLUMNS) + warp * 4;
    const float *before = base + head.row.version * elements;
    float *after = base + (1 - head.row.version) * elements;
    float4 row_0 = make_float4(0, 0, 0, 0), row_1 = row_0;
    if (head.row.run_first != 0) {
        row_0 = __ldcg((const float4 *)before);
        row_1 = __ldcg((const float4 *)(before + CUDA_WKV7_COLUMNS));
    }
    const float2 to_direction = __ldg((const float2 *)record.direction + lane),
                 to_key = __ldg((const float2 *)record.key + lane),
                 to_bonus = __ldg((const float2 *)record.bonus + lane);
    const bool has_norm = record.norm;
    float2 norm = make_float2(1, 1), bias = make_float2(0, 0);
    if (has_norm && warp == 0) {
        norm = __ldg((const float2 *)record.norm + lane);
        bias = __ldg((const float2 *)record.norm_bias + lane);
    }
    const float epsilon = record.epsilon, least_square = record.least_square;
    const uint64_t out = record.out;

    sync_threads<CUDA_WORKERS>(); /* no warp reads the partial sums of the record before */
    room.in[0][thread] = wait_for_word(head, (const uint32_t *)from + thread % CUDA_WKV7_COLUMNS, seen);
    sync_threads<CUDA_WORKERS>();
    const float2 r = *((const float2 *)room.in[CUDA_WKV7_R] + lane),
                 w = *((const float2 *)room.in[CUDA_WKV7_W] + lane),
                 k = *((const float2 *)room.in[CUDA_WKV7_K] + lane),
                 a = *((const float2 *)room.in[CUDA_WKV7_A] + lane);
    const float d_0 = k.x * to_direction.x, d_1 = k.y * to_direction.y, e_0 = d_0 * a.x, e_1 = d_1 * a.y,
                key_0 = k.x * fmaf(a.x - 1, to_key.x, 1), key_1 = k.y * fmaf(a.y - 1, to_key.y, 1);
    const float along = sum_four(two_rows(row_0, d_0, row_1, d_1), lane),
                read = sum_four(two_rows(row_0, r.x * w.x, row_1, r.y * w.y), lane);
    if (lane < 4) {
        room.along[warp * 4 + lane] = along;
        room.read[warp * 4 + lane] = read;
    }
    if (warp == CUDA_WARPS - 1) {
        const float rk_0 = r.x * key_0, rk_1 = r.y * key_1;
        float sum = sum_four(make_float4(fmaf(d_0, d_0, d_1 * d_1), fmaf(r.x, e_0, r.y * e_1), rk_0 + rk_1,
                                 fmaf(rk_0, to_bonus.x, rk_1 * to_bonus.y)),
            lane);
        if (lane < 4)
            room.sums[lane] = sum;
    }
    sync_threads<CUDA_WORKERS>();
    const float4 sums = *(const float4 *)room.sums;
    const float factor = __fdividef(1, fmaxf(sums.x, least_square));
    if (warp == 0)
        finish_wkv7(head, room, lane, norm, bias, epsilon, has_norm, sums, factor, out);
    const float4 u = *((const float4 *)room.along + warp), v = *((const float4 *)room.in[CUDA_WKV7_V] + warp),
                 first = *((const float4 *)room.in[CUDA_WKV7_V_FIRST] + warp),
                 share = *((const float4 *)room.in[CUDA_WKV7_V_SHARE] + warp);
    const float4 value = make_float4(mixed_value(v.x, first.x, share.x), mixed_value(v.y, first.y, share.y),
        mixed_value(v.z, first.z, share.z), mixed_value(v.w, first.w, share.w));
    *(float4 *)after = new_row(row_0, w.x, u, -factor * e_0, value, key_0);
    *(float4 *)(after + CUDA_WKV7_COLUMNS) = new_row(row_1, w.y, u, -factor * e_1, value, key_1);
}

#endif
