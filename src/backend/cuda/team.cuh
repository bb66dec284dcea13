/*
 * Waiting. Every wait is bounded: by a clock, and by a word that whoever gives up sets for all the others. A
 * wait that gave up returns false, and the kernel leaves.
 */
#ifndef CUDA_TEAM_CUH
#define CUDA_TEAM_CUH

#include "backend/cuda/device_math.cuh"

/* Words of cuda_machine.barrier, apart from each other so that they do not share a line. */
enum { BARRIER_ARRIVED = 0, BARRIER_FAILED = 16, BARRIER_LEFT = 48 };

KERNEL_INLINE uint32_t load_acquire(const uint32_t *word)
{
#ifdef CUDA_EMULATOR
    __nanosleep(0); /* whoever looks at it waits for somebody */
    return *word;
#else
    uint32_t value;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#endif
}

KERNEL_INLINE uint32_t load_relaxed_system(const uint32_t *word)
{
#ifdef CUDA_EMULATOR
    return *word;
#else
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
#endif
}

KERNEL_INLINE void store_release_system(uint32_t *word, uint32_t value)
{
#ifdef CUDA_EMULATOR
    *word = value;
#else
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#endif
}

KERNEL_INLINE void add_release(uint32_t *word, uint32_t value)
{
#ifdef CUDA_EMULATOR
    *word += value;
#else
    asm volatile("red.release.gpu.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
#endif
}

KERNEL_INLINE uint64_t now_in_ns()
{
#ifdef CUDA_EMULATOR
    return 1; /* no wait is too long there */
#else
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#endif
}

enum : uint64_t { NO_PATIENCE = ~0ull };

/* Whether there is any use in waiting on, for a wait that was first looked at so at `began`, 0: not yet. When
 * it began, or NO_PATIENCE. A function of its own: it is called seldom, and code that runs once in a while
 * costs time to bring. */
static __device__ __noinline__ uint64_t look_around(const cuda_machine *machine, uint64_t began)
{
    uint32_t error = 0;
    if (load_acquire((const uint32_t *)machine->barrier + BARRIER_FAILED))
        return NO_PATIENCE;
    const uint64_t now = now_in_ns();
    began = began ? began : now;
    if (load_relaxed_system((const uint32_t *)machine->abort))
        error = CUDA_ERROR_ABORTED;
    else if (now - began > (uint64_t)machine->time_limit_ms * 1000000)
        error = CUDA_ERROR_TIME;
    if (!error)
        return began;
    atomicMax((uint32_t *)machine->barrier + BARRIER_FAILED, error);
    *(volatile uint32_t *)machine->error = error;
    return NO_PATIENCE;
}

/* Looked at now and then while waiting. */
struct patience {
    const cuda_machine &machine;
    uint64_t began;
    uint32_t looks;

    KERNEL_INLINE explicit patience(const cuda_machine &machine_) : machine(machine_), began(0), looks(0) {}

    /* False when there is no use in waiting on. */
    KERNEL_INLINE bool lasts()
    {
        if (++looks % 4096)
            return true;
        began = look_around(&machine, began);
        return began != NO_PATIENCE;
    }
};

/* One thread's part in a barrier of all blocks; the threads of its block wait for each other before and
 * after. */
KERNEL_INLINE bool meet_grid(const cuda_machine &machine, uint32_t &target, uint32_t blocks)
{
    uint32_t *arrived = (uint32_t *)machine.barrier + BARRIER_ARRIVED;
    patience patience(machine);
    target += blocks;
    add_release(arrived, 1);
    while ((int32_t)(load_acquire(arrived) - target) < 0) {
        if (!patience.lasts())
            return false;
    }
    return true;
}

/* ---- Barriers in shared memory, for chunks of weights ---- */

KERNEL_INLINE uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* An address in shared memory that is worked out here, before a wait, and not after it. */
template <class T> KERNEL_INLINE T *worked_out(T *pointer)
{
#ifdef CUDA_EMULATOR
    return pointer;
#else
    uint32_t address = shared_address(pointer);
    asm volatile("" : "+r"(address));
    return (T *)__cvta_shared_to_generic(address);
#endif
}

#ifdef CUDA_EMULATOR

/* Arrivals that are missing, arrivals in all, and how often all have come. */
struct emulated_barrier {
    uint16_t missing, arrivals;
    uint32_t phase;
};

KERNEL_INLINE void chunk_barrier_open(uint64_t *barrier, uint32_t arrivals)
{
    *(emulated_barrier *)barrier = {(uint16_t)arrivals, (uint16_t)arrivals, 0};
}

KERNEL_INLINE void chunk_barrier_arrive(uint64_t *barrier)
{
    emulated_barrier &emulated = *(emulated_barrier *)barrier;
    if (--emulated.missing == 0) {
        emulated.missing = emulated.arrivals;
        emulated.phase++;
    }
}

KERNEL_INLINE bool chunk_barrier_test(uint64_t *barrier, uint32_t parity)
{
    const bool done = ((emulated_barrier *)barrier)->phase % 2 != parity;
    if (!done)
        __nanosleep(0);
    return done;
}

#else

KERNEL_INLINE void chunk_barrier_open(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

KERNEL_INLINE void chunk_barrier_arrive(uint64_t *barrier)
{
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(barrier))
        : "memory");
}

KERNEL_INLINE bool chunk_barrier_test(uint64_t *barrier, uint32_t parity)
{
    uint32_t done;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, "
                 "1, 0, done; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
#else
    asm volatile("{ .reg .pred done; mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, "
                 "1, 0, done; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
#endif
    return done;
}

#endif

static __device__ __noinline__ bool chunk_barrier_wait_long(
    const cuda_machine *machine, uint64_t *barrier, uint32_t parity)
{
    patience patience(*machine);
    while (!chunk_barrier_test(barrier, parity)) {
        if (!patience.lasts())
            return false;
    }
    return true;
}

KERNEL_INLINE bool chunk_barrier_wait(const cuda_machine &machine, uint64_t *barrier, uint32_t parity)
{
    return chunk_barrier_test(barrier, parity) || chunk_barrier_wait_long(&machine, barrier, parity);
}

#endif
