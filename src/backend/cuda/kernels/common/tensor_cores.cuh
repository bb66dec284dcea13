/* Matrix products of a warp, asynchronous copies to shared memory, and the wait for the previous launch; for
 * sm_80 and later. In a product of 16 rows by 8 columns lane l has, with g = l / 4 and c = l % 4, the results
 * [g][2c], [g][2c + 1], [g + 8][2c], [g + 8][2c + 1]. */
#ifndef CUDA_TENSOR_CORES_CUH
#define CUDA_TENSOR_CORES_CUH

#include "backend/cuda/kernels/common/waiting.cuh"

/* Sums of bytes are read as floats: the float of SUM_BITS + n is 12582912 + n. */
#define SUM_BITS  0x4B400000
#define SUM_FLOAT 12582912.0f

#ifdef CUDA_EMULATOR
#include "cuda/emulated_tensor_cores.h"
#else

/* ---- Copies ---- */

/* Copies 16 bytes from global to shared memory; if `on` is false, it stores zeros and does not read `from`.
 */
KERNEL_INLINE void copy_async(void *to, const void *from, bool on = true)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(on ? 16 : 0)
                 : "memory");
}

KERNEL_INLINE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all copy groups of this thread but the last `LEFT` are complete. */
template <int LEFT> KERNEL_INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Loads 16 bytes of shared memory if `on` is true, without a branch. */
KERNEL_INLINE void load_shared_where(bool on, const void *from, uint4 &to)
{
    asm volatile("{ .reg .pred on; setp.ne.u32 on, %5, 0; @on ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                 : "+r"(to.x), "+r"(to.y), "+r"(to.z), "+r"(to.w)
                 : "r"(shared_address(from)), "r"((uint32_t)on)
                 : "memory");
}

/* A line of 128 bytes to the second-level cache. */
KERNEL_INLINE void prefetch(const void *line)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(line)));
}

/* ---- The previous launch ---- */

/* Lets the next launch start as soon as there are free multiprocessors. */
KERNEL_INLINE void invite_next_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits until the results of all earlier launches are visible. */
KERNEL_INLINE void wait_for_last_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- Fragments ---- */

/* Four matrices of 8 rows of 16 bytes: lanes 8i .. 8i+7 name the rows of matrix i; lane l gets word l % 4 of
 * row l / 4 of each. */
KERNEL_INLINE void load_matrices(const void *row, uint32_t (&out)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same for matrices of 8 by 8 halves, transposed: lane l gets rows 2 (l % 4) and the next of column l
 * / 4. */
KERNEL_INLINE void load_matrices_transposed(const void *row, uint32_t (&out)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Transposes a matrix of 8 by 8 halves, of which lane l has word l % 4 of row l / 4. */
KERNEL_INLINE uint32_t transposed(uint32_t word)
{
    uint32_t out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(word));
    return out;
}

/* ---- Products ---- */

/* mma.m16n8k32, lane 4g + c: a0, a1 are bytes 4c .. 4c + 3 of rows g and g + 8, a2, a3 bytes 16 + 4c .. of
 * the same rows; b0, b1 are the same bytes of column g.
 */
KERNEL_INLINE void multiply_bytes_32(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&out)[4])
{
    int d[4];
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(SUM_BITS));
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = __int_as_float(d[i]) - SUM_FLOAT;
}

/* 16 bytes of K. */
KERNEL_INLINE void multiply_bytes_16(uint32_t a0, uint32_t a1, uint32_t b, float (&out)[4])
{
    int d[4];
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(SUM_BITS));
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[i] = __int_as_float(d[i]) - SUM_FLOAT;
}

/* mma.m16n8k16, lane 4g + c: a0, a1 are elements 2c, 2c + 1 of rows g and g + 8, a2, a3 elements 2c + 8, 2c +
 * 9 of the same rows; b0, b1 are the same elements of column g.
 */
KERNEL_INLINE void multiply_halves(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

KERNEL_INLINE void multiply_bfloats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* mma.m16n8k8 of TF32 (the upper 19 bits of a float), lane 4g + c: a0, a1 are element c of rows g and g + 8,
 * a2, a3 element c + 4 of the same rows; b0, b1 are the same elements of column g. */
KERNEL_INLINE void multiply_short_floats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

#endif
