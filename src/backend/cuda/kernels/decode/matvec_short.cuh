/*
 * Matmuls of one token of which every warp has one part, and a block one chunk: all of a small model's. There
 * is so little to compute that what counts is how many instructions wait for each other. So whatever does not
 * depend on the input is there before the input is: weights in registers and addresses; and nothing branches
 * that need not.
 */
#ifndef CUDA_MATVEC_SHORT_CUH
#define CUDA_MATVEC_SHORT_CUH

#include "backend/cuda/kernels/decode/matvec.cuh"

/* The next chunk of the ring, once it has come. */
struct short_chunk {
    const uint8_t *begin;
    uint64_t *empty;
};

KERNEL_INLINE short_chunk take_chunk(shared_head &head, uint32_t bytes, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
    const uint8_t *begin = shared + head.machine.ring_at + walk.place(bytes, head.machine.ring_bytes);
    chunk_barrier_wait(head.machine, &head.full[slot], parity);
    return {begin, &head.empty[slot]};
}

/* The input's part of this warp through a layer norm, mixed with that of the token before. */
KERNEL_INLINE float4 mix_part(shared_head &head, const cuda_vector &vector, const warp_share &own,
    uint32_t at, bool on, awaited_four &input, uint32_t tag, float *moments)
{
    const mix_four mix = load_mix(head, vector, at, on);
    const float count = (float)columns_of_part(vector.columns, own.number);
    const float4 x = wait_for_four(head, input, tag);
    const float sum = warp_sum((x.x + x.y) + (x.z + x.w)), mean = __fdividef(sum, count);
    const float squares = warp_sum(on ? squares_from(x, mean) : 0);
    put_moments(moments, own, sum, squares, count);
    sync_threads<CUDA_WORKERS>();
    const float2 norm = merge_moments(moments, vector.columns, vector.epsilon);
    float *kept = vector.keeps && own.first_tile == 0 && on ? kept_state(head, vector) + at : nullptr;
    return mixed_four(mix, x, norm, kept);
}

/* A warp's tiles of a share: where the first one's item and partial sums are, and how far apart they are. All
 * of it is in registers before the input comes. */
struct tile_walk {
    const uint8_t *item;
    float *place;
    uint32_t item_step, place_step, tiles, step;
};

/* From tile `tile` on, of which the codes are there. */
template <int TYPE, int DIGITS>
KERNEL_INLINE void multiply_tiles(
    tile_walk walk, uint32_t tile, const lane_bytes<DIGITS> &x, lane_codes<TYPE> codes, uint64_t *empty)
{
    const uint32_t lane = this_thread() % 32;
    for (bool goes_on = true; goes_on;) {
        lane_codes<TYPE> next = codes;
        tile += walk.step;
        walk.item += walk.item_step;
        goes_on = tile < walk.tiles;
        if (goes_on)
            next = load_codes<TYPE>(walk.item, (int)lane);
        const float sum = sum_lanes<1>({multiply_codes<TYPE>(codes, x)}, lane);
        if (lane % 4 == 0)
            *walk.place = sum;
        walk.place += walk.place_step;
        codes = next;
    }
    __syncwarp();
    if (lane == 0)
        chunk_barrier_arrive(empty);
}

/* A warp that has no part has little to do: nothing comes of it, and it takes no chunk. */
template <bool MIXES>
KERNEL_INLINE ring_walk pass_by(
    shared_head &head, const cuda_matmul_record &record, uint32_t turn, ring_walk walk, uint32_t item_bytes)
{
    const uint32_t thread = this_thread(), shares = record.flags & MATMUL_GLU ? 2 : 1;
    if (thread % 32 == 0) {
        squares_of_turn(head, turn)[thread / 32] = 0;
        if (MIXES)
            put_moments(head.moments[turn % 2], {0, 1, false}, 0, 0, 0);
    }
    if (MIXES)
        sync_threads<CUDA_WORKERS>();
    for (uint32_t i = 0; i < shares; i++) {
        if (thread % 32 == 0)
            chunk_barrier_arrive(&head.empty[walk.index % CUDA_CHUNKS]);
        walk.place(
            record.shares[i].tiles * record.shares[i].parts_per_round * item_bytes, head.machine.ring_bytes);
    }
    tell_finisher(head, turn);
    return walk;
}

/* As run_matmul. Results are the finishing warp's. */
template <int TYPE, bool MIXES, int DIGITS>
KERNEL_INLINE ring_walk run_short(
    shared_head &head, const cuda_matmul_record &record, uint32_t turn, ring_walk walk)
{
    DYNAMIC_SHARED(shared);
    using format = item_format<TYPE>;
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32, tag = head.tag;
    const cuda_vector &vector = record.vector;
    const cuda_share &share = record.shares[0];
    const warp_share own = share_of_warp(share, warp);
    if (!own.works)
        return pass_by<MIXES>(head, record, turn, walk, format::bytes);
    const uint32_t at = own.number * CUDA_ITEM_COLUMNS + lane * 4;
    const bool on = at < vector.columns, has_norm = vector.norm != CUDA_NORM_NONE;
    awaited_four input = look_at_four(vector.from, at, on, tag);
    const float4 weight = !MIXES && on && has_norm
                              ? __ldg((const float4 *)((const float *)vector.weight + at))
                              : make_float4(1, 1, 1, 1);
    const uint32_t each = share.parts_per_round, tile_bytes = each * format::bytes,
                   chunk_bytes = share.tiles * tile_bytes,
                   first_item = own.first_tile * tile_bytes + own.number * format::bytes;
    const short_chunk chunk = take_chunk(head, chunk_bytes, walk);
    tile_walk tiles;
    tiles.tiles = share.tiles;
    tiles.step = share.tiles_per_round;
    tiles.item_step = tiles.step * tile_bytes;
    tiles.place_step = tiles.step * each * CUDA_ITEM_ROWS;
    tiles.item = worked_out(chunk.begin + first_item);
    tiles.place = worked_out(
        partials_of_turn(shared, turn) + (own.first_tile * each + own.number) * CUDA_ITEM_ROWS + lane / 4);
    const lane_codes<TYPE> codes = load_codes<TYPE>(tiles.item, (int)lane);
    uint8_t *part = worked_out(shared + head.machine.panels_at + warp * head.machine.own_panel_bytes);
    float *squares = worked_out(squares_of_turn(head, turn) + warp);
    const bool has_glu = record.flags & MATMUL_GLU;
    const uint32_t up_partials = record.up_partials;

    float4 x;
    float square = 0;
    if (MIXES) {
        x = mix_part(head, vector, own, at, on, input, tag, head.moments[turn % 2]);
    } else {
        x = wait_for_four(head, input, tag);
        square = fmaf(x.x, x.x, x.y * x.y) + fmaf(x.z, x.z, x.w * x.w);
        x.x *= weight.x, x.y *= weight.y, x.z *= weight.z, x.w *= weight.w;
    }
    const rounded_four<DIGITS> rounded = round_four_and_add<DIGITS>(x, square);
    put_rounded_four(part, lane * 4, rounded);
    __syncwarp();
    lane_bytes<DIGITS> bytes;
    load_input(part, lane % 4, bytes);
    square += __shfl_xor_sync(~0u, square, 8);
    square += __shfl_xor_sync(~0u, square, 16);
    if (lane == 0)
        *squares = own.first_tile == 0 ? square : 0; /* each part once */
    multiply_tiles<TYPE>(tiles, own.first_tile, bytes, codes, chunk.empty);
    if (has_glu) {
        const short_chunk second = take_chunk(head, chunk_bytes, walk);
        tiles.item = second.begin + first_item;
        tiles.place += up_partials;
        multiply_tiles<TYPE>(
            tiles, own.first_tile, bytes, load_codes<TYPE>(tiles.item, (int)lane), second.empty);
    }
    tell_finisher(head, turn);
    return walk;
}

template <bool MIXES, int DIGITS> static __device__ __noinline__ void run_any_short()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const block_walk walk = load_walk(head);
    const cuda_matmul_record &record = place_of_record(shared, walk.turn)->matmul;
    ring_walk ring = walk.ring;
    switch (record.shares[0].type) {
#define RUN(type, p16, p8, p4, row_bytes, lane_bytes, group, ...)                        \
    case TYPE_##type:                                                                    \
        if constexpr (group != 0)                                                        \
            ring = run_short<TYPE_##type, MIXES, DIGITS>(head, record, walk.turn, ring); \
        break;
        CUDA_ITEM_FORMATS(RUN)
#undef RUN
    default:
        break;
    }
    walk_on(head, walk, ring, true);
}

#endif
