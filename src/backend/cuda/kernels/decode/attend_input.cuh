/*
 * The input of attention of one token: queries and the token's own key and value, from the tagged words of
 * the matmul before, rotated. They go to shared memory; key and value go to the KV cache as well.
 */
#ifndef CUDA_ATTEND_INPUT_CUH
#define CUDA_ATTEND_INPUT_CUH

#include "backend/cuda/kernels/decode/tagged_words.cuh"

#define LOG2_OF_E 1.44269504f

/* ---- Where a task has what ---- */

/* Shared memory of attention: queries and the token's own key and value; of each of the `parts` that the
 * positions of a task are divided into, maxima and sums, [heads][parts], and outputs,
 * [parts][heads][head_dim]. */
struct attend_room {
    float *maxima, *sums;
    uint8_t *queries, *own;
    float *outputs;
};

KERNEL_INLINE attend_room room_of(
    uint8_t *shared, uint32_t heads, uint32_t parts, uint32_t query_bytes, uint32_t own_bytes)
{
    attend_room room;
    room.maxima = (float *)(shared + ((const shared_head *)shared)->machine.attend_at);
    room.sums = room.maxima + heads * parts;
    room.queries = (uint8_t *)(room.sums + heads * parts);
    room.own = room.queries + query_bytes;
    room.outputs = (float *)(room.own + own_bytes);
    return room;
}

/* ---- Queries, and the token's own key and value ---- */

/* An element of a query, or of the token's own key or value, that one thread loads, with its rope partner:
 * both loads are in flight before either is waited for. */
struct pending_element {
    uint64_t from;
    uint32_t at, partner, element;
    uint32_t seen, other; /* tagged words */
    float cosine, sine;   /* with the sign that `other` has */
    bool on, is_query, is_key;
};

/* Number `i`: `columns` elements of queries, then the key, then the value. DIM: elements of a head, a power
 * of two, or 0: attend.head_dim, and two heads at most. */
template <uint32_t DIM>
KERNEL_INLINE pending_element load_pending_element(
    shared_head &head, const cuda_attend &attend, const attend_task &task, uint32_t columns, uint32_t i)
{
    const uint32_t head_dim = DIM ? DIM : attend.head_dim;
    pending_element own;
    own.on = i < columns + (task.has_own ? 2 * head_dim : 0);
    own.is_query = i < columns;
    own.is_key = !own.is_query && i < columns + head_dim;
    if constexpr (DIM != 0)
        own.element = i % DIM;
    else
        own.element =
            own.is_query ? i - (i >= head_dim ? head_dim : 0) : i - columns - (own.is_key ? 0 : head_dim);
    own.from = own.is_query ? attend.q : own.is_key ? attend.k : attend.v;
    own.at = own.is_query ? task.first_head * head_dim + i : task.kv_head_index * head_dim + own.element;
    own.partner = own.at;
    own.cosine = 1;
    own.sine = 0;
    const uint32_t rope = own.is_query ? attend.rope_q : own.is_key ? attend.rope_k : (uint32_t)CUDA_NONE;
    if (own.on && rope != CUDA_NONE && own.element < attend.dimensions) {
        const uint32_t pairs = attend.dimensions / 2;
        const bool is_left = attend.halves ? own.element < pairs : own.element % 2 == 0;
        const uint32_t pair = attend.halves ? (is_left ? own.element : own.element - pairs) : own.element / 2;
        const uint32_t distance = attend.halves ? pairs : 1;
        own.partner = is_left ? own.at + distance : own.at - distance;
        own.cosine = head.row.cosines[rope * head.machine.rope_pairs + pair];
        own.sine = head.row.sines[rope * head.machine.rope_pairs + pair];
        own.sine = is_left ? -own.sine : own.sine;
    }
    own.seen = own.other = head.tag & TAG_MASK;
    if (own.on && head.machine.tagged) {
        own.seen = load_word((const uint32_t *)own.from + own.at);
        own.other = load_word((const uint32_t *)own.from + own.partner);
    } else if (own.on) {
        own.seen = tagged_word(__ldcg((const float *)own.from + own.at), head.tag);
        own.other = tagged_word(__ldcg((const float *)own.from + own.partner), head.tag);
    }
    return own;
}

/* Waits for an element and rotates it; by whole warps. */
KERNEL_INLINE float take_element(shared_head &head, pending_element &own)
{
    wait_timeout timeout(head.machine);
    const uint32_t tag = head.tag;
    for (bool over = false;;) {
        const bool arrived = has_tag(own.seen, tag) & has_tag(own.other, tag);
        if (!warp_keeps_waiting(head, timeout, arrived, over))
            break;
        if (!arrived) {
            own.seen = load_word((const uint32_t *)own.from + own.at);
            own.other = load_word((const uint32_t *)own.from + own.partner);
        }
    }
    if (own.partner == own.at)
        return value_in_word(own.seen);
    return fmaf(value_in_word(own.seen), own.cosine, value_in_word(own.other) * own.sine);
}

/* Stores one element of the token's own key or value in the cache, and returns it as the cache rounds it. Not
 * for Q8_0, which needs the neighbouring elements. */
KERNEL_INLINE float append_element(const shared_head &head, const cuda_attend &attend, uint64_t state,
    uint32_t kv_head_index, uint32_t i, float value)
{
    const kv_head place = find_kv_head(state, head.row.pages[head.row.position / PAGE_POSITIONS],
        attend.kv_heads, kv_head_index, attend.head_dim, attend.kv_type);
    const uint32_t at = head.row.position % PAGE_POSITIONS * attend.head_dim + i;
    if (attend.kv_type == TYPE_F32) {
        ((float *)place.elements)[at] = value;
        return value;
    }
    const uint16_t half = float_to_half_bits(value);
    ((uint16_t *)place.elements)[at] = half;
    return half_to_float(half);
}

/* The same for Q8_0: all elements, in place. `own` is [2][head_dim]. */
KERNEL_INLINE void append_bytes(
    const cuda_attend &attend, const row_context &row, uint32_t kv_head_index, float *own)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = (attend.head_dim + 31) / 32;
    const uint32_t page = row.pages[row.position / PAGE_POSITIONS];
    for (uint32_t i = warp; i < groups * 2; i += CUDA_WARPS) {
        const uint32_t first = i / 2 * 32;
        float *from = own + (i % 2) * attend.head_dim;
        const kv_head place = find_kv_head(i % 2 ? attend.values : attend.keys, page, attend.kv_heads,
            kv_head_index, attend.head_dim, attend.kv_type);
        append_group(place, attend.kv_type, row.position, attend.head_dim, first, from);
        __syncwarp();
        const uint32_t at = row.position % PAGE_POSITIONS * attend.head_dim + first + lane;
        if (first + lane < attend.head_dim)
            from[first + lane] =
                half_to_float(place.scales[row.position % PAGE_POSITIONS * groups + first / 32]) *
                (float)((int8_t *)place.elements)[at];
    }
}

/* The last warps begin, because they have the least work in the matmul before. */
KERNEL_INLINE uint32_t first_element()
{
    return this_thread() ^ (CUDA_WORKERS - 32);
}

/* Stores all elements in shared memory; `own` is the thread's first one, keep(own, i, value) stores one. A
 * barrier must follow. */
template <uint32_t DIM, class Keep>
KERNEL_INLINE void take_elements(shared_head &head, const cuda_attend &attend, const attend_task &task,
    uint32_t columns, pending_element own, Keep keep)
{
    const uint32_t all = columns + (task.has_own ? 2 * attend.head_dim : 0);
    for (uint32_t i = first_element();; own = load_pending_element<DIM>(head, attend, task, columns, i)) {
        const float value = take_element(head, own);
        if (own.on)
            keep(own, i, value);
        i += CUDA_WORKERS;
        if (i / 32 * 32 >= all)
            break;
    }
}

#endif
