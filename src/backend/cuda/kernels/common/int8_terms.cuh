/* Activations rounded to int8 for integer matmuls: 32 columns share a scale. */
#ifndef CUDA_INT8_TERMS_CUH
#define CUDA_INT8_TERMS_CUH

#include "backend/cuda/kernels/common/device_math.cuh"

/* Four neighbouring columns become integers of one int8 term or two: x = scale * (TERM_UNIT * first +
 * second). The eight threads of a group of 32 columns share a scale. */
enum { TERM_UNIT = 128 }; /* the weight of the first term */

template <int TERMS> struct rounded_four {
    uint32_t terms[TERMS]; /* four bytes each: first terms, second terms */
    float scale;           /* of the last term */
};

/* Correctly rounded quotients, as on the CPU: otherwise halves would be rounded the other way. */
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

/* The scale from the largest of 32 magnitudes, as an integer. Magnitudes below 2^-100 count as zero; a NaN or
 * an infinity gives the scale NaN. */
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

/* The first of two terms, so that the second is at least -64 and less than 64. */
KERNEL_INLINE uint32_t first_term(uint32_t integer)
{
    return (integer + TERM_UNIT / 2) / TERM_UNIT;
}

KERNEL_INLINE uint32_t second_term(uint32_t integer)
{
    return integer - first_term(integer) * TERM_UNIT;
}

/* Rounds to TERMS terms, or to one where `fine` is false. Also adds up `sum` over the eight threads: its
 * shuffles are interleaved with the shuffles of the maximum, which are independent of them. */
template <int TERMS>
KERNEL_INLINE rounded_four<TERMS> round_four_and_add(float4 x, float &sum, bool fine = TERMS == 2)
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
    rounded_four<TERMS> out;
    const rounding_scale scale = scale_of(largest);
    const float inverse = fine ? scale.inverse * TERM_UNIT : scale.inverse;
    out.scale = fine ? scale.scale * (1.0f / TERM_UNIT) : scale.scale;
    const uint32_t a = nearest(x.x * inverse), b = nearest(x.y * inverse), c = nearest(x.z * inverse),
                   d = nearest(x.w * inverse);
    if (fine) {
        out.terms[0] = lowest_bytes(first_term(a), first_term(b), first_term(c), first_term(d));
        out.terms[TERMS - 1] = lowest_bytes(second_term(a), second_term(b), second_term(c), second_term(d));
    } else {
        out.terms[TERMS - 1] = 0;
        out.terms[0] = lowest_bytes(a, b, c, d);
    }
    return out;
}

template <int TERMS> KERNEL_INLINE rounded_four<TERMS> round_four(float4 x, bool fine = TERMS == 2)
{
    float nothing = 0;
    return round_four_and_add<TERMS>(x, nothing, fine);
}

#endif
