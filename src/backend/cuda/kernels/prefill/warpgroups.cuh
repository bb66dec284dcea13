/*
 * Products of a warpgroup, four warps of which each has 16 rows of weights in its registers, by 16, 32, 64 or
 * 128 tokens in shared memory. Only where the compiler has them: HAS_WARPGROUPS.
 *
 * Weights and results have the layout of a warp's product of 16 rows by 8 columns (tensor_cores.cuh), once
 * for every eight tokens. Products run beside the warps that began them: until products_wait nobody may touch
 * the sums, or write where their inputs are. Tensor cores read the weights late, too, but ptxas takes their
 * registers for free behind the last product. Nothing else may be computed before products_wait.
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

#ifdef CUDA_EMULATOR
#include "cuda/emulated_warpgroups.h"
#elif HAS_WARPGROUPS

/* The registers of each thread of this warpgroup from here on: some warpgroups release registers that others
 * of the block take. */
template <int COUNT> KERNEL_INLINE void release_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> KERNEL_INLINE void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* Copies of `bytes` bytes in all will complete on a barrier, before the arrivals of its use suffice. */
KERNEL_INLINE void expect_bytes(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
        : "memory");
}

/* A multiple of 16 bytes, which the products of warpgroups see after the barrier. */
KERNEL_INLINE void copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
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

/* Writes of this thread to shared memory, copies that it has waited for among them, are there for products of
 * warps that it notifies afterwards. Waits for all copies of this warp. */
KERNEL_INLINE void show_to_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The second factor of a product, 16 rows of K in shared memory. */
typedef uint64_t product_inputs;

/* As struct cuda_packed_input groups them: a token's next 16 bytes, and the next tokens. */
KERNEL_INLINE product_inputs grouped_inputs(const uint8_t *chunk)
{
    constexpr uint64_t to_next_chunk = CUDA_INPUT_CHUNK_BYTES / 16,
                       to_next_tokens = CUDA_INPUT_GROUP_BYTES / 16;
    return (shared_address(chunk) & 0x3ffff) >> 4 | to_next_chunk << 16 | to_next_tokens << 32;
}

/* The next multiple of 1024 bytes. */
KERNEL_INLINE uint8_t *next_tile_place(uint8_t *shared)
{
    return shared + (0 - shared_address(shared)) % 1024;
}

/* Rows of 128 bytes whose chunks of 16 bytes are exchanged, chunk i of row r at i ^ r % 8, in a tile that
 * begins at a multiple of 1024 bytes. By columns (K along a row): `first` is 32 bytes times a number into the
 * first row. By rows (K along the rows): `first` is a row with a number that 8 divides, and the next 64
 * columns are `block_bytes` further. */
KERNEL_INLINE product_inputs swizzled_inputs(const uint8_t *first, uint32_t block_bytes)
{
    constexpr uint64_t eight_rows = 8 * 128 / 16, swizzle_128 = 1ull << 62;
    return (shared_address(first) & 0x3ffff) >> 4 | (uint64_t)(block_bytes / 16) << 16 | eight_rows << 32 |
           swizzle_128;
}

#define SUMS_OF(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])

/* 16 columns of K. `adds`: to the sums; otherwise they begin here. BY_ROWS: the inputs have K along the rows.
 */
template <int BY_ROWS = 0>
KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], product_inputs inputs, bool adds, float (&sums)[16 / 8][4])
{
    asm volatile("{\n"
                 ".reg .pred adds;\n"
                 "setp.ne.b32 adds, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, %12, adds, 1, 1, %14;\n"
                 "}"
                 : SUMS_OF(0), SUMS_OF(1)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(inputs), "r"((int)adds), "n"(BY_ROWS));
}

template <int BY_ROWS = 0>
KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], product_inputs inputs, bool adds, float (&sums)[32 / 8][4])
{
    asm volatile("{\n"
                 ".reg .pred adds;\n"
                 "setp.ne.b32 adds, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, adds, 1, 1, %22;\n"
                 "}"
                 : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(inputs), "r"((int)adds), "n"(BY_ROWS));
}

template <int BY_ROWS = 0>
KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], product_inputs inputs, bool adds, float (&sums)[64 / 8][4])
{
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, adds, 1, 1, %38;\n"
        "}"
        : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3), SUMS_OF(4), SUMS_OF(5), SUMS_OF(6), SUMS_OF(7)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(inputs), "r"((int)adds), "n"(BY_ROWS));
}

template <int BY_ROWS = 0>
KERNEL_INLINE void multiply_wide(
    const uint32_t (&a)[4], product_inputs inputs, bool adds, float (&sums)[128 / 8][4])
{
    asm volatile("{\n"
                 ".reg .pred adds;\n"
                 "setp.ne.b32 adds, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, adds, 1, 1, %70;\n"
                 "}"
                 : SUMS_OF(0), SUMS_OF(1), SUMS_OF(2), SUMS_OF(3), SUMS_OF(4), SUMS_OF(5), SUMS_OF(6),
                 SUMS_OF(7), SUMS_OF(8), SUMS_OF(9), SUMS_OF(10), SUMS_OF(11), SUMS_OF(12), SUMS_OF(13),
                 SUMS_OF(14), SUMS_OF(15)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(inputs), "r"((int)adds), "n"(BY_ROWS));
}
#undef SUMS_OF

/* ---- Clusters of blocks ---- */

/* A barrier of all threads of a cluster of `blocks` blocks; their stores to shared
 * memory are then visible. */
KERNEL_INLINE void meet_cluster(uint32_t blocks)
{
    (void)blocks; /* for the emulator */
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

/* Until a barrier has completed use number `use`. Warps of the same block always arrive, so that no clock
 * bounds this wait. */
KERNEL_INLINE void wait_for_use(uint64_t *barrier, uint32_t use)
{
    while (!chunk_barrier_test(barrier, use % 2)) {
    }
}

#endif
