/* Rows rounded to bytes, as matmuls of many tokens take them. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/matvec_input.cuh"

/* Four columns of a row to a panel of bytes; `at` counts from the panel's first value. */
KERNEL_INLINE void store_rounded(const cuda_panel &panel, uint64_t at, const rounded_four &rounded)
{
    __stcg((uint32_t *)((int8_t *)panel.values + at), rounded.bytes);
    if (at % 32 == 0)
        __stcg((float *)panel.scales + at / 32, rounded.scale);
    if (at % 16 == 0)
        __stcg((float *)panel.sums + at / 16, rounded.scale * (float)rounded.sum);
}

/* One column of 32 by each lane of a warp, as round_four does it. */
struct rounded_one {
    int8_t byte;
    float scale;
    int sum; /* of the 16 columns of half a warp */
};

KERNEL_INLINE rounded_one round_one(float x)
{
    const uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(x) & 0x7fffffff);
    const rounding_scale scale = scale_of(largest);
    const int byte = scale.inverse != 0 ? __float2int_rn(x * scale.inverse) : 0;
    int sum = byte;
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return {(int8_t)byte, scale.scale, sum};
}

#endif
