/* Activations, and sums over a warp or a block in an order that is always the same. */
#ifndef CUDA_DEVICE_MATH_CUH
#define CUDA_DEVICE_MATH_CUH

#include "backend/cuda/kernels/common/weight_tiles.cuh"
#include "program/op.h"

#define KERNEL_INLINE __device__ __forceinline__

/* Dynamic shared memory, as bytes. */
#ifdef CUDA_EMULATOR
#define DYNAMIC_SHARED(name)      uint8_t *const name = emulator_shared()
#define DYNAMIC_SHARED_ANEW(name) DYNAMIC_SHARED(name)
#else
extern __shared__ __align__(128) uint8_t dynamic_shared_memory[];
#define DYNAMIC_SHARED(name) uint8_t *const name = dynamic_shared_memory
/* The same, but computed anew: across a call the compiler would keep it in local memory. */
#define DYNAMIC_SHARED_ANEW(name)                                              \
    uint32_t name##_address;                                                   \
    asm volatile("mov.u32 %0, dynamic_shared_memory;" : "=r"(name##_address)); \
    uint8_t *const name = (uint8_t *)__cvta_shared_to_generic(name##_address)
#endif

/* The number of this thread, computed anew at each use. In a kernel of many stages the compiler would derive
 * values from threadIdx early and keep them in local memory, for which there is little cache. */
KERNEL_INLINE uint32_t this_thread()
{
#ifdef CUDA_EMULATOR
    return threadIdx.x;
#else
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
#endif
}

KERNEL_INLINE float sigmoid_of(float x)
{
    return 1 / (1 + expf(-x));
}

KERNEL_INLINE float activated(uint32_t activation, float x)
{
    switch (activation) {
    case ACTIVATION_TANH:
        return tanhf(x);
    case ACTIVATION_SIGMOID:
        return sigmoid_of(x);
    case ACTIVATION_RELU_SQUARED:
        return x > 0 ? x * x : x != x ? x : 0;
    case ACTIVATION_DECAY:
        return expf(-0.606530659713f * sigmoid_of(x));
    default:
        return x;
    }
}

/* The gate of a glu. Quotients of the device's own instructions are off by two units of the last place. */
KERNEL_INLINE float gated(uint32_t activation, float gate)
{
    const float power =
        activation == ACTIVATION_GELU ? -1.5957691216f * gate * fmaf(gate * gate, 0.044715f, 1) : -gate;
    return __fdividef(gate, 1 + expf(fminf(power, 80.0f)));
}

KERNEL_INLINE float warp_sum(float value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

/* Halves the number of values in each step: a loop would keep them in local memory. */
template <uint32_t COUNT> KERNEL_INLINE float add_halves(const float (&parts)[COUNT])
{
    if constexpr (COUNT == 2) {
        return parts[0] + parts[1];
    } else {
        float sums[COUNT / 2];
#pragma unroll
        for (uint32_t i = 0; i < COUNT / 2; i++)
            sums[i] = parts[i] + parts[i + COUNT / 2];
        return add_halves(sums);
    }
}

template <uint32_t COUNT> KERNEL_INLINE float largest_of_halves(const float (&parts)[COUNT])
{
    if constexpr (COUNT == 2) {
        return fmaxf(parts[0], parts[1]);
    } else {
        float larger[COUNT / 2];
#pragma unroll
        for (uint32_t i = 0; i < COUNT / 2; i++)
            larger[i] = fmaxf(parts[i], parts[i + COUNT / 2]);
        return largest_of_halves(larger);
    }
}

KERNEL_INLINE float warp_max(float value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

/* Tells the compiler that a value is the same in all lanes of a warp. Otherwise lanes wait for each other
 * after a branch, and the set of waiting lanes is saved to local memory across calls. */
KERNEL_INLINE uint32_t uniform(uint32_t value)
{
    return __reduce_max_sync(~0u, value);
}

/* Barrier 1, of the first THREADS threads of a block; the other warps do not take part. */
template <int THREADS> KERNEL_INLINE void sync_threads()
{
#ifdef CUDA_EMULATOR
    emulator_bar_sync(1, THREADS);
#else
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
#endif
}

/* The same; returns, to all threads, whether any of them passed true. */
template <int THREADS> KERNEL_INLINE bool sync_any(bool says)
{
#ifdef CUDA_EMULATOR
    return emulator_bar_any(1, THREADS, says);
#else
    uint32_t any;
    asm volatile("{ .reg .pred in, out; setp.ne.u32 in, %1, 0; barrier.cta.red.or.pred out, 1, %2, in; "
                 "selp.u32 %0, 1, 0, out; }"
                 : "=r"(any)
                 : "r"((uint32_t)says), "n"(THREADS)
                 : "memory");
    return any;
#endif
}

/* The sum over THREADS, for all of them. `scratch` has two times THREADS / 32 floats; calls alternate between
 * the two halves, so that one barrier is enough. */
template <int THREADS> KERNEL_INLINE float block_sum(float value, float *scratch, uint32_t &calls)
{
    const int warps = THREADS / 32;
    float *place = scratch + (calls++ & 1) * warps;
    value = warp_sum(value);
    if (this_thread() % 32 == 0)
        place[this_thread() / 32] = value;
    sync_threads<THREADS>();
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < warps / 4; i++) {
        const float4 four = *(const float4 *)(place + 4 * i);
        sum.x += four.x, sum.y += four.y, sum.z += four.z, sum.w += four.w;
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}

/* 2 to the power x; results below 2^-126 are zero. */
KERNEL_INLINE float power_of_two(float x)
{
#ifdef CUDA_EMULATOR
    return exp2f(x);
#else
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#endif
}

#endif
