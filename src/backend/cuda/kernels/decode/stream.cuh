/* The weight ring. One warp of a block copies the weights of its records, chunk after chunk in the order of
 * the phases, into a ring in shared memory, as far ahead as the ring has room; it never waits for an
 * activation. The copying warp and the compute warps walk the same sequence of chunks, so they agree on the
 * place of each. */
#ifndef CUDA_STREAM_CUH
#define CUDA_STREAM_CUH

#include "backend/cuda/kernels/common/rows.cuh"
#include "backend/cuda/kernels/common/step_take.cuh"
#include "backend/cuda/kernels/common/waiting.cuh"

/* The records of a block in a range of phases. */
struct record_range {
    uint32_t first, end; /* records */
    uint32_t end_phase;
    uint32_t goes_on; /* another token may follow */
    uint32_t delays;  /* not 0: random pauses */
};

/* The tokens of a launch. `slot`, `first`, `version` and `epoch` are the values at its beginning. */
struct token_walk {
    uint32_t slot, first, version, epoch;
    uint32_t repeat; /* maximum number; 0: not known yet */
    uint32_t index, begun, goes_on;
    token_rules rules;
    token_count count;
};

/* A task of attention (attend_one.cuh). */
struct attend_task {
    uint32_t kv_head_index, first_head, heads, split, active;
    uint32_t begin, cached_end; /* positions in the cache */
    uint32_t has_own;           /* and the token's own */
    uint32_t more;              /* another task follows */
};

/* At the beginning of shared memory. */
struct shared_head {
    uint64_t full[CUDA_CHUNKS], empty[CUDA_CHUNKS];
    uint64_t stop;                     /* no further chunk will be read */
    uint64_t computed[2], finished[2]; /* a record, by the warps that compute and by the finishing one */
    uint64_t announced,
        acknowledged;             /* what follows: by the finishing warp, which then has the first records */
    uint32_t follows[2];          /* whether a token follows, of announcements with even and odd numbers */
    uint32_t begins[CUDA_CHUNKS]; /* of the chunks on their way: bytes before them; the copying thread's */
    alignas(16) float sums[2 * CUDA_WARPS], mixed_sums[2 * CUDA_WARPS], moments[2][3 * CUDA_WARPS];
    /* Position of each compute warp: its record, the record's serial number in this launch, and its place in
     * the weight ring. Kept in shared memory: registers that live across a record would be spilled to local
     * memory, for which little cache is left. */
    alignas(16) uint32_t progress[CUDA_WARPS][4];
    uint64_t
        largest[CUDA_WARPS + 1]; /* logits of this token, as pairs, each warp's; the finishing one's last */
    record_range range;
    token_walk tokens;
    attend_task task;
    uint32_t task_number;          /* of `task` among all */
    uint32_t task_shape, task_tag; /* the record.index and the token of which `task` is the first */
    uint32_t target;               /* arrivals at the grid's barrier so far */
    uint32_t tag;                  /* of the token's tagged words */
    uint32_t early;                /* inputs of its matmuls have two terms */
    uint32_t skips;                /* the last stage of sampling had nothing to do */
    uint32_t greedy;               /* the largest logit's id is all that is asked for (choose_largest.cuh) */
    int32_t chosen;                /* then: which it is */
    uint32_t failed;               /* something gave up: leave */
    uint32_t left_after; /* serial number + 1 of the record after which the compute warps left the token; 0:
                            they have not */
    uint64_t known;      /* head.tokens is valid */
    row_context
        row; /* the token's: the same for all threads, so that it need not be in the registers of each */
    cuda_machine machine;
};
static_assert(sizeof(shared_head) <= CUDA_SHARED_HEAD, "the head of shared memory");

/* The place of the next chunk. */
struct ring_walk {
    uint32_t index = 0, position = 0;

    KERNEL_INLINE uint32_t place(uint32_t bytes, uint32_t ring_bytes)
    {
        if (position + bytes > ring_bytes)
            position = 0;
        const uint32_t begin = position;
        position += (bytes + 127) / 128 * 128;
        index++;
        return begin;
    }
};

/* Position of a warp. */
struct block_walk {
    uint32_t record, serial;
    ring_walk ring;
};

enum { PROGRESS_RECORD, PROGRESS_SERIAL, PROGRESS_CHUNK, PROGRESS_PLACE };

KERNEL_INLINE block_walk load_walk(const shared_head &head)
{
    const uint4 four = *(const uint4 *)head.progress[this_thread() / 32];
    block_walk walk;
    walk.record = four.x, walk.serial = four.y, walk.ring.index = four.z, walk.ring.position = four.w;
    return walk;
}

KERNEL_INLINE void save_walk(shared_head &head, const block_walk &walk)
{
    __syncwarp();
    if (this_thread() % 32 == 0)
        *(uint4 *)head.progress[this_thread() / 32] =
            make_uint4(walk.record, walk.serial, walk.ring.index, walk.ring.position);
    __syncwarp();
}

/* Advances to the next record, with `ring` after this record's chunks; beyond the last record if a wait
 * failed. */
KERNEL_INLINE void walk_on(shared_head &head, block_walk walk, const ring_walk &ring, bool goes_on)
{
    walk.record = goes_on ? walk.record + 1 : head.range.end;
    walk.serial++;
    walk.ring = ring;
    save_walk(head, walk);
}

KERNEL_INLINE cuda_record *place_of_record(uint8_t *shared, uint32_t serial)
{
    return (cuda_record *)(shared + CUDA_SHARED_HEAD) + serial % CUDA_RECORD_BUFFERS;
}

KERNEL_INLINE const cuda_record *current_record(uint8_t *shared)
{
    return place_of_record(
        shared, ((const shared_head *)shared)->progress[this_thread() / 32][PROGRESS_SERIAL]);
}

/* The compute warps compute a record, each at its own pace; the finishing warp finishes records in order
 * (finisher.cuh). A warp begins record number `serial` when record serial - distance is finished and its
 * shared memory is free: 2 where the record alternates between two halves, 1 where it needs memory of the
 * record before. */
KERNEL_INLINE void wait_for_finisher(shared_head &head, uint32_t serial, uint32_t wait_distance)
{
    const uint32_t parity = (serial - wait_distance) / 2 % 2;
    if (serial >= wait_distance)
        chunk_barrier_wait(head.machine, &head.finished[(serial - wait_distance) % 2], parity);
}

/* By the finishing warp: waits until the compute warps are done with a record. */
KERNEL_INLINE void wait_for_workers(shared_head &head, uint32_t serial)
{
    uint64_t began = 0;
    uint32_t tries = 0;
    while (!chunk_barrier_test(&head.computed[serial % 2], serial / 2 % 2))
        try_again(head.machine, began, tries);
}

/* By every thread of the compute warps, once it needs nothing of the record any more. Every thread arrives,
 * which costs no more than one arrival after a __syncwarp, and race checkers understand it. goes_on is false
 * when all have agreed to leave the token: the finishing warp leaves after this record. */
KERNEL_INLINE void signal_finisher(shared_head &head, uint32_t serial, bool goes_on = true)
{
    if (!goes_on)
        head.left_after = serial + 1;
    chunk_barrier_arrive(&head.computed[serial % 2]);
}

/* The number of this block among the owners of a matrix; at least `owners` if it is not an owner. */
KERNEL_INLINE uint32_t owner_of(uint32_t block, uint32_t first_block, uint32_t blocks)
{
    return block >= first_block ? block - first_block : block + blocks - first_block;
}

/* The copying warp. Bytes of the ring are counted without wrapping: a chunk fits when the bytes from the
 * oldest chunk in use on are no more than the ring has. */
struct stream_writer {
    const cuda_machine &machine;
    shared_head &head;
    uint8_t *ring;
    ring_walk walk;
    uint32_t oldest = 0;                  /* chunk that may still be in use */
    uint32_t oldest_begin = 0, count = 0; /* bytes before it; bytes in all */

    KERNEL_INLINE bool wait_for_oldest()
    {
        const uint32_t slot = oldest % CUDA_CHUNKS, parity = oldest / CUDA_CHUNKS % 2;
        uint64_t began = 0;
        uint32_t tries = 0;
        while (!chunk_barrier_test(&head.empty[slot], parity)) {
            if (chunk_barrier_test(&head.stop, 0))
                return false;
            try_again(machine, began, tries);
        }
        oldest++;
        oldest_begin = oldest < walk.index ? head.begins[oldest % CUDA_CHUNKS] : count;
        return true;
    }

    /* By all lanes of the warp; false when no further chunks are needed. */
    KERNEL_INLINE bool copy(const uint8_t *from, uint32_t bytes)
    {
        const uint32_t slot = walk.index % CUDA_CHUNKS, before = walk.position;
        const uint32_t begin = walk.place(bytes, machine.weight_ring_bytes);
        bool go_on = true;
        if (threadIdx.x % 32 == 0) {
            count += begin < before ? machine.weight_ring_bytes - before : 0;
            const uint32_t first = count;
            count += walk.position - begin;
            while (go_on && oldest + 1 < walk.index &&
                   (count - oldest_begin > machine.weight_ring_bytes || walk.index - oldest > CUDA_CHUNKS))
                go_on = wait_for_oldest();
            if (oldest + 1 == walk.index)
                oldest_begin = first;
            head.begins[slot] = first;
        }
        go_on = __shfl_sync(~0u, go_on, 0);
        if (!go_on) {
            walk.index--;
            return false;
        }
        start_copy(ring + begin, from, bytes, &head.full[slot]);
        return true;
    }

    KERNEL_INLINE void start_copy(uint8_t *to, const uint8_t *from, uint32_t bytes, uint64_t *full)
    {
#if __CUDA_ARCH__ >= 900
        if (threadIdx.x % 32 == 0) {
            asm volatile(
                "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
                    shared_address(full)),
                "r"(bytes)
                : "memory");
            /* Weights are read once per token: evict_first lets them make room before activations. */
            uint64_t policy;
            asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                "l"(from), "r"(bytes), "r"(shared_address(full)), "l"(policy)
                : "memory");
        }
#elif defined(CUDA_EMULATOR)
        for (uint32_t i = threadIdx.x % 32 * 16; i < bytes; i += 32 * 16)
            *(uint4 *)(to + i) = *(const uint4 *)(from + i);
        chunk_barrier_arrive(full);
#else
        for (uint32_t i = threadIdx.x % 32 * 16; i < bytes; i += 32 * 16)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + i)), "l"(from + i)
                : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(full))
                     : "memory");
#endif
    }

    /* Copies in flight must land before the block exits. */
    KERNEL_INLINE void drain(uint32_t taken)
    {
        for (uint32_t i = taken; i < walk.index; i++) {
            while (!chunk_barrier_test(&head.full[i % CUDA_CHUNKS], i / CUDA_CHUNKS % 2))
                ;
        }
    }
};

/* A barrier of a chunk that is full: the copying thread's arrival and its bytes, or the arrivals of all its
 * lanes. */
#if __CUDA_ARCH__ >= 900
enum { FULL_ARRIVALS = 1 };
#else
enum { FULL_ARRIVALS = 32 };
#endif

#endif
