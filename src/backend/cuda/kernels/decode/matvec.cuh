/*
 * Matmuls of one token. A round is 16 items, one for each warp: a warp keeps its part of the input in
 * registers and multiplies it with one tile after the other. Partial sums meet in shared memory and are added
 * in the order of their columns.
 */
#ifndef CUDA_MATVEC_CUH
#define CUDA_MATVEC_CUH

#include "backend/cuda/kernels/decode/choose_largest.cuh"
#include "backend/cuda/kernels/decode/matvec_input.cuh"

/* ---- A lane's share of the input ---- */

template <int DIGITS> struct lane_bytes {
    uint32_t words[DIGITS][8];
    float scale;
    int sums[2]; /* of sixteen, counted in last digits */
};

struct lane_floats {
    float values[32];
};

template <int TYPE, int DIGITS> struct lane_input {
    using type = lane_bytes<DIGITS>;
};
template <int DIGITS> struct lane_input<TYPE_F32, DIGITS> {
    using type = lane_floats;
};
template <int DIGITS> struct lane_input<TYPE_F16, DIGITS> {
    using type = lane_floats;
};
template <int DIGITS> struct lane_input<TYPE_BF16, DIGITS> {
    using type = lane_floats;
};

/* Block `block` of 32 columns of a part. */
template <int DIGITS>
KERNEL_INLINE void load_input(const uint8_t *part, uint32_t block, lane_bytes<DIGITS> &out)
{
#pragma unroll
    for (int i = 0; i < DIGITS; i++) {
        const uint4 *from = (const uint4 *)(part + i * CUDA_PART_SECOND_DIGITS + block * 32);
        const uint4 a = from[0], b = from[1];
        out.words[i][0] = a.x, out.words[i][1] = a.y, out.words[i][2] = a.z, out.words[i][3] = a.w;
        out.words[i][4] = b.x, out.words[i][5] = b.y, out.words[i][6] = b.z, out.words[i][7] = b.w;
    }
    const float *scales = (const float *)(part + CUDA_ITEM_COLUMNS);
    out.scale = scales[block];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        out.sums[half] = 0;
#pragma unroll
        for (int i = 0; i < DIGITS; i++) {
            out.sums[half] *= SECOND_DIGITS;
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

template <int TYPE, int DIGITS>
KERNEL_INLINE float multiply_codes(const lane_codes<TYPE> &codes, const lane_bytes<DIGITS> &x)
{
    using format = item_format<TYPE>;
    const lane_scales scales = unpack_scales<TYPE>(codes);
    uint32_t words[8];
    unpack_codes<TYPE>(codes, words);
    int first = 0, last = 0;
#pragma unroll
    for (int digit = 0; digit < DIGITS; digit++) {
        first *= SECOND_DIGITS, last *= SECOND_DIGITS;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            first = dot_bytes(words[i], x.words[digit][i], first);
            last = dot_bytes(words[i + 4], x.words[digit][i + 4], last);
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

/* Where a warp finds the part that it multiplies, and the next ones: bytes of shared memory. */
struct part_walk {
    uint32_t first, step;
};

/* A panel that all warps share. */
KERNEL_INLINE part_walk walk_panel(uint32_t panel, const cuda_share &share, uint32_t each)
{
    return {panel + share_of_warp(share, this_thread() / 32).number * each, share.parts_per_round * each};
}

/* One column block after the other of COUNT rows: what the four lanes of a row have comes together. Each lane
 * gets the sum of one item, number lane % COUNT, for row lane / 4. */
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

/* COUNT items at once, `item_step` bytes and their sums `place_step` floats apart: there is much to wait for
 * in one. */
template <int TYPE, int DIGITS, int COUNT>
KERNEL_INLINE void multiply_items(const uint8_t *item, uint32_t item_step, uint32_t lane,
    const typename lane_input<TYPE, DIGITS>::type &x, float *place, uint32_t place_step, bool adds)
{
    lane_codes<TYPE> codes[COUNT];
    float sums[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        codes[i] = load_codes<TYPE>(item + i * item_step, (int)lane);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sums[i] = multiply_codes<TYPE>(codes[i], x);
    const float sum = sum_lanes<COUNT>(sums, lane);
    float *own = place + lane % COUNT * place_step + lane / 4;
    if (lane % 4 < COUNT)
        *own = adds ? *own + sum : sum;
}

/* Which part groups of a matrix. */
struct group_range {
    uint32_t first, end;
};

KERNEL_INLINE group_range all_groups(const cuda_share &share)
{
    return {0, share.part_groups};
}

/* One warp's part in a block's share: sums of its parts, [tiles][parts_per_round][8]. */
template <int TYPE, int DIGITS>
KERNEL_INLINE void multiply(shared_head &head, const cuda_share &share, group_range groups, part_walk input,
    float *partials, ring_walk &walk)
{
    DYNAMIC_SHARED(shared);
    constexpr int MOST = item_format<TYPE>::group ? 4 : 1; /* floats keep enough busy */
    const uint8_t *ring = shared + head.machine.ring_at;
    const uint32_t thread = this_thread(), lane = thread % 32, ring_bytes = head.machine.ring_bytes;
    const uint32_t each = share.parts_per_round, step = share.tiles_per_round;
    const warp_share own = share_of_warp(share, thread / 32);
    const uint32_t tile_bytes = each * item_format<TYPE>::bytes, place_step = step * each * CUDA_ITEM_ROWS;
    const uint32_t all_tiles = share.tiles, chunk_tiles = share.tiles_per_chunk;
    for (uint32_t group = groups.first; group < groups.end; group++) {
        typename lane_input<TYPE, DIGITS>::type x = {};
        if (group * each + own.number < share.parts && own.works)
            load_input(shared + input.first + (group - groups.first) * input.step, lane % 4, x);
        for (uint32_t first = 0; first < all_tiles; first += chunk_tiles) {
            const uint32_t tiles = min(chunk_tiles, all_tiles - first);
            const uint32_t slot = walk.index % CUDA_CHUNKS, parity = walk.index / CUDA_CHUNKS % 2;
            const uint8_t *item = ring + walk.place(tiles * tile_bytes, ring_bytes) +
                                  own.first_tile * tile_bytes + own.number * item_format<TYPE>::bytes;
            float *place = partials + ((first + own.first_tile) * each + own.number) * CUDA_ITEM_ROWS;
            chunk_barrier_wait(head.machine, &head.full[slot], parity);
            uint32_t tile = own.works ? own.first_tile : tiles;
            if constexpr (MOST == 4) {
                for (; tile + 3 * step < tiles; tile += 4 * step) {
                    multiply_items<TYPE, DIGITS, 4>(
                        item, step * tile_bytes, lane, x, place, place_step, group);
                    item += 4 * step * tile_bytes;
                    place += 4 * place_step;
                }
                if (tile + step < tiles) {
                    multiply_items<TYPE, DIGITS, 2>(
                        item, step * tile_bytes, lane, x, place, place_step, group);
                    tile += 2 * step;
                    item += 2 * step * tile_bytes;
                    place += 2 * place_step;
                }
            }
            for (; tile < tiles; tile += step) {
                multiply_items<TYPE, DIGITS, 1>(item, step * tile_bytes, lane, x, place, place_step, group);
                item += step * tile_bytes;
                place += place_step;
            }
            __syncwarp();
            if (lane == 0)
                chunk_barrier_arrive(&head.empty[slot]);
        }
    }
}

template <int DIGITS>
KERNEL_INLINE void multiply_any(shared_head &head, const cuda_share &share, group_range groups,
    part_walk input, float *partials, ring_walk &walk)
{
    switch (share.type) {
#define MULTIPLY(type, ...)                                                        \
    case TYPE_##type:                                                              \
        multiply<TYPE_##type, DIGITS>(head, share, groups, input, partials, walk); \
        break;
        CUDA_ITEM_FORMATS(MULTIPLY)
#undef MULTIPLY
    default:
        break;
    }
}

/* ---- Results ---- */

/* What the end of a matmul needs: read before its results are there. */
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
    end.each = record.shares[0].parts_per_round;
    end.up_partials = record.up_partials;
    end.tag = head.tag;
    end.per_column = record.per_column;
    end.epsilon = record.vector.epsilon;
    return end;
}

/* What a row is added to, on its way; a word without a tag where there is none. */
KERNEL_INLINE uint32_t look_before(const matmul_end &end, uint32_t row)
{
    return end.flags & MATMUL_ADDS && end.flags & MATMUL_TAGGED && row < end.rows
               ? look_at_word((const uint32_t *)end.before + row)
               : 0;
}

/* Where the first of a row's partial sums is. */
KERNEL_INLINE const float *place_of_row(const float *partials, uint32_t each, uint32_t row)
{
    return partials + row / CUDA_ITEM_ROWS * each * CUDA_ITEM_ROWS + row % CUDA_ITEM_ROWS;
}

/* The sum of a row over its parts, PARTS at most. All are on their way before the first is added. */
template <uint32_t PARTS> KERNEL_INLINE float sum_of_row(uint32_t each, const float *place)
{
    float parts[PARTS];
#pragma unroll
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = place[min(i, each - 1) * CUDA_ITEM_ROWS]; /* whether it counts can wait */
#pragma unroll
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = i < each ? parts[i] : 0;
    return add_halves(parts);
}

/* What few matmuls have at their end: a function of its own, so that others need not skip it. */
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
        put_word((uint32_t *)end.out + row, value, end.tag);
    else
        __stcg((float *)end.out + row, value);
}

/* What row `row` is added to. */
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
        const uint32_t each = record.shares[1].parts_per_round;
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

KERNEL_INLINE float *partials_of_turn(uint8_t *shared, uint32_t turn)
{
    const cuda_machine &machine = ((const shared_head *)shared)->machine;
    return (float *)(shared + machine.partials_at + turn % 2 * machine.half_of_partials);
}

KERNEL_INLINE float *squares_of_turn(shared_head &head, uint32_t turn)
{
    return head.sums + turn % 2 * CUDA_WARPS;
}

template <int DIGITS>
KERNEL_INLINE void prepare_input(
    shared_head &head, const cuda_matmul_record &record, uint8_t *own_panel, float *squares, float *moments)
{
    const cuda_share &share = record.shares[0];
    if (record.vector.norm == CUDA_NORM_LAYER) {
        if (share.part_groups == 1)
            mix_parts<1, DIGITS>(head, record.vector, share, own_panel, moments);
        else if (share.part_groups == 2)
            mix_parts<2, DIGITS>(head, record.vector, share, own_panel, moments);
        else if (share.part_groups <= CUDA_MIXED_GROUPS / 2)
            mix_parts<CUDA_MIXED_GROUPS / 2, DIGITS>(head, record.vector, share, own_panel, moments);
        else
            mix_parts<CUDA_MIXED_GROUPS, DIGITS>(head, record.vector, share, own_panel, moments);
    } else if (share.part_groups == 1) {
        round_parts<1, DIGITS>(head, record.vector, share, own_panel, squares);
    } else {
        round_parts<4, DIGITS>(head, record.vector, share, own_panel, squares);
    }
}

/* The rows of a matmul that has more than the finishing warp takes. A function of its own: what its loops
 * need would otherwise be in local memory while weights are multiplied. */
static __device__ __noinline__ void finish_all_rows(uint32_t turn)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_matmul_record &record = place_of_record(shared, turn)->matmul;
    const matmul_end end = describe_end(head, record);
    const float *partials = partials_of_turn(shared, record.is_wide ? 0 : turn),
                *squares = squares_of_turn(head, turn);
    sample_pair largest = 0;
    for (uint32_t row = this_thread(); row < end.rows; row += CUDA_WORKERS) {
        const float before = take_before(head, end, row, look_before(end, row));
        const float value = finish_row(head, record, end, partials, squares, row, before);
        if (end.flags & MATMUL_PLAIN)
            largest = sample_larger(largest, pair_at(head, end.out + row * sizeof(float), value));
    }
    __syncwarp();
    if (end.flags & MATMUL_PLAIN)
        note_largest(head, largest);
}

/* The end of a record by the warps that compute. */
KERNEL_INLINE void leave_matmul(shared_head &head, const cuda_matmul_record &record, const block_walk &walk,
    const ring_walk &ring, bool takes_input)
{
    bool goes_on = true;
    if (!(record.flags & MATMUL_APART)) {
        goes_on = !sync_any<CUDA_WORKERS>(head.failed);
        if (goes_on)
            finish_all_rows(walk.turn);
    }
    if (record.is_wide || !takes_input) /* sums, or panels, that are everybody's */
        sync_threads<CUDA_WORKERS>();
    tell_finisher(head, walk.turn, goes_on);
    walk_on(head, walk, ring, goes_on);
}

/*
 * All of a block's share in a matmul. Warps are up to a record apart from
 * each other: what they share takes turns. A function of its own, as those in matvec_short.cuh: what one
 * needs many registers for would have others written to local memory.
 */
template <int DIGITS> static __device__ __noinline__ void run_matmul()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const block_walk walk = load_walk(head);
    const uint32_t turn = walk.turn;
    ring_walk ring = walk.ring;
    const cuda_matmul_record &record = place_of_record(shared, turn)->matmul;
    const bool takes_input = record.vector.from;
    float *partials = partials_of_turn(shared, record.is_wide ? 0 : turn);
    const uint32_t each = part_bytes(record.vector.rounding);
    part_walk input;
    if (takes_input) {
        input = {head.machine.panels_at + this_thread() / 32 * head.machine.own_panel_bytes, each};
        prepare_input<DIGITS>(
            head, record, shared + input.first, squares_of_turn(head, turn), head.moments[turn % 2]);
    } else {
        input = walk_panel(head.machine.panels_at + record.vector.panel, record.shares[0], each);
    }
    multiply_any<DIGITS>(head, record.shares[0], all_groups(record.shares[0]), input, partials, ring);
    if (record.glu != ACTIVATION_NONE) {
        if (!takes_input)
            input = walk_panel(
                head.machine.panels_at + record.up_panel, record.shares[1], part_bytes(record.up_rounding));
        multiply_any<DIGITS>(
            head, record.shares[1], all_groups(record.shares[1]), input, partials + record.up_partials, ring);
    }
    leave_matmul(head, record, walk, ring, takes_input);
}

#endif
