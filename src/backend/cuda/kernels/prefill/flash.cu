/*
 * Attention of many tokens over a cache of halves, on tensor cores.
 *
 *   salvo_flash_f16_64(machine, flash)    head_dim up to 64
 *   salvo_flash_f16_128(machine, flash)   head_dim up to 128
 *   salvo_flash_f16_128_few(machine, flash)   the same with fewer warps, for devices with little shared
 * memory
 *   salvo_flash_append_64(machine, flash), _128   attend.appends: ropes and the append are inside; head_dim
 * is 64 or 128. Runs of one token: flash_one.cuh
 *
 * Grid, threads and shared memory: cuda_flash_launch. The warps of a block have the same queries and take
 * steps of FLASH_KEYS keys in turn, each with a softmax of its own; in the end they are merged, in order. If
 * a context of the step is long, a cluster of flash.splits blocks, neighbours of x, has the same queries.
 *
 * A warp has one or two slots (flash.slots) for the keys and values of a step: with two, it loads the next
 * step while it computes; with one, more blocks share a multiprocessor. Keys of earlier steps are in the
 * cache before this step begins, so with attend.appends the first of them are loaded before the wait for the
 * last launch.
 */
#include "backend/cuda/kernels/prefill/flash_one.cuh"
#include "backend/cuda/kernels/prefill/flash_softmax.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"

/* ---- Keys and values in shared memory ---- */

/* Positions first .. of the step from the cache; positions that no query of the block sees are zeros.
 * APPENDS: add_fresh_keys adds those of this step. */
template <int DIM, bool APPENDS>
KERNEL_INLINE void fetch_keys(
    const cuda_attend &attend, const flash_block &block, uint32_t step, uint8_t *keys, uint8_t *values)
{
    const uint32_t lane = threadIdx.x % 32, first = step * FLASH_KEYS, chunks = attend.head_dim / 8;
    const uint32_t page = __ldcg(block.pages + first / PAGE_POSITIONS);
    const uint8_t *from[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        from[i] = find_kv_head(i ? attend.values : attend.keys, page, attend.kv_heads, block.kv_head,
                      attend.head_dim, TYPE_F16)
                      .elements +
                  (uint64_t)(first % PAGE_POSITIONS) * attend.head_dim * 2;
#pragma unroll
    for (uint32_t i = lane; i < FLASH_KEYS * DIM / 8; i += 32) {
        const uint32_t row = i / (DIM / 8), chunk = i % (DIM / 8);
        if (APPENDS && fresh_positions(block, first).contain(first + row))
            continue;
        const bool on = chunk < chunks && first + row >= block.begin && first + row < block.end;
        const uint32_t at = on ? (row * chunks + chunk) * 16 : 0;
        copy_async(chunk_at<DIM>(keys, row, chunk), from[0] + at, on);
        copy_async(chunk_at<DIM>(values, row, chunk), from[1] + at, on);
    }
}

/* NaN or infinity in a value must not reach queries that do not see its key, and 0 * NaN would. Keys with
 * such values, a bit each in the result, get zeros instead; weigh() gives NaN to the queries that see them.
 */
template <int DIM> KERNEL_INLINE uint32_t clear_bad_values(uint8_t *values)
{
    const uint32_t lane = threadIdx.x % 32;
    static_assert(FLASH_KEYS == 32, "a lane looks at one key");
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < DIM / 8; i++)
        find_bad_halves(*(const uint4 *)chunk_at<DIM>(values, lane, i), found);
    const bool is_bad = (found & 0x80008000) != 0;
    for (int i = 0; is_bad && i < DIM / 8; i++)
        *(uint4 *)chunk_at<DIM>(values, lane, i) = make_uint4(0, 0, 0, 0);
    return __ballot_sync(~0u, is_bad);
}

/* ---- A step ---- */

/* Adds the scores of eight keys, the jth, by 32 columns of queries, the kth. */
template <int DIM>
KERNEL_INLINE void add_scores(
    uint8_t *keys, int j, int k, const uint32_t (*high)[4], const uint32_t (*low)[4], float (&scores)[4])
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t b[4];
    load_matrices(chunk_at<DIM>(keys, j * 8 + lane % 8, k * 4 + lane / 8), b);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        multiply_halves(low[i][0], low[i][1], low[i][2], low[i][3], b[i * 2], b[i * 2 + 1], scores);
        multiply_halves(high[i][0], high[i][1], high[i][2], high[i][3], b[i * 2], b[i * 2 + 1], scores);
    }
}

/* Queries in registers. */
template <int DIM>
KERNEL_INLINE void find_scores(uint8_t *keys, const flash_queries<DIM> &q, float (&scores)[FLASH_KEYS / 8][4])
{
#pragma unroll
    for (int j = 0; j < FLASH_KEYS / 8; j++) {
#pragma unroll
        for (int k = 0; k < DIM / 32; k++)
            add_scores<DIM>(keys, j, k, q.high + 2 * k, q.low + 2 * k, scores[j]);
    }
}

/* Queries in shared memory. */
template <int DIM>
KERNEL_INLINE void find_scores(uint8_t *keys, shared_queries<DIM> &q, float (&scores)[FLASH_KEYS / 8][4])
{
#pragma unroll
    for (int k = 0; k < DIM / 32; k++) {
        uint32_t high[2][4], low[2][4];
        q.read(2 * k, high[0], low[0]);
        q.read(2 * k + 1, high[1], low[1]);
#pragma unroll
        for (int j = 0; j < FLASH_KEYS / 8; j++)
            add_scores<DIM>(keys, j, k, high, low, scores[j]);
    }
}

template <int DIM>
KERNEL_INLINE void add_values(
    uint8_t *values, const float (&weights)[FLASH_KEYS / 8][4], bool both, flash_sums<DIM> &sums)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < FLASH_KEYS / 16; t++) {
        cut_pair a[4] = {};
#pragma unroll
        for (int row = 0; row < 2; row++) {
            if (row == 1 && !both)
                break;
#pragma unroll
            for (int i = 0; i < 2; i++)
                a[2 * i + row] = cut(weights[t * 2 + i][row * 2], weights[t * 2 + i][row * 2 + 1]);
        }
#pragma unroll
        for (int j = 0; j < DIM / 8; j += 2) {
            uint32_t b[4];
            load_matrices_transposed(chunk_at<DIM>(values, t * 16 + lane % 16, j + lane / 16), b);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                multiply_halves(
                    a[0].low, a[1].low, a[2].low, a[3].low, b[i * 2], b[i * 2 + 1], sums.output[j + i]);
                multiply_halves(
                    a[0].high, a[1].high, a[2].high, a[3].high, b[i * 2], b[i * 2 + 1], sums.output[j + i]);
            }
        }
    }
}

/* ---- The end ---- */

/* The result of each warp, at the beginning of its shared memory. */
template <int DIM> struct flash_left {
    float output[FLASH_QUERIES][DIM + 8];
    float maximum[FLASH_QUERIES], sum[FLASH_QUERIES];
};

template <int DIM> KERNEL_INLINE void leave(flash_sums<DIM> &sums, bool both, flash_left<DIM> &left)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        if (row == 1 && !both)
            break;
        const uint32_t query = lane / 4 + row * 8;
        sums.sum[row] += __shfl_xor_sync(~0u, sums.sum[row], 1);
        sums.sum[row] += __shfl_xor_sync(~0u, sums.sum[row], 2);
#pragma unroll
        for (int j = 0; j < DIM / 8; j++)
            *(float2 *)&left.output[query][j * 8 + lane % 4 * 2] =
                make_float2(sums.output[j][row * 2], sums.output[j][row * 2 + 1]);
        if (lane % 4 == 0) {
            left.maximum[query] = sums.maximum[row];
            left.sum[query] = sums.sum[row];
        }
    }
}

/* The results of a block's warps. */
template <int DIM, int WARPS>
KERNEL_INLINE void merge(
    const cuda_flash &flash, const flash_block &block, const uint8_t *shared, uint32_t stride)
{
    const float infinity = __int_as_float(0x7f800000);
    for (uint32_t query = threadIdx.x / 32; query < block.count; query += WARPS) {
        float factors[WARPS], maximum = -infinity, sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            maximum = fmaxf(maximum, ((const flash_left<DIM> *)(shared + w * stride))->maximum[query]);
        maximum = maximum == -infinity ? 0 : maximum;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const flash_left<DIM> &left = *(const flash_left<DIM> *)(shared + w * stride);
            factors[w] = exp2f((left.maximum[query] - maximum) * LOG2_E);
            sum = fmaf(left.sum[query], factors[w], sum);
        }
        const float inverse = sum == 0 ? 0 : 1 / sum;
        store_query(flash, block, query, [&](uint32_t d) {
            float value = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                value = fmaf(
                    ((const flash_left<DIM> *)(shared + w * stride))->output[query][d], factors[w], value);
            return value * inverse;
        });
    }
}

/* ---- Blocks that divide the keys ---- */

/* This block among the flash.splits blocks that have the same queries. If their context is long, the blocks
 * divide the keys; if not, the first block takes all keys. */
struct flash_team {
    uint32_t blocks, number;
};

#if HAS_WARPGROUPS
KERNEL_INLINE flash_team find_flash_team(const cuda_flash &flash)
{
    return {flash.splits, flash.splits > 1 ? blockIdx.x % flash.splits : 0};
}

/* The results of `count` warps of a cluster, in order: number i is of block i / WARPS, warp i % WARPS. A lane
 * has the maximum and the sum of one. */
template <int DIM, int WARPS>
KERNEL_INLINE void merge_team(const cuda_flash &flash, const flash_block &block, const flash_team &team,
    uint32_t count, const uint8_t *shared, uint32_t stride)
{
    static_assert(FLASH_MOST_SPLITS * WARPS <= 32, "a lane has the result of a warp");
    const float infinity = __int_as_float(0x7f800000);
    const uint32_t lane = threadIdx.x % 32;
    const auto left_of = [&](uint32_t number) {
        return (const flash_left<DIM> *)shared_of_block(
            (const float *)(shared + number % WARPS * stride), number / WARPS);
    };
    meet_cluster(team.blocks);
    for (uint32_t query = threadIdx.x / 32 + team.number * WARPS; query < block.count;
         query += WARPS * team.blocks) {
        const flash_left<DIM> *own = left_of(min(lane, count - 1));
        const float own_maximum = own->maximum[query], own_sum = own->sum[query];
        float maximum = own_maximum, sum = 0, values[DIM / 32] = {};
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2)
            maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, distance));
        maximum = maximum == -infinity ? 0 : maximum;
        const float factor = exp2f((own_maximum - maximum) * LOG2_E);
#pragma unroll 4
        for (uint32_t i = 0; i < count; i++) {
            const float *output = left_of(i)->output[query];
            const float by = __shfl_sync(~0u, factor, (int)i);
            sum = fmaf(__shfl_sync(~0u, own_sum, (int)i), by, sum);
#pragma unroll
            for (int j = 0; j < DIM / 32; j++)
                values[j] = fmaf(output[j * 32 + lane], by, values[j]);
        }
        const float inverse = sum == 0 ? 0 : 1 / sum;
        store_query(flash, block, query, [&](uint32_t d) {
            float value = values[0];
#pragma unroll
            for (uint32_t j = 1; j < DIM / 32; j++)
                value = d / 32 == j ? values[j] : value;
            return value * inverse;
        });
    }
    meet_cluster(team.blocks); /* until then other blocks read this block's shared memory */
}
#else
KERNEL_INLINE flash_team find_flash_team(const cuda_flash &)
{
    return {1, 0};
}

template <int DIM, int WARPS>
KERNEL_INLINE void merge_team(
    const cuda_flash &, const flash_block &, const flash_team &, uint32_t, const uint8_t *, uint32_t)
{
}
#endif

/* ---- The block ---- */

template <int DIM, int WARPS, bool APPENDS = false>
KERNEL_INLINE void flash_f16(const cuda_machine *machine, const cuda_flash &flash)
{
    DYNAMIC_SHARED(shared);
    const cuda_attend &attend = flash.attend;
    constexpr uint32_t tile_bytes = FLASH_KEYS * DIM * 2, slot_bytes = 2 * tile_bytes;
    static_assert(sizeof(flash_left<DIM>) <= slot_bytes, "results of warps lie where keys and values were");
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_bytes = flash.slots * slot_bytes;
    shared_queries<DIM> &block_queries = *(shared_queries<DIM> *)shared; /* APPENDS */
    uint8_t *const slots = shared + (APPENDS ? sizeof(shared_queries<DIM>) : 0),
                   *tiles = slots + warp * warp_bytes; /* [slots][keys, values] */
    flash_block block;
    const flash_angles angles(machine);
    const flash_step step_place = find_flash_step(machine);
    invite_next_launch();
    flash_team team = APPENDS ? find_flash_team(flash) : flash_team{1, 0};
    const bool has_queries =
        find_flash_block<FLASH_QUERIES>(step_place, attend, blockIdx.x / team.blocks, block);
    const uint32_t first_step = has_queries ? block.begin / FLASH_KEYS : 0,
                   end_step = has_queries ? (block.end + FLASH_KEYS - 1) / FLASH_KEYS : 0,
                   steps = end_step - first_step;
    /* The launch has teams if any run of the step is long. Each team decides by its own positions whether to
     * divide the keys, so that other runs do not change the bits of its results. */
    const bool divides = steps > WARPS && block.end > FLASH_LONG_CONTEXT,
               is_idle = !has_queries || (!divides && team.number > 0);
    if (!divides)
        team.blocks = 1;
    const uint32_t step_distance = WARPS * team.blocks;
    uint32_t step = first_step + team.number * WARPS + warp;
    const auto fetch = [&](uint32_t number, uint32_t slot) {
        uint8_t *keys = tiles + slot * slot_bytes;
        if (number < end_step)
            fetch_keys<DIM, APPENDS>(attend, block, number, keys, keys + tile_bytes);
    };
    if (is_idle) {
        wait_for_last_launch();
        return;
    }
    if (APPENDS && flash.ones && block.run_count == 1 && block.count == block.each &&
        block.count <= ONE_QUERIES && team.blocks == 1) {
        attend_one<DIM, WARPS>(flash, angles, block, shared);
        return;
    }
    const uint32_t first_position = block.run_first + block.first_query / block.each,
                   last_begin = first_seen(attend.window, block.end - 1);
    /* In steps of few tokens: few queries leave the rows g + 8 of products empty, and those of one token see
     * all keys that are loaded. */
    const bool both = !APPENDS || block.count > FLASH_QUERIES / 2,
               one_token = APPENDS && first_position + 1 == block.end;
    const flash_query queries[2] = {
        find_query(attend, block, lane / 4), find_query(attend, block, lane / 4 + 8)};
    const auto add_fresh = [&](uint32_t number, uint32_t slot) {
        uint8_t *keys = tiles + slot * slot_bytes;
        if (APPENDS && number < end_step)
            add_fresh_keys<DIM>(attend, angles, block, number, keys, keys + tile_bytes);
    };
    flash_queries<DIM> q;
    flash_sums<DIM> sums = {};
    sums.maximum[0] = sums.maximum[1] = -__int_as_float(0x7f800000);
    if constexpr (APPENDS) {
        static_assert(WARPS * 4 == FLASH_QUERIES, "eight threads load a query");
        const uint32_t own = threadIdx.x / 8;
        query_columns<DIM> columns(attend, angles, find_query(attend, block, own));
        fetch(step, 0);
        wait_for_last_launch();
        copy_commit();
        columns.load();
        add_fresh(step, 0);
        columns.store(attend.scale, own, block_queries);
        __syncthreads();
        block_queries.read_units(q.unit);
    } else {
        wait_for_last_launch();
        fetch(step, 0);
        copy_commit();
        load_queries(attend, queries, q);
    }
    const bool loads_ahead = flash.slots > 1;
    uint32_t slot = 0;
#pragma unroll 1
    for (; step < end_step; step += step_distance) {
        uint8_t *keys = tiles + slot * slot_bytes, *values = keys + tile_bytes;
        if (loads_ahead)
            fetch(step + step_distance, slot ^ 1);
        copy_commit();
        if (loads_ahead)
            copy_wait<1>();
        else
            copy_wait<0>();
        __syncwarp();
        const uint32_t first = step * FLASH_KEYS;
        const bool seen_by_all = first + FLASH_KEYS <= first_position + 1 && first >= last_begin;
        const uint32_t bad[1] = {seen_by_all || one_token ? 0 : clear_bad_values<DIM>(values)};
        __syncwarp();
        float scores[FLASH_KEYS / 8][4] = {};
        if constexpr (APPENDS)
            find_scores(keys, block_queries, scores);
        else
            find_scores(keys, q, scores);
        if (both)
            weigh<DIM, FLASH_KEYS>(attend.cap, queries, q.unit, first, bad, seen_by_all, scores, sums);
        else
            weigh<DIM, FLASH_KEYS, 1>(attend.cap, queries, q.unit, first, bad, seen_by_all, scores, sums);
        add_values(values, scores, both, sums);
        __syncwarp();
        if (loads_ahead)
            slot ^= 1;
        else
            fetch(step + step_distance, 0);
        add_fresh(step + step_distance, slot);
    }
    copy_wait<0>();
    __syncwarp();
    leave(sums, both, *(flash_left<DIM> *)tiles);
    if (APPENDS && team.blocks > 1) {
        merge_team<DIM, WARPS>(flash, block, team, min(steps, step_distance), slots, warp_bytes);
    } else {
        __syncthreads();
        merge<DIM, WARPS>(flash, block, slots, warp_bytes);
    }
}

extern "C" __global__ void __launch_bounds__(FLASH_WARPS * 32, 3)
    salvo_flash_f16_64(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    flash_f16<64, FLASH_WARPS>(machine, flash);
}

extern "C" __global__ void __launch_bounds__(FLASH_WARPS * 32, 1)
    salvo_flash_f16_128(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    flash_f16<128, FLASH_WARPS>(machine, flash);
}

extern "C" __global__ void __launch_bounds__(FLASH_FEW_WARPS * 32, 1)
    salvo_flash_f16_128_few(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    flash_f16<128, FLASH_FEW_WARPS>(machine, flash);
}

extern "C" __global__ void __launch_bounds__(FLASH_WARPS * 32, FLASH_APPEND_BLOCKS_64)
    salvo_flash_append_64(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    flash_f16<64, FLASH_WARPS, true>(machine, flash);
}

extern "C" __global__ void __launch_bounds__(FLASH_WARPS * 32, FLASH_APPEND_BLOCKS_128)
    salvo_flash_append_128(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    flash_f16<128, FLASH_WARPS, true>(machine, flash);
}
