/*
 * The end of attention of one token: merges the parts of a task, then the splits of a head, in a fixed order.
 */
#ifndef CUDA_ATTEND_FINISH_CUH
#define CUDA_ATTEND_FINISH_CUH

#include "backend/cuda/kernels/decode/attend_input.cuh"

struct attend_result {
    float maximum, sum, output; /* of one element; the first two are the same for all of a head */
};

/* ---- Splits ---- */

/* The partial result of one split for a head: {maximum, sum} and four elements. */
struct split_partial {
    two_words64 ends, low, high;

    KERNEL_INLINE void load(const uint64_t *split, uint32_t element)
    {
        ends = load_two_words64(split);
        low = load_two_words64(split + 2 + element);
        high = load_two_words64(split + 4 + element);
    }

    KERNEL_INLINE void set(float maximum, float sum, float4 four, uint64_t nothing)
    {
        ends = {nothing | __float_as_uint(maximum), nothing | __float_as_uint(sum)};
        low = {nothing | __float_as_uint(four.x), nothing | __float_as_uint(four.y)};
        high = {nothing | __float_as_uint(four.z), nothing | __float_as_uint(four.w)};
    }

    KERNEL_INLINE bool has_arrived(uint32_t tag) const
    {
        return has_whole_tag(ends.first, tag) & has_whole_tag(ends.second, tag) &
               has_whole_tag(low.first, tag) & has_whole_tag(low.second, tag) &
               has_whole_tag(high.first, tag) & has_whole_tag(high.second, tag);
    }
};

/* The partial results of the merging block's own split, in shared memory in place of the queries: outputs,
 * [heads][head_dim], then {maximum, sum} of each head. */
struct own_split {
    float *outputs, *ends;

    KERNEL_INLINE own_split(const attend_room &room, uint32_t heads, uint32_t head_dim)
        : outputs((float *)room.queries), ends(outputs + heads * head_dim)
    {
    }
};

/* Merges four elements of head `h` over all splits, by a warp: a lane has one split, or two. All loads are in
 * flight before the first wait, and loads of words that have not arrived are repeated together: one wait
 * after the other would be a round trip each. */
KERNEL_INLINE void merge_splits(shared_head &head, const cuda_attend &attend, const attend_task &task,
    const own_split &own, uint32_t h, uint32_t element)
{
    constexpr int EACH = CUDA_MOST_SPLITS / 32;
    const uint32_t lane = this_thread() % 32, tag = head.tag, head_dim = attend.head_dim,
                   stride = head_dim + 2;
    const uint64_t nothing = (uint64_t)tag << 32;
    const uint64_t *splits =
        (const uint64_t *)attend.partials + (uint64_t)(task.first_head + h) * attend.splits * stride;
    split_partial words[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t split = lane + i * 32;
        words[i].set(-1e30f, 0, make_float4(0, 0, 0, 0), nothing);
        if (split == task.split)
            words[i].set(own.ends[h * 2], own.ends[h * 2 + 1],
                *(const float4 *)(own.outputs + h * head_dim + element), nothing);
        else if (split < task.active)
            words[i].load(splits + split * stride, element);
    }
    wait_timeout timeout(head.machine);
    for (bool over = false;;) {
        bool arrived = true;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            arrived &= words[i].has_arrived(tag);
        if (!warp_keeps_waiting(head, timeout, arrived, over))
            break;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (!words[i].has_arrived(tag))
                words[i].load(splits + (lane + i * 32) * stride, element);
        }
    }
    float maximum = -1e30f, sum = 0;
    float4 four = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        maximum = fmaxf(maximum, value_in_word64(words[i].ends.first));
    maximum = warp_max(maximum);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float weight = power_of_two(value_in_word64(words[i].ends.first) - maximum);
        sum = fmaf(weight, value_in_word64(words[i].ends.second), sum);
        four.x = fmaf(weight, value_in_word64(words[i].low.first), four.x);
        four.y = fmaf(weight, value_in_word64(words[i].low.second), four.y);
        four.z = fmaf(weight, value_in_word64(words[i].high.first), four.z);
        four.w = fmaf(weight, value_in_word64(words[i].high.second), four.w);
    }
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
        four.x += __shfl_xor_sync(~0u, four.x, distance);
        four.y += __shfl_xor_sync(~0u, four.y, distance);
        four.z += __shfl_xor_sync(~0u, four.z, distance);
        four.w += __shfl_xor_sync(~0u, four.w, distance);
    }
    const float own_element = lane == 0 ? four.x : lane == 1 ? four.y : lane == 2 ? four.z : four.w;
    if (lane < 4)
        put_value(head, attend.out, (task.first_head + h) * head_dim + element + lane,
            __fdividef(own_element, sum));
}

/* ---- Parts ---- */

/* Merges COUNT elements of head `h` over the PARTS of a task. Every lane does all of it redundantly: shorter
 * than exchanging intermediate results. */
template <int PARTS, int COUNT>
KERNEL_INLINE void merge_parts(const attend_room &room, uint32_t heads, uint32_t head_dim, uint32_t h,
    const uint32_t (&elements)[COUNT], attend_result (&results)[COUNT])
{
    float maxima[PARTS], sums[PARTS], outputs[COUNT][PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i += 4) {
        const float4 maximum = *(const float4 *)(room.maxima + h * PARTS + i),
                     sum = *(const float4 *)(room.sums + h * PARTS + i);
        maxima[i] = maximum.x, maxima[i + 1] = maximum.y, maxima[i + 2] = maximum.z,
        maxima[i + 3] = maximum.w;
        sums[i] = sum.x, sums[i + 1] = sum.y, sums[i + 2] = sum.z, sums[i + 3] = sum.w;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float *place = room.outputs + h * head_dim + min(elements[i], head_dim - 1);
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            outputs[i][part] = place[part * heads * head_dim];
    }
    const float all = largest_of_halves(maxima);
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const float weight = power_of_two(maxima[part] - all);
        sums[part] *= weight;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            outputs[i][part] *= weight;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        results[i] = {all, add_halves(sums), add_halves(outputs[i])};
}

KERNEL_INLINE void put_result(const shared_head &head, uint64_t out, uint32_t index, uint32_t element,
    uint32_t head_dim, const attend_result &result)
{
    if (element < head_dim)
        put_value(head, out, index * head_dim + element, __fdividef(result.output, result.sum));
}

/* Merges the parts, a warp for up to 32 elements of a head. DIM as in load_pending_element. */
template <int PARTS, uint32_t DIM>
KERNEL_INLINE void finish_parts(shared_head &head, const cuda_attend &attend, const attend_task &task,
    const attend_room &room, const own_split &own)
{
    const uint32_t warp = this_thread() / 32, lane = this_thread() % 32,
                   head_dim = DIM ? DIM : attend.head_dim;
    const uint32_t chunks = (head_dim + 31) / 32, h = DIM ? warp / (DIM / 32) : warp >= chunks;
    if (warp >= task.heads * chunks)
        return;
    const uint32_t element = (warp - h * chunks) * 32 + lane, stride = head_dim + 2,
                   index = task.first_head + h;
    const uint32_t elements[1] = {element};
    attend_result result[1];
    merge_parts<PARTS, 1>(room, task.heads, head_dim, h, elements, result);
    if (task.active == 1) {
        put_result(head, attend.out, index, element, head_dim, result[0]);
    } else if (h % task.active == task.split) {
        if (element < head_dim)
            own.outputs[h * head_dim + element] = result[0].output;
        if (element == 0)
            own.ends[h * 2] = result[0].maximum, own.ends[h * 2 + 1] = result[0].sum;
    } else {
        uint64_t *to = (uint64_t *)attend.partials + ((uint64_t)index * attend.splits + task.split) * stride;
        if (element < head_dim)
            store_word64(to + 2 + element, __float_as_uint(result[0].output), head.tag);
        if (element == 0) {
            store_word64(to, __float_as_uint(result[0].maximum), head.tag);
            store_word64(to + 1, __float_as_uint(result[0].sum), head.tag);
        }
    }
}

/* Parts, then splits: the heads of a task are merged by different splits' blocks. */
template <int PARTS, uint32_t DIM>
KERNEL_INLINE void finish_split(
    shared_head &head, const cuda_attend &attend, const attend_task &task, const attend_room &room)
{
    const own_split own(room, task.heads, attend.head_dim);
    finish_parts<PARTS, DIM>(head, attend, task, room, own);
    if (task.active == 1 || task.split >= task.heads)
        return;
    sync_threads<CUDA_WORKERS>();
    for (uint32_t h = task.split; h < task.heads; h += task.active) {
        for (uint32_t element = this_thread() / 32 * 4; element < attend.head_dim; element += CUDA_WARPS * 4)
            merge_splits(head, attend, task, own, h, element);
    }
}

/* Whether the finishing warp merges a task: a block's last task, with one head and all positions. */
KERNEL_INLINE bool is_for_finisher(const cuda_machine &machine, const attend_task &task)
{
    return (machine.attend_own_memory != 0) & (task.heads == 1) & (task.active == 1) & (task.more == 0);
}

/* The finishing warp's merge. DIM as in load_pending_element. Addresses are computed before the wait, and all
 * values are loaded before it is known whether they are needed. */
template <int PARTS, uint32_t DIM>
KERNEL_INLINE void finish_head(
    shared_head &head, const cuda_attend &attend, attend_room room, uint32_t serial)
{
    constexpr int EACH = DIM ? DIM / 32 : 2;
    const uint32_t lane = this_thread() % 32, head_dim = DIM ? DIM : attend.head_dim;
    const uint64_t out = attend.out;
    room.maxima = worked_out(room.maxima);
    room.sums = worked_out(room.sums);
    room.outputs = worked_out(room.outputs);
    wait_for_workers(head, serial);
    const attend_task task = head.task;
    for (uint32_t first = lane; first / 32 * 32 < head_dim; first += EACH * 32) {
        uint32_t elements[EACH];
        attend_result results[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            elements[i] = first + i * 32;
        merge_parts<PARTS, EACH>(room, 1, head_dim, 0, elements, results);
        if (!is_for_finisher(head.machine, task))
            break;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            put_result(head, out, task.first_head, elements[i], head_dim, results[i]);
    }
}

#endif
