/*
 * Attention of many tokens over any cache and any head_dim.
 *
 *   salvo_flash_any(machine, flash)
 *
 * Grid, threads and shared memory: cuda_flash_launch. A block brings FLASH_ANY_KEYS keys and values at a time
 * to shared memory, as floats. A warp has four queries, one after the other: a lane a key for the scores, a
 * lane a column for the values.
 */
#include "backend/cuda/kernels/prefill/flash.cuh"

enum { ANY_THREADS = FLASH_WARPS * 32 };

/* Shared memory: queries, scaled, and outputs, [FLASH_QUERIES][head_dim]; keys and values,
 * [FLASH_ANY_KEYS][head_dim
 * + 1], so that a column of keys lies in all banks. */
struct any_tiles {
    float *queries, *outputs, *keys, *values;
    uint32_t stride;
};

template <bool WIDE>
KERNEL_INLINE void fetch_any(
    const cuda_attend &attend, const flash_block &block, uint32_t first, const any_tiles &tiles)
{
    const uint32_t page = __ldcg(block.pages + first / PAGE_POSITIONS), pieces = attend.head_dim / 8;
    for (uint32_t i = threadIdx.x; i < 2 * FLASH_ANY_KEYS * pieces; i += ANY_THREADS) {
        const uint32_t piece = i % pieces, key = i / pieces % FLASH_ANY_KEYS, position = first + key;
        const bool is_value = i / pieces >= FLASH_ANY_KEYS;
        if (position < block.begin || position >= block.end)
            continue; /* never read */
        const kv_head head = find_kv_head(is_value ? attend.values : attend.keys, page, attend.kv_heads,
            block.kv_head, attend.head_dim, attend.kv_type);
        float eight[8];
        unpack_eight<WIDE>(attend.kv_type,
            load_eight<WIDE>(attend.kv_type, head, position % PAGE_POSITIONS, attend.head_dim, piece * 8),
            eight);
        float *to = (is_value ? tiles.values : tiles.keys) + key * tiles.stride + piece * 8;
#pragma unroll
        for (int j = 0; j < 8; j++)
            to[j] = eight[j];
    }
}

struct any_sums {
    float maximum, sum;
};

/* One query and the keys from `first` on, by a warp. */
KERNEL_INLINE void attend_keys(const cuda_attend &attend, const flash_query &query, uint32_t number,
    uint32_t first, const any_tiles &tiles, any_sums &sums)
{
    const float infinity = __int_as_float(0x7f800000);
    const uint32_t lane = threadIdx.x % 32, head_dim = attend.head_dim;
    const float *q = tiles.queries + number * head_dim, *key = tiles.keys + lane * tiles.stride;
    const bool seen = query.on && first + lane >= query.first && first + lane <= query.position;
    const uint32_t all_seen = __ballot_sync(~0u, seen);
    if (!all_seen)
        return;
    float score = 0;
    if (seen) {
        for (uint32_t d = 0; d < head_dim; d++)
            score = fmaf(q[d], key[d], score);
        score = capped(attend.cap, score);
    }
    const float maximum = fmaxf(sums.maximum, warp_max(seen ? score : -infinity));
    const float base = maximum == -infinity ? 0 : maximum, factor = expf(sums.maximum - base);
    const float weight = seen ? expf(score - base) : 0;
    sums.maximum = maximum;
    sums.sum = fmaf(sums.sum, factor, warp_sum(weight));
    float *output = tiles.outputs + number * head_dim;
    for (uint32_t d = lane; d < (head_dim + 31) / 32 * 32; d += 32) {
        float sum = d < head_dim ? output[d] * factor : 0;
        for (uint32_t left = all_seen; left; left &= left - 1) {
            const int i = __ffs((int)left) - 1;
            const float other = __shfl_sync(~0u, weight, i);
            if (d < head_dim)
                sum = fmaf(other, tiles.values[i * tiles.stride + d], sum);
        }
        if (d < head_dim)
            output[d] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(ANY_THREADS)
    salvo_flash_any(const cuda_machine *machine, const __grid_constant__ cuda_flash flash)
{
    const cuda_attend &attend = flash.attend;
    DYNAMIC_SHARED(shared);
    constexpr uint32_t each = FLASH_QUERIES / FLASH_WARPS;
    const uint32_t warp = threadIdx.x / 32, head_dim = attend.head_dim;
    any_tiles tiles;
    tiles.stride = head_dim + 1;
    tiles.queries = (float *)shared;
    tiles.outputs = tiles.queries + FLASH_QUERIES * head_dim;
    tiles.keys = tiles.outputs + FLASH_QUERIES * head_dim;
    tiles.values = tiles.keys + FLASH_ANY_KEYS * tiles.stride;
    flash_block block;
    const flash_step step_place = find_flash_step(machine);
    invite_next_launch();
    const bool has_queries = find_flash_block<FLASH_QUERIES>(step_place, attend, blockIdx.x, block);
    wait_for_last_launch();
    if (!has_queries)
        return;

    for (uint32_t i = threadIdx.x; i < FLASH_QUERIES * head_dim; i += ANY_THREADS) {
        const flash_query query = find_query(attend, block, i / head_dim);
        tiles.queries[i] =
            query.on ? __ldcg((const float *)attend.q + query.at + i % head_dim) * attend.scale : 0;
        tiles.outputs[i] = 0;
    }
    any_sums sums[each];
    flash_query queries[each];
#pragma unroll
    for (uint32_t i = 0; i < each; i++) {
        sums[i] = {-__int_as_float(0x7f800000), 0};
        queries[i] = find_query(attend, block, warp * each + i);
    }
    for (uint32_t first = block.begin / FLASH_ANY_KEYS * FLASH_ANY_KEYS; first < block.end;
         first += FLASH_ANY_KEYS) {
        __syncthreads();
        if (attend.kv_type == TYPE_F32)
            fetch_any<true>(attend, block, first, tiles);
        else
            fetch_any<false>(attend, block, first, tiles);
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < each; i++)
            attend_keys(attend, queries[i], warp * each + i, first, tiles, sums[i]);
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < each; i++) {
        const float inverse = sums[i].sum == 0 ? 0 : 1 / sums[i].sum;
        const float *output = tiles.outputs + (warp * each + i) * head_dim;
        const rounded_query rounded = find_rounded(flash, queries[i]);
        const bool rounds = flash.rounded.values != 0 && queries[i].on;
        for (uint32_t d = threadIdx.x % 32; queries[i].on && d < head_dim; d += 32) {
            if (attend.out)
                __stcg((float *)attend.out + queries[i].at + d, output[d] * inverse);
            if (rounds)
                round_result(flash.rounded, rounded.row, rounded.column + d / 32 * 32, output[d] * inverse,
                    rounded.fine);
        }
        if (rounds)
            round_zeros(flash, rounded);
    }
}
