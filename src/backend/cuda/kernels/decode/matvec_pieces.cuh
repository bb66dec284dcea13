/*
 * Matmuls of one token whose input is too wide for a block's shared memory: a warp takes and rounds the
 * columns of a few part groups, multiplies them, and goes on to the next. The input is read once for each
 * matrix, and a norm's statistics are found in a pass of their own before that.
 */
#ifndef CUDA_MATVEC_PIECES_CUH
#define CUDA_MATVEC_PIECES_CUH

#include "backend/cuda/kernels/decode/matvec.cuh"

/* Mean and scale of the input's norm, by all warps together. */
KERNEL_INLINE float2 find_norm(shared_head &head, const cuda_vector &vector, float *squares, float *moments)
{
    const uint32_t thread = this_thread(), columns = vector.columns, step = CUDA_WORKERS * 4;
    float sum = 0, square = 0, count = 0;
    if (vector.norm == CUDA_NORM_NONE)
        return make_float2(0, 1);
    for (uint32_t at = thread * 4; at / 128 * 128 < columns; at += step) { /* whole warps */
        float4 x[1];
        take_fours<1>(head, vector.from, at, step, columns, x);
        sum += (x[0].x + x[0].y) + (x[0].z + x[0].w);
        square = fmaf(x[0].x, x[0].x, fmaf(x[0].y, x[0].y, square));
        square = fmaf(x[0].z, x[0].z, fmaf(x[0].w, x[0].w, square));
        count += at < columns ? 4 : 0;
    }
    if (vector.norm == CUDA_NORM_RMS) {
        square = warp_sum(square);
        if (thread % 32 == 0)
            squares[thread / 32] = square;
        sync_threads<CUDA_WORKERS>();
        return make_float2(0, norm_factor(squares, __fdividef(1.0f, (float)columns), vector.epsilon));
    }
    /* Distances to the warp's own mean: sums of squares of large numbers would lose them. */
    sum = warp_sum(sum);
    count = warp_sum(count);
    const float mean = count > 0 ? __fdividef(sum, count) : 0;
    square = 0;
    for (uint32_t at = thread * 4; at / 128 * 128 < columns; at += step) {
        float4 x[1];
        take_fours<1>(head, vector.from, at, step, columns, x);
        square += at < columns ? squares_from(x[0], mean) : 0;
    }
    put_moments(moments, {0, 0, true}, sum, warp_sum(square), count);
    sync_threads<CUDA_WORKERS>();
    return merge_moments(moments, columns, vector.epsilon);
}

/* Four columns through the norm, and mixed with the token before. */
KERNEL_INLINE float4 normed_four(
    const shared_head &head, const cuda_vector &vector, uint32_t at, float4 x, float2 norm, bool keeps)
{
    const bool on = at < vector.columns;
    if (vector.norm == CUDA_NORM_LAYER)
        return mixed_four(
            load_mix(head, vector, at, on), x, norm, keeps && on ? kept_state(head, vector) + at : nullptr);
    if (vector.norm == CUDA_NORM_RMS) {
        const float4 weight = vector_four(vector.weight, at, on);
        x.x *= weight.x * norm.y, x.y *= weight.y * norm.y;
        x.z *= weight.z * norm.y, x.w *= weight.w * norm.y;
    }
    return x;
}

/* A warp's columns of some part groups, rounded, into its packed input. */
template <int TERMS>
KERNEL_INLINE void take_piece(shared_head &head, const cuda_vector &vector, uint32_t rounding,
    const cuda_share &share, group_range groups, float2 norm, bool keeps, uint8_t *own_packed_input)
{
    enum { AT_ONCE = 4 };
    const uint32_t thread = this_thread(), lane = thread % 32;
    const warp_share own = share_of_warp(share, thread / 32);
    const uint32_t step = share.parts_per_pass * CUDA_TILE_COLUMNS;
    if (!own.works)
        return;
    for (uint32_t group = groups.first; group < groups.end; group += AT_ONCE) {
        const uint32_t at = group * step + own.number * CUDA_TILE_COLUMNS + lane * 4;
        float4 values[AT_ONCE];
        take_fours<AT_ONCE>(head, vector.from, at, step, vector.columns, values);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (group + i >= groups.end)
                break; /* whole warps */
            put_rounded<TERMS>(own_packed_input + (group - groups.first + i) * part_bytes(rounding), rounding,
                lane * 4,
                normed_four(head, vector, at + i * step, values[i], norm, keeps && own.first_tile_row == 0));
        }
    }
    __syncwarp();
}

/* As run_matmul. */
template <int TERMS> static __device__ __noinline__ void run_pieces()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const block_walk walk = load_walk(head);
    ring_walk ring = walk.ring;
    const cuda_matmul_record &record = place_of_record(shared, walk.serial)->matmul;
    float *partials = partials_of_record(shared, record.is_wide ? 0 : walk.serial);
    const uint32_t packed_input = head.machine.packed_inputs_at +
                                  this_thread() / 32 * head.machine.own_packed_input_bytes,
                   shares = record.flags & MATMUL_GLU ? 2 : 1, each = record.groups_at_once;
    const float2 norm =
        find_norm(head, record.vector, squares_of_record(head, walk.serial), head.moments[walk.serial % 2]);
#pragma unroll 1
    for (uint32_t i = 0; i < shares; i++) {
        const cuda_share &share = record.shares[i];
        const uint32_t rounding = i ? record.up_rounding : record.vector.rounding;
#pragma unroll 1
        for (uint32_t first = 0; first < share.part_groups; first += each) {
            const group_range groups = {first, min(first + each, share.part_groups)};
            take_piece<TERMS>(head, record.vector, rounding, share, groups, norm,
                record.vector.keeps && i == 0, shared + packed_input);
            multiply_any<TERMS>(head, share, groups, {packed_input, part_bytes(rounding)},
                partials + (i ? record.up_partials : 0), ring);
        }
    }
    leave_matmul(head, record, walk, ring, true);
}

#endif
