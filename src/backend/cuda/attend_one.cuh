/*
 * Attention of one token. A task has up to four heads that share a KV head, and a range of positions: eight elements
 * of a head for each lane, several positions for each warp at once, every group of lanes with a softmax of its own;
 * they are merged in a fixed order at the end. The token's own key and value come straight from their vectors,
 * rounded as the cache rounds them.
 */
#ifndef CUDA_ATTEND_ONE_CUH
#define CUDA_ATTEND_ONE_CUH

#include "backend/cuda/exchange.cuh"

enum { ATTEND_HEADS = 4, ATTEND_MIN_POSITIONS = 128 };

/* Ranges of positions that work is divided into: as many as are worth it. */
struct attend_split {
    uint32_t active, length;
};

KERNEL_INLINE attend_split split_positions(uint32_t positions, uint32_t splits)
{
    uint32_t active = (positions + ATTEND_MIN_POSITIONS - 1) / ATTEND_MIN_POSITIONS;
    active = min(max(active, 1u), splits);
    const uint32_t length = (positions + active - 1) / active;
    return {(positions + length - 1) / length, length};
}

/* Eight elements of a head, as floats. */
template <int TYPE> KERNEL_INLINE void load_eight(const kv_head &head, uint32_t position, uint32_t head_dim, uint32_t first, float (&out)[8])
{
    const uint64_t at = (uint64_t)position * head_dim + first;
    if (TYPE == TYPE_F16) {
        const uint4 raw = __ldcg((const uint4 *)(head.elements + at * 2));
        const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = __half22float2(*(const __half2 *)&words[i]);
            out[2 * i] = two.x, out[2 * i + 1] = two.y;
        }
    } else if (TYPE == TYPE_F32) {
        const float4 a = __ldcg((const float4 *)(head.elements + at * 4)),
                     b = __ldcg((const float4 *)(head.elements + at * 4) + 1);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    } else {
        const uint2 raw = __ldcg((const uint2 *)(head.elements + at));
        const float scale = half_to_float(__ldcg(head.scales + position * ((head_dim + 31) / 32) + first / 32));
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = scale * (float)(int8_t)((i < 4 ? raw.x : raw.y) >> (8 * (i % 4)));
    }
}

/* What a group of lanes has come to; the output is spread over its lanes. */
template <int HEADS> struct attend_sums {
    float maximum[HEADS], sum[HEADS], output[HEADS][8];
};

template <int HEADS> KERNEL_INLINE void attend_to(attend_sums<HEADS> &sums, const float (&scores)[HEADS], const float (&value)[8])
{
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const float maximum = fmaxf(sums.maximum[h], scores[h]);
        const float before = expf(sums.maximum[h] - maximum), weight = expf(scores[h] - maximum);
        sums.maximum[h] = maximum;
        sums.sum[h] = fmaf(sums.sum[h], before, weight);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums.output[h][i] = fmaf(weight, value[i], sums.output[h][i] * before);
    }
}

template <int HEADS, int LANES> struct attend_task {
    const cuda_attend &attend;
    const float *queries; /* shared memory: [HEADS][head_dim], scaled */
    uint32_t lane;        /* within the group of LANES */
    bool on;              /* this lane has elements */
    float query[HEADS][8];

    KERNEL_INLINE void load_queries()
    {
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                query[h][i] = on ? queries[h * attend.head_dim + lane * 8 + i] : 0;
    }

    KERNEL_INLINE void score(const float (&key)[8], float (&out)[HEADS]) const
    {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum = fmaf(query[h][i], key[i], sum);
#pragma unroll
            for (int distance = LANES / 2; distance; distance /= 2)
                sum += __shfl_xor_sync(~0u, sum, distance);
            out[h] = attend.cap > 0 ? attend.cap * tanhf(sum / attend.cap) : sum;
        }
    }
};

/* Positions begin .. end-1 of the cache, and the token's own key and value when `own` is not NULL. */
template <int HEADS, int LANES, int TYPE>
KERNEL_INLINE void attend_positions(attend_task<HEADS, LANES> &task, const row_context &row, uint32_t kv_head_index,
    uint32_t begin, uint32_t end, const float *own, attend_sums<HEADS> &sums)
{
    const cuda_attend &attend = task.attend;
    const uint32_t warp = threadIdx.x / 32, groups = 32 / LANES, group = threadIdx.x % 32 / LANES;
    const uint32_t step = CUDA_WARPS * groups;
    const uint32_t element = task.lane * 8;
    constexpr int AT_ONCE = HEADS <= 2 ? 2 : 1; /* positions in the registers of a lane */
    for (uint32_t base = begin; base < end; base += AT_ONCE * step) {
        float key[AT_ONCE][8], value[AT_ONCE][8];
        bool live[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t position = base + u * step + warp * groups + group;
            live[u] = position < end;
#pragma unroll
            for (int i = 0; i < 8; i++)
                key[u][i] = value[u][i] = 0;
            if (live[u] && task.on) {
                const uint32_t page = row.pages[position / CUDA_PAGE];
                load_eight<TYPE>(
                    find_kv_head(attend.keys, page, attend.kv_heads, kv_head_index, attend.head_dim, TYPE),
                    position % CUDA_PAGE, attend.head_dim, element, key[u]);
                load_eight<TYPE>(
                    find_kv_head(attend.values, page, attend.kv_heads, kv_head_index, attend.head_dim, TYPE),
                    position % CUDA_PAGE, attend.head_dim, element, value[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            float scores[HEADS];
            task.score(key[u], scores);
            if (live[u])
                attend_to(sums, scores, value[u]);
        }
    }
    if (own && warp == 0) {
        float key[8], value[8], scores[HEADS];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            key[i] = task.on ? own[element + i] : 0;
            value[i] = task.on ? own[attend.head_dim + element + i] : 0;
        }
        task.score(key, scores);
        if (group == 0)
            attend_to(sums, scores, value);
    }
}

/* Merges the groups of a warp, then leaves the warp's sums in shared memory: [warp][HEADS][head_dim + 2]. */
template <int HEADS, int LANES>
KERNEL_INLINE void leave_sums(const attend_task<HEADS, LANES> &task, attend_sums<HEADS> &sums, float *places)
{
    const uint32_t head_dim = task.attend.head_dim;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int distance = LANES; distance < 32; distance *= 2) {
            const float other = __shfl_xor_sync(~0u, sums.maximum[h], distance);
            const float maximum = fmaxf(sums.maximum[h], other);
            const float own = sums.maximum[h] == maximum ? 1 : expf(sums.maximum[h] - maximum),
                        others = other == maximum ? 1 : expf(other - maximum);
            const bool lower = (threadIdx.x & distance) == 0;
            const float other_sum = __shfl_xor_sync(~0u, sums.sum[h], distance);
            sums.maximum[h] = maximum;
            /* The same order in both halves: the lower one's part first. */
            sums.sum[h] = lower ? fmaf(sums.sum[h], own, other_sum * others) : fmaf(other_sum, others, sums.sum[h] * own);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float other_output = __shfl_xor_sync(~0u, sums.output[h][i], distance);
                sums.output[h][i] = lower ? fmaf(sums.output[h][i], own, other_output * others)
                                          : fmaf(other_output, others, sums.output[h][i] * own);
            }
        }
        float *place = places + ((threadIdx.x / 32) * HEADS + h) * (head_dim + 2);
        if (threadIdx.x % 32 == 0) {
            place[0] = sums.maximum[h];
            place[1] = sums.sum[h];
        }
        if (threadIdx.x % 32 < LANES && task.on) {
            for (int i = 0; i < 8; i++)
                place[2 + task.lane * 8 + i] = sums.output[h][i];
        }
    }
}

/* Merges `count` sums of one head, `stride` floats apart, for one element of the output. */
struct merged_sums {
    float maximum, sum, output;
};

KERNEL_INLINE merged_sums merge_sums(const float *from, uint32_t count, uint32_t stride, uint32_t element)
{
    merged_sums out = {-INFINITY, 0, 0};
    for (uint32_t i = 0; i < count; i++)
        out.maximum = fmaxf(out.maximum, __ldcg(from + (uint64_t)i * stride));
    for (uint32_t i = 0; i < count; i++) {
        const float *place = from + (uint64_t)i * stride;
        const float maximum = __ldcg(place), factor = maximum == -INFINITY ? 0 : expf(maximum - out.maximum);
        out.sum = fmaf(__ldcg(place + 1), factor, out.sum);
        out.output = fmaf(__ldcg(place + 2 + element), factor, out.output);
    }
    return out;
}

KERNEL_INLINE merged_sums merge_shared_sums(const float *from, uint32_t count, uint32_t stride, uint32_t element)
{
    merged_sums out = {-INFINITY, 0, 0};
    for (uint32_t i = 0; i < count; i++)
        out.maximum = fmaxf(out.maximum, from[i * stride]);
    for (uint32_t i = 0; i < count; i++) {
        const float maximum = from[i * stride], factor = maximum == -INFINITY ? 0 : expf(maximum - out.maximum);
        out.sum = fmaf(from[i * stride + 1], factor, out.sum);
        out.output = fmaf(from[i * stride + 2 + element], factor, out.output);
    }
    return out;
}

/* Rotates one head in shared memory, by all workers. */
KERNEL_INLINE void rotate_heads(const cuda_machine &machine, const row_context &row, const cuda_attend &attend,
    uint32_t rope, uint32_t heads, float *x)
{
    if (rope == CUDA_NONE)
        return;
    const uint32_t pairs = attend.dimensions / 2;
    const float *cosines = row.cosines + rope * machine.rope_pairs, *sines = row.sines + rope * machine.rope_pairs;
    for (uint32_t i = threadIdx.x; i < heads * pairs; i += CUDA_WORKERS) {
        const uint32_t pair = i % pairs;
        float *a = x + i / pairs * attend.head_dim + (attend.halves ? pair : 2 * pair), *b = attend.halves ? a + pairs : a + 1;
        const float cosine = cosines[pair], sine = sines[pair], left = *a, right = *b;
        *a = fmaf(left, cosine, -(right * sine));
        *b = fmaf(right, cosine, left * sine);
    }
}

/* The token's own key and value: into the cache, and rounded as it rounds, in place. `own` is [2][head_dim]. */
KERNEL_INLINE void append_own(const cuda_attend &attend, const row_context &row, uint32_t kv_head_index, float *own)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = (attend.head_dim + 31) / 32;
    const uint32_t page = row.pages[row.position / CUDA_PAGE];
    for (uint32_t i = warp; i < groups * 2; i += CUDA_WARPS) {
        const uint32_t first = i / 2 * 32;
        float *from = own + (i % 2) * attend.head_dim;
        const kv_head place = find_kv_head(i % 2 ? attend.values : attend.keys, page, attend.kv_heads, kv_head_index,
            attend.head_dim, attend.kv_type);
        append_group(place, attend.kv_type, row.position, attend.head_dim, first, from);
        __syncwarp();
        if (first + lane >= attend.head_dim || attend.kv_type == TYPE_F32)
            continue;
        const uint64_t at = (uint64_t)row.position % CUDA_PAGE * attend.head_dim + first + lane;
        if (attend.kv_type == TYPE_F16)
            from[first + lane] = __half2float(__float2half_rn(from[first + lane]));
        else
            from[first + lane] =
                half_to_float(place.scales[row.position % CUDA_PAGE * groups + first / 32]) * (float)((int8_t *)place.elements)[at];
    }
}

template <int HEADS, int LANES>
__device__ __noinline__ void attend_range(const cuda_attend &attend, const row_context &row, uint32_t kv_head_index,
    uint32_t begin, uint32_t end, const float *queries, const float *own, float *places)
{
    attend_task<HEADS, LANES> task = {attend, queries, threadIdx.x % LANES, threadIdx.x % LANES * 8 < attend.head_dim, {}};
    attend_sums<HEADS> sums;
    task.load_queries();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        sums.maximum[h] = -1e30f; /* below every score; not infinite, so that differences are numbers */
        sums.sum[h] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums.output[h][i] = 0;
    }
    switch (attend.kv_type) {
    case TYPE_F16:
        attend_positions<HEADS, LANES, TYPE_F16>(task, row, kv_head_index, begin, end, own, sums);
        break;
    case TYPE_F32:
        attend_positions<HEADS, LANES, TYPE_F32>(task, row, kv_head_index, begin, end, own, sums);
        break;
    default:
        attend_positions<HEADS, LANES, TYPE_Q8_0>(task, row, kv_head_index, begin, end, own, sums);
    }
    leave_sums(task, sums, places);
}

template <int LANES>
KERNEL_INLINE void attend_heads(uint32_t heads, const cuda_attend &attend, const row_context &row,
    uint32_t kv_head_index, uint32_t begin, uint32_t end, const float *queries, const float *own, float *places)
{
    switch (heads) {
    case 1:
        attend_range<1, LANES>(attend, row, kv_head_index, begin, end, queries, own, places);
        break;
    case 2:
        attend_range<2, LANES>(attend, row, kv_head_index, begin, end, queries, own, places);
        break;
    case 3:
        attend_range<3, LANES>(attend, row, kv_head_index, begin, end, queries, own, places);
        break;
    default:
        attend_range<4, LANES>(attend, row, kv_head_index, begin, end, queries, own, places);
    }
}

/* A column of the result: where the others will look for it. */
KERNEL_INLINE void put_attended(const cuda_attend &attend, uint32_t column, float value, float *vectors)
{
    if (attend.out_place != CUDA_NONE)
        vectors[attend.out_place + column] = value;
    if (attend.out)
        __stcg((float *)attend.out + column, value);
}

/* The tasks of one block. `scratch` is shared memory: queries, own key and value, then the sums of the warps. */
__device__ __noinline__ void attend_one_token(const cuda_machine &machine, const cuda_attend &attend,
    const row_context &row, uint32_t block, uint32_t blocks, shared_head &head, float *vectors, float *scratch,
    uint32_t exchange)
{
    const uint32_t head_dim = attend.head_dim, each = attend.heads / attend.kv_heads;
    const uint32_t subsets = (each + ATTEND_HEADS - 1) / ATTEND_HEADS, subset = (each + subsets - 1) / subsets;
    const uint32_t seen = attend.window && row.position + 1 > attend.window ? row.position + 1 - attend.window : 0;
    const attend_split ranges = split_positions(row.position + 1 - seen, attend.splits);
    float *queries = scratch, *own = scratch + ATTEND_HEADS * head_dim, *places = own + 2 * head_dim;
    float *partials = (float *)attend.partials;
    uint32_t *counters = (uint32_t *)(partials + (uint64_t)attend.heads * attend.splits * (head_dim + 2));
    const uint32_t stride = head_dim + 2;

    for (uint32_t task = block; task < attend.kv_heads * subsets * ranges.active; task += blocks) {
        const uint32_t split = task % ranges.active, kv_head_index = task / ranges.active / subsets;
        const uint32_t within = task / ranges.active % subsets * subset, heads = min(subset, each - within);
        const uint32_t first_head = kv_head_index * each + within;
        const uint32_t begin = seen + split * ranges.length, end = min(begin + ranges.length, row.position + 1);
        const bool has_own = end == row.position + 1 && attend.appends;
        const uint32_t cached_end = has_own ? end - 1 : end;
        const bool in_places = attend.out_place != CUDA_NONE;
        const uint32_t q_at = first_head * head_dim, kv_at = kv_head_index * head_dim;
        if (in_places) {
            for (uint32_t i = threadIdx.x; i < heads * head_dim; i += CUDA_WORKERS)
                queries[i] = vectors[attend.q_place + q_at + i];
            for (uint32_t i = threadIdx.x; has_own && i < 2 * head_dim; i += CUDA_WORKERS)
                own[i] = vectors[i < head_dim ? attend.k_place + kv_at + i : attend.v_place + kv_at + i - head_dim];
        } else {
            const float *q = (const float *)attend.q + q_at, *k = (const float *)attend.k + kv_at,
                        *v = (const float *)attend.v + kv_at;
            for (uint32_t i = threadIdx.x; i < heads * head_dim; i += CUDA_WORKERS)
                queries[i] = __ldcg(q + i);
            for (uint32_t i = threadIdx.x; has_own && i < 2 * head_dim; i += CUDA_WORKERS)
                own[i] = __ldcg(i < head_dim ? k + i : v + i - head_dim);
        }
        sync_threads<CUDA_WORKERS>();
        rotate_heads(machine, row, attend, attend.rope_q, heads, queries);
        if (has_own)
            rotate_heads(machine, row, attend, attend.rope_k, 1, own);
        sync_threads<CUDA_WORKERS>();
        for (uint32_t i = threadIdx.x; i < heads * head_dim; i += CUDA_WORKERS)
            queries[i] *= attend.scale;
        if (has_own)
            append_own(attend, row, kv_head_index, own);
        sync_threads<CUDA_WORKERS>();
        if (head_dim <= 64)
            attend_heads<8>(heads, attend, row, kv_head_index, begin, cached_end, queries, has_own ? own : nullptr, places);
        else if (head_dim <= 128)
            attend_heads<16>(heads, attend, row, kv_head_index, begin, cached_end, queries, has_own ? own : nullptr, places);
        else
            attend_heads<32>(heads, attend, row, kv_head_index, begin, cached_end, queries, has_own ? own : nullptr, places);
        sync_threads<CUDA_WORKERS>();

        for (uint32_t i = threadIdx.x; i < heads * head_dim; i += CUDA_WORKERS) {
            const uint32_t h = i / head_dim, element = i % head_dim;
            const merged_sums merged = merge_shared_sums(places + h * stride, CUDA_WARPS, heads * stride, element);
            if (ranges.active == 1) {
                put_attended(attend, q_at + i, merged.output / merged.sum, vectors);
                continue;
            }
            float *to = partials + ((uint64_t)(first_head + h) * attend.splits + split) * stride;
            __stcg(to + 2 + element, merged.output);
            if (element == 0) {
                __stcg(to, merged.maximum);
                __stcg(to + 1, merged.sum);
            }
        }
        if (ranges.active == 1) {
            sync_threads<CUDA_WORKERS>();
            if (in_places)
                exchange_send(head, exchange, vectors + attend.out_place + q_at, heads * head_dim);
            continue;
        }
        __threadfence();
        sync_threads<CUDA_WORKERS>();
        if (threadIdx.x == 0)
            head.last = atomicAdd(counters + first_head, 1) + 1 == ranges.active;
        sync_threads<CUDA_WORKERS>();
        if (head.last) {
            __threadfence();
            for (uint32_t i = threadIdx.x; i < heads * head_dim; i += CUDA_WORKERS) {
                const float *from = partials + (uint64_t)(first_head + i / head_dim) * attend.splits * stride;
                const merged_sums merged = merge_sums(from, ranges.active, stride, i % head_dim);
                put_attended(attend, q_at + i, merged.output / merged.sum, vectors);
            }
            if (threadIdx.x == 0)
                counters[first_head] = 0;
        }
        sync_threads<CUDA_WORKERS>();
        if (head.last && in_places)
            exchange_send(head, exchange, vectors + attend.out_place + q_at, heads * head_dim);
        sync_threads<CUDA_WORKERS>();
    }
}

#endif
