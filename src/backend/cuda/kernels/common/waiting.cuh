/*
 * Waiting. A wait for another block has a timeout, and also ends when the failure word is set. The first wait
 * that times out sets the failure word for all others; it returns false, and the kernel exits. While the
 * failure word is set no launch takes or commits a step, until the host clears it.
 *
 * A wait inside a block never gives up: warps that disagree about it would deadlock at the next barrier. The
 * threads it waits for wait only for other blocks, and those waits end. After the timeout it sets the failure
 * word, which ends them sooner; a block that is still waiting after a second timeout has a bug, and traps.
 */
#ifndef CUDA_WAITING_CUH
#define CUDA_WAITING_CUH

#include "backend/cuda/kernels/common/device_math.cuh"

/* Indices of the words of cuda_machine.barrier, each in a cache line of its own. */
enum { BARRIER_ARRIVED = 0, BARRIER_FAILED = 16, BARRIER_LEFT = 48 };

KERNEL_INLINE uint32_t load_acquire(const uint32_t *word)
{
#ifdef CUDA_EMULATOR
    __nanosleep(0); /* the caller polls: let other threads run */
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
    return emulator_time_ns();
#else
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
#endif
}

/* Only the first error is kept. */
static __device__ __noinline__ void report_failure(const cuda_machine *machine, uint32_t error)
{
    if (atomicCAS((uint32_t *)machine->barrier + BARRIER_FAILED, 0u, error) == 0)
        *(volatile uint32_t *)machine->error = error;
}

/* Whether an earlier launch, or a block of this one, has failed. */
KERNEL_INLINE bool has_failed(const cuda_machine &machine)
{
    return load_acquire((const uint32_t *)machine.barrier + BARRIER_FAILED) != 0;
}

KERNEL_INLINE bool is_too_long(const cuda_machine &machine, uint64_t began, uint64_t now)
{
    return now - began > (uint64_t)machine.time_limit_ms * 1000000;
}

enum : uint64_t { TIMED_OUT = ~0ull };
enum {
    POLLS_PER_CLOCK = 64, /* polls between two readings of the clock, some 40 us: most waits are over before
                             the first reading */
    CLOCKS_PER_WORD =
        64, /* clock readings between two polls of the host's abort word, which crosses the bus */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    TRIES_PER_CLOCK = 1024, /* test_wait returns at once */
    FIRST_TRY = TRIES_PER_CLOCK - 1,
#else
    TRIES_PER_CLOCK = 16, /* try_wait may block for a while */
    FIRST_TRY = 0,
#endif
};

/* Reads the clock during a wait for another block. `began`: the first reading (0: none yet) with the number
 * of readings since then in its lowest bits. Returns the new value, or TIMED_OUT. Not inlined: it runs
 * rarely, and inlined code would cost instruction cache. */
static __device__ __noinline__ uint64_t check_timeout(const cuda_machine *machine, uint64_t began)
{
    const uint64_t now = now_in_ns(), count = began % CLOCKS_PER_WORD + 1;
    uint32_t error = 0;
    began = (began ? began : now) / CLOCKS_PER_WORD * CLOCKS_PER_WORD;
    if (is_too_long(*machine, began, now)) {
        error = CUDA_ERROR_TIME;
    } else if (count == CLOCKS_PER_WORD) {
        if (has_failed(*machine))
            return TIMED_OUT;
        if (load_relaxed_system((const uint32_t *)machine->abort))
            error = CUDA_ERROR_ABORTED;
    }
    if (!error)
        return began + count % CLOCKS_PER_WORD;
    report_failure(machine, error);
    return TIMED_OUT;
}

/* The timeout of one wait for another block. */
struct wait_timeout {
    const cuda_machine &machine;
    uint64_t began;
    uint32_t polls;

    KERNEL_INLINE explicit wait_timeout(const cuda_machine &machine_) : machine(machine_), began(0), polls(0)
    {
    }

    /* False when the wait must end. */
    KERNEL_INLINE bool continues()
    {
        if (++polls % POLLS_PER_CLOCK)
            return true;
        began = check_timeout(&machine, began);
        return began != TIMED_OUT;
    }
};

/* The grid barrier, by one thread of each block; the threads of its block synchronise before and after.
 * False: failed or timed out. */
KERNEL_INLINE bool grid_barrier(const cuda_machine &machine, uint32_t &target, uint32_t blocks)
{
    uint32_t *arrived = (uint32_t *)machine.barrier + BARRIER_ARRIVED;
    wait_timeout timeout(machine);
    target += blocks;
    add_release(arrived, 1);
    while ((int32_t)(load_acquire(arrived) - target) < 0) {
        if (!timeout.continues())
            return false;
    }
    return true;
}

/* ---- Barriers in shared memory, for chunks of weights ---- */

KERNEL_INLINE uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* Makes the compiler compute an address in shared memory here, before a wait, instead of after it. */
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

/* Arrivals still missing, arrivals per phase, and completed phases. */
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

/* The clock of a wait inside a block: the first reading, 0: none yet. Odd: the timeout has passed once, the
 * failure word is set, and the second timeout runs. */
static __device__ __noinline__ uint64_t watch_block(const cuda_machine *machine, uint64_t began)
{
    const uint64_t now = now_in_ns() & ~1ull;
    if (!began)
        return now;
    if (!is_too_long(*machine, began & ~1ull, now))
        return began;
    if (began % 2)
        __trap();
    report_failure(machine, CUDA_ERROR_TIME);
    return now | 1;
}

/* Between two tests of a barrier; `tries` counts them. */
KERNEL_INLINE void try_again(const cuda_machine &machine, uint64_t &began, uint32_t &tries)
{
    if (tries++ % TRIES_PER_CLOCK == FIRST_TRY)
        began = watch_block(&machine, began);
}

static __device__ __noinline__ void chunk_barrier_wait_long(
    const cuda_machine *machine, uint64_t *barrier, uint32_t parity)
{
    uint64_t began = 0;
    uint32_t tries = 0;
    while (!chunk_barrier_test(barrier, parity))
        try_again(*machine, began, tries);
}

KERNEL_INLINE void chunk_barrier_wait(const cuda_machine &machine, uint64_t *barrier, uint32_t parity)
{
    if (!chunk_barrier_test(barrier, parity))
        chunk_barrier_wait_long(&machine, barrier, parity);
}

#endif
