/* Eight floats, one for each row of a tile, for NEON and AVX2. */
#ifndef CPU_VEC8_H
#define CPU_VEC8_H

#include "backend/cpu/tile_format.h"

#if defined(__aarch64__)

#include <arm_neon.h>

typedef struct {
    float32x4_t low, high;
} vec8;

INLINE vec8 vec8_all(float x)
{
    return (vec8){vdupq_n_f32(x), vdupq_n_f32(x)};
}

/*
 * Zeros to start a sum with. A compiler copies one register of zeros to all sums, and a Neoverse V1 then adds
 * to them on two of its four vector pipelines, those of the copied register. MOVI binds a sum to none.
 */
INLINE int32x4_t new_zeros(void)
{
    int32x4_t zeros;
    __asm__ volatile("movi %0.4s, #0" : "=w"(zeros)); /* volatile: not merged with another */
    return zeros;
}

INLINE vec8 vec8_zeros(void)
{
    return (vec8){vreinterpretq_f32_s32(new_zeros()), vreinterpretq_f32_s32(new_zeros())};
}

INLINE vec8 vec8_load(const float *from)
{
    return (vec8){vld1q_f32(from), vld1q_f32(from + 4)};
}

INLINE void vec8_store(vec8 x, float *to)
{
    vst1q_f32(to, x.low);
    vst1q_f32(to + 4, x.high);
}

INLINE vec8 vec8_mul(vec8 a, vec8 b)
{
    return (vec8){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
}

INLINE vec8 vec8_add(vec8 a, vec8 b)
{
    return (vec8){vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
}

/* a * b + sum */
INLINE vec8 vec8_fma(vec8 a, vec8 b, vec8 sum)
{
    return (vec8){vfmaq_f32(sum.low, a.low, b.low), vfmaq_f32(sum.high, a.high, b.high)};
}

/* One element in all lanes; the index is constant once loops are unrolled. */
INLINE vec8 vec8_pick(vec8 x, unsigned i)
{
    return vec8_all(i < 4 ? x.low[i % 4] : x.high[i % 4]);
}

INLINE vec8 vec8_load_f16(const uint8_t *from)
{
    float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(from));
    return (vec8){vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

INLINE vec8 vec8_load_bf16(const uint8_t *from)
{
    uint16x8_t halves = vreinterpretq_u16_u8(vld1q_u8(from)), zero = vdupq_n_u16(0);
    return (vec8){
        vreinterpretq_f32_u16(vzip1q_u16(zero, halves)), vreinterpretq_f32_u16(vzip2q_u16(zero, halves))};
}

INLINE vec8 uint8_to_floats(uint8x8_t octet)
{
    uint16x8_t wide = vmovl_u8(octet);
    return (vec8){vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), vcvtq_f32_u32(vmovl_high_u16(wide))};
}

INLINE vec8 vec8_load_uint8(const uint8_t *from)
{
    return uint8_to_floats(vld1_u8(from));
}

INLINE vec8 vec8_load_int8(const uint8_t *from)
{
    int16x8_t wide = vmovl_s8(vreinterpret_s8_u8(vld1_u8(from)));
    return (vec8){vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}

INLINE vec8 vec8_load_low_nibbles(const uint8_t *from)
{
    return uint8_to_floats(vand_u8(vld1_u8(from), vdup_n_u8(0x0F)));
}

INLINE vec8 vec8_load_high_nibbles(const uint8_t *from)
{
    return uint8_to_floats(vshr_n_u8(vld1_u8(from), 4));
}

INLINE float32x4_t exponents_to_f32(uint32x4_t exponents)
{
    uint32x4_t denormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(exponents));
    uint32x4_t normal = vshlq_n_u32(vsubq_u32(exponents, vdupq_n_u32(1)), 23);
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(exponents, vdupq_n_u32(2)), denormal, normal));
}

/* 2^(exponent - 128), also if the result is subnormal. */
INLINE vec8 vec8_load_exponents(const uint8_t *from)
{
    uint16x8_t wide = vmovl_u8(vld1_u8(from));
    return (vec8){exponents_to_f32(vmovl_u16(vget_low_u16(wide))), exponents_to_f32(vmovl_high_u16(wide))};
}

/* The larger magnitude of each lane, by its bits: infinity is larger than every number, NaN larger than
 * infinity. */
INLINE vec8 vec8_larger_magnitude(vec8 x, vec8 y)
{
    uint32x4_t low =
        vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(x.low)), vreinterpretq_u32_f32(vabsq_f32(y.low)));
    uint32x4_t high =
        vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(x.high)), vreinterpretq_u32_f32(vabsq_f32(y.high)));
    return (vec8){vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)};
}

INLINE uint32_t vec8_largest_bits(vec8 x)
{
    return vmaxvq_u32(vmaxq_u32(vreinterpretq_u32_f32(x.low), vreinterpretq_u32_f32(x.high)));
}

INLINE int16x8_t narrow_words(int32x4_t low, int32x4_t high)
{
    return vcombine_s16(vmovn_s32(low), vmovn_s32(high));
}

/* Rounds to nearest even and stores as bytes, into which the values must fit; returns their sum. */
INLINE int vec8_store_bytes(vec8 x, int8_t *to)
{
    int16x8_t words = narrow_words(vcvtnq_s32_f32(x.low), vcvtnq_s32_f32(x.high));
    vst1_s8(to, vmovn_s16(words));
    return vaddvq_s16(words);
}

/* Rounds to two terms: p = high * 128 + low, low -64 .. 63. */
INLINE int vec8_store_terms(vec8 x, int8_t *high, int8_t *low)
{
    int32x4_t p[2] = {vcvtnq_s32_f32(x.low), vcvtnq_s32_f32(x.high)};
    int16x8_t words = narrow_words(p[0], p[1]), high_words = vrshrq_n_s16(words, TERM_BITS);
    vst1_s8(high, vmovn_s16(high_words));
    vst1_s8(low, vmovn_s16(vsubq_s16(words, vshlq_n_s16(high_words, TERM_BITS))));
    return vaddvq_s32(vaddq_s32(p[0], p[1]));
}

#elif defined(__AVX2__)

#include <immintrin.h>

typedef __m256 vec8;

INLINE vec8 vec8_all(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vec8 vec8_zeros(void)
{
    return vec8_all(0);
}

INLINE vec8 vec8_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void vec8_store(vec8 x, float *to)
{
    _mm256_storeu_ps(to, x);
}

INLINE vec8 vec8_mul(vec8 a, vec8 b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vec8 vec8_add(vec8 a, vec8 b)
{
    return _mm256_add_ps(a, b);
}

INLINE vec8 vec8_fma(vec8 a, vec8 b, vec8 sum)
{
    return _mm256_fmadd_ps(a, b, sum);
}

INLINE vec8 vec8_pick(vec8 x, unsigned i)
{
    return vec8_all(x[i]);
}

INLINE __m128i load_16_bytes(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

INLINE vec8 vec8_load_f16(const uint8_t *from)
{
    return _mm256_cvtph_ps(load_16_bytes(from));
}

INLINE vec8 vec8_load_bf16(const uint8_t *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(from)), 16));
}

INLINE __m128i load_8_bytes(const uint8_t *from)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)from);
}

INLINE vec8 uint8_to_floats(__m128i octet)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(octet));
}

INLINE vec8 vec8_load_uint8(const uint8_t *from)
{
    return uint8_to_floats(load_8_bytes(from));
}

INLINE vec8 vec8_load_int8(const uint8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(from)));
}

INLINE vec8 vec8_load_low_nibbles(const uint8_t *from)
{
    return uint8_to_floats(_mm_and_si128(load_8_bytes(from), _mm_set1_epi8(0x0F)));
}

INLINE vec8 vec8_load_high_nibbles(const uint8_t *from)
{
    return uint8_to_floats(_mm_and_si128(_mm_srli_epi16(load_8_bytes(from), 4), _mm_set1_epi8(0x0F)));
}

INLINE vec8 vec8_load_exponents(const uint8_t *from)
{
    __m256i exponents = _mm256_cvtepu8_epi32(load_8_bytes(from));
    __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), exponents);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, denormal, small));
}

INLINE vec8 vec8_larger_magnitude(vec8 x, vec8 y)
{
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(x), magnitude),
        _mm256_and_si256(_mm256_castps_si256(y), magnitude)));
}

INLINE uint32_t vec8_largest_bits(vec8 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE int vec8_store_bytes(vec8 x, int8_t *to)
{
    __m256i integers = _mm256_cvtps_epi32(x);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packs_epi16(words, words));
    __m128i four = _mm_madd_epi16(words, _mm_set1_epi16(1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

INLINE int vec8_store_terms(vec8 x, int8_t *high, int8_t *low)
{
    __m256i integers = _mm256_cvtps_epi32(x);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    __m128i half = _mm_set1_epi16(1 << (TERM_BITS - 1));
    __m128i high_words = _mm_srai_epi16(_mm_add_epi16(words, half), TERM_BITS);
    __m128i low_words = _mm_sub_epi16(words, _mm_slli_epi16(high_words, TERM_BITS));
    _mm_storel_epi64((__m128i *)(void *)high, _mm_packs_epi16(high_words, high_words));
    _mm_storel_epi64((__m128i *)(void *)low, _mm_packs_epi16(low_words, low_words));
    __m128i four = _mm_madd_epi16(words, _mm_set1_epi16(1));
    __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

#endif
#endif
