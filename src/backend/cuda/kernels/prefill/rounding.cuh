/* Rows rounded to bytes, as matmuls of many tokens take them. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/int8_terms.cuh"

/* Whether a row of tokens stands at one of the first positions. */
KERNEL_INLINE bool is_early_row(uint64_t places, uint32_t row)
{
    return __ldcg(&((const cuda_row *)places)[row].position) < EARLY_POSITIONS;
}

/* What the first digit counts. */
KERNEL_INLINE float first_scale(float scale, bool fine)
{
    return fine ? scale * SECOND_DIGITS : scale;
}

/* Four columns of a row, with what is written of them once for sixteen. */
struct rounded_columns {
    rounded_four<2> four;
    int sum; /* of the 16 columns of four threads, counted in last digits */
};

KERNEL_INLINE rounded_columns round_columns_of_row(float4 x, bool fine)
{
    rounded_columns out = {round_four<2>(x, fine)};
    out.sum = dot_bytes(out.four.digits[0], 0x01010101, 0) * (fine ? SECOND_DIGITS : 1);
    out.sum = dot_bytes(out.four.digits[1], 0x01010101, out.sum);
    out.sum += __shfl_xor_sync(~0u, out.sum, 1);
    out.sum += __shfl_xor_sync(~0u, out.sum, 2);
    return out;
}

/* Four columns of a row to a panel of bytes; `at` counts from the panel's first value. */
KERNEL_INLINE void store_rounded(
    const cuda_panel &panel, uint64_t at, const rounded_columns &rounded, bool fine)
{
    __stcg((uint32_t *)((int8_t *)panel.values + at), rounded.four.digits[0]);
    if (fine)
        __stcg((uint32_t *)((int8_t *)panel.seconds + at), rounded.four.digits[1]);
    if (at % 32 == 0)
        __stcg((float *)panel.scales + at / 32, first_scale(rounded.four.scale, fine));
    if (at % 16 == 0)
        __stcg((float *)panel.sums + at / 16, rounded.four.scale * (float)rounded.sum);
}

KERNEL_INLINE float within_half_range(float x)
{
    return x > 65504 ? 65504 : x < -65504 ? -65504 : x; /* NaN stays */
}

/* Four columns of a row to a panel of halves, as struct cuda_panel orders them. */
KERNEL_INLINE void store_halves(const cuda_panel &panel, uint64_t at, float4 x)
{
    const __half2 low = __floats2half2_rn(within_half_range(x.x), within_half_range(x.y)),
                  high = __floats2half2_rn(within_half_range(x.z), within_half_range(x.w));
    const uint32_t column = at % CUDA_ITEM_COLUMNS;
    uint32_t *chunk =
        (uint32_t *)((__half *)panel.values + (at - column)) + column % 32 / 2 * 4 + column / 32;
    __stcg(chunk, *(const uint32_t *)&low);
    __stcg(chunk + 4, *(const uint32_t *)&high);
}

/* One column of 32 by each lane of a warp, as round_four does it. */
struct rounded_one {
    uint32_t digits[2]; /* bytes */
    float scale;
    int sum; /* of the 16 columns of half a warp */
};

KERNEL_INLINE rounded_one round_one(float x, bool fine)
{
    const uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(x) & 0x7fffffff);
    const rounding_scale scale = scale_of(largest);
    const float inverse = fine ? scale.inverse * SECOND_DIGITS : scale.inverse;
    const int integer = inverse != 0 ? __float2int_rn(x * inverse) : 0;
    int sum = integer;
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return {{fine ? first_digit(integer) : integer, second_digit(integer)},
        fine ? scale.scale * (1.0f / SECOND_DIGITS) : scale.scale, sum};
}

#endif
