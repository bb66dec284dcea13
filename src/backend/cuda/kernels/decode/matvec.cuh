/*
 * Matmuls of one token. A pass is 16 weight tiles, one for each warp: a warp keeps its part of the input in
 * registers and multiplies it with one tile after the other. Partial sums are collected in shared memory and
 * added in the order of their columns.
 */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/kernels/decode/choose_largest.cuh"
#include "backend/cuda/kernels/decode/matvec_input.cuh"

/* ---- A lane's share of the input ---- */

template <int TERMS> struct lane_bytes {
    uint32_t words[TERMS][8];
    float scale;
    int sums[2]; /* of sixteen, counted in last term */
};

struct lane_floats {
    float values[32];
};

template <int TYPE, int TERMS> struct lane_input {
    using type = lane_bytes<TERMS>;
};
template <int TERMS> struct lane_input<TYPE_F32, TERMS> {
    using type = lane_floats;
};
template <int TERMS> struct lane_input<TYPE_F16, TERMS> {
    using type = lane_floats;
};
template <int TERMS> struct lane_input<TYPE_BF16, TERMS> {
    using type = lane_floats;
};

/* Block `block` of 32 columns of a part. */
template <int TERMS>
KERNEL_INLINE void load_input(const uint8_t *part, uint32_t block, lane_bytes<TERMS> &out)
{
#pragma unroll
    for (int i = 0; i < TERMS; i++) {
        const uint4 *from = (const uint4 *)(part + i * CUDA_PART_SECOND_TERMS + block * 32);
        const uint4 a = from[0], b = from[1];
        out.words[i][0] = a.x, out.words[i][1] = a.y, out.words[i][2] = a.z, out.words[i][3] = a.w;
        out.words[i][4] = b.x, out.words[i][5] = b.y, out.words[i][6] = b.z, out.words[i][7] = b.w;
    }
    const float *scales = (const float *)(part + CUDA_TILE_COLUMNS);
    out.scale = scales[block];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        out.sums[half] = 0;
#pragma unroll
        for (int i = 0; i < TERMS; i++) {
            out.sums[half] *= TERM_UNIT;
#pragma unroll
            for (int j = 0; j < 4; j++)
                out.sums[half] = dot_bytes(out.words[i][half * 4 + j], 0x01010101, out.sums[half]);
        }
    }
}

KERNEL_INLINE void load_input(const uint8_t *part, uint32_t block, lane_floats &out)
{
    const float4 *from = (const float4 *)((const float *)part + block * 36);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 four = from[i];
        out.values[4 * i] = four.x, out.values[4 * i + 1] = four.y;
        out.values[4 * i + 2] = four.z, out.values[4 * i + 3] = four.w;
    }
}

/* ---- Products ---- */

template <int TYPE, int TERMS>
KERNEL_INLINE float multiply_codes(const lane_codes<TYPE> &codes, const lane_bytes<TERMS> &x)
{
    using format = tile_format<TYPE>;
    const lane_scales scales = unpack_scales<TYPE>(codes);
    uint32_t words[8];
    unpack_codes<TYPE>(codes, words);
    int first = 0, last = 0;
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        first *= TERM_UNIT, last *= TERM_UNIT;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            first = dot_bytes(words[i], x.words[term][i], first);
            last = dot_bytes(words[i + 4], x.words[term][i + 4], last);
        }
    }
    float sum;
    if (format::group == 16) {
        sum = (float)first * (scales.scale[0] * x.scale);
        sum = fmaf((float)last, scales.scale[1] * x.scale, sum);
        if (format::offsets) {
            sum = fmaf(scales.offset[0], x.scale * (float)x.sums[0], sum);
            sum = fmaf(scales.offset[1], x.scale * (float)x.sums[1], sum);
        }
    } else {
        sum = (float)(first + last) * (scales.scale[0] * x.scale);
        if (format::offsets)
            sum = fmaf(scales.offset[0], x.scale * (float)(x.sums[0] + x.sums[1]), sum);
    }
    return sum;
}

template <int TYPE> KERNEL_INLINE float multiply_codes(const lane_codes<TYPE> &codes, const lane_floats &x)
{
    float sum = 0;
#pragma unroll
    for (int piece = 0; piece < 4; piece++) {
        float w[8];
        unpack_floats<TYPE>(codes, piece, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = fmaf(w[i], x.values[piece * 8 + i], sum);
    }
    return sum;
}

/* Offsets, in bytes of shared memory, of the part that a warp multiplies and of the next ones. */
struct part_walk {
    uint32_t first, step;
};

/* A packed input that all warps share. */
KERNEL_INLINE part_walk walk_packed_input(uint32_t packed_input, const cuda_share &share, uint32_t each)
{
    return {
        packed_input + share_of_warp(share, this_thread() / 32).number * each, share.parts_per_pass * each};
}

/* Adds the column blocks of COUNT rows over the four lanes of a row. Each lane gets the sum of one weight
 * tile, number lane % COUNT, for row lane / 4. */
template <int COUNT> KERNEL_INLINE float sum_lanes(const float (&x)[COUNT], uint32_t lane)
{
    const bool odd = lane & 1, upper = lane & 2;
    float sum;
    if constexpr (COUNT == 1)
        sum = x[0] + __shfl_xor_sync(~0u, x[0], 1);
    else
        sum = (odd ? x[1] : x[0]) + __shfl_xor_sync(~0u, odd ? x[0] : x[1], 1);
    if constexpr (COUNT < 4)
        return sum + __shfl_xor_sync(~0u, sum, 2);
    const float second =
        (odd ? x[COUNT - 1] : x[COUNT - 2]) + __shfl_xor_sync(~0u, odd ? x[COUNT - 2] : x[COUNT - 1], 1);
    return (upper ? second : sum) + __shfl_xor_sync(~0u, upper ? sum : second, 2);
}

/* COUNT weight tiles at once, `tile_step` bytes and their sums `place_step` floats apart: one alone would
 * wait for its loads. */
template <int TYPE, int TERMS, int COUNT>
KERNEL_INLINE void multiply_tiles_at_once(const uint8_t *tile, uint32_t tile_step, uint32_t lane,
    const typename lane_input<TYPE, TERMS>::type &x, float *place, uint32_t place_step, bool adds)
{
    lane_codes<TYPE> codes[COUNT];
    float sums[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        codes[i] = load_codes<TYPE>(tile + i * tile_step, (int)lane);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sums[i] = multiply_codes<TYPE>(codes[i], x);
    const float sum = sum_lanes<COUNT>(sums, lane);
    float *own = place + lane % COUNT * place_step + lane / 4;
    if (lane % 4 < COUNT)
        *own = adds ? *own + sum : sum;
}

/* A range of part groups of a matrix. */
struct group_range {
    uint32_t first, end;
};

KERNEL_INLINE group_range all_groups(const cuda_share &share)
{
    return {0, share.part_groups};
}

/* One warp's part in a block's share: sums of its parts, [tile rows][parts_per_pass][8]. */
template <int TYPE, int TERMS>
KERNEL_INLINE void multiply(shared_head &head, const cuda_share &share, group_range groups, part_walk input,
    float *partials, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    constexpr int MOST = tile_format<TYPE>::group ? 4 : 1; /* floats keep enough busy */
    const uint8_t *ring = shared + head.machine.weight_ring_at;
    const uint32_t thread = this_thread(), lane = thread % 32, ring_bytes = head.machine.weight_ring_bytes;
    const uint32_t each = share.parts_per_pass, step = share.tile_rows_per_pass;
    const warp_share own = share_of_warp(share, thread / 32);
    const uint32_t tile_row_bytes = each * tile_format<TYPE>::bytes,
                   place_step = step * each * CUDA_TILE_ROWS;
    const uint32_t all_tile_rows = share.tile_rows, chunk_tile_rows = share.tile_rows_per_chunk;
    for (uint32_t group = groups.first; group < groups.end; group++) {
        typename lane_input<TYPE, TERMS>::type x = {};
        if (group * each + own.number < share.parts && own.works)
            load_input(shared + input.first + (group - groups.first) * input.step, lane % 4, x);
        for (uint32_t first = 0; first < all_tile_rows; first += chunk_tile_rows) {
            const uint32_t tile_rows = min(chunk_tile_rows, all_tile_rows - first);
            const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
            const uint8_t *tile = ring + walk.place(tile_rows * tile_row_bytes, ring_bytes) +
                                  own.first_tile_row * tile_row_bytes + own.number * tile_format<TYPE>::bytes;
            float *place = partials + ((first + own.first_tile_row) * each + own.number) * CUDA_TILE_ROWS;
            chunk_barrier_wait(head.machine, &head.full[slot], parity);
            uint32_t tile_row = own.works ? own.first_tile_row : tile_rows;
            if constexpr (MOST == 4) {
                for (; tile_row + 3 * step < tile_rows; tile_row += 4 * step) {
                    multiply_tiles_at_once<TYPE, TERMS, 4>(
                        tile, step * tile_row_bytes, lane, x, place, place_step, group);
                    tile += 4 * step * tile_row_bytes;
                    place += 4 * place_step;
                }
                if (tile_row + step < tile_rows) {
                    multiply_tiles_at_once<TYPE, TERMS, 2>(
                        tile, step * tile_row_bytes, lane, x, place, place_step, group);
                    tile_row += 2 * step;
                    tile += 2 * step * tile_row_bytes;
                    place += 2 * place_step;
                }
            }
            for (; tile_row < tile_rows; tile_row += step) {
                multiply_tiles_at_once<TYPE, TERMS, 1>(
                    tile, step * tile_row_bytes, lane, x, place, place_step, group);
                tile += step * tile_row_bytes;
                place += place_step;
            }
            __syncwarp();
            if (lane == 0)
                chunk_barrier_arrive(&head.empty[slot]);
        }
    }
}

template <int TERMS>
KERNEL_INLINE void multiply_any(shared_head &head, const cuda_share &share, group_range groups,
    part_walk input, float *partials, ring_walk &walk)
{
    switch (share.type) {
#define MULTIPLY(type, ...)                                                       \
    case TYPE_##type:                                                             \
        multiply<TYPE_##type, TERMS>(head, share, groups, input, partials, walk); \
        break;
        CUDA_TILE_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
}

/* ---- Results ---- */

/* Parameters of the end of a matmul, read before its results are there. */
struct matmul_end {
    uint64_t out, before;
    uint32_t rows, flags, each, up_partials, tag;
    float per_column, epsilon;
};

KERNEL_INLINE matmul_end describe_end(const shared_head &head, const cuda_matmul_record &record)
{
    matmul_end end;
    end.out = record.out;
    end.before = record.before;
    end.rows = record.rows;
    end.flags = record.flags;
    end.each = record.shares[0].parts_per_pass;
    end.up_partials = record.up_partials;
    end.tag = head.tag;
    end.per_column = record.per_column;
    end.epsilon = record.vector.epsilon;
    return end;
}

/* Loads the value that a row is added to; 0, which has no tag, where there is none. */
KERNEL_INLINE uint32_t load_before(const matmul_end &end, uint32_t row)
{
    return end.flags & MATMUL_ADDS && end.flags & MATMUL_TAGGED && row < end.rows
               ? load_word((const uint32_t *)end.before + row)
               : 0;
}

/* The address of a row's first partial sum. */
KERNEL_INLINE const float *place_of_row(const float *partials, uint32_t each, uint32_t row)
{
    return partials + row / CUDA_TILE_ROWS * each * CUDA_TILE_ROWS + row % CUDA_TILE_ROWS;
}

/* The sum of a row over its parts, PARTS at most. All loads are in flight before the first addition. */
template <uint32_t PARTS> KERNEL_INLINE float sum_of_row(uint32_t each, const float *place)
{
    float parts[PARTS];
#pragma unroll
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = place[min(i, each - 1) * CUDA_TILE_ROWS]; /* masked afterwards */
#pragma unroll
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = i < each ? parts[i] : 0;
    return add_halves(parts);
}

/* Bias, activation and cap, which few matmuls have: not inlined, so that the others need not skip it. */
static __device__ __noinline__ float finish_specially(
    const cuda_matmul_record *record, float sum, uint32_t row)
{
    if (record->bias)
        sum += ((const float *)record->bias)[row];
    if (record->activation != ACTIVATION_NONE)
        sum = activated(record->activation, sum);
    if (record->cap > 0)
        sum = record->cap * tanhf(sum / record->cap);
    return sum;
}

KERNEL_INLINE void put_row(const matmul_end &end, uint32_t row, float value)
{
    if ((end.flags & (MATMUL_PLAIN | MATMUL_TAGGED)) == MATMUL_TAGGED)
        store_word((uint32_t *)end.out + row, value, end.tag);
    else
        __stcg((float *)end.out + row, value);
}

/* The value that row `row` is added to. */
KERNEL_INLINE float take_before(shared_head &head, const matmul_end &end, uint32_t row, uint32_t seen)
{
    return !(end.flags & MATMUL_ADDS)  ? 0
           : end.flags & MATMUL_TAGGED ? wait_for_word(head, (const uint32_t *)end.before + row, seen)
                                       : __ldcg((const float *)end.before + row);
}

KERNEL_INLINE float finish_row(shared_head &head, const cuda_matmul_record &record, const matmul_end &end,
    const float *partials, const float *sums, uint32_t row, float before)
{
    const float factor = end.flags & MATMUL_DEFERS ? norm_factor(sums, end.per_column, end.epsilon) : 1;
    float sum = sum_of_row<CUDA_WARPS>(end.each, place_of_row(partials, end.each, row)) * factor;
    if (end.flags & MATMUL_SPECIAL)
        sum = finish_specially(&record, sum, row);
    if (end.flags & MATMUL_GLU) {
        const uint32_t each = record.shares[1].parts_per_pass;
        float other =
            sum_of_row<CUDA_WARPS>(each, place_of_row(partials + end.up_partials, each, row)) * factor;
        if (record.up_bias)
            other += ((const float *)record.up_bias)[row];
        sum = gated(record.glu, sum) * other;
    }
    sum += before;
    put_row(end, row, sum);
    return sum;
}

/* ---- All of it ---- */

KERNEL_INLINE float *partials_of_record(uint8_t *shared, uint32_t serial)
{
    const cuda_machine &machine = ((const shared_head *)shared)->machine;
    return (float *)(shared + machine.partials_at + serial % 2 * machine.half_of_partials);
}

KERNEL_INLINE float *squares_of_record(shared_head &head, uint32_t serial)
{
    return head.sums + serial % 2 * CUDA_WARPS;
}

template <int TERMS>
KERNEL_INLINE void prepare_input(shared_head &head, const cuda_matmul_record &record,
    uint8_t *own_packed_input, float *squares, float *moments)
{
    const cuda_share &share = record.shares[0];
    if (record.vector.norm == CUDA_NORM_LAYER) {
        if (share.part_groups == 1)
            mix_parts<1, TERMS>(head, record.vector, share, own_packed_input, moments);
        else if (share.part_groups == 2)
            mix_parts<2, TERMS>(head, record.vector, share, own_packed_input, moments);
        else if (share.part_groups <= CUDA_MIXED_GROUPS / 2)
            mix_parts<CUDA_MIXED_GROUPS / 2, TERMS>(head, record.vector, share, own_packed_input, moments);
        else
            mix_parts<CUDA_MIXED_GROUPS, TERMS>(head, record.vector, share, own_packed_input, moments);
    } else if (share.part_groups == 1) {
        round_parts<1, TERMS>(head, record.vector, share, own_packed_input, squares);
    } else {
        round_parts<4, TERMS>(head, record.vector, share, own_packed_input, squares);
    }
}

/* The rows of a matmul with more of them than the finishing warp takes. Not inlined: its loops would spill
 * the registers of the multiplication. */
static __device__ __noinline__ void finish_all_rows(uint32_t serial)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_matmul_record &record = place_of_record(shared, serial)->matmul;
    const matmul_end end = describe_end(head, record);
    const float *partials = partials_of_record(shared, record.is_wide ? 0 : serial),
                *squares = squares_of_record(head, serial);
    sample_pair largest = 0;
    for (uint32_t row = this_thread(); row < end.rows; row += CUDA_WORKERS) {
        const float before = take_before(head, end, row, load_before(end, row));
        const float value = finish_row(head, record, end, partials, squares, row, before);
        if (end.flags & MATMUL_PLAIN)
            largest = sample_larger(largest, pair_at(head, end.out + row * sizeof(float), value));
    }
    __syncwarp();
    if (end.flags & MATMUL_PLAIN)
        note_largest(head, largest);
}

/* The end of a record, by the compute warps. */
KERNEL_INLINE void leave_matmul(shared_head &head, const cuda_matmul_record &record, const block_walk &walk,
    const ring_walk &ring, bool takes_input)
{
    bool goes_on = true;
    if (!(record.flags & MATMUL_FINISHER)) {
        goes_on = !sync_any<CUDA_WORKERS>(head.failed);
        if (goes_on)
            finish_all_rows(walk.serial);
    }
    if (record.is_wide || !takes_input) /* partial sums, or packed inputs, that all warps share */
        sync_threads<CUDA_WORKERS>();
    signal_finisher(head, walk.serial, goes_on);
    walk_on(head, walk, ring, goes_on);
}

/*
 * A block's share of a matmul. Warps are up to one record apart from each other: partial sums and norm sums
 * of neighbouring records alternate between two halves. Not inlined, like the functions of matvec_short.cuh:
 * otherwise registers of the callers would be spilled.
 */
template <int TERMS> static __device__ __noinline__ void run_matmul()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const block_walk walk = load_walk(head);
    const uint32_t serial = walk.serial;
    ring_walk ring = walk.ring;
    const cuda_matmul_record &record = place_of_record(shared, serial)->matmul;
    const bool takes_input = record.vector.from;
    float *partials = partials_of_record(shared, record.is_wide ? 0 : serial);
    const uint32_t each = part_bytes(record.vector.rounding);
    part_walk input;
    if (takes_input) {
        input = {
            head.machine.packed_inputs_at + this_thread() / 32 * head.machine.own_packed_input_bytes, each};
        prepare_input<TERMS>(
            head, record, shared + input.first, squares_of_record(head, serial), head.moments[serial % 2]);
    } else {
        input = walk_packed_input(
            head.machine.packed_inputs_at + record.vector.packed_input, record.shares[0], each);
    }
    multiply_any<TERMS>(head, record.shares[0], all_groups(record.shares[0]), input, partials, ring);
    if (record.glu != ACTIVATION_NONE) {
        if (!takes_input)
            input = walk_packed_input(head.machine.packed_inputs_at + record.up_packed_input,
                record.shares[1], part_bytes(record.up_rounding));
        multiply_any<TERMS>(
            head, record.shares[1], all_groups(record.shares[1]), input, partials + record.up_partials, ring);
    }
    leave_matmul(head, record, walk, ring, takes_input);
}

#endif
