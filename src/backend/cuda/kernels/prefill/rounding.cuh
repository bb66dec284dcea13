/* Rows rounded to bytes for matmuls of many tokens. */
#ifndef CUDA_ROUNDING_CUH
#define CUDA_ROUNDING_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/int8_terms.cuh"

/* Four columns, zeros behind the last. */
KERNEL_INLINE float4 load_four(const float *row, uint32_t column, uint32_t columns)
{
    return column < columns ? __ldcg((const float4 *)(row + column)) : make_float4(0, 0, 0, 0);
}

/* Whether a row of tokens stands at one of the first positions. */
KERNEL_INLINE bool is_early_row(uint64_t token_rows, uint32_t row)
{
    return __ldcg(&((const cuda_row *)token_rows)[row].position) < EARLY_POSITIONS;
}

/* The scale of the first term. */
KERNEL_INLINE float first_scale(float scale, bool fine)
{
    return fine ? scale * TERM_UNIT : scale;
}

/* Four columns of a row, and the values that are stored once for sixteen columns. */
struct rounded_columns {
    rounded_four<2> four;
    int sum; /* of the 16 columns of four threads, counted in last term */
};

KERNEL_INLINE rounded_columns round_columns_of_row(float4 x, bool fine)
{
    rounded_columns out = {round_four<2>(x, fine)};
    out.sum = dot_bytes(out.four.terms[0], 0x01010101, 0) * (fine ? TERM_UNIT : 1);
    out.sum = dot_bytes(out.four.terms[1], 0x01010101, out.sum);
    out.sum += __shfl_xor_sync(~0u, out.sum, 1);
    out.sum += __shfl_xor_sync(~0u, out.sum, 2);
    return out;
}

/* Four columns of a row to a packed input of bytes; `at` counts from the packed input's first value. */
KERNEL_INLINE void store_rounded(
    const cuda_packed_input &packed_input, uint64_t at, const rounded_columns &rounded, bool fine)
{
    __stcg((uint32_t *)((int8_t *)packed_input.values + at), rounded.four.terms[0]);
    if (fine)
        __stcg((uint32_t *)((int8_t *)packed_input.seconds + at), rounded.four.terms[1]);
    if (at % 32 == 0)
        __stcg((float *)packed_input.scales + at / 32, first_scale(rounded.four.scale, fine));
    if (at % 16 == 0)
        __stcg((float *)packed_input.sums + at / 16, rounded.four.scale * (float)rounded.sum);
}

KERNEL_INLINE float within_half_range(float x)
{
    return x > 65504 ? 65504 : x < -65504 ? -65504 : x; /* NaN stays */
}

/* Where a pair of columns of halves lies, in words, as struct cuda_packed_input orders them. */
KERNEL_INLINE uint64_t place_of_pair(const cuda_packed_input &packed_input, uint32_t row, uint32_t column)
{
    const uint32_t part = column / CUDA_TILE_COLUMNS, chunk = column % 32 / 2,
                   word = column % CUDA_TILE_COLUMNS / 32;
    return packed_input.grouped
               ? ((uint64_t)part * packed_input.grouped + row / 8 * 8) * 64 + chunk * 32 + row % 8 * 4 + word
               : (uint64_t)row * (packed_input.columns / 2) + (part * 16 + chunk) * 4 + word;
}

/* Four columns of a row to a packed input of halves. */
KERNEL_INLINE void store_halves(
    const cuda_packed_input &packed_input, uint32_t row, uint32_t column, float4 x)
{
    const __half2 low = __floats2half2_rn(within_half_range(x.x), within_half_range(x.y)),
                  high = __floats2half2_rn(within_half_range(x.z), within_half_range(x.w));
    uint32_t *pair = (uint32_t *)packed_input.values + place_of_pair(packed_input, row, column);
    __stcg(pair, *(const uint32_t *)&low);
    __stcg(pair + (packed_input.grouped ? 32 : 4), *(const uint32_t *)&high);
}

/* Four columns of a row to a packed input; whole warps. */
KERNEL_INLINE void round_to_packed_input(
    const cuda_packed_input &packed_input, uint32_t row, uint32_t column, float4 x, bool fine)
{
    const uint64_t at = (uint64_t)row * packed_input.columns + column;
    if (packed_input.rounding == ROUNDING_Q8) {
        store_rounded(packed_input, at, round_columns_of_row(x, fine), fine);
    } else if (packed_input.rounding == ROUNDING_F16) {
        store_halves(packed_input, row, column, x);
    } else {
        __stcg((float4 *)((float *)packed_input.values + at), x);
    }
}

/* One column. */
KERNEL_INLINE void store_half(const cuda_packed_input &packed_input, uint32_t row, uint32_t column, float x)
{
    const __half half = __float2half_rn(within_half_range(x));
    __stcg((uint16_t *)packed_input.values + place_of_pair(packed_input, row, column) * 2 + column % 2,
        (uint16_t)__half_as_ushort(half));
}

/* One column of 32 by each lane of a warp, as round_four does it. */
struct rounded_one {
    uint32_t terms[2]; /* bytes */
    float scale;
    int sum; /* of the 16 columns of half a warp */
};

KERNEL_INLINE rounded_one round_one(float x, bool fine)
{
    const uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(x) & 0x7fffffff);
    const rounding_scale scale = scale_of(largest);
    const float inverse = fine ? scale.inverse * TERM_UNIT : scale.inverse;
    const int integer = inverse != 0 ? __float2int_rn(x * inverse) : 0;
    int sum = integer;
#pragma unroll
    for (int distance = 1; distance < 16; distance *= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    return {{fine ? first_term(integer) : integer, second_term(integer)},
        fine ? scale.scale * (1.0f / TERM_UNIT) : scale.scale, sum};
}

#endif
