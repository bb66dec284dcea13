/*
 * Attention of one token by tensor cores, over a cache of halves. A task has up to four heads that share a KV
 * head, and a range of positions. Warps take 16 positions at a time, one warp for each half of the values'
 * elements; both multiply all of the keys. Queries, and the weights computed from their scores, are sums of
 * two halves: the second one is the rounding error of the first. Nothing else is rounded, so results are as
 * precise as with floats.
 *
 * Lane 4g + c has eight elements of every 32, from 8c on, of keys and values g and g + 8. In products the
 * order of a head's elements does not matter, as long as queries and keys agree, and positions are turned
 * over from rows to columns by the lanes. A product of keys with the columns {first half, second half} of
 * four queries leaves lane 4g + c the score of head c.
 */
#ifndef CUDA_ATTEND_TILES_CUH
#define CUDA_ATTEND_TILES_CUH

#include "backend/cuda/kernels/common/tensor_cores.cuh"
#include "backend/cuda/kernels/decode/attend_finish.cuh"

enum { TILE_POSITIONS = 16, TILE_PARTS = CUDA_WARPS / 2, TILES_STEP = TILE_PARTS * TILE_POSITIONS };

/* Scales queries into the range of halves, and small weights to the precision of large ones. */
#define QUERY_UNIT   (1.0f / 16)
#define WEIGHT_POWER 10.0f

/* ---- Room and input ---- */

/* Halves from one row of queries to the next: lanes read without conflicts. */
KERNEL_INLINE uint32_t query_stride(uint32_t head_dim)
{
    return head_dim + 32;
}

KERNEL_INLINE attend_room room_of_tiles(uint8_t *shared, uint32_t heads, uint32_t head_dim)
{
    return room_of(shared, heads, TILE_PARTS, heads * 2 * query_stride(head_dim) * 2, 2 * head_dim * 2);
}

KERNEL_INLINE void put_query(
    const attend_room &room, uint32_t stride, uint32_t h, uint32_t element, float value)
{
    uint16_t *place = (uint16_t *)room.queries + h * 2 * stride + element;
    const uint16_t first = float_to_half_bits(value);
    place[0] = first;
    place[stride] = float_to_half_bits(value - half_to_float(first));
}

template <uint32_t DIM>
KERNEL_INLINE void prepare_tiles(shared_head &head, const cuda_attend &attend, const attend_task &task,
    const attend_room &room, const pending_element &own)
{
    const float scale = QUERY_UNIT * (attend.cap > 0 ? attend.scale : attend.scale * LOG2_OF_E);
    take_elements<DIM>(
        head, attend, task, task.heads * DIM, own, [&](const pending_element &one, uint32_t i, float value) {
            if (one.is_query)
                put_query(room, query_stride(DIM), i / DIM, one.element, scale * value);
            else
                ((uint16_t *)room.own)[i - task.heads * DIM] = float_to_half_bits(value);
        });
}

/* ---- Keys and values ---- */

/* Keys or values of positions g and g + 8. */
template <int CHUNKS> struct raw_tile {
    uint4 rows[2][CHUNKS];
};

/* Where elements of two positions are, from the beginning of a state; which of them are in the cache. */
struct tile_place {
    uint64_t at[2];
    bool on[2];
};

template <uint32_t DIM>
KERNEL_INLINE tile_place find_tile(
    const shared_head &head, const cuda_attend &attend, const attend_task &task, uint32_t position)
{
    tile_place place;
#pragma unroll
    for (int row = 0; row < 2; row++, position += 8) {
        place.on[row] = position < task.cached_end;
        const uint32_t page = place.on[row] ? head.row.pages[position / PAGE_POSITIONS] : 0;
        place.at[row] = (uint64_t)((page * attend.kv_heads + task.kv_head_index) * PAGE_POSITIONS +
                                   position % PAGE_POSITIONS) *
                        (DIM * 2);
    }
    return place;
}

template <int CHUNKS>
KERNEL_INLINE void fetch_tile(uint64_t from, const tile_place &place, raw_tile<CHUNKS> &tile)
{
#pragma unroll
    for (int row = 0; row < 2; row++) {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            tile.rows[row][i] = place.on[row] ? __ldcg((const uint4 *)(from + place.at[row] + i * 64))
                                              : make_uint4(0, 0, 0, 0);
    }
}

/* The token's own key or value, which is not in the cache yet. Without a branch, which would duplicate the
 * products after it. */
template <int CHUNKS>
KERNEL_INLINE void put_own(
    const attend_task &task, uint32_t position, const uint16_t *own, raw_tile<CHUNKS> &tile)
{
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const bool is_own = task.has_own && position + row * 8 == task.cached_end;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            load_shared_where(is_own, own + i * 32, tile.rows[row][i]);
    }
}

/* The token's own key and value, which prepare_tiles has left in shared memory, to the cache. */
template <uint32_t DIM>
KERNEL_INLINE void append_own(
    const shared_head &head, const cuda_attend &attend, const attend_task &task, const attend_room &room)
{
    const uint32_t thread = this_thread(), position = head.row.position,
                   page = head.row.pages[position / PAGE_POSITIONS];
    if (!task.has_own || thread >= DIM)
        return;
    const kv_head place = find_kv_head(thread < DIM / 2 ? attend.keys : attend.values, page, attend.kv_heads,
        task.kv_head_index, DIM, TYPE_F16);
    ((uint32_t *)place.elements)[position % PAGE_POSITIONS * (DIM / 2) + thread % (DIM / 2)] =
        ((const uint32_t *)room.own)[thread];
}

/* ---- A tile ---- */

/* The running softmax of a warp. */
template <int CHUNKS> struct tile_sums {
    float maximum, sum;         /* of head c; the sum is over this lane's positions */
    float output[CHUNKS][4][4]; /* of head g / 2, one of its halves */
};

/* Scores of head c at positions g and g + 8. */
template <int CHUNKS>
KERNEL_INLINE void score_tile(
    const raw_tile<CHUNKS> &keys, const uint16_t *query, bool on, float (&scores)[2])
{
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const uint4 q = on ? *(const uint4 *)(query + i * 32) : make_uint4(0, 0, 0, 0);
        const uint4 &a = keys.rows[0][i], &b = keys.rows[1][i];
        multiply_halves(a.x, b.x, a.y, b.y, q.x, q.y, even);
        multiply_halves(a.z, b.z, a.w, b.w, q.z, q.w, odd);
    }
    scores[0] = ((even[0] + odd[0]) + (even[1] + odd[1])) * (1 / QUERY_UNIT);
    scores[1] = ((even[2] + odd[2]) + (even[3] + odd[3])) * (1 / QUERY_UNIT);
}

/* A weight as a sum of two halves. */
KERNEL_INLINE uint32_t two_halves(float weight)
{
    const uint16_t first = float_to_half_bits(weight);
    return first | (uint32_t)float_to_half_bits(weight - half_to_float(first)) << 16;
}

/* The maximum over the lanes with the same c. */
KERNEL_INLINE float largest_of_columns(float x)
{
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

KERNEL_INLINE float sum_of_columns(float x)
{
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
        x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

template <int CHUNKS>
KERNEL_INLINE void add_values(const raw_tile<CHUNKS> &values, uint32_t first_weights, uint32_t last_weights,
    float (&output)[CHUNKS][4][4])
{
    const uint32_t a = transposed(first_weights), b = transposed(last_weights);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const uint4 &low = values.rows[0][i], &high = values.rows[1][i];
        multiply_halves(a, 0, b, 0, transposed(low.x), transposed(high.x), output[i][0]);
        multiply_halves(a, 0, b, 0, transposed(low.y), transposed(high.y), output[i][1]);
        multiply_halves(a, 0, b, 0, transposed(low.z), transposed(high.z), output[i][2]);
        multiply_halves(a, 0, b, 0, transposed(low.w), transposed(high.w), output[i][3]);
    }
}

/* Not inlined: few models need it. */
static __device__ __noinline__ float capped_score(float score, float cap)
{
    return cap * LOG2_OF_E * tanhf(score / cap);
}

/* The scores of positions `position` and `position` + 8 become weights, 0 from `end` on; sums so far are
 * brought to the new maximum. */
template <int CHUNKS>
KERNEL_INLINE void weigh(
    float (&scores)[2], float cap, uint32_t position, uint32_t end, uint32_t lane, tile_sums<CHUNKS> &sums)
{
    if (cap > 0)
        scores[0] = capped_score(scores[0], cap), scores[1] = capped_score(scores[1], cap);
    const float own =
        fmaxf(position < end ? scores[0] : sums.maximum, position + 8 < end ? scores[1] : sums.maximum);
    const float maximum = fmaxf(sums.maximum, largest_of_columns(own));
    const float before = power_of_two(sums.maximum - maximum), top = maximum - WEIGHT_POWER;
    const float factor = __shfl_sync(~0u, before, lane / 8);
    scores[0] = position < end ? power_of_two(scores[0] - top) : 0;
    scores[1] = position + 8 < end ? power_of_two(scores[1] - top) : 0;
    sums.maximum = maximum;
    sums.sum = fmaf(sums.sum, before, scores[0] + scores[1]);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums.output[i][j][0] *= factor, sums.output[i][j][1] *= factor;
    }
}

/* ---- Results ---- */

/* Lanes 8h + c and 8h + 4 + c have the two halves of head h. */
template <uint32_t DIM, int CHUNKS>
KERNEL_INLINE void leave_tiles(const attend_task &task, const attend_room &room, uint32_t part,
    uint32_t first, uint32_t lane, tile_sums<CHUNKS> &sums)
{
    const float sum = sum_of_columns(sums.sum);
    const uint32_t h = lane / 8;
    const bool upper = lane & 4;
    if (lane < task.heads && first < DIM / 2) {
        room.maxima[lane * TILE_PARTS + part] = sums.maximum;
        room.sums[lane * TILE_PARTS + part] = sum;
    }
    float *place = room.outputs + (part * task.heads + h) * DIM + first + (upper ? 4 : 0);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        float own[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float low = sums.output[i][j / 2][j % 2], high = sums.output[i][2 + j / 2][j % 2];
            own[j] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 4);
        }
        if (h < task.heads)
            *(float4 *)(place + i * 32) = make_float4(own[0], own[1], own[2], own[3]);
    }
}

/* Prefetches the part of the cache that the next layer's attention reads first: with many positions it is not
 * in the L2 cache. More of it would be displaced again before it is read. */
template <uint32_t DIM>
KERNEL_INLINE void prefetch_tiles(const shared_head &head, const cuda_attend &attend, const attend_task &task)
{
    constexpr uint32_t MOST_BYTES = 128 * 1024; /* of a block */
    const uint32_t warp = this_thread() / 32, lane = this_thread() % 32,
                   end = min(task.cached_end, task.begin + MOST_BYTES / (DIM * 4));
    const uint64_t state = warp % 2 ? attend.next_values : attend.next_keys;
    if (!state)
        return;
    for (uint32_t position = task.begin + warp / 2 * 32 + lane; position < end;
         position += CUDA_WORKERS / 2) {
        const uint8_t *row = find_kv_head(state, head.row.pages[position / PAGE_POSITIONS], attend.kv_heads,
                                 task.kv_head_index, DIM, TYPE_F16)
                                 .elements +
                             position % PAGE_POSITIONS * (DIM * 2);
        for (uint32_t i = 0; i < DIM * 2; i += 128)
            prefetch(row + i);
    }
}

/* Not inlined, so that it has its own registers. */
template <uint32_t DIM> __device__ __noinline__ void finish_tiles()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_attend &attend = current_record(shared)->attend;
    finish_split<TILE_PARTS, DIM>(head, attend, head.task, room_of_tiles(shared, head.task.heads, DIM));
    if (head.task.active > 1)
        prefetch_tiles<DIM>(head, attend, head.task);
}

/* ---- All of a task ---- */

template <uint32_t DIM> __device__ __noinline__ void attend_by_tiles()
{
    constexpr int KEY_CHUNKS = DIM / 32, CHUNKS = KEY_CHUNKS / 2;
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_attend &attend = current_record(shared)->attend;
    const attend_task task = head.task;
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32, part = warp % TILE_PARTS;
    const uint32_t element = lane % 4 * 8, value_element = warp / TILE_PARTS * (DIM / 2) + element;
    const attend_room room = room_of_tiles(shared, task.heads, DIM);
    const pending_element own =
        load_pending_element<DIM>(head, attend, task, task.heads * DIM, first_element());
    const uint32_t end = task.cached_end + (task.has_own ? 1 : 0);
    uint32_t base = task.begin + part * TILE_POSITIONS, position = base + lane / 4;
    raw_tile<KEY_CHUNKS> keys;
    raw_tile<CHUNKS> values;
    tile_place place = find_tile<DIM>(head, attend, task, position);
    /* Loads of the cache are in flight before the wait for the query. */
    fetch_tile(attend.keys + element * 2, place, keys);
    fetch_tile(attend.values + value_element * 2, place, values);
    prepare_tiles<DIM>(head, attend, task, room, own);
    sync_threads<CUDA_WORKERS>();
    const uint16_t *query = (const uint16_t *)room.queries + lane / 4 * query_stride(DIM) + element,
                   *own_key = (const uint16_t *)room.own + element,
                   *own_value = (const uint16_t *)room.own + DIM + value_element;
    tile_sums<CHUNKS> sums = {-1e30f, 0, {}}; /* below every score; not infinite: differences are numbers */
    for (; base < end; base += TILES_STEP, position += TILES_STEP) {
        const bool goes_on = base + TILES_STEP < end;
        float scores[2];
        put_own(task, position, own_key, keys);
        score_tile(keys, query, lane / 8 < task.heads, scores);
        if (goes_on) {
            place = find_tile<DIM>(head, attend, task, position + TILES_STEP);
            fetch_tile(attend.keys + element * 2, place, keys);
        }
        weigh(scores, attend.cap, position, end, lane, sums);
        put_own(task, position, own_value, values);
        add_values(values, two_halves(scores[0]), two_halves(scores[1]), sums.output);
        if (goes_on)
            fetch_tile(attend.values + value_element * 2, place, values);
    }
    leave_tiles<DIM>(task, room, part, value_element, lane, sums);
    append_own<DIM>(head, attend, task, room);
    if (is_for_finisher(head.machine, task))
        return;
    sync_threads<CUDA_WORKERS>();
    finish_tiles<DIM>();
    sync_threads<CUDA_WORKERS>(); /* shared memory is free for another task */
}

#endif
