/*
 * What attention of one token ends with: the parts of a task come together, then the splits of a head.
 * Whoever merges does it in a fixed order.
 */
#ifndef CUDA_ATTEND_FINISH_CUH
#define CUDA_ATTEND_FINISH_CUH

#include "backend/cuda/attend_input.cuh"

struct attend_result {
    float maximum, sum, output; /* of one element; the first two are the same for all of a head */
};

/* COUNT words, `stride` apart, that were looked at before; by a whole warp. Whatever has not come is looked
 * at again at once: one after the other would be a trip for each. */
template <int COUNT>
KERNEL_INLINE void wait_for_words(
    shared_head &head, const uint64_t *words, uint32_t stride, uint64_t (&seen)[COUNT])
{
    patience patience(head.machine);
    const uint32_t tag = head.tag;
    for (;;) {
        bool come = true;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            come &= has_tag(seen[i], tag);
        if (__all_sync(~0u, come) || !look_again(head, patience))
            return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (!has_tag(seen[i], tag))
                seen[i] = look_at_word(words + i * stride);
        }
    }
}

/* One element of a head from what all splits have left, in their order; a lane looks at one split's maximum
 * and sum. The caller's own split is number `own_split`. */
template <uint32_t MOST>
KERNEL_INLINE attend_result merge_splits(shared_head &head, const uint64_t *splits, uint32_t active,
    uint32_t stride, uint32_t element, uint32_t own_split, attend_result own)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t nothing = (uint64_t)head.tag << 32, *place = splits + lane * stride;
    uint64_t ends[2] = {nothing | __float_as_uint(-1e30f), nothing}, seen[MOST];
    if (lane == own_split)
        ends[0] = nothing | __float_as_uint(own.maximum), ends[1] = nothing | __float_as_uint(own.sum);
    else if (lane < active)
        ends[0] = look_at_word(place), ends[1] = look_at_word(place + 1);
    const uint64_t *from = splits + 2 + element;
#pragma unroll
    for (uint32_t i = 0; i < MOST; i++) {
        seen[i] = nothing | __float_as_uint(own.output);
        if (i != own_split)
            seen[i] = i < active ? look_at_word(from + i * stride) : nothing;
    }
    wait_for_words(head, place, 1, ends);
    wait_for_words(head, from, stride, seen);
    attend_result all = {};
    const float maximum = value_in(ends[0]);
    all.maximum = warp_max(maximum);
    const float factor = power_of_two(maximum - all.maximum);
    all.sum = warp_sum(factor * value_in(ends[1]));
#pragma unroll
    for (uint32_t i = 0; i < MOST; i++)
        all.output = fmaf(value_in(seen[i]), __shfl_sync(~0u, factor, i), all.output);
    return all;
}

/* What the PARTS of a task have come to comes together: COUNT elements of head `h`. Every lane does all of it
 * for itself, so that there is little to wait for. */
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
    float all = maxima[0];
#pragma unroll
    for (int i = 1; i < PARTS; i++)
        all = fmaxf(all, maxima[i]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        results[i].output = 0;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const float weight = power_of_two(maxima[part] - all);
        sum = fmaf(weight, sums[part], sum);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            results[i].output = fmaf(outputs[i][part], weight, results[i].output);
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        results[i].maximum = all, results[i].sum = sum;
}

KERNEL_INLINE void put_result(const shared_head &head, const cuda_attend &attend, uint32_t index,
    uint32_t element, const attend_result &result)
{
    if (element < attend.head_dim)
        put_value(head, attend.out, index * attend.head_dim + element, __fdividef(result.output, result.sum));
}

/* Parts, then splits, come together: a warp has up to 32 elements of a head. DIM as in look_at_element.
 * The heads of a task are merged by different splits' blocks. */
template <int PARTS, uint32_t DIM>
KERNEL_INLINE void finish_split(
    shared_head &head, const cuda_attend &attend, const attend_task &task, const attend_room &room)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, head_dim = DIM ? DIM : attend.head_dim;
    const uint32_t chunks = (head_dim + 31) / 32, h = DIM ? warp / (DIM / 32) : warp >= chunks;
    if (warp >= task.heads * chunks)
        return;
    const uint32_t element = (warp - h * chunks) * 32 + lane, stride = head_dim + 2;
    const uint32_t elements[1] = {element};
    attend_result result[1];
    merge_parts<PARTS, 1>(room, task.heads, head_dim, h, elements, result);
    const uint32_t index = task.first_head + h;
    uint64_t *splits = (uint64_t *)attend.partials + (uint64_t)index * attend.splits * stride;
    if (task.active > 1 && task.split != h % task.active) {
        uint64_t *to = splits + task.split * stride;
        if (element < head_dim)
            put_word(to + 2 + element, result[0].output, head.tag);
        if (element == 0) {
            put_word(to, result[0].maximum, head.tag);
            put_word(to + 1, result[0].sum, head.tag);
        }
        return;
    }
    const uint32_t read = min(element, head_dim - 1);
    if (task.active > 16)
        result[0] = merge_splits<32>(head, splits, task.active, stride, read, task.split, result[0]);
    else if (task.active > 1)
        result[0] = merge_splits<16>(head, splits, task.active, stride, read, task.split, result[0]);
    put_result(head, attend, index, element, result[0]);
}

/* A block's last task, of all positions: the finishing warp's. */
KERNEL_INLINE bool is_finished_apart(const cuda_machine &machine, const attend_task &task)
{
    return machine.attends_apart && task.heads == 1 && task.active == 1 && !task.more;
}

template <int PARTS>
KERNEL_INLINE void finish_head(
    const shared_head &head, const cuda_attend &attend, const attend_task &task, const attend_room &room)
{
    for (uint32_t first = this_thread() % 32; first / 32 * 32 < attend.head_dim; first += 64) {
        const uint32_t elements[2] = {first, first + 32};
        attend_result results[2];
        merge_parts<PARTS, 2>(room, 1, attend.head_dim, 0, elements, results);
        put_result(head, attend, task.first_head, elements[0], results[0]);
        put_result(head, attend, task.first_head, elements[1], results[1]);
    }
}

#endif
