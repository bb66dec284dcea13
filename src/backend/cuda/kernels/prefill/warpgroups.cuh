/*
 * Products of a warpgroup, four warps of which each has 16 rows of weights in its registers, by 16, 32, 64 or
 * 128 tokens in shared memory. Only where the compiler has them: HAS_WARPGROUPS.
 *
 * Weights and results are those of a warp's product of 16 rows by 8 columns (tensor_cores.cuh), as often as
 * there are eights of tokens. Products run beside the warps that began them: until products_wait nobody may
 * touch the sums, or write where their inputs are.
 */
#ifndef CUDA_WARPGROUPS_CUH
#define CUDA_WARPGROUPS_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/tensor_cores.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#else
#define HAS_WARPGROUPS 0
#endif

/* Inputs in shared memory: 16 bytes of all tokens, then the next 16. The 16 bytes of a token are a bit more
 * than a multiple of 128 bytes apart, so that copies of them go to different banks. */
template <int TOKENS> struct wide_inputs {
    static constexpr uint32_t chunk_bytes = TOKENS * 16 + 16;
};

/* Copies inputs to shared memory, by all THREADS threads of a block: stages of COLUMNS halves of each token,
 * one stage after the other. Tokens that do not live are zeros. */
template <int TOKENS, int COLUMNS, int THREADS> struct input_copies {
    static constexpr uint32_t chunks = COLUMNS * 2 / 16; /* of 16 bytes of a token */
    const uint8_t *from;
    uint64_t row_bytes;
    uint32_t place, first, live, left;

    KERNEL_INLINE input_copies(const cuda_packed_input &packed_input, uint32_t first_token, uint32_t live_,
        uint32_t first_stage, uint32_t stages)
        : row_bytes((uint64_t)packed_input.stride * 2), first(threadIdx.x / chunks), live(live_), left(stages)
    {
        const uint32_t chunk = threadIdx.x % chunks;
        from = (const uint8_t *)packed_input.values + (first_token + min(first, live - 1)) * row_bytes +
               first_stage * (COLUMNS * 2) + chunk * 16;
        place = chunk * wide_inputs<TOKENS>::chunk_bytes + first * 16;
    }

    KERNEL_INLINE void fetch(uint8_t *to)
    {
        constexpr uint32_t step = THREADS / chunks; /* tokens at once */
        if (left == 0)
            return;
        left--;
        const uint8_t *token_from = from;
#pragma unroll
        for (uint32_t i = 0; i < TOKENS; i += step) {
            const bool on = first + i < live;
            copy_async(to + place + i * 16, on ? token_from : from, on);
            token_from += step * row_bytes;
        }
        from += COLUMNS * 2;
    }
};

#ifdef CUDA_EMULATOR
#include "cuda/emulated_warpgroups.h"
#elif HAS_WARPGROUPS

/* Makes this thread's copies and stores to shared memory visible to the products of other threads after the
 * next barrier. */
KERNEL_INLINE void publish_inputs()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before the first product after weights or sums were touched. */
KERNEL_INLINE void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

KERNEL_INLINE void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all groups of products of this warpgroup but the last `LEFT` are complete. */
template <int LEFT> KERNEL_INLINE void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from reading sums before this point: it does not know that a wait changes them. */
template <int COUNT> KERNEL_INLINE void hold_sums(float (&sums)[COUNT][4])
{
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        asm volatile("" : "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])::"memory");
}

/* The places of the 16-byte chunks of a product; the tokens of a chunk are consecutive. */
template <int TOKENS> KERNEL_INLINE uint64_t describe_inputs(const uint8_t *chunk)
{
    constexpr uint64_t to_next_chunk = wide_inputs<TOKENS>::chunk_bytes / 16, to_next_tokens = 8;
    return (shared_address(chunk) & 0x3ffff) >> 4 | to_next_chunk << 16 | to_next_tokens << 32;
}

#define SUMS_OF(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])

/* 16 columns of K: two chunks. `adds`: to the sums; otherwise they begin here. */
KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[16 / 8][4])
{
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, adds, 1, 1, 0;\n"
        "}"
        : SUMS_OF(0), SUMS_OF(1)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe_inputs<16>(chunk)), "r"((int)adds));
}

KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[32 / 8][4])
{
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n"
        "}"
        : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe_inputs<32>(chunk)), "r"((int)adds));
}

KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[64 / 8][4])
{
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n"
        "}"
        : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3), SUMS_OF(4), SUMS_OF(5), SUMS_OF(6), SUMS_OF(7)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe_inputs<64>(chunk)), "r"((int)adds));
}

KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], const uint8_t *chunk, bool adds, float (&sums)[128 / 8][4])
{
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n"
        "}"
        : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3), SUMS_OF(4), SUMS_OF(5), SUMS_OF(6), SUMS_OF(7),
        SUMS_OF(8), SUMS_OF(9), SUMS_OF(10), SUMS_OF(11), SUMS_OF(12), SUMS_OF(13), SUMS_OF(14), SUMS_OF(15)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe_inputs<128>(chunk)), "r"((int)adds));
}
#undef SUMS_OF

/* ---- Clusters of blocks ---- */

/* A barrier of all threads of a cluster of `blocks` blocks, or of a single block; their stores to shared
 * memory are then visible. */
KERNEL_INLINE void meet_cluster(uint32_t blocks)
{
    if (blocks == 1) {
        __syncthreads();
        return;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same offset in the shared memory of block number `block` of the cluster. */
KERNEL_INLINE const float *shared_of_block(const float *own, uint32_t block)
{
    const float *other;
    asm("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(own), "r"(block));
    return other;
}

#endif

#endif
