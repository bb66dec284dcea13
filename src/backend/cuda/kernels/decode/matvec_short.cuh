/*
 * Matmuls of one token in which every warp has one part, and a block one chunk: all of a small model's. There
 * is so little to compute that the latency of dependent instructions dominates. So weights and addresses are
 * in registers before the input arrives, and there are few branches.
 */
#ifndef CUDA_MATVEC_SHORT_CUH
#define CUDA_MATVEC_SHORT_CUH

#include "backend/cuda/kernels/decode/matvec.cuh"

/* Waits for the next chunk of the ring. */
struct short_chunk {
    const uint8_t *begin;
    uint64_t *empty;
};

KERNEL_INLINE short_chunk take_chunk(shared_head &head, uint32_t bytes, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
    const uint8_t *begin =
        shared + head.machine.weight_ring_at + walk.place(bytes, head.machine.weight_ring_bytes);
    chunk_barrier_wait(head.machine, &head.full[slot], parity);
    return {begin, &head.empty[slot]};
}

/* The input's part of this warp through a layer norm, mixed with the previous token's norm. */
KERNEL_INLINE float4 mix_part(shared_head &head, const cuda_vector &vector, const warp_share &own,
    uint32_t at, bool on, pending_four &input, uint32_t tag, float *moments)
{
    const mix_four mix = load_mix(head, vector, at, on);
    const float count = (float)columns_of_part(vector.columns, own.number);
    const float4 x = wait_for_four(head, input, tag);
    const float sum = warp_sum((x.x + x.y) + (x.z + x.w)), mean = __fdividef(sum, count);
    const float squares = warp_sum(on ? squares_from(x, mean) : 0);
    put_moments(moments, own, sum, squares, count);
    sync_threads<CUDA_WORKERS>();
    const float2 norm = merge_moments(moments, vector.columns, vector.epsilon);
    float *kept = vector.keeps && own.first_tile_row == 0 && on ? kept_state(head, vector) + at : nullptr;
    return mixed_four(mix, x, norm, kept);
}

/* A warp's tile rows of a share: address of the first weight tile and its partial sums, and the distances to
 * the next ones. All of it is in registers before the input arrives. */
struct tile_walk {
    const uint8_t *tile;
    float *place;
    uint32_t tile_step, place_step, tile_rows, step;
};

/* From tile row `tile row` on, of which the codes are there. */
template <int TYPE, int TERMS>
KERNEL_INLINE void multiply_tiles(
    tile_walk walk, uint32_t tile_row, const lane_bytes<TERMS> &x, lane_codes<TYPE> codes, uint64_t *empty)
{
    const uint32_t lane = this_thread() % 32;
    for (bool goes_on = true; goes_on;) {
        lane_codes<TYPE> next = codes;
        tile_row += walk.step;
        walk.tile += walk.tile_step;
        goes_on = tile_row < walk.tile_rows;
        if (goes_on)
            next = load_codes<TYPE>(walk.tile, (int)lane);
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

/* A warp without a part: it leaves zeros for the norm, and releases the chunk unread. */
template <bool MIXES>
KERNEL_INLINE ring_walk pass_by(
    shared_head &head, const cuda_matmul_record &record, uint32_t serial, ring_walk walk, uint32_t tile_bytes)
{
    const uint32_t thread = this_thread(), shares = record.flags & MATMUL_GLU ? 2 : 1;
    if (thread % 32 == 0) {
        squares_of_record(head, serial)[thread / 32] = 0;
        if (MIXES)
            put_moments(head.moments[serial % 2], {0, 1, false}, 0, 0, 0);
    }
    if (MIXES)
        sync_threads<CUDA_WORKERS>();
    for (uint32_t i = 0; i < shares; i++) {
        if (thread % 32 == 0)
            chunk_barrier_arrive(&head.empty[walk.index % CUDA_CHUNKS]);
        walk.place(record.shares[i].tile_rows * record.shares[i].parts_per_pass * tile_bytes,
            head.machine.weight_ring_bytes);
    }
    signal_finisher(head, serial);
    return walk;
}

/* As run_matmul. The finishing warp stores the results. */
template <int TYPE, bool MIXES, int TERMS>
KERNEL_INLINE ring_walk run_short(
    shared_head &head, const cuda_matmul_record &record, uint32_t serial, ring_walk walk)
{
    DYNAMIC_SHARED(shared);
    using format = tile_format<TYPE>;
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32, tag = head.tag;
    const cuda_vector &vector = record.vector;
    const cuda_share &share = record.shares[0];
    const warp_share own = share_of_warp(share, warp);
    if (!own.works)
        return pass_by<MIXES>(head, record, serial, walk, format::bytes);
    const uint32_t at = own.number * CUDA_TILE_COLUMNS + lane * 4;
    const bool on = at < vector.columns, has_norm = vector.norm != CUDA_NORM_NONE;
    pending_four input = load_pending_four(vector.from, at, on, tag);
    const float4 weight = !MIXES && on && has_norm
                              ? __ldg((const float4 *)((const float *)vector.weight + at))
                              : make_float4(1, 1, 1, 1);
    const uint32_t each = share.parts_per_pass, tile_row_bytes = each * format::bytes,
                   chunk_bytes = share.tile_rows * tile_row_bytes,
                   first_tile = own.first_tile_row * tile_row_bytes + own.number * format::bytes;
    const short_chunk chunk = take_chunk(head, chunk_bytes, walk);
    tile_walk tile_rows;
    tile_rows.tile_rows = share.tile_rows;
    tile_rows.step = share.tile_rows_per_pass;
    tile_rows.tile_step = tile_rows.step * tile_row_bytes;
    tile_rows.place_step = tile_rows.step * each * CUDA_TILE_ROWS;
    tile_rows.tile = worked_out(chunk.begin + first_tile);
    tile_rows.place = worked_out(partials_of_record(shared, serial) +
                                 (own.first_tile_row * each + own.number) * CUDA_TILE_ROWS + lane / 4);
    const lane_codes<TYPE> codes = load_codes<TYPE>(tile_rows.tile, (int)lane);
    uint8_t *part =
        worked_out(shared + head.machine.packed_inputs_at + warp * head.machine.own_packed_input_bytes);
    float *squares = worked_out(squares_of_record(head, serial) + warp);
    const bool has_glu = record.flags & MATMUL_GLU;
    const uint32_t up_partials = record.up_partials;

    float4 x;
    float square = 0;
    if (MIXES) {
        x = mix_part(head, vector, own, at, on, input, tag, head.moments[serial % 2]);
    } else {
        x = wait_for_four(head, input, tag);
        square = fmaf(x.x, x.x, x.y * x.y) + fmaf(x.z, x.z, x.w * x.w);
        x.x *= weight.x, x.y *= weight.y, x.z *= weight.z, x.w *= weight.w;
    }
    const rounded_four<TERMS> rounded = round_four_and_add<TERMS>(x, square);
    put_rounded_four(part, lane * 4, rounded);
    __syncwarp();
    lane_bytes<TERMS> bytes;
    load_input(part, lane % 4, bytes);
    square += __shfl_xor_sync(~0u, square, 8);
    square += __shfl_xor_sync(~0u, square, 16);
    if (lane == 0)
        *squares = own.first_tile_row == 0 ? square : 0; /* each part once */
    multiply_tiles<TYPE>(tile_rows, own.first_tile_row, bytes, codes, chunk.empty);
    if (has_glu) {
        const short_chunk second = take_chunk(head, chunk_bytes, walk);
        tile_rows.tile = second.begin + first_tile;
        tile_rows.place += up_partials;
        multiply_tiles<TYPE>(
            tile_rows, own.first_tile_row, bytes, load_codes<TYPE>(tile_rows.tile, (int)lane), second.empty);
    }
    signal_finisher(head, serial);
    return walk;
}

template <bool MIXES, int TERMS> static __device__ __noinline__ void run_any_short()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const block_walk walk = load_walk(head);
    const cuda_matmul_record &record = place_of_record(shared, walk.serial)->matmul;
    ring_walk ring = walk.ring;
    switch (record.shares[0].type) {
#define RUN(type, p16, p8, p4, row_bytes, lane_bytes, group, ...)                         \
    case TYPE_##type:                                                                     \
        if constexpr (group != 0)                                                         \
            ring = run_short<TYPE_##type, MIXES, TERMS>(head, record, walk.serial, ring); \
        break;
        CUDA_TILE_FORMATS(RUN)
#undef RUN
    default:
        break;
    }
    walk_on(head, walk, ring, true);
}

#endif
