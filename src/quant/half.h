/*
 * Sixteen-bit floats: f16 (IEEE binary16) and bf16 (the upper half of an f32). Rounding is to nearest even;
 * denormals and infinities are exact; a NaN becomes a quiet NaN with its sign and the upper bits of its
 * payload. Hardware conversions, where the target has them, give the same bits as the portable code.
 */
#ifndef QUANT_HALF_H
#define QUANT_HALF_H

#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float f16_to_f32_portable(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000 | (mantissa ? 0x400000 | mantissa << 13 : 0));
    if (exponent == 0) /* mantissa * 2^-24, exact in f32 */
        return f32_from_bits(sign | f32_bits((float)mantissa * 0x1p-24f));
    return f32_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

static inline uint16_t f16_from_f32_portable(float value)
{
    uint32_t bits = f32_bits(value), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= f32_bits(65520)) /* halfway between the largest f16 and the next power of two */
        return sign | 0x7c00;
    if (magnitude <
        f32_bits(0x1p-14f)) /* denormal: an f32 near 0.5 has steps of 2^-24, so the addition rounds */
        return (uint16_t)(sign | (f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f)));
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - ((uint32_t)(127 - 15) << 23)) >> 13);
}

static inline float f16_to_f32(uint16_t half)
{
#if defined(__aarch64__)
    __fp16 value;
    memcpy(&value, &half, sizeof value);
    return (float)value;
#elif defined(__F16C__)
    return _cvtsh_ss(half);
#else
    return f16_to_f32_portable(half);
#endif
}

static inline uint16_t f16_from_f32(float value)
{
#if defined(__aarch64__)
    __fp16 rounded = (__fp16)value;
    uint16_t half;
    memcpy(&half, &rounded, sizeof half);
    return half;
#elif defined(__F16C__)
    return (uint16_t)_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    return f16_from_f32_portable(value);
#endif
}

/* The nearest f16 value; finite values beyond its range become its largest. */
static inline float f16_rounded(float value)
{
    const float largest = 65504;
    value = value > largest ? largest : value < -largest ? -largest : value;
    return f16_to_f32(f16_from_f32(value));
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
