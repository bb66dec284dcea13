/*
 * Attention of one token. A task has one or two heads that share a KV head, and a range of positions: eight
 * elements of a head for each lane, several positions for each warp at once, every group of lanes with a
 * softmax of its own; they are merged in a fixed order at the end. The token's own key and value come
 * straight from their vectors, rounded as the cache rounds them. Scores are in powers of two: the queries are
 * multiplied by log2(e).
 */
#ifndef CUDA_ATTEND_ONE_CUH
#define CUDA_ATTEND_ONE_CUH

#include "backend/cuda/words.cuh"

enum { ATTEND_HEADS = 2, ATTEND_MIN_POSITIONS = 128 };

#define LOG2_OF_E 1.44269504f

KERNEL_INLINE float power_of_two(float x)
{
#ifdef CUDA_EMULATOR
    return exp2f(x);
#else
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#endif
}

/* Ranges of positions that work is divided into: as many as are worth it. */
struct attend_split {
    uint32_t active, length;
};

KERNEL_INLINE attend_split split_positions(uint32_t positions, uint32_t splits)
{
    uint32_t active = (positions + ATTEND_MIN_POSITIONS - 1) / ATTEND_MIN_POSITIONS;
    active = min(max(active, 1u), splits);
    if (active == 1)
        return {1, positions};
    const uint32_t length = (positions + active - 1) / active;
    return {(positions + length - 1) / length, length};
}

/* ---- Eight elements of a cached head ---- */

template <bool WIDE> struct raw_eight {
    uint4 first; /* halves, floats, or bytes in x and y */
    uint4 last;  /* floats */
    float scale; /* bytes */
};
template <> struct raw_eight<false> {
    uint4 first;
    float scale;
};

template <bool WIDE>
KERNEL_INLINE raw_eight<WIDE> load_eight(
    uint32_t type, const kv_head &head, uint32_t position, uint32_t head_dim, uint32_t first)
{
    const uint32_t at = position * head_dim + first;
    raw_eight<WIDE> raw = {};
    if constexpr (WIDE) {
        raw.first = __ldcg((const uint4 *)(head.elements + at * 4));
        raw.last = __ldcg((const uint4 *)(head.elements + at * 4) + 1);
    } else if (type == TYPE_F16) {
        raw.first = __ldcg((const uint4 *)(head.elements + at * 2));
    } else {
        const uint2 bytes = __ldcg((const uint2 *)(head.elements + at));
        raw.first.x = bytes.x, raw.first.y = bytes.y;
        raw.scale = half_to_float(__ldcg(head.scales + position * ((head_dim + 31) / 32) + first / 32));
    }
    return raw;
}

template <bool WIDE>
KERNEL_INLINE void unpack_eight(uint32_t type, const raw_eight<WIDE> &raw, float (&out)[8])
{
    const uint32_t words[4] = {raw.first.x, raw.first.y, raw.first.z, raw.first.w};
    if constexpr (WIDE) {
        const uint32_t others[4] = {raw.last.x, raw.last.y, raw.last.z, raw.last.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __uint_as_float(words[i]), out[i + 4] = __uint_as_float(others[i]);
    } else if (type == TYPE_F16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = __half22float2(*(const __half2 *)&words[i]);
            out[2 * i] = two.x, out[2 * i + 1] = two.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = raw.scale * (float)(int8_t)(words[i / 4] >> (8 * (i % 4)));
    }
}

/* ---- Where a task has what ---- */

/* What lies where in shared memory: [HEADS][head_dim] queries, [2][head_dim] own key and value; what each
 * warp has come to: maxima and sums, [HEADS][CUDA_WARPS], and outputs, [CUDA_WARPS][HEADS][head_dim]. */
struct attend_room {
    float *queries, *own, *maxima, *sums, *outputs;
};

template <int HEADS> KERNEL_INLINE attend_room room_of(uint8_t *shared, uint32_t head_dim)
{
    attend_room room;
    room.maxima = (float *)(shared + ((const shared_head *)shared)->machine.attend_at);
    room.sums = room.maxima + HEADS * CUDA_WARPS;
    room.queries = room.sums + HEADS * CUDA_WARPS;
    room.own = room.queries + HEADS * head_dim;
    room.outputs = room.own + 2 * head_dim;
    return room;
}

/* ---- Queries, and the token's own key and value ---- */

/* An element of a query, or of the token's own key or value, that one thread brings, with the one it is
 * rotated with: both are on their way before either is waited for. */
struct awaited_element {
    uint64_t from;
    uint32_t at, partner, element;
    uint64_t seen, other; /* words */
    float cosine, sine;   /* with the sign that `other` has */
    bool on, is_query, is_key;
};

/* Number `i`: `columns` elements of queries, then the key, then the value. */
KERNEL_INLINE awaited_element look_at_element(
    shared_head &head, const cuda_attend &attend, const attend_task &task, uint32_t columns, uint32_t i)
{
    const uint32_t head_dim = attend.head_dim;
    awaited_element own;
    own.on = i < columns + (task.has_own ? 2 * head_dim : 0);
    own.is_query = i < columns;
    own.is_key = !own.is_query && i < columns + head_dim;
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
    own.seen = own.other = (uint64_t)head.tag << 32;
    if (own.on && head.machine.tagged) {
        own.seen = look_at_word((const uint64_t *)own.from + own.at);
        own.other = look_at_word((const uint64_t *)own.from + own.partner);
    } else if (own.on) {
        own.seen |= __float_as_uint(__ldcg((const float *)own.from + own.at));
        own.other |= __float_as_uint(__ldcg((const float *)own.from + own.partner));
    }
    return own;
}

/* Rotated, once it is there; by whole warps. */
KERNEL_INLINE float take_element(shared_head &head, awaited_element &own)
{
    patience patience(head.machine);
    const uint32_t tag = head.tag;
    for (;;) {
        const bool come = has_tag(own.seen, tag) & has_tag(own.other, tag);
        if (__all_sync(~0u, come) || !look_again(head, patience))
            break;
        if (!come) {
            own.seen = look_at_word((const uint64_t *)own.from + own.at);
            own.other = look_at_word((const uint64_t *)own.from + own.partner);
        }
    }
    if (own.partner == own.at)
        return value_in(own.seen);
    return fmaf(value_in(own.seen), own.cosine, value_in(own.other) * own.sine);
}

/* One element of the token's own key or value: to the cache, and as the cache rounds it. Not for bytes, which
 * need their neighbours. */
KERNEL_INLINE float append_element(const shared_head &head, const cuda_attend &attend, uint64_t state,
    uint32_t kv_head_index, uint32_t i, float value)
{
    const kv_head place = find_kv_head(state, head.row.pages[head.row.position / CUDA_PAGE], attend.kv_heads,
        kv_head_index, attend.head_dim, attend.kv_type);
    const uint32_t at = head.row.position % CUDA_PAGE * attend.head_dim + i;
    if (attend.kv_type == TYPE_F32) {
        ((float *)place.elements)[at] = value;
        return value;
    }
    const uint16_t half = float_to_half_bits(value);
    ((uint16_t *)place.elements)[at] = half;
    return half_to_float(half);
}

/* The same for bytes, of all elements, in place. `own` is [2][head_dim]. */
KERNEL_INLINE void append_bytes(
    const cuda_attend &attend, const row_context &row, uint32_t kv_head_index, float *own)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = (attend.head_dim + 31) / 32;
    const uint32_t page = row.pages[row.position / CUDA_PAGE];
    for (uint32_t i = warp; i < groups * 2; i += CUDA_WARPS) {
        const uint32_t first = i / 2 * 32;
        float *from = own + (i % 2) * attend.head_dim;
        const kv_head place = find_kv_head(i % 2 ? attend.values : attend.keys, page, attend.kv_heads,
            kv_head_index, attend.head_dim, attend.kv_type);
        append_group(place, attend.kv_type, row.position, attend.head_dim, first, from);
        __syncwarp();
        const uint32_t at = row.position % CUDA_PAGE * attend.head_dim + first + lane;
        if (first + lane < attend.head_dim)
            from[first + lane] = half_to_float(place.scales[row.position % CUDA_PAGE * groups + first / 32]) *
                                 (float)((int8_t *)place.elements)[at];
    }
}

/* The last warps have least to do in the matmul before, and begin. */
KERNEL_INLINE uint32_t first_element()
{
    return this_thread() ^ (CUDA_WORKERS - 32);
}

/* To shared memory; `own` is the thread's first. A barrier has to follow. */
KERNEL_INLINE void prepare_attend(shared_head &head, const cuda_attend &attend, const attend_task &task,
    uint32_t columns, const attend_room &room, awaited_element own)
{
    const uint32_t all = columns + (task.has_own ? 2 * attend.head_dim : 0);
    const float scale = attend.cap > 0 ? attend.scale : attend.scale * LOG2_OF_E;
    const bool by_element = attend.kv_type != TYPE_Q8_0;
    for (uint32_t i = first_element();; own = look_at_element(head, attend, task, columns, i)) {
        const float value = take_element(head, own);
        if (own.on && own.is_query)
            room.queries[i] = scale * value;
        else if (own.on)
            room.own[i - columns] =
                by_element ? append_element(head, attend, own.is_key ? attend.keys : attend.values,
                                 task.kv_head_index, own.element, value)
                           : value;
        i += CUDA_WORKERS;
        if (i / 32 * 32 >= all)
            break;
    }
    if (task.has_own && !by_element) {
        sync_threads<CUDA_WORKERS>();
        append_bytes(attend, head.row, task.kv_head_index, room.own);
    }
}

/* ---- A range of positions ---- */

/* What a group of lanes has come to; the output is spread over its lanes. */
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

/* The groups of a warp come together; the same order in both halves: the lower one's part first. */
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

/* ---- Results ---- */

struct attend_result {
    float maximum, sum, output; /* of one element; the first two are the same for all of a head */
};

/* One element of a head from what all splits have left, in their order; a lane looks at one split's maximum
 * and sum. The caller's own is the first split. */
KERNEL_INLINE attend_result merge_splits(shared_head &head, const uint64_t *splits, uint32_t active,
    uint32_t stride, uint32_t element, attend_result own)
{
    enum { AT_ONCE = 8 };
    const uint32_t lane = threadIdx.x % 32;
    float maximum = lane ? -1e30f : own.maximum, sum = lane ? 0 : own.sum;
    if (lane && lane < active) {
        const uint64_t *place = splits + lane * stride;
        const uint64_t seen = look_at_word(place), seen_sum = look_at_word(place + 1);
        maximum = wait_for_word(head, place, seen);
        sum = wait_for_word(head, place + 1, seen_sum);
    }
    __syncwarp();
    attend_result all;
    all.maximum = warp_max(maximum);
    const float factor = power_of_two(maximum - all.maximum);
    all.sum = warp_sum(factor * sum);
    all.output = own.output * __shfl_sync(~0u, factor, 0);
    for (uint32_t first = 1; first < active; first += AT_ONCE) {
        uint64_t seen[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            seen[i] = first + i < active ? look_at_word(splits + (first + i) * stride + 2 + element) : 0;
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const float weight = __shfl_sync(~0u, factor, (first + i) % 32);
            if (first + i < active)
                all.output = fmaf(wait_for_word(head, splits + (first + i) * stride + 2 + element, seen[i]),
                    weight, all.output);
            __syncwarp();
        }
    }
    return all;
}

/* What the warps have come to comes together: COUNT elements of head `h`. Every lane does all of it for
 * itself, so that there is little to wait for. */
template <int HEADS, int COUNT>
KERNEL_INLINE void merge_warps(const attend_room &room, uint32_t head_dim, uint32_t h,
    const uint32_t (&elements)[COUNT], attend_result (&results)[COUNT])
{
    float maxima[CUDA_WARPS], sums[CUDA_WARPS], outputs[COUNT][CUDA_WARPS];
#pragma unroll
    for (int i = 0; i < CUDA_WARPS; i += 4) {
        const float4 maximum = *(const float4 *)(room.maxima + h * CUDA_WARPS + i),
                     sum = *(const float4 *)(room.sums + h * CUDA_WARPS + i);
        maxima[i] = maximum.x, maxima[i + 1] = maximum.y, maxima[i + 2] = maximum.z,
        maxima[i + 3] = maximum.w;
        sums[i] = sum.x, sums[i + 1] = sum.y, sums[i + 2] = sum.z, sums[i + 3] = sum.w;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float *place = room.outputs + h * head_dim + min(elements[i], head_dim - 1);
#pragma unroll
        for (int warp = 0; warp < CUDA_WARPS; warp++)
            outputs[i][warp] = place[warp * HEADS * head_dim];
    }
    float all = maxima[0];
#pragma unroll
    for (int i = 1; i < CUDA_WARPS; i++)
        all = fmaxf(all, maxima[i]);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        results[i].output = 0;
#pragma unroll
    for (int warp = 0; warp < CUDA_WARPS; warp++) {
        const float weight = power_of_two(maxima[warp] - all);
        sum = fmaf(weight, sums[warp], sum);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            results[i].output = fmaf(outputs[i][warp], weight, results[i].output);
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

/* Warps, then splits, come together: a warp has up to 32 elements of a head. */
template <int HEADS>
KERNEL_INLINE void finish_split(
    shared_head &head, const cuda_attend &attend, const attend_task &task, const attend_room &room)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, head_dim = attend.head_dim;
    const uint32_t chunks = (head_dim + 31) / 32, h = HEADS > 1 && warp >= chunks;
    if (warp >= HEADS * chunks)
        return;
    const uint32_t element = (warp - h * chunks) * 32 + lane, stride = head_dim + 2;
    const uint32_t elements[1] = {element};
    attend_result result[1];
    merge_warps<HEADS, 1>(room, head_dim, h, elements, result);
    const uint32_t index = task.first_head + h;
    uint64_t *splits = (uint64_t *)attend.partials + (uint64_t)index * attend.splits * stride;
    if (task.split) {
        uint64_t *to = splits + task.split * stride;
        if (element < head_dim)
            put_word(to + 2 + element, result[0].output, head.tag);
        if (element == 0) {
            put_word(to, result[0].maximum, head.tag);
            put_word(to + 1, result[0].sum, head.tag);
        }
        return;
    }
    if (task.active > 1)
        result[0] = merge_splits(head, splits, task.active, stride, min(element, head_dim - 1), result[0]);
    put_result(head, attend, index, element, result[0]);
}

/* A block's last task, of all positions: the finishing warp's. */
KERNEL_INLINE bool is_finished_apart(const cuda_machine &machine, const attend_task &task)
{
    return machine.attends_apart && task.heads == 1 && task.active == 1 && !task.more;
}

KERNEL_INLINE void finish_attend(uint8_t *shared, const cuda_attend &attend)
{
    const shared_head &head = *(const shared_head *)shared;
    const attend_task &task = head.task;
    if (!is_finished_apart(head.machine, task))
        return;
    const attend_room room = room_of<1>(shared, attend.head_dim);
    for (uint32_t first = this_thread() % 32; first / 32 * 32 < attend.head_dim; first += 64) {
        const uint32_t elements[2] = {first, first + 32};
        attend_result results[2];
        merge_warps<1, 2>(room, attend.head_dim, 0, elements, results);
        put_result(head, attend, task.first_head, elements[0], results[0]);
        put_result(head, attend, task.first_head, elements[1], results[1]);
    }
}

/* ---- All of a task ---- */

template <int HEADS, int LANES, bool WIDE> __device__ __noinline__ void attend_with()
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
    const attend_room room = room_of<HEADS>(shared, head_dim);
    const awaited_element own = look_at_element(head, attend, task, HEADS * head_dim, first_element());
    raw_eight<WIDE> keys[AT_ONCE], values[AT_ONCE];
    auto fetch = [&](uint32_t base) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t position = base + u * step + group;
            keys[u] = values[u] = {};
            if (position < task.cached_end && on) {
                const uint32_t page = pages[position / CUDA_PAGE], at = position % CUDA_PAGE;
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
    /* What the cache has comes before the query does. */
    fetch(task.begin + warp * GROUPS);
    prepare_attend(head, attend, task, HEADS * head_dim, room, own);
    sync_threads<CUDA_WORKERS>();
    float query[HEADS][8];
    attend_sums<HEADS> sums;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        sums.maximum[h] = -1e30f; /* below every score; not infinite, so that differences are numbers */
        sums.sum[h] = 0;
        load_floats(room.queries + h * head_dim + element, on, query[h]);
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
        load_floats(room.own + element, on, key);
        load_floats(room.own + head_dim + element, on, value);
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
    if (is_finished_apart(head.machine, task))
        return;
    sync_threads<CUDA_WORKERS>();
    finish_split<HEADS>(head, attend, task, room);
    sync_threads<CUDA_WORKERS>(); /* the room is free for another task */
}

/* Which of them a task is done by. */
enum attend_way { ATTEND_TWO = 1, ATTEND_WIDE = 2, ATTEND_BY_16 = 4, ATTEND_BY_32 = 8 };

KERNEL_INLINE uint32_t find_way(const cuda_attend &attend, const attend_task &task)
{
    return (task.heads > 1 ? ATTEND_TWO : 0) | (attend.kv_type == TYPE_F32 ? ATTEND_WIDE : 0) |
           (attend.head_dim <= 64       ? 0
               : attend.head_dim <= 128 ? ATTEND_BY_16
                                        : ATTEND_BY_32);
}

template <int LANES> KERNEL_INLINE void attend_by(uint32_t way)
{
    switch (way & (ATTEND_TWO | ATTEND_WIDE)) {
    case 0:
        return attend_with<1, LANES, false>();
    case ATTEND_TWO:
        return attend_with<2, LANES, false>();
    case ATTEND_WIDE:
        return attend_with<1, LANES, true>();
    default:
        return attend_with<2, LANES, true>();
    }
}

KERNEL_INLINE void attend_any(uint32_t way)
{
    if (way < ATTEND_BY_16)
        attend_by<8>(way);
    else if (way < ATTEND_BY_32)
        attend_by<16>(way);
    else
        attend_by<32>(way);
}

/* Task number `index` of the token, of `at_once` at a time; heads 0: there is none. Two heads a task read the
 * cache once for both; while one split is enough, more blocks are better. */
KERNEL_INLINE attend_task find_task(
    const cuda_attend &attend, uint32_t position, uint32_t index, uint32_t at_once)
{
    const uint32_t each = attend.heads / attend.kv_heads;
    const uint32_t seen = attend.window && position + 1 > attend.window ? position + 1 - attend.window : 0;
    const attend_split ranges = split_positions(position + 1 - seen, attend.splits);
    const uint32_t most = ranges.active > 1 ? (uint32_t)ATTEND_HEADS : 1, subsets = (each + most - 1) / most;
    const uint32_t rest = index / ranges.active, within = rest % subsets * most;
    attend_task task;
    task.split = index % ranges.active;
    task.active = ranges.active;
    task.kv_head_index = rest / subsets;
    task.first_head = task.kv_head_index * each + within;
    task.heads = task.kv_head_index < attend.kv_heads ? min(most, each - within) : 0;
    task.begin = seen + task.split * ranges.length;
    const uint32_t end = min(task.begin + ranges.length, position + 1);
    task.has_own = end == position + 1 && attend.appends;
    task.cached_end = task.has_own ? end - 1 : end;
    task.more = index + at_once < attend.kv_heads * subsets * ranges.active;
    return task;
}

/* The next task of one block. The first is the same in all layers of a token whose attention has one shape.
 */
KERNEL_INLINE void take_task(uint8_t *shared, bool is_first)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_record *record = current_record(shared);
    if (is_first && head.task_shape == record->index && head.task_tag == head.tag)
        return;
    sync_threads<CUDA_WORKERS>(); /* nobody needs the task before */
    if (this_thread() == 0) {
        head.task_number = is_first ? blockIdx.x : head.task_number + gridDim.x;
        head.task = find_task(record->attend, head.row.position, head.task_number, gridDim.x);
        head.task_shape = is_first ? record->index : 0;
        head.task_tag = head.tag;
    }
    sync_threads<CUDA_WORKERS>();
}

/* The tasks of one block. Nothing is kept across one. */
KERNEL_INLINE void attend_one_token()
{
    for (bool is_first = true;; is_first = false) {
        DYNAMIC_SHARED_ANEW(shared);
        shared_head &head = *(shared_head *)shared;
        take_task(shared, is_first);
        if (uniform(head.task.heads == 0))
            return;
        attend_any(uniform(find_way(current_record(shared)->attend, head.task)));
        DYNAMIC_SHARED_ANEW(again);
        if (uniform(!((shared_head *)again)->task.more))
            return;
    }
}

#endif
