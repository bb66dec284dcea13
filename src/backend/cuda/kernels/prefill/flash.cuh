/* Attention of many tokens: the queries of a block. A query is a pair of a token and one of the heads that
 * share a KV head; a block has QUERIES neighbouring ones of one run and one KV head, so that they read
 * the same keys. */
#ifndef CUDA_FLASH_CUH
#define CUDA_FLASH_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/rows.cuh"
#include "backend/cuda/kernels/common/tensor_cores.cuh"
#include "backend/cuda/kernels/prefill/rounding.cuh"

struct flash_block {
    const uint32_t *pages;
    uint32_t kv_head, each;      /* each: heads that share a KV head */
    uint32_t first_query, count; /* among the queries of the run; how many there are from the first on */
    uint32_t run_first, run_first_row; /* position and row of the run's first token */
    uint32_t run_count;                /* its tokens */
    uint32_t begin, end;               /* positions that its queries see */
};

KERNEL_INLINE uint32_t first_seen(uint32_t window, uint32_t position)
{
    return window && position + 1 > window ? position + 1 - window : 0;
}

/* The addresses of the step: constant values are read before the wait for the previous launch. */
struct flash_step {
    const cuda_step *step;
    const cuda_run *runs;
    const uint32_t *pages;
    uint32_t slots, pages_per_slot;
};

KERNEL_INLINE flash_step find_flash_step(const cuda_machine *machine)
{
    const uint64_t step = __ldg(&machine->step);
    return {(const cuda_step *)step, (const cuda_run *)(step + __ldg(&machine->runs_at)),
        (const uint32_t *)(step + __ldg(&machine->pages_at)), __ldg(&machine->slots),
        __ldg(&machine->pages_per_slot)};
}

/* A run, and the queries that a block has of it. */
KERNEL_INLINE void set_flash_block(const flash_step &step, const cuda_attend &attend, uint32_t run,
    uint32_t first, uint32_t first_row, uint32_t run_count, uint32_t first_query, uint32_t count,
    flash_block &out)
{
    const uint32_t each = attend.heads / attend.kv_heads;
    const bool is_one = run_count == 1;
    out.pages = step.pages + (uint64_t)run * step.pages_per_slot;
    out.kv_head = blockIdx.y;
    out.each = each;
    out.first_query = first_query;
    out.count = count;
    out.run_first = first;
    out.run_first_row = first_row;
    out.run_count = run_count;
    out.begin = first_seen(attend.window, is_one ? first : first + first_query / each);
    out.end = (is_one ? first : first + (first_query + count - 1) / each) + 1;
}

/* Every warp finds its block's queries itself, 32 runs at a time; false if block number `block` has none.
 * Entries beyond the live runs are read as well, so that loads need not wait for the number of runs. */
template <uint32_t QUERIES>
KERNEL_INLINE bool find_flash_block(
    const flash_step &step, const cuda_attend &attend, uint32_t block, flash_block &out)
{
    const uint32_t lane = threadIdx.x % 32, run_count = __ldcg(&step.step->run_count),
                   token_count = __ldcg(&step.step->token_count);
    const uint32_t each = attend.heads / attend.kv_heads;
    uint32_t before = 0;
    const cuda_run *own = step.runs + min(block, step.slots - 1);
    const uint32_t own_first = __ldcg(&own->first), own_row = __ldcg(&own->first_row),
                   own_count = __ldcg(&own->count);
    if (run_count == token_count && each <= QUERIES) { /* each run has a token and a block, or ended */
        set_flash_block(step, attend, block, own_first, own_row, 1, 0, each, out);
        return block < run_count && own_count != 0;
    }
    for (uint32_t base = 0; base == 0 || base < run_count; base += 32) {
        const cuda_run *run = step.runs + min(base + lane, step.slots - 1);
        const uint32_t first = __ldcg(&run->first), first_row = __ldcg(&run->first_row),
                       any = __ldcg(&run->count);
        const uint32_t count = base + lane < run_count ? any : 0;
        const uint32_t tiles = (count * each + QUERIES - 1) / QUERIES;
        uint32_t through = tiles; /* of this run and the runs before it */
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(~0u, through, distance);
            through += lane >= (uint32_t)distance ? other : 0;
        }
        const uint32_t found = __ballot_sync(~0u, block < before + through);
        if (found) {
            const int at = __ffs((int)found) - 1;
            const uint32_t last = before + __shfl_sync(~0u, through, at) - 1 - block; /* long ones first */
            const uint32_t tokens = __shfl_sync(~0u, count, at);
            set_flash_block(step, attend, base + (uint32_t)at, __shfl_sync(~0u, first, at),
                __shfl_sync(~0u, first_row, at), tokens, last * QUERIES,
                min(tokens * each - last * QUERIES, QUERIES), out);
            return true;
        }
        before += __shfl_sync(~0u, through, 31);
    }
    return false;
}

/* Row, head and position of query number `query` of the block. */
struct flash_query {
    bool on;
    uint32_t row;             /* of its token */
    uint32_t position, first; /* it sees positions first .. position */
    uint64_t at;              /* of q and out, in floats */
};

KERNEL_INLINE flash_query find_query(const cuda_attend &attend, const flash_block &block, uint32_t query)
{
    const uint32_t number = block.first_query + query, token = number / block.each;
    flash_query out;
    out.on = query < block.count;
    out.row = block.run_first_row + token;
    out.position = block.run_first + token;
    out.first = first_seen(attend.window, out.position);
    out.at = ((uint64_t)out.row * attend.heads + block.kv_head * block.each + number % block.each) *
             attend.head_dim;
    return out;
}

/* A tile of keys or values in shared memory: [FLASH_KEYS][DIM] halves, chunks of 16 bytes at i ^ (row % 8).
 */
template <int DIM> KERNEL_INLINE uint8_t *chunk_at(uint8_t *rows, uint32_t row, uint32_t chunk)
{
    return rows + row * DIM * 2 + (chunk ^ (row & 7)) * 16;
}

KERNEL_INLINE float capped(float cap, float score)
{
    return cap == 0 ? score : cap * tanhf(score / cap);
}

/* 32 columns of a query's result by a warp, a lane each. */
KERNEL_INLINE void round_result(
    const cuda_packed_input &packed_input, uint32_t row, uint32_t column, float value, bool fine)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t at = (uint64_t)row * packed_input.columns + column;
    if (packed_input.rounding == ROUNDING_F16) {
        store_half(packed_input, row, column + lane, value);
        return;
    }
    const rounded_one rounded = round_one(value, fine);
    __stcg((int8_t *)packed_input.values + at + lane, (int8_t)rounded.terms[0]);
    if (fine)
        __stcg((int8_t *)packed_input.seconds + at + lane, (int8_t)rounded.terms[1]);
    if (lane == 0)
        __stcg((float *)packed_input.scales + at / 32, first_scale(rounded.scale, fine));
    if (lane % 16 == 0)
        __stcg((float *)packed_input.sums + at / 16 + lane / 16, rounded.scale * (float)rounded.sum);
}

/* The place of a query's rounded results; the last head also stores the zeros after them. */
struct rounded_query {
    uint32_t row, column, zeros;
    bool fine;
};

KERNEL_INLINE rounded_query find_rounded(const cuda_flash &flash, const flash_query &query)
{
    const uint32_t row = flash.attend.heads * flash.attend.head_dim,
                   column = (uint32_t)(query.at - (uint64_t)query.row * row);
    return {query.row, column, column + flash.attend.head_dim == row ? flash.rounded.columns - row : 0,
        flash.rounded.fine || query.position < EARLY_POSITIONS};
}

KERNEL_INLINE void round_zeros(const cuda_flash &flash, const rounded_query &query)
{
    for (uint32_t d = 0; d < query.zeros; d += 32)
        round_result(flash.rounded, query.row, query.column + flash.attend.head_dim + d, 0, query.fine);
}

/* A query's result, by a warp; value_at(d) is its element d. */
template <class VALUE>
KERNEL_INLINE void store_query(
    const cuda_flash &flash, const flash_block &block, uint32_t query, const VALUE &value_at)
{
    const bool rounds = flash.rounded.values != 0;
    const flash_query place = find_query(flash.attend, block, query);
    const rounded_query rounded = find_rounded(flash, place);
    float *out = (float *)flash.attend.out + place.at;
    for (uint32_t d = threadIdx.x % 32; d < flash.attend.head_dim; d += 32) {
        const float value = value_at(d);
        if (flash.attend.out)
            __stcg(out + d, value);
        if (rounds)
            round_result(flash.rounded, rounded.row, rounded.column + d / 32 * 32, value, rounded.fine);
    }
    if (rounds)
        round_zeros(flash, rounded);
}

#endif
