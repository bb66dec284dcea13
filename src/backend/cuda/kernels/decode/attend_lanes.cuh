/*
 * Attention of one token for every cache and size of head. A task has one or two heads that share a KV head,
 * and a range of positions: eight elements of a head for each lane, several positions for each warp at once,
 * every group of lanes with a softmax of its own; they are merged in a fixed order at the end.
 */
#ifndef CUDA_ATTEND_LANES_CUH
#define CUDA_ATTEND_LANES_CUH

#include "backend/cuda/kernels/decode/attend_finish.cuh"

/* ---- Room and input ---- */

KERNEL_INLINE attend_room room_of_lanes(uint8_t *shared, uint32_t heads, uint32_t head_dim)
{
    return room_of(shared, heads, CUDA_WARPS, heads * head_dim * sizeof(float), 2 * head_dim * sizeof(float));
}

KERNEL_INLINE void prepare_lanes(shared_head &head, const cuda_attend &attend, const attend_task &task,
    uint32_t columns, const attend_room &room, const pending_element &own)
{
    const float scale = attend.cap > 0 ? attend.scale : attend.scale * LOG2_OF_E;
    const bool by_element = attend.kv_type != TYPE_Q8_0;
    take_elements<0>(
        head, attend, task, columns, own, [&](const pending_element &one, uint32_t i, float value) {
            if (one.is_query)
                ((float *)room.queries)[i] = scale * value;
            else
                ((float *)room.own)[i - columns] =
                    by_element ? append_element(head, attend, one.is_key ? attend.keys : attend.values,
                                     task.kv_head_index, one.element, value)
                               : value;
        });
    if (task.has_own && !by_element) {
        sync_threads<CUDA_WORKERS>();
        append_bytes(attend, head.row, task.kv_head_index, (float *)room.own);
    }
}

/* ---- A range of positions ---- */

/* The running softmax of a group of lanes; the output is spread over its lanes. */
template <int HEADS> struct attend_sums {
    float maximum[HEADS], sum[HEADS], output[HEADS][8];
};

template <int HEADS, int LANES>
KERNEL_INLINE void attend_to(const float (&query)[HEADS][8], const float (&key)[8], const float (&value)[8],
    float cap, bool live, attend_sums<HEADS> &sums)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float score = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            score = fmaf(query[h][i], key[i], score);
#pragma unroll
        for (int distance = LANES / 2; distance; distance /= 2)
            score += __shfl_xor_sync(~0u, score, distance);
        if (cap > 0)
            score = cap * LOG2_OF_E * tanhf(score / cap);
        if (!live)
            continue;
        const float maximum = fmaxf(sums.maximum[h], score);
        const float before = power_of_two(sums.maximum[h] - maximum), weight = power_of_two(score - maximum);
        sums.maximum[h] = maximum;
        sums.sum[h] = fmaf(sums.sum[h], before, weight);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums.output[h][i] = fmaf(weight, value[i], sums.output[h][i] * before);
    }
}

/* Merges the groups of a warp in the same order in both halves: the lower half's part first. */
template <int HEADS, int LANES> KERNEL_INLINE void merge_groups(attend_sums<HEADS> &sums)
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int distance = LANES; distance < 32; distance *= 2) {
            const float other = __shfl_xor_sync(~0u, sums.maximum[h], distance);
            const float maximum = fmaxf(sums.maximum[h], other);
            const bool lower = (threadIdx.x & distance) == 0;
            const float own_factor = power_of_two(sums.maximum[h] - maximum),
                        other_factor = power_of_two(other - maximum);
            const float first = lower ? own_factor : other_factor, second = lower ? other_factor : own_factor;
            const float other_sum = __shfl_xor_sync(~0u, sums.sum[h], distance);
            sums.maximum[h] = maximum;
            sums.sum[h] =
                fmaf(lower ? sums.sum[h] : other_sum, first, (lower ? other_sum : sums.sum[h]) * second);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float others = __shfl_xor_sync(~0u, sums.output[h][i], distance);
                sums.output[h][i] = fmaf(
                    lower ? sums.output[h][i] : others, first, (lower ? others : sums.output[h][i]) * second);
            }
        }
    }
}

KERNEL_INLINE void load_floats(const float *from, bool on, float (&out)[8])
{
    const float4 none = make_float4(0, 0, 0, 0);
    const float4 low = on ? *(const float4 *)from : none, high = on ? *(const float4 *)(from + 4) : none;
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

/* Not inlined, so that it has its own registers. */
static __device__ __noinline__ void finish_lanes()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_attend &attend = current_record(shared)->attend;
    finish_split<CUDA_WARPS, 0>(
        head, attend, head.task, room_of_lanes(shared, head.task.heads, attend.head_dim));
}

/* ---- All of a task ---- */

template <int HEADS, int LANES, bool WIDE> __device__ __noinline__ void attend_by_lanes()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_attend &attend = current_record(shared)->attend;
    const attend_task task = head.task;
    const uint32_t *pages = head.row.pages;
    constexpr int AT_ONCE = WIDE || HEADS > 1 ? 1 : 2, GROUPS = 32 / LANES;
    const uint32_t thread = this_thread(), warp = thread / 32, group = thread % 32 / LANES,
                   lane = thread % LANES;
    const uint32_t head_dim = attend.head_dim, element = lane * 8, step = CUDA_WARPS * GROUPS;
    const bool on = element < head_dim;
    const attend_room room = room_of_lanes(shared, HEADS, head_dim);
    const pending_element own =
        load_pending_element<0>(head, attend, task, HEADS * head_dim, first_element());
    raw_eight<WIDE> keys[AT_ONCE], values[AT_ONCE];
    auto fetch = [&](uint32_t base) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t position = base + u * step + group;
            keys[u] = values[u] = {};
            if (position < task.cached_end && on) {
                const uint32_t page = pages[position / PAGE_POSITIONS], at = position % PAGE_POSITIONS;
                keys[u] = load_eight<WIDE>(attend.kv_type,
                    find_kv_head(
                        attend.keys, page, attend.kv_heads, task.kv_head_index, head_dim, attend.kv_type),
                    at, head_dim, element);
                values[u] = load_eight<WIDE>(attend.kv_type,
                    find_kv_head(
                        attend.values, page, attend.kv_heads, task.kv_head_index, head_dim, attend.kv_type),
                    at, head_dim, element);
            }
        }
    };
    /* Loads of the cache are in flight before the wait for the query. */
    fetch(task.begin + warp * GROUPS);
    prepare_lanes(head, attend, task, HEADS * head_dim, room, own);
    sync_threads<CUDA_WORKERS>();
    float query[HEADS][8];
    attend_sums<HEADS> sums;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        sums.maximum[h] = -1e30f; /* below every score; not infinite, so that differences are numbers */
        sums.sum[h] = 0;
        load_floats((const float *)room.queries + h * head_dim + element, on, query[h]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums.output[h][i] = 0;
    }
    for (uint32_t base = task.begin + warp * GROUPS; base < task.cached_end; base += AT_ONCE * step) {
        raw_eight<WIDE> own_keys[AT_ONCE], own_values[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            own_keys[u] = keys[u], own_values[u] = values[u];
        if (base + AT_ONCE * step < task.cached_end)
            fetch(base + AT_ONCE * step);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (base + u * step >= task.cached_end)
                continue; /* whole warps */
            float key[8], value[8];
            unpack_eight(attend.kv_type, own_keys[u], key);
            unpack_eight(attend.kv_type, own_values[u], value);
            attend_to<HEADS, LANES>(
                query, key, value, attend.cap, base + u * step + group < task.cached_end, sums);
        }
    }
    if (task.has_own && warp == CUDA_WARPS - 1) {
        float key[8], value[8];
        load_floats((const float *)room.own + element, on, key);
        load_floats((const float *)room.own + head_dim + element, on, value);
        attend_to<HEADS, LANES>(query, key, value, attend.cap, group == 0, sums);
    }
    merge_groups<HEADS, LANES>(sums);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float *outputs = room.outputs + (warp * HEADS + h) * head_dim;
        if (threadIdx.x % 32 == 0)
            room.maxima[h * CUDA_WARPS + warp] = sums.maximum[h],
                                         room.sums[h * CUDA_WARPS + warp] = sums.sum[h];
        if (threadIdx.x % 32 < LANES && on) {
            const float *output = sums.output[h];
            *(float4 *)(outputs + element) = make_float4(output[0], output[1], output[2], output[3]);
            *(float4 *)(outputs + element + 4) = make_float4(output[4], output[5], output[6], output[7]);
        }
    }
    if (is_for_finisher(head.machine, task))
        return;
    sync_threads<CUDA_WORKERS>();
    finish_lanes();
    sync_threads<CUDA_WORKERS>(); /* shared memory is free for another task */
}

enum lanes_way { LANES_TWO = 1, LANES_WIDE = 2 };

template <int LANES> KERNEL_INLINE void attend_by_so_many(uint32_t way)
{
    switch (way) {
    case 0:
        return attend_by_lanes<1, LANES, false>();
    case LANES_TWO:
        return attend_by_lanes<2, LANES, false>();
    case LANES_WIDE:
        return attend_by_lanes<1, LANES, true>();
    default:
        return attend_by_lanes<2, LANES, true>();
    }
}

#endif
