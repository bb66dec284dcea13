/*
 * Results within a cluster. Every block has the vectors of the layers in its own shared memory, each at the
 * same place; whoever computes a part of one writes it to all of them. What is sent carries its own arrival:
 * a barrier in each block counts the bytes, so that nobody waits twice.
 *
 * Every block also sends one word to all in every exchange. So none can be further than one exchange ahead
 * of another, and two barriers by turns are enough.
 */
#ifndef CUDA_EXCHANGE_CUH
#define CUDA_EXCHANGE_CUH

#include "backend/cuda/stream.cuh"

#if __CUDA_ARCH__ >= 900

KERNEL_INLINE uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* The address that `address` of this block has in block `rank`. */
KERNEL_INLINE uint32_t address_in(uint32_t address, uint32_t rank)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

KERNEL_INLINE void send_word(uint32_t to, uint32_t value, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(value), "r"(barrier)
                 : "memory");
}

/* One thread, before the block can send or receive anything of the exchange: how much will come. */
KERNEL_INLINE void exchange_begin(shared_head &head, uint32_t number, uint32_t bytes)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
                     shared_address(&head.exchange[number % 2])),
                 "r"(bytes + CUDA_CLUSTER * 4)
                 : "memory");
}

/* Warp w sends to block w, itself not left out, so that the same bytes come to all: `count` floats of a
 * vector that this block has written to its own copy. */
KERNEL_INLINE void exchange_send(shared_head &head, uint32_t number, const float *from, uint32_t count)
{
    const uint32_t to = threadIdx.x / 32;
    const uint32_t barrier = address_in(shared_address(&head.exchange[number % 2]), to),
                   there = address_in(shared_address(from), to);
    for (uint32_t i = threadIdx.x % 32; i < count; i += 32)
        send_word(there + i * 4, __float_as_uint(from[i]), barrier);
}

/* Every block, once in an exchange. */
KERNEL_INLINE void exchange_greet(shared_head &head, uint32_t number)
{
    const uint32_t to = threadIdx.x / 32, rank = cluster_rank();
    if (threadIdx.x % 32 == 0)
        send_word(address_in(shared_address(&head.greetings[rank]), to), number,
            address_in(shared_address(&head.exchange[number % 2]), to));
}

/* False when something gave up. */
KERNEL_INLINE bool exchange_wait(shared_head &head, uint32_t number)
{
    uint64_t *barrier = &head.exchange[number % 2];
    const uint32_t parity = number / 2 % 2;
    patience patience(head.machine);
    for (;;) {
        uint32_t done;
        asm volatile("{ .reg .pred done; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, "
                     "[%1], %2; selp.u32 %0, 1, 0, done; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
        if (done)
            return true;
        if (!patience.lasts())
            return false;
    }
}

KERNEL_INLINE void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

#else /* clusters came with Hopper: no plan asks for them before */

KERNEL_INLINE uint32_t cluster_rank()
{
    return 0;
}
KERNEL_INLINE void exchange_begin(shared_head &, uint32_t, uint32_t) {}
KERNEL_INLINE void exchange_send(shared_head &, uint32_t, const float *, uint32_t) {}
KERNEL_INLINE void exchange_greet(shared_head &, uint32_t) {}
KERNEL_INLINE bool exchange_wait(shared_head &, uint32_t)
{
    return true;
}
KERNEL_INLINE void cluster_meet() {}

#endif

#endif
