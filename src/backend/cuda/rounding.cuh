/* Rows rounded to bytes, as matmuls of many tokens take them. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/matvec.cuh"

/* Four columns of a row to a panel of bytes; `at` counts from the panel's first value. */
KERNEL_INLINE void store_rounded(const cuda_panel &panel, uint64_t at, const rounded_four &rounded)
{
    __stcg((uint32_t *)((int8_t *)panel.values + at), rounded.bytes);
    if (at % 32 == 0)
        __stcg((float *)panel.scales + at / 32, rounded.scale);
    if (at % 16 == 0)
        __stcg((float *)panel.sums + at / 16, rounded.scale * (float)rounded.sum);
}

#endif
