/*
 * Vectors for the row functions and attention, written with the operators of gcc's and clang's vector types;
 * all other operations are here, once per instruction set. `vec` has VEC lanes (4 or 8), `wide` has WIDE
 * lanes, the most of the instruction set. All operations round as the scalar code does.
 */
#ifndef CPU_ROWS_VEC_H
#define CPU_ROWS_VEC_H

#include "backend/cpu/rows_math.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Before a loop of at most 16 iterations whose number is constant: unrolls it completely, so that arrays
 * become registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__aarch64__)

#include <arm_neon.h>

enum { VEC = 4, WIDE = 4 };
typedef float32x4_t vec, wide;
typedef int32x4_t vec_int; /* comparisons give all ones if true */

INLINE vec vec_load(const float *from)
{
    return vld1q_f32(from);
}

INLINE void vec_store(vec x, float *to)
{
    vst1q_f32(to, x);
}

INLINE vec vec_all(float x)
{
    return vdupq_n_f32(x);
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

/* A NaN in x is kept. */
INLINE vec vec_at_least(float limit, vec x)
{
    return vmaxq_f32(vdupq_n_f32(limit), x);
}

INLINE vec vec_at_most(float limit, vec x)
{
    return vminq_f32(vdupq_n_f32(limit), x);
}

INLINE vec vec_select(vec_int mask, vec where_set, vec elsewhere)
{
    return vbslq_f32(vreinterpretq_u32_s32(mask), where_set, elsewhere);
}

/* x where it is larger than so_far; a NaN in x is ignored. */
INLINE vec vec_larger(vec x, vec so_far)
{
    return vbslq_f32(vcgtq_f32(x, so_far), x, so_far);
}

/* Rounds to nearest even; the lanes must fit into a byte. */
INLINE void vec_store_bytes(vec x, int8_t *to)
{
    int16x4_t words = vmovn_s32(vcvtnq_s32_f32(x));
    int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    memcpy(to, &bytes, VEC);
}

INLINE void vec_store_f16(vec x, uint16_t *to)
{
    float16x4_t halves = vcvt_f16_f32(x);
    memcpy(to, &halves, sizeof halves);
}

/* Even and odd elements of two adjacent vectors, and back. */
INLINE void vec_unzip(vec low, vec high, vec *even, vec *odd)
{
    *even = vuzp1q_f32(low, high);
    *odd = vuzp2q_f32(low, high);
}

INLINE void vec_zip(vec even, vec odd, vec *low, vec *high)
{
    *low = vzip1q_f32(even, odd);
    *high = vzip2q_f32(even, odd);
}

INLINE wide wide_load(const float *from)
{
    return vld1q_f32(from);
}

INLINE void wide_store(wide x, float *to)
{
    vst1q_f32(to, x);
}

/* a * b + sum with one b for all lanes. */
INLINE wide wide_fma(wide a, float b, wide sum)
{
    return vfmaq_n_f32(sum, a, b);
}

/* Four consecutive floats, of which wide_fma takes one by its index: here they are in one register. */
typedef float32x4_t float_group;

INLINE float_group float_group_load(const float *from)
{
    return vld1q_f32(from);
}

INLINE wide wide_load_f16(const uint16_t *from)
{
    float16x4_t halves;
    memcpy(&halves, from, sizeof halves);
    return vcvt_f32_f16(halves);
}

INLINE void wide_load_bytes(const int8_t *from, wide out[16 / WIDE])
{
    int8x16_t bytes = vld1q_s8(from);
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    out[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low)));
    out[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    out[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high)));
    out[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

enum { VEC = 8 };
typedef __m256 vec;
typedef int32_t vec_int __attribute__((vector_size(32)));

INLINE vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void vec_store(vec x, float *to)
{
    _mm256_storeu_ps(to, x);
}

INLINE vec vec_all(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* A NaN in x is kept: for a NaN the instruction returns its second operand. */
INLINE vec vec_at_least(float limit, vec x)
{
    return _mm256_max_ps(_mm256_set1_ps(limit), x);
}

INLINE vec vec_at_most(float limit, vec x)
{
    return _mm256_min_ps(_mm256_set1_ps(limit), x);
}

INLINE vec vec_select(vec_int mask, vec where_set, vec elsewhere)
{
    return _mm256_blendv_ps(elsewhere, where_set, (__m256)mask);
}

/* x where it is larger than so_far; a NaN in x is ignored. */
INLINE vec vec_larger(vec x, vec so_far)
{
    return _mm256_max_ps(x, so_far);
}

/* Rounds to nearest even; the lanes must fit into a byte. */
INLINE void vec_store_bytes(vec x, int8_t *to)
{
    __m256i integers = _mm256_cvtps_epi32(x);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi16(words, words));
}

INLINE void vec_store_f16(vec x, uint16_t *to)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Even and odd elements of two adjacent vectors, and back. */
INLINE void vec_unzip(vec low, vec high, vec *even, vec *odd)
{
    __m256 left = _mm256_permute2f128_ps(low, high, 0x20), right = _mm256_permute2f128_ps(low, high, 0x31);
    *even = _mm256_shuffle_ps(left, right, 0x88);
    *odd = _mm256_shuffle_ps(left, right, 0xdd);
}

INLINE void vec_zip(vec even, vec odd, vec *low, vec *high)
{
    __m256 left = _mm256_unpacklo_ps(even, odd), right = _mm256_unpackhi_ps(even, odd);
    *low = _mm256_permute2f128_ps(left, right, 0x20);
    *high = _mm256_permute2f128_ps(left, right, 0x31);
}

/*
 * Four consecutive floats, of which wide_fma takes one by its index: here it is read from memory each time.
 */
typedef const float *float_group;

INLINE float_group float_group_load(const float *from)
{
    return from;
}

#if defined(__AVX512F__)

enum { WIDE = 16 };
typedef __m512 wide;

INLINE wide wide_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void wide_store(wide x, float *to)
{
    _mm512_storeu_ps(to, x);
}

/* a * b + sum with one b for all lanes. */
INLINE wide wide_fma(wide a, float b, wide sum)
{
    return _mm512_fmadd_ps(a, _mm512_set1_ps(b), sum);
}

INLINE wide wide_load_f16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

INLINE void wide_load_bytes(const int8_t *from, wide out[16 / WIDE])
{
    out[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
}

#else

enum { WIDE = 8 };
typedef __m256 wide;

INLINE wide wide_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void wide_store(wide x, float *to)
{
    _mm256_storeu_ps(to, x);
}

/* a * b + sum with one b for all lanes. */
INLINE wide wide_fma(wide a, float b, wide sum)
{
    return _mm256_fmadd_ps(a, _mm256_set1_ps(b), sum);
}

INLINE wide wide_load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

INLINE void wide_load_bytes(const int8_t *from, wide out[16 / WIDE])
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    out[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    out[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
}

#endif
#endif

/* ---- For every instruction set ---- */

/* Loads the first n (less than VEC) elements; the other lanes are zero. */
INLINE vec vec_load_some(const float *from, size_t n)
{
    float padded[VEC] = {0};
    memcpy(padded, from, n * sizeof *from);
    return vec_load(padded);
}

INLINE void vec_store_some(vec x, float *to, size_t n)
{
    float padded[VEC];
    vec_store(x, padded);
    memcpy(to, padded, n * sizeof *to);
}

INLINE vec vec_magnitude(vec x)
{
    return (vec)((vec_int)x & 0x7fffffff);
}

/* e^(x - n ln 2), where n is x / ln 2 rounded. */
INLINE vec vec_exp_rest(vec x, vec n)
{
    vec r = vec_fma(n, vec_all(-LN2_LOW), vec_fma(n, vec_all(-LN2_HIGH), x)), square = r * r;
    vec low = vec_fma(vec_all(EXP_1), r, vec_all(EXP_0)), high = vec_fma(vec_all(EXP_3), r, vec_all(EXP_2));
    vec p = vec_fma(vec_fma(vec_all(EXP_4), square, high), square, low);
    return vec_all(1) + vec_fma(square, p, r);
}

/* Multiplies by 2^n in two factors, so that subnormal results are rounded only once, at the end. */
INLINE vec vec_exp(vec x)
{
    x = vec_at_most(EXP_HIGHEST, vec_at_least(EXP_LOWEST, x));
    vec rounded = vec_fma(x, vec_all(LOG2_E), vec_all(ROUNDER)), n = rounded - vec_all(ROUNDER);
    vec_int exponent = (vec_int)rounded - (vec_int)vec_all(ROUNDER), half = exponent >> 1;
    return vec_exp_rest(x, n) * (vec)((half + 127) << 23) * (vec)((exponent - half + 127) << 23);
}

/* vec_exp for x <= 0 or NaN, with the same bits: one factor is then always 2^-31, and x / ln 2 can be rounded
 * directly to the biased exponent of the other. */
INLINE vec vec_exp_negative(vec x)
{
    const float biased = ROUNDER + 127 + 31;
    x = vec_at_least(EXP_LOWEST, x);
    vec rounded = vec_fma(x, vec_all(LOG2_E), vec_all(biased)), n = rounded - vec_all(biased);
    return vec_exp_rest(x, n) * (vec)((vec_int)rounded << 23) * vec_all(0x1p-31f);
}

/* 1 + e^x. Below -86, e^x no longer changes the sum. Above that, one factor can hold every 2^n but the
 * largest, so it holds 2^(n - 1). */
INLINE vec vec_one_plus_exp(vec x)
{
    const float biased = ROUNDER + 127 - 1;
    x = vec_at_most(EXP_HIGHEST, vec_at_least(-86, x));
    vec rounded = vec_fma(x, vec_all(LOG2_E), vec_all(biased)), n = rounded - vec_all(biased);
    return vec_all(1) + vec_exp_rest(x, n) * (vec)((vec_int)rounded << 23) * vec_all(2);
}

INLINE vec vec_tanh(vec x)
{
    vec magnitude = vec_magnitude(x), square = x * x;
    vec p = vec_fma(vec_all(TANH_4), square, vec_all(TANH_3));
    p = vec_fma(p, square, vec_all(TANH_2));
    p = vec_fma(p, square, vec_all(TANH_1));
    p = vec_fma(p, square, vec_all(TANH_0));
    vec small = vec_fma(square * magnitude, p, magnitude);
    vec large = vec_all(1) - vec_all(2) / vec_one_plus_exp(magnitude + magnitude);
    vec_int sign = (vec_int)x ^ (vec_int)magnitude;
    return (vec)((vec_int)vec_select((vec_int)(magnitude < vec_all(TANH_SMALL)), small, large) | sign);
}

/* Eight partial sums, which row_sum adds in the order of kernels.h. */
struct partial_sums {
    vec part[8 / VEC];
};

INLINE float row_sum(struct partial_sums sums)
{
    float partial[8] = {0};
    for (int i = 0; i < 8 / VEC; i++)
        vec_store(sums.part[i], partial + i * VEC);
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
           ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

/* The largest of n values, in any order of comparisons. */
INLINE float vec_maximum(const float *x, size_t n)
{
    enum { CHAINS = 4 };
    vec largest[CHAINS];
    float lanes[VEC], maximum = -INFINITY;
    size_t i = 0;
    UNROLL
    for (int chain = 0; chain < CHAINS; chain++)
        largest[chain] = vec_all(-INFINITY);
    for (; i + CHAINS * VEC <= n; i += CHAINS * VEC) {
        UNROLL
        for (int chain = 0; chain < CHAINS; chain++)
            largest[chain] = vec_larger(vec_load(x + i + chain * VEC), largest[chain]);
    }
    for (; i + VEC <= n; i += VEC)
        largest[0] = vec_larger(vec_load(x + i), largest[0]);
    UNROLL
    for (int chain = 1; chain < CHAINS; chain++)
        largest[0] = vec_larger(largest[chain], largest[0]);
    vec_store(largest[0], lanes);
    for (int lane = 0; lane < VEC; lane++)
        maximum = lanes[lane] > maximum ? lanes[lane] : maximum;
    for (; i < n; i++)
        maximum = x[i] > maximum ? x[i] : maximum;
    return maximum;
}

#endif
