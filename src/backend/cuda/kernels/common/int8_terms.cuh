/*
 * Activations rounded to int8, as integer matmuls take them: 32 columns share a scale.
 */
#ifndef CUDA_INT8_TERMS_CUH
#define CUDA_INT8_TERMS_CUH

#include "backend/cuda/kernels/common/device_math.cuh"

/* Four neighbouring columns to integers of one digit or two, of which each is a byte; the eight threads of a
 * group of 32 work together. */
enum { SECOND_DIGITS = 128 }; /* that count as much as one first digit */

template <int DIGITS> struct rounded_four {
    uint32_t digits[DIGITS]; /* the first ones, the second ones */
    float scale;             /* of the last digit */
};

/* Quotients to the last bit, as the CPU has them: halves would be rounded the other way otherwise. */
KERNEL_INLINE float quotient_by_127(float x)
{
    const float near = x * (1.0f / 127);
    return fmaf(fmaf(-127.0f, near, x), 1.0f / 127, near);
}

KERNEL_INLINE float reciprocal_of(float x)
{
#ifdef CUDA_EMULATOR
    const float near = 1 / x;
#else
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
#endif
    return fmaf(fmaf(-x, near, 1.0f), near, near);
}

struct rounding_scale {
    float scale, inverse;
};

/* From the largest of 32 numbers without their signs, as an integer. If they are all smaller than 2^-100 they
 * are nothing; with a NaN or an infinity among them, the scale is NaN. */
KERNEL_INLINE rounding_scale scale_of(uint32_t largest)
{
    const uint32_t smallest = 27u << 23, infinity = 0x7f800000;
    const float scale = quotient_by_127(__uint_as_float(largest));
    const bool usable = largest >= smallest && largest < infinity;
    return {usable                ? scale
            : largest >= infinity ? __int_as_float(0x7fffffff)
                                  : 0,
        usable ? reciprocal_of(scale) : 0};
}

/* To the nearest integer, in the lowest 16 bits. */
KERNEL_INLINE uint32_t nearest(float x)
{
    return __float_as_uint(x + 12582912.0f);
}

KERNEL_INLINE uint32_t lowest_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return permute_bytes(permute_bytes(a, b, 0x0040), permute_bytes(c, d, 0x0040), 0x5410);
}

/* The first of two digits, so that the second is at least -64 and less than 64. */
KERNEL_INLINE uint32_t first_digit(uint32_t integer)
{
    return (integer + SECOND_DIGITS / 2) / SECOND_DIGITS;
}

KERNEL_INLINE uint32_t second_digit(uint32_t integer)
{
    return integer - first_digit(integer) * SECOND_DIGITS;
}

/* To DIGITS, or one of them where it is not `fine`. Also adds up `sum` over the eight threads: shuffles that
 * do not wait for each other take turns. */
template <int DIGITS>
KERNEL_INLINE rounded_four<DIGITS> round_four_and_add(float4 x, float &sum, bool fine = DIGITS == 2)
{
    uint32_t largest = __float_as_uint(x.x) & 0x7fffffff; /* as integers: NaN is larger than all */
    largest = max(largest, __float_as_uint(x.y) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.z) & 0x7fffffff);
    largest = max(largest, __float_as_uint(x.w) & 0x7fffffff);
#pragma unroll
    for (int distance = 1; distance < 8; distance *= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, largest, distance);
        const float more = __shfl_xor_sync(~0u, sum, distance);
        largest = max(largest, other);
        sum += more;
    }
    rounded_four<DIGITS> out;
    const rounding_scale scale = scale_of(largest);
    const float inverse = fine ? scale.inverse * SECOND_DIGITS : scale.inverse;
    out.scale = fine ? scale.scale * (1.0f / SECOND_DIGITS) : scale.scale;
    const uint32_t a = nearest(x.x * inverse), b = nearest(x.y * inverse), c = nearest(x.z * inverse),
                   d = nearest(x.w * inverse);
    if (fine) {
        out.digits[0] = lowest_bytes(first_digit(a), first_digit(b), first_digit(c), first_digit(d));
        out.digits[DIGITS - 1] =
            lowest_bytes(second_digit(a), second_digit(b), second_digit(c), second_digit(d));
    } else {
        out.digits[DIGITS - 1] = 0;
        out.digits[0] = lowest_bytes(a, b, c, d);
    }
    return out;
}

template <int DIGITS> KERNEL_INLINE rounded_four<DIGITS> round_four(float4 x, bool fine = DIGITS == 2)
{
    float nothing = 0;
    return round_four_and_add<DIGITS>(x, nothing, fine);
}

#endif
