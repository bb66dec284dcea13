/*
 * The warp that finishes matmuls, and attention where it is simple: it adds up what the computing warps have
 * found and hands the results to the other blocks, while those warps wait for the next input already. Between
 * two records nobody waits for a block's own results, only for those of all blocks. It also brings the
 * records to shared memory.
 */
#ifndef CUDA_FINISHER_CUH
#define CUDA_FINISHER_CUH

#include "backend/cuda/kernels/decode/attend_one.cuh"
#include "backend/cuda/kernels/decode/matvec.cuh"

/* Brings records: after the last comes the first, of the next token. One is on its way while another is
 * finished. */
struct record_reader {
    uint32_t finished = 0, placed = 0, next; /* turns; and a record */
    uint4 sixteen = {};                      /* bytes of the one on its way, a lane's */

    KERNEL_INLINE void ask(const uint8_t *shared)
    {
        const shared_head &head = *(const shared_head *)shared;
        const uint32_t lane = this_thread() % 32;
        if (lane < sizeof(cuda_record) / 16)
            sixteen = __ldcg((const uint4 *)((const cuda_record *)head.machine.records + next) + lane);
        next = next + 1 < head.range.end ? next + 1 : head.range.first;
    }

    KERNEL_INLINE void put(uint8_t *shared)
    {
        const uint32_t lane = this_thread() % 32;
        if (lane < sizeof(cuda_record) / 16)
            ((uint4 *)place_of_record(shared, placed))[lane] = sixteen;
        placed++;
    }
};
static_assert(sizeof(cuda_record) % 16 == 0 && sizeof(cuda_record) <= 512, "a lane has 16 bytes");

KERNEL_INLINE void pause(uint32_t delays, uint32_t phase)
{
    uint32_t hash = (delays + phase * 2654435761u) ^ (blockIdx.x * 40503u + this_thread() / 32);
    hash ^= hash >> 13;
    hash *= 0x5bd1e995u;
    __nanosleep(hash >> 20);
}

/*
 * The rows of the most common matmuls, one a lane. Whatever can be is worked out before the wait, all is
 * loaded before the first is added, and nothing branches: what counts is how many instructions wait for each
 * other once the warps have computed.
 */
template <uint32_t FLAGS, uint32_t PARTS>
KERNEL_INLINE void finish_common(
    uint8_t *shared, const cuda_matmul_record &record, const matmul_end &end, uint32_t turn, float before)
{
    constexpr bool HAS_GLU = FLAGS & MATMUL_GLU, DEFERS = FLAGS & MATMUL_DEFERS;
    shared_head &head = *(shared_head *)shared;
    const uint32_t row = this_thread() % 32, glu = record.glu;
    const float *place = worked_out(
                    place_of_row(partials_of_turn(shared, turn), end.each, row < end.rows ? row : 0)),
                *up_place = HAS_GLU ? worked_out(place + end.up_partials) : place,
                *squares = DEFERS ? worked_out(squares_of_turn(head, turn)) : place;
    uint32_t *out = (uint32_t *)end.out + row;
    wait_for_workers(head, turn);
    float sum, other = 0, factor = 1;
    sum = sum_of_row<PARTS>(end.each, place);
    if (HAS_GLU)
        other = sum_of_row<PARTS>(end.each, up_place);
    if (DEFERS)
        factor = norm_factor(squares, end.per_column, end.epsilon);
    sum *= factor;
    if (HAS_GLU)
        sum = gated(glu, sum) * (other * factor);
    if (FLAGS & MATMUL_ADDS)
        sum += before;
    if (row < end.rows)
        put_word(out, sum, end.tag);
}

template <uint32_t PARTS>
KERNEL_INLINE void finish_rows(
    uint8_t *shared, const cuda_matmul_record &record, const matmul_end &end, uint32_t turn, float before)
{
    shared_head &head = *(shared_head *)shared;
    const uint32_t row = this_thread() % 32;
    switch (end.flags & ~MATMUL_APART) {
    case MATMUL_TAGGED:
        finish_common<0, PARTS>(shared, record, end, turn, before);
        return;
    case MATMUL_TAGGED | MATMUL_DEFERS:
        finish_common<MATMUL_DEFERS, PARTS>(shared, record, end, turn, before);
        return;
    case MATMUL_TAGGED | MATMUL_ADDS:
        finish_common<MATMUL_ADDS, PARTS>(shared, record, end, turn, before);
        return;
    case MATMUL_TAGGED | MATMUL_DEFERS | MATMUL_GLU:
        finish_common<MATMUL_DEFERS | MATMUL_GLU, PARTS>(shared, record, end, turn, before);
        return;
    default:
        break;
    }
    wait_for_workers(head, turn);
    sample_pair largest = 0;
    if (row < end.rows) {
        const float value = finish_row(
            head, record, end, partials_of_turn(shared, turn), squares_of_turn(head, turn), row, before);
        largest = pair_at(head, end.out + row * sizeof(float), value);
    }
    if (end.flags & MATMUL_PLAIN)
        note_largest(head, largest);
}
static_assert(CUDA_FINISHED_ROWS == 32, "a row a lane");

KERNEL_INLINE void finish_record(uint8_t *shared, uint32_t turn)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_record &record = *place_of_record(shared, turn);
    if (record.kind == CUDA_RECORD_ATTEND) {
        finish_attend(shared, record.attend, turn);
        return;
    }
    if (record.kind > CUDA_RECORD_MATMUL || !(record.matmul.flags & MATMUL_APART)) {
        wait_for_workers(head, turn);
        return;
    }
    const matmul_end end = describe_end(head, record.matmul);
    const uint32_t lane = this_thread() % 32;
    const float before = lane < end.rows ? take_before(head, end, lane, look_before(end, lane)) : 0;
    __syncwarp();
    if (end.each <= CUDA_WARPS / 2)
        finish_rows<CUDA_WARPS / 2>(shared, record.matmul, end, turn, before);
    else
        finish_rows<CUDA_WARPS>(shared, record.matmul, end, turn, before);
}

/* All records of a token, or up to the one with which the computing warps left it. */
KERNEL_INLINE void finish_records(uint8_t *shared, record_reader &reader)
{
    shared_head &head = *(shared_head *)shared;
    for (uint32_t left = head.range.end - head.range.first; left > 0; left--) {
        const uint32_t turn = reader.finished++;
        if (head.range.delays)
            pause(head.range.delays, left);
        finish_record(shared, turn);
        __syncwarp();
        if (turn > 0) /* who is told next may need it; it lies where the record before this one was */
            reader.put(shared);
        chunk_barrier_arrive(&head.finished[turn % 2]);
        reader.ask(shared);
        if (head.left_after == turn + 1)
            return;
    }
}

#endif
