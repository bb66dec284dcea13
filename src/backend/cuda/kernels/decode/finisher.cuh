/*
 * The finishing warp: it adds up the partial sums of matmuls, merges attention where a block has one head,
 * and stores the results for the other blocks, while the compute warps already wait for the next input. So no
 * warp waits for a result of its own block, only for the tagged words of all blocks. It also loads the
 * records into shared memory.
 */
#ifndef CUDA_FINISHER_CUH
#define CUDA_FINISHER_CUH

#include "backend/cuda/kernels/decode/attend_one.cuh"
#include "backend/cuda/kernels/decode/matvec.cuh"

/* Loads records; the last one is followed by the first, of the next token. One load is in flight while
 * another record is finished. */
struct record_reader {
    uint32_t finished = 0, placed = 0, next; /* serial numbers of records; next: index in the list */
    uint4 sixteen = {};                      /* the record being loaded, 16 bytes of it in each lane */

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
 * The rows of the most common matmuls, one a lane. Addresses are computed before the wait, all partial sums
 * are loaded before the first addition, and there are no branches: the latency after the last compute warp's
 * arrival is all that counts.
 */
template <uint32_t FLAGS, uint32_t PARTS>
KERNEL_INLINE void finish_common(
    uint8_t *shared, const cuda_matmul_record &record, const matmul_end &end, uint32_t serial, float before)
{
    constexpr bool HAS_GLU = FLAGS & MATMUL_GLU, DEFERS = FLAGS & MATMUL_DEFERS;
    shared_head &head = *(shared_head *)shared;
    const uint32_t row = this_thread() % 32, glu = record.glu;
    const float *place = worked_out(
                    place_of_row(partials_of_record(shared, serial), end.each, row < end.rows ? row : 0)),
                *up_place = HAS_GLU ? worked_out(place + end.up_partials) : place,
                *squares = DEFERS ? worked_out(squares_of_record(head, serial)) : place;
    uint32_t *out = (uint32_t *)end.out + row;
    wait_for_workers(head, serial);
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
        store_word(out, sum, end.tag);
}

template <uint32_t PARTS>
KERNEL_INLINE void finish_rows(
    uint8_t *shared, const cuda_matmul_record &record, const matmul_end &end, uint32_t serial, float before)
{
    shared_head &head = *(shared_head *)shared;
    const uint32_t row = this_thread() % 32;
    switch (end.flags & ~MATMUL_FINISHER) {
    case MATMUL_TAGGED:
        finish_common<0, PARTS>(shared, record, end, serial, before);
        return;
    case MATMUL_TAGGED | MATMUL_DEFERS:
        finish_common<MATMUL_DEFERS, PARTS>(shared, record, end, serial, before);
        return;
    case MATMUL_TAGGED | MATMUL_ADDS:
        finish_common<MATMUL_ADDS, PARTS>(shared, record, end, serial, before);
        return;
    case MATMUL_TAGGED | MATMUL_DEFERS | MATMUL_GLU:
        finish_common<MATMUL_DEFERS | MATMUL_GLU, PARTS>(shared, record, end, serial, before);
        return;
    default:
        break;
    }
    wait_for_workers(head, serial);
    sample_pair largest = 0;
    if (row < end.rows) {
        const float value = finish_row(head, record, end, partials_of_record(shared, serial),
            squares_of_record(head, serial), row, before);
        largest = pair_at(head, end.out + row * sizeof(float), value);
    }
    if (end.flags & MATMUL_PLAIN)
        note_largest(head, largest);
}
static_assert(CUDA_FINISHED_ROWS == 32, "a row a lane");

KERNEL_INLINE void finish_record(uint8_t *shared, uint32_t serial)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_record &record = *place_of_record(shared, serial);
    if (record.kind == CUDA_RECORD_ATTEND) {
        finish_attend(shared, record.attend, serial);
        return;
    }
    if (record.kind > CUDA_RECORD_MATMUL || !(record.matmul.flags & MATMUL_FINISHER)) {
        wait_for_workers(head, serial);
        return;
    }
    const matmul_end end = describe_end(head, record.matmul);
    const uint32_t lane = this_thread() % 32;
    const float before = lane < end.rows ? take_before(head, end, lane, load_before(end, lane)) : 0;
    __syncwarp();
    if (end.each <= CUDA_WARPS / 2)
        finish_rows<CUDA_WARPS / 2>(shared, record.matmul, end, serial, before);
    else
        finish_rows<CUDA_WARPS>(shared, record.matmul, end, serial, before);
}

/* All records of a token, or up to the one after which the compute warps left the token. */
KERNEL_INLINE void finish_records(uint8_t *shared, record_reader &reader)
{
    shared_head &head = *(shared_head *)shared;
    for (uint32_t left = head.range.end - head.range.first; left > 0; left--) {
        const uint32_t serial = reader.finished++;
        if (head.range.delays)
            pause(head.range.delays, left);
        finish_record(shared, serial);
        __syncwarp();
        if (serial > 0) /* into the place of the record before this one, which no warp needs any more */
            reader.put(shared);
        chunk_barrier_arrive(&head.finished[serial % 2]);
        reader.ask(shared);
        if (head.left_after == serial + 1)
            return;
    }
}

#endif
