/*
 * The warp that finishes matmuls: it adds up what the computing warps have found and hands the results to the
 * other blocks, while those warps wait for the next input already. Between two records nobody waits for a
 * block's own results, only for those of all blocks. It also brings the records to shared memory.
 */
#ifndef CUDA_FINISHER_CUH
#define CUDA_FINISHER_CUH

#include "backend/cuda/matvec.cuh"

/* Which records come: after the last the first, of the next token. */
struct record_reader {
    uint32_t turn = 0, next;

    /* The next one, to where that of `turn` is or was. */
    KERNEL_INLINE void fetch(uint8_t *shared)
    {
        const shared_head &head = *(const shared_head *)shared;
        const uint32_t at = this_thread() % 32 * 4;
        if (at < sizeof(cuda_record) / 4)
            start_copy_of_16((float *)place_of_record(shared, turn) + at,
                (const float *)((const cuda_record *)head.machine.records + next) + at);
        turn++;
        next = next + 1 < head.range.end ? next + 1 : head.range.first;
    }
};
static_assert(sizeof(cuda_record) % 16 == 0 && sizeof(cuda_record) <= 512, "a lane copies 16 bytes");

KERNEL_INLINE void pause(uint32_t delays, uint32_t phase)
{
    uint32_t hash = (delays + phase * 2654435761u) ^ (blockIdx.x * 40503u + this_thread() / 32);
    hash ^= hash >> 13;
    hash *= 0x5bd1e995u;
    __nanosleep(hash >> 20);
}

/* One record's end; false when its computing gave up. */
KERNEL_INLINE bool finish_record(uint8_t *shared, uint32_t turn)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_record &record = *place_of_record(shared, turn);
    const bool finishes = record.kind <= CUDA_RECORD_MATMUL && record.matmul.flags & MATMUL_APART;
    const uint32_t lane = this_thread() % 32;
    uint64_t *computed = &head.computed[turn % 2];
    const uint32_t parity = turn / 2 % 2;
    if (!finishes)
        return chunk_barrier_wait(head.machine, computed, parity);
    const matmul_end end = describe_end(head, record.matmul);
    const uint64_t first = look_before(end, lane), second = look_before(end, lane + 32);
    if (!chunk_barrier_wait(head.machine, computed, parity))
        return false;
    const float *partials = partials_of_turn(shared, turn), *squares = squares_of_turn(head, turn);
    if (lane < end.rows)
        finish_row(head, record.matmul, end, partials, squares, lane, first);
    if (lane + 32 < end.rows)
        finish_row(head, record.matmul, end, partials, squares, lane + 32, second);
    return true;
}
static_assert(CUDA_FINISHED_ROWS == 64, "two rows a lane");

/* All records of a token. */
KERNEL_INLINE void finish_records(uint8_t *shared, record_reader &reader)
{
    shared_head &head = *(shared_head *)shared;
    for (uint32_t left = head.range.end - head.range.first; left > 0; left--) {
        const uint32_t turn = reader.turn - CUDA_RECORD_PLACES;
        if (head.range.delays)
            pause(head.range.delays, left);
        if (__any_sync(~0u, !finish_record(shared, turn))) {
            head.failed = 1;
            return;
        }
        wait_for_copies(); /* of the last turn: whoever is told next may need it */
        __syncwarp();
        if (this_thread() % 32 == 0)
            chunk_barrier_arrive(&head.finished[turn % 2]);
        reader.fetch(shared);
    }
}

#endif
