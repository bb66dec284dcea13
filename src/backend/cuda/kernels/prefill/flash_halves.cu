/*
 * Attention of many tokens over a cache of halves with products of warpgroups, for devices that have them.
 *
 *   salvo_flash_halves_64(machine, flash)    head_dim 64
 *   salvo_flash_halves_128(machine, flash)   head_dim 128
 *
 * Grid, threads and shared memory: cuda_flash_launch. A block has FLASH_WIDE_QUERIES queries.
 *
 * WARPS. 0 to 3 and 4 to 7 are two warpgroups of 64 queries each, which take all steps, each at its own pace:
 * the tensor cores have the products of one while the other computes weights. Warps 8 to 11 copy keys and
 * values, each to a stage of its own: the fence after a copy waits for all copies of its warp.
 *
 * BARRIERS, one of each for a stage; a wait tests the parity of the use.
 *   full    1 arrival, of the warp that copies: the stage is there. Warps 0-7 wait.
 *   empty   8 arrivals, lane 0 of warps 0-7: the products that read the stage are done. The copying warp
 *           waits.
 */
#include "backend/cuda/kernels/prefill/flash_softmax.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"

#if HAS_WARPGROUPS

constexpr uint32_t attending_warps = 8, wide_stages = 4;

template <int DIM> struct wide_layout {
    static constexpr int keys = FLASH_WIDE_STEP / DIM;  /* of a step */
    static constexpr uint32_t block_bytes = keys * 128, /* 64 columns of keys or values */
        tile_bytes = keys * DIM * 2, result_stride = DIM + 4;
};

/* The head of the shared memory; tiles and results follow. */
struct wide_head {
    uint64_t full[wide_stages], empty[wide_stages];
    uint32_t bad[wide_stages][4]; /* keys whose values are NaN or infinite, a bit each */
};

/* The part of a launch that a block has. */
template <int DIM> struct wide_block {
    using layout = wide_layout<DIM>;
    const cuda_attend &attend;
    flash_block block;
    wide_head *head;
    uint8_t *tiles; /* [stages][keys, values] */
    float *results; /* [queries][stride] */
    uint32_t first_step, end_step;
    uint32_t seen_from, seen_to; /* keys from .. to - 1 are seen by all queries */

    KERNEL_INLINE wide_block(const cuda_attend &attend_, uint8_t *shared)
        : attend(attend_), head((wide_head *)shared), tiles(next_tile_place(shared + sizeof(wide_head))),
          results((float *)(tiles + wide_stages * 2 * layout::tile_bytes))
    {
    }

    KERNEL_INLINE bool find(const flash_step &step)
    {
        if (!find_flash_block<FLASH_WIDE_QUERIES>(step, attend, blockIdx.x, block))
            return false;
        first_step = block.begin / layout::keys;
        end_step = (block.end + layout::keys - 1) / layout::keys;
        seen_from = first_seen(attend.window, block.end - 1);
        seen_to = block.run_first + block.first_query / block.each + 1;
        return true;
    }

    KERNEL_INLINE bool seen_by_all(uint32_t first) const
    {
        return first >= seen_from && first + layout::keys <= seen_to;
    }

    KERNEL_INLINE uint8_t *keys_of(uint32_t stage) const { return tiles + stage * 2 * layout::tile_bytes; }
};

/* ---- Copies, by warps 8 to 11 ---- */

/* Sixteen bytes of a row; a tile has blocks of 64 columns. */
template <int DIM> KERNEL_INLINE uint8_t *wide_chunk(uint8_t *tile, uint32_t row, uint32_t chunk)
{
    return tile + chunk / 8 * wide_layout<DIM>::block_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

/* All rows of a tile. A copy of the warp is 512 bytes; their places repeat every eight rows, so that a copy
 * is one instruction. */
template <int DIM> KERNEL_INLINE void fetch_rows(const uint8_t *from, uint32_t lane, uint8_t *tile)
{
    constexpr int rows = 256 / DIM, places = 8 / rows;
    uint8_t *place[places];
#pragma unroll
    for (int i = 0; i < places; i++)
        place[i] = wide_chunk<DIM>(tile, i * rows + lane / (DIM / 8), lane % (DIM / 8));
#pragma unroll
    for (int i = 0; i < wide_layout<DIM>::keys / rows; i++)
        copy_async(place[i % places] + i / places * 1024, from + lane * 16 + i * 512, true);
}

/* The rows of positions that no query of the block sees are zeros. */
template <int DIM>
KERNEL_INLINE void fetch_some_rows(
    const wide_block<DIM> &work, uint32_t first, const uint8_t *from, uint32_t lane, uint8_t *tile)
{
#pragma unroll 4
    for (uint32_t at = lane; at < wide_layout<DIM>::keys * DIM / 8; at += 32) {
        const uint32_t row = at / (DIM / 8), position = first + row;
        const bool on = position >= work.block.begin && position < work.block.end;
        copy_async(wide_chunk<DIM>(tile, row, at % (DIM / 8)), from + (on ? at * 16 : 0), on);
    }
}

template <int DIM>
KERNEL_INLINE void fetch_step(const wide_block<DIM> &work, uint32_t first, uint32_t lane, uint8_t *tiles)
{
    using layout = wide_layout<DIM>;
    const cuda_attend &attend = work.attend;
    const uint32_t page = __ldcg(work.block.pages + first / PAGE_POSITIONS);
    const bool all = first >= work.block.begin && first + layout::keys <= work.block.end;
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
        const uint8_t *from = find_kv_head(i ? attend.values : attend.keys, page, attend.kv_heads,
                                  work.block.kv_head, DIM, TYPE_F16)
                                  .elements +
                              (uint64_t)(first % PAGE_POSITIONS) * DIM * 2;
        uint8_t *tile = tiles + i * layout::tile_bytes;
        if (all)
            fetch_rows<DIM>(from, lane, tile);
        else
            fetch_some_rows<DIM>(work, first, from, lane, tile);
    }
    copy_commit();
    copy_wait<0>();
    __syncwarp();
}

/* As clear_bad_values of flash.cu: 32 keys, a lane each. */
template <int DIM> KERNEL_INLINE uint32_t clear_bad_rows(uint8_t *values, uint32_t row)
{
    uint32_t found = 0;
#pragma unroll 4
    for (int i = 0; i < DIM / 8; i++)
        find_bad_halves(*(const uint4 *)wide_chunk<DIM>(values, row, i), found);
    const bool is_bad = (found & 0x80008000) != 0;
    for (int i = 0; is_bad && i < DIM / 8; i++)
        *(uint4 *)wide_chunk<DIM>(values, row, i) = make_uint4(0, 0, 0, 0);
    return __ballot_sync(~0u, is_bad);
}

template <int DIM> KERNEL_INLINE void copy_steps(const wide_block<DIM> &work, uint32_t stage, uint32_t lane)
{
    using layout = wide_layout<DIM>;
    uint8_t *tiles = work.keys_of(stage);
    uint32_t use = 0;
#pragma unroll 1
    for (uint32_t step = work.first_step + stage; step < work.end_step; step += wide_stages, use++) {
        const uint32_t first = step * layout::keys;
        if (use)
            wait_for_use(&work.head->empty[stage], use - 1);
        fetch_step<DIM>(work, first, lane, tiles);
        const bool clears = !work.seen_by_all(first);
#pragma unroll 1
        for (uint32_t i = 0; i < layout::keys / 32; i++) {
            const uint32_t bad = clears ? clear_bad_rows<DIM>(tiles + layout::tile_bytes, i * 32 + lane) : 0;
            if (lane == 0)
                work.head->bad[stage][i] = bad;
        }
        show_to_products();
        __syncwarp();
        if (lane == 0)
            chunk_barrier_arrive(&work.head->full[stage]);
    }
}

/* ---- Steps, by warps 0 to 7 ---- */

template <int DIM>
KERNEL_INLINE void find_wide_scores(
    const uint8_t *keys, const flash_queries<DIM> &q, float (&scores)[wide_layout<DIM>::keys / 8][4])
{
    using layout = wide_layout<DIM>;
    products_begin();
#pragma unroll
    for (int i = 0; i < DIM / 16; i++) {
        const product_inputs inputs =
            swizzled_inputs(keys + i / 4 * layout::block_bytes + i % 4 * 32, layout::block_bytes);
        multiply_wide(q.low[i], inputs, i != 0, scores);
        multiply_wide(q.high[i], inputs, true, scores);
    }
    products_commit();
    products_wait<0>();
    hold_sums(scores);
}

template <int DIM>
KERNEL_INLINE void add_wide_values(
    const uint8_t *values, const float (&weights)[wide_layout<DIM>::keys / 8][4], flash_sums<DIM> &sums)
{
    using layout = wide_layout<DIM>;
    uint32_t high[layout::keys / 16][4], low[layout::keys / 16][4];
#pragma unroll
    for (int t = 0; t < layout::keys / 16; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const cut_pair pair =
                cut(weights[t * 2 + i / 2][i % 2 * 2], weights[t * 2 + i / 2][i % 2 * 2 + 1]);
            high[t][i] = pair.high;
            low[t][i] = pair.low;
        }
    }
    products_begin();
#pragma unroll
    for (int t = 0; t < layout::keys / 16; t++) {
        const product_inputs inputs = swizzled_inputs(values + t * 16 * 128, layout::block_bytes);
        multiply_wide<1>(low[t], inputs, true, sums.output);
        multiply_wide<1>(high[t], inputs, true, sums.output);
    }
    products_commit();
    products_wait<0>();
    hold_sums(sums.output);
}

/* Positions that the queries of a warpgroup see; none: first == end. */
struct seen_range {
    uint32_t first, end;
};

template <int DIM> KERNEL_INLINE seen_range range_of_warpgroup(const wide_block<DIM> &work, uint32_t group)
{
    const flash_block &block = work.block;
    const uint32_t first = group * 64;
    if (first >= block.count)
        return {0, 0};
    const uint32_t last = min(first + 64, block.count) - 1;
    return {first_seen(work.attend.window, block.run_first + (block.first_query + first) / block.each),
        block.run_first + (block.first_query + last) / block.each + 1};
}

template <int DIM>
KERNEL_INLINE void attend_steps(const wide_block<DIM> &work, uint32_t warp, uint32_t lane,
    const flash_query (&queries)[2], const flash_queries<DIM> &q, flash_sums<DIM> &sums)
{
    using layout = wide_layout<DIM>;
    const seen_range range = range_of_warpgroup(work, warp / 4);
    uint32_t stage = 0, use = 0;
#pragma unroll 1
    for (uint32_t step = work.first_step; step < work.end_step; step++) {
        const uint32_t first = step * layout::keys;
        wait_for_use(&work.head->full[stage], use);
        if (first < range.end && first + layout::keys > range.first) {
            const uint8_t *keys = work.keys_of(stage);
            float scores[layout::keys / 8][4];
            uint32_t bad[layout::keys / 32];
#pragma unroll
            for (int i = 0; i < layout::keys / 32; i++)
                bad[i] = work.head->bad[stage][i];
            find_wide_scores<DIM>(keys, q, scores);
            weigh<DIM, layout::keys>(
                work.attend.cap, queries, q.unit, first, bad, work.seen_by_all(first), scores, sums);
            add_wide_values<DIM>(keys + layout::tile_bytes, scores, sums);
        }
        __syncwarp();
        if (lane == 0)
            chunk_barrier_arrive(&work.head->empty[stage]);
        if (++stage == wide_stages) {
            stage = 0;
            use++;
        }
    }
}

/* A warp's results: through shared memory, so that a warp stores a query at a time. */
template <int DIM>
KERNEL_INLINE void store_results(const cuda_flash &flash, const wide_block<DIM> &work, uint32_t warp,
    uint32_t lane, const flash_sums<DIM> &sums)
{
    constexpr uint32_t stride = wide_layout<DIM>::result_stride;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float sum = sums.sum[row];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inverse = sum == 0 ? 0 : 1 / sum;
        float *result = work.results + (warp * 16 + lane / 4 + row * 8) * stride + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < DIM / 8; j++)
            *(float2 *)(result + j * 8) =
                make_float2(sums.output[j][row * 2] * inverse, sums.output[j][row * 2 + 1] * inverse);
    }
    __syncwarp();
#pragma unroll 1
    for (uint32_t query = warp * 16; query < min(warp * 16 + 16, work.block.count); query++) {
        const float *result = work.results + query * stride;
        store_query(flash, work.block, query, [&](uint32_t d) { return result[d]; });
    }
}

template <int DIM> KERNEL_INLINE void flash_halves(const cuda_machine *machine, const cuda_flash &flash)
{
    DYNAMIC_SHARED(shared);
    wide_block<DIM> work(flash.attend, shared);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const flash_step step = find_flash_step(machine);
    invite_next_launch();
    for (uint32_t i = 0; threadIdx.x == 0 && i < wide_stages; i++) {
        chunk_barrier_open(&work.head->full[i], 1);
        chunk_barrier_open(&work.head->empty[i], attending_warps);
    }
    __syncthreads();
    const bool has_queries = work.find(step);
    wait_for_last_launch();
    if (!has_queries)
        return;
    if (warp >= attending_warps) {
        release_registers<40>();
        copy_steps<DIM>(work, warp - attending_warps, lane);
    } else {
        take_registers<232>();
        const flash_query queries[2] = {find_query(flash.attend, work.block, warp * 16 + lane / 4),
            find_query(flash.attend, work.block, warp * 16 + lane / 4 + 8)};
        flash_queries<DIM> q;
        flash_sums<DIM> sums = {};
        sums.maximum[0] = sums.maximum[1] = -__int_as_float(0x7f800000);
        load_queries(flash.attend, queries, q);
        attend_steps<DIM>(work, warp, lane, queries, q, sums);
        store_results<DIM>(flash, work, warp, lane, sums);
    }
    __syncthreads(); /* no warp ends while another has its registers */
}

#define DEFINE_FLASH_HALVES(dim)                                                                        \
    extern "C" __global__ void __launch_bounds__(FLASH_WIDE_THREADS, 1)                                 \
        salvo_flash_halves_##dim(const cuda_machine *machine, const __grid_constant__ cuda_flash flash) \
    {                                                                                                   \
        flash_halves<dim>(machine, flash);                                                              \
    }

DEFINE_FLASH_HALVES(64)
DEFINE_FLASH_HALVES(128)

#endif
