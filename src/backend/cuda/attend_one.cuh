/*
 * Attention of one token. A task has up to four heads that share a KV head, and a range of positions: eight
 * elements of a head for each lane, several positions for each warp at once, every group of lanes with a
 * softmax of its own; they are merged in a fixed order at the end. The token's own key and value come
 * straight from their vectors, rounded as the cache rounds them. Scores are in powers of two: the queries are
 * multiplied by log2(e).
 */
#ifndef CUDA_ATTEND_ONE_CUH
#define CUDA_ATTEND_ONE_CUH

#include "backend/cuda/exchange.cuh"

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

/* ---- A task, in shared memory like everything that lives longer than a function ---- */

struct attend_task {
    uint32_t kv_head_index, first_head, heads, split, active;
    uint32_t begin, cached_end; /* positions in the cache */
    uint32_t has_own;           /* and the token's own */
};

/* What the warps of a block have come to, head by head: the factor of each warp, and the sums of all. */
struct attend_merge {
    float factors[ATTEND_HEADS][CUDA_WARPS], maximum[ATTEND_HEADS], sum[ATTEND_HEADS];
};

/* Where a task has what: [ATTEND_HEADS][head_dim] queries, [2][head_dim] own key and value, the sums of the
 * warps. */
struct attend_room {
    attend_task *task;
    attend_merge *merge;
    float *queries, *own, *places;
};

KERNEL_INLINE attend_room room_of(uint8_t *shared, const cuda_attend &attend)
{
    uint8_t *base = shared + ((const shared_head *)shared)->machine.partials_at;
    attend_room room;
    room.task = (attend_task *)base;
    room.merge = (attend_merge *)(base + 64);
    room.queries = (float *)(base + 512);
    room.own = room.queries + ATTEND_HEADS * attend.head_dim;
    room.places = room.own + 2 * attend.head_dim;
    return room;
}
static_assert(sizeof(attend_task) <= 64 && sizeof(attend_merge) <= 448, "what lies before the queries");

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

/*
 * Positions begin .. end-1 of the cache, and the token's own key and value when `own` is not NULL. Leaves the
 * sums of each warp in shared memory: [warp][HEADS][head_dim + 2].
 */
template <int HEADS, int LANES, bool WIDE> __device__ __noinline__ void attend_range(uint32_t attend_at)
{
    DYNAMIC_SHARED(shared);
    const shared_head &head = *(const shared_head *)shared;
    const cuda_attend &attend = *(const cuda_attend *)(shared + attend_at);
    const attend_room room = room_of(shared, attend);
    const attend_task &task = *room.task;
    const uint32_t begin = task.begin, end = task.cached_end, kv_head_index = task.kv_head_index;
    const uint32_t *pages = head.row.pages;
    const float *queries = room.queries, *own = task.has_own ? room.own : nullptr;
    float *places = room.places;
    constexpr int AT_ONCE = WIDE || HEADS > 1 ? 1 : 2, GROUPS = 32 / LANES;
    const uint32_t warp = threadIdx.x / 32, group = threadIdx.x % 32 / LANES, lane = threadIdx.x % LANES;
    const uint32_t head_dim = attend.head_dim, element = lane * 8, step = CUDA_WARPS * GROUPS;
    const bool on = element < head_dim;
    float query[HEADS][8];
    attend_sums<HEADS> sums;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        sums.maximum[h] = -1e30f; /* below every score; not infinite, so that differences are numbers */
        sums.sum[h] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            query[h][i] = on ? queries[h * head_dim + element + i] : 0;
            sums.output[h][i] = 0;
        }
    }
    for (uint32_t base = begin + warp * GROUPS; base < end; base += AT_ONCE * step) {
        raw_eight<WIDE> keys[AT_ONCE] = {}, values[AT_ONCE] = {};
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t position = base + u * step + group;
            if (position < end && on) {
                const uint32_t page = pages[position / CUDA_PAGE], at = position % CUDA_PAGE;
                keys[u] = load_eight<WIDE>(attend.kv_type,
                    find_kv_head(attend.keys, page, attend.kv_heads, kv_head_index, head_dim, attend.kv_type),
                    at, head_dim, element);
                values[u] = load_eight<WIDE>(attend.kv_type,
                    find_kv_head(
                        attend.values, page, attend.kv_heads, kv_head_index, head_dim, attend.kv_type),
                    at, head_dim, element);
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            float key[8], value[8];
            unpack_eight(attend.kv_type, keys[u], key);
            unpack_eight(attend.kv_type, values[u], value);
            attend_to<HEADS, LANES>(query, key, value, attend.cap, base + u * step + group < end, sums);
        }
    }
    if (own && warp == CUDA_WARPS - 1) {
        float key[8], value[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            key[i] = on ? own[element + i] : 0;
            value[i] = on ? own[head_dim + element + i] : 0;
        }
        attend_to<HEADS, LANES>(query, key, value, attend.cap, group == 0, sums);
    }

    /* The groups of a warp come together; the same order in both halves: the lower one's part first. */
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
        float *place = places + (warp * HEADS + h) * (head_dim + 2);
        if (threadIdx.x % 32 == 0)
            place[0] = sums.maximum[h], place[1] = sums.sum[h];
        if (threadIdx.x % 32 < LANES && on) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                place[2 + element + i] = sums.output[h][i];
        }
    }
}

template <int LANES, bool WIDE> KERNEL_INLINE void attend_heads(uint32_t heads, uint32_t attend_at)
{
    if (heads == 1)
        attend_range<1, LANES, WIDE>(attend_at);
    else
        attend_range<2, LANES, WIDE>(attend_at);
}

template <bool WIDE> KERNEL_INLINE void attend_lanes(uint32_t heads, uint32_t head_dim, uint32_t attend_at)
{
    if (head_dim <= 64)
        attend_heads<8, WIDE>(heads, attend_at);
    else if (head_dim <= 128)
        attend_heads<16, WIDE>(heads, attend_at);
    else
        attend_heads<32, WIDE>(heads, attend_at);
}

/* ---- Queries, and the token's own key and value ---- */

/* Element `i` of a head, rotated. */
KERNEL_INLINE float rotated(const cuda_machine &machine, const row_context &row, const cuda_attend &attend,
    uint32_t rope, const float *head, uint32_t i, bool in_shared)
{
    const float own = in_shared ? head[i] : __ldcg(head + i);
    if (rope == CUDA_NONE || i >= attend.dimensions)
        return own;
    const uint32_t pairs = attend.dimensions / 2;
    const uint32_t pair = attend.halves ? (i < pairs ? i : i - pairs) : i / 2;
    const bool is_left = attend.halves ? i < pairs : i % 2 == 0;
    const uint32_t partner = attend.halves ? (is_left ? i + pairs : i - pairs) : i ^ 1;
    const float other = in_shared ? head[partner] : __ldcg(head + partner);
    const float cosine = row.cosines[rope * machine.rope_pairs + pair],
                sine = row.sines[rope * machine.rope_pairs + pair];
    return is_left ? fmaf(own, cosine, -(other * sine)) : fmaf(own, cosine, other * sine);
}

/* The token's own key and value: into the cache, and rounded as it rounds, in place. `own` is [2][head_dim].
 */
KERNEL_INLINE void append_own(
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
        if (first + lane >= attend.head_dim || attend.kv_type == TYPE_F32)
            continue;
        const uint64_t at = (uint64_t)row.position % CUDA_PAGE * attend.head_dim + first + lane;
        if (attend.kv_type == TYPE_F16)
            from[first + lane] = __half2float(__float2half_rn(from[first + lane]));
        else
            from[first + lane] = half_to_float(place.scales[row.position % CUDA_PAGE * groups + first / 32]) *
                                 (float)((int8_t *)place.elements)[at];
    }
}

/* ---- Tasks ---- */

/* A column of the result: where the others will look for it. */
KERNEL_INLINE void put_attended(const cuda_attend &attend, uint32_t column, float value, float *vectors)
{
    if (attend.out_place != CUDA_NONE)
        vectors[attend.out_place + column] = value;
    if (attend.out)
        __stcg((float *)attend.out + column, value);
}

KERNEL_INLINE void merge_warps(const float *places, uint32_t heads, uint32_t stride, attend_merge &merge)
{
    const uint32_t h = threadIdx.x / CUDA_WARPS, warp = threadIdx.x % CUDA_WARPS;
    if (threadIdx.x >= ATTEND_HEADS * CUDA_WARPS)
        return; /* whole warps */
    const float *place = places + (warp * heads + (h < heads ? h : 0)) * stride;
    const float own = place[0];
    float maximum = own;
#pragma unroll
    for (int distance = CUDA_WARPS / 2; distance; distance /= 2)
        maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, distance));
    const float factor = power_of_two(own - maximum);
    float sum = factor * place[1];
#pragma unroll
    for (int distance = CUDA_WARPS / 2; distance; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    merge.factors[h][warp] = factor;
    if (warp == 0)
        merge.maximum[h] = maximum, merge.sum[h] = sum;
}

/* All splits of one head, in order, for one element of the output. */
KERNEL_INLINE float merge_splits(const float *from, uint32_t count, uint32_t stride, uint32_t element)
{
    float maximum = -1e30f, sum = 0, output = 0;
    for (uint32_t i = 0; i < count; i++)
        maximum = fmaxf(maximum, __ldcg(from + (uint64_t)i * stride));
    for (uint32_t i = 0; i < count; i++) {
        const float *place = from + (uint64_t)i * stride;
        const float factor = power_of_two(__ldcg(place) - maximum);
        sum = fmaf(__ldcg(place + 1), factor, sum);
        output = fmaf(__ldcg(place + 2 + element), factor, output);
    }
    return output / sum;
}

/* Task number `index` of this token: which heads and positions. */
KERNEL_INLINE void find_task(const cuda_attend &attend, uint32_t position, uint32_t index,
    const attend_split &ranges, uint32_t seen, attend_task &out)
{
    const uint32_t each = attend.heads / attend.kv_heads, subsets = (each + ATTEND_HEADS - 1) / ATTEND_HEADS;
    const uint32_t rest = index / ranges.active, within = rest % subsets * ATTEND_HEADS;
    out.split = index % ranges.active;
    out.active = ranges.active;
    out.kv_head_index = rest / subsets;
    out.first_head = out.kv_head_index * each + within;
    out.heads = min((uint32_t)ATTEND_HEADS, each - within);
    out.begin = seen + out.split * ranges.length;
    const uint32_t end = min(out.begin + ranges.length, position + 1);
    out.has_own = end == position + 1 && attend.appends;
    out.cached_end = out.has_own ? end - 1 : end;
}

__device__ __noinline__ void prepare_attend(uint32_t attend_at)
{
    DYNAMIC_SHARED(shared);
    const shared_head &head = *(const shared_head *)shared;
    const cuda_attend &attend = *(const cuda_attend *)(shared + attend_at);
    const attend_room room = room_of(shared, attend);
    const attend_task &task = *room.task;
    const bool in_places = attend.out_place != CUDA_NONE;
    const float *vectors = (const float *)(shared + head.machine.vectors_at);
    const uint32_t head_dim = attend.head_dim, columns = task.heads * head_dim;
    const uint32_t q_at = task.first_head * head_dim, kv_at = task.kv_head_index * head_dim;
    const float *queries = (in_places ? vectors + attend.q_place : (const float *)attend.q) + q_at,
                *key = (in_places ? vectors + attend.k_place : (const float *)attend.k) + kv_at,
                *value = (in_places ? vectors + attend.v_place : (const float *)attend.v) + kv_at;
    const float scale = attend.cap > 0 ? attend.scale : attend.scale * LOG2_OF_E;
    for (uint32_t i = threadIdx.x; i < columns + (task.has_own ? 2 * head_dim : 0); i += CUDA_WORKERS) {
        if (i < columns) {
            const uint32_t h = i >= head_dim;
            room.queries[i] = scale * rotated(head.machine, head.row, attend, attend.rope_q,
                                          queries + h * head_dim, i - h * head_dim, in_places);
        } else if (i < columns + head_dim) {
            room.own[i - columns] =
                rotated(head.machine, head.row, attend, attend.rope_k, key, i - columns, in_places);
        } else {
            const uint32_t element = i - columns - head_dim;
            room.own[i - columns] = in_places ? value[element] : __ldcg(value + element);
        }
    }
    sync_threads<CUDA_WORKERS>();
    if (task.has_own) {
        append_own(attend, head.row, task.kv_head_index, room.own);
        sync_threads<CUDA_WORKERS>();
    }
}

/* Merges warps, then splits where there are several; the result to where it belongs. */
__device__ __noinline__ void finish_attend(uint32_t attend_at)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_attend &attend = *(const cuda_attend *)(shared + attend_at);
    const attend_room room = room_of(shared, attend);
    const attend_task &task = *room.task;
    float *vectors = (float *)(shared + head.machine.vectors_at), *partials = (float *)attend.partials;
    const uint32_t head_dim = attend.head_dim, stride = head_dim + 2, heads = task.heads,
                   columns = heads * head_dim;
    const uint32_t q_at = task.first_head * head_dim;
    uint32_t *counters = (uint32_t *)(partials + (uint64_t)attend.heads * attend.splits * stride);
    merge_warps(room.places, heads, stride, *room.merge);
    sync_threads<CUDA_WORKERS>();
    for (uint32_t i = threadIdx.x; i < columns; i += CUDA_WORKERS) {
        const uint32_t h = i >= head_dim, element = i - h * head_dim;
        float output = 0;
#pragma unroll
        for (uint32_t warp = 0; warp < CUDA_WARPS; warp++)
            output = fmaf(
                room.places[(warp * heads + h) * stride + 2 + element], room.merge->factors[h][warp], output);
        if (task.active == 1) {
            put_attended(attend, q_at + i, __fdividef(output, room.merge->sum[h]), vectors);
            continue;
        }
        float *to = partials + ((uint64_t)(task.first_head + h) * attend.splits + task.split) * stride;
        __stcg(to + 2 + element, output);
        if (element == 0) {
            __stcg(to, room.merge->maximum[h]);
            __stcg(to + 1, room.merge->sum[h]);
        }
    }
    bool complete = task.active == 1;
    if (!complete) {
        __threadfence();
        sync_threads<CUDA_WORKERS>();
        if (threadIdx.x == 0)
            head.last = atomicAdd(counters + task.first_head, 1) + 1 == task.active;
        sync_threads<CUDA_WORKERS>();
        complete = head.last;
        if (complete) {
            __threadfence();
            for (uint32_t i = threadIdx.x; i < columns; i += CUDA_WORKERS) {
                const uint32_t h = i >= head_dim;
                const float *from = partials + (uint64_t)(task.first_head + h) * attend.splits * stride;
                put_attended(
                    attend, q_at + i, merge_splits(from, task.active, stride, i - h * head_dim), vectors);
            }
            if (threadIdx.x == 0)
                counters[task.first_head] = 0;
        }
    }
    sync_threads<CUDA_WORKERS>();
    if (complete && attend.out_place != CUDA_NONE)
        exchange_send(head, head.exchanges, vectors + attend.out_place + q_at, columns);
}

/* The tasks of one block. */
KERNEL_INLINE void attend_one_token(uint8_t *shared, uint32_t attend_at, uint32_t block, uint32_t blocks)
{
    const shared_head &head = *(const shared_head *)shared;
    const cuda_attend &attend = *(const cuda_attend *)(shared + attend_at);
    const uint32_t position = head.row.position, each = attend.heads / attend.kv_heads;
    const uint32_t seen = attend.window && position + 1 > attend.window ? position + 1 - attend.window : 0;
    const attend_split ranges = split_positions(position + 1 - seen, attend.splits);
    const uint32_t tasks = attend.kv_heads * ((each + ATTEND_HEADS - 1) / ATTEND_HEADS) * ranges.active;
    for (uint32_t task = block; task < tasks; task += blocks) {
        if (threadIdx.x == 0)
            find_task(attend, position, task, ranges, seen, *room_of(shared, attend).task);
        sync_threads<CUDA_WORKERS>();
        prepare_attend(attend_at);
        const uint32_t heads = room_of(shared, attend).task->heads;
        if (attend.kv_type == TYPE_F32)
            attend_lanes<true>(heads, attend.head_dim, attend_at);
        else
            attend_lanes<false>(heads, attend.head_dim, attend_at);
        sync_threads<CUDA_WORKERS>();
        finish_attend(attend_at);
    }
}

#endif
