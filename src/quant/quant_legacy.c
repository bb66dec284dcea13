/* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 with one f16 scale, and a minimum where the name ends in 1. */
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/nibbles.h"

/* ---- Five bits, spread over bytes ---- */

static void unpack_five_bits(const uint8_t nibbles[16], const uint8_t high[4], uint8_t codes[32])
{
    unpack_nibbles(nibbles, codes);
    for (int i = 0; i < 32; i++)
        codes[i] |= (uint8_t)((high[i / 8] >> (i % 8) & 1) << 4);
}

static void pack_five_bits(const uint8_t codes[32], uint8_t nibbles[16], uint8_t high[4])
{
    pack_nibbles(codes, nibbles);
    memset(high, 0, 4);
    for (int i = 0; i < 32; i++)
        high[i / 8] |= (uint8_t)((codes[i] >> 4) << (i % 8));
}

/* ---- value = scale * (code - zero) ---- */

INLINE lanes nearest_q4_0(lanes value)
{
    return round_within(value, -8, 7);
}

INLINE lanes nearest_q5_0(lanes value)
{
    return round_within(value, -16, 15);
}

INLINE uint16_t quantize_signed(
    const float *values, int zero, nearest_function *nearest, struct guesses guesses, uint8_t codes[32])
{
    float normal[32], unit = normalise(values, 32, normal);
    struct half_scale scale = half_scale_nearest(fit_scale(normal, 32, nearest, guesses), unit);
    encode(normal, 32, scale.value, 0, nearest, -zero, codes);
    return scale.bits;
}

static void dequantize_signed(uint16_t scale_bits, int zero, const uint8_t codes[32], float *out)
{
    float scale = f16_to_f32(scale_bits);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(codes[i] - zero);
}

static void dequantize_q4_0(const void *blocks, size_t block_count, float *out)
{
    const struct block_q4_0 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        unpack_nibbles(block->nibbles, codes);
        dequantize_signed(block->scale, 8, codes, out);
    }
}

static void quantize_q4_0(const float *values, size_t block_count, void *blocks)
{
    const struct guesses guesses = {6.8f, 0.2f, 9};
    struct block_q4_0 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        block->scale = quantize_signed(values, 8, nearest_q4_0, guesses, codes);
        pack_nibbles(codes, block->nibbles);
    }
}

static void dequantize_q5_0(const void *blocks, size_t block_count, float *out)
{
    const struct block_q5_0 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        unpack_five_bits(block->nibbles, block->high, codes);
        dequantize_signed(block->scale, 16, codes, out);
    }
}

static void quantize_q5_0(const float *values, size_t block_count, void *blocks)
{
    const struct guesses guesses = {14.6f, 0.25f, 9};
    struct block_q5_0 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        block->scale = quantize_signed(values, 16, nearest_q5_0, guesses, codes);
        pack_five_bits(codes, block->nibbles, block->high);
    }
}

/* ---- value = scale * code + min ---- */

INLINE lanes nearest_q4_1(lanes value)
{
    return round_within(value, 0, 15);
}

INLINE lanes nearest_q5_1(lanes value)
{
    return round_within(value, 0, 31);
}

struct scale_and_min {
    uint16_t scale, min; /* f16 */
};

INLINE struct scale_and_min quantize_affine(
    const float *values, float top, nearest_function *nearest, struct insets insets, uint8_t codes[32])
{
    float normal[32], centred[32], unit = normalise(values, 32, normal);
    float mean = sum_values(normal, 32) / 32;
    for (size_t i = 0; i < 32; i++) /* a small spread around a large mean must not lose its precision */
        centred[i] = normal[i] - mean;
    struct line line = fit_line(centred, 32, top, nearest, insets, false);
    struct half_scale scale = half_scale_nearest(line.scale, unit);
    struct half_scale min = half_scale_nearest(line.offset + mean, unit);
    encode(normal, 32, scale.value, min.value, nearest, 0, codes);
    return (struct scale_and_min){scale.bits, min.bits};
}

static void dequantize_affine(uint16_t scale_bits, uint16_t min_bits, const uint8_t codes[32], float *out)
{
    float scale = f16_to_f32(scale_bits), min = f16_to_f32(min_bits);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)codes[i] + min;
}

static void dequantize_q4_1(const void *blocks, size_t block_count, float *out)
{
    const struct block_q4_1 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        unpack_nibbles(block->nibbles, codes);
        dequantize_affine(block->scale, block->min, codes, out);
    }
}

static void quantize_q4_1(const float *values, size_t block_count, void *blocks)
{
    const struct insets insets = {-0.01f, 0.025f, 5};
    struct block_q4_1 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        struct scale_and_min fit = quantize_affine(values, 15, nearest_q4_1, insets, codes);
        block->scale = fit.scale;
        block->min = fit.min;
        pack_nibbles(codes, block->nibbles);
    }
}

static void dequantize_q5_1(const void *blocks, size_t block_count, float *out)
{
    const struct block_q5_1 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        unpack_five_bits(block->nibbles, block->high, codes);
        dequantize_affine(block->scale, block->min, codes, out);
    }
}

static void quantize_q5_1(const float *values, size_t block_count, void *blocks)
{
    const struct insets insets = {-0.01f, 0.012f, 5};
    struct block_q5_1 *block = blocks;
    uint8_t codes[32];
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        struct scale_and_min fit = quantize_affine(values, 31, nearest_q5_1, insets, codes);
        block->scale = fit.scale;
        block->min = fit.min;
        pack_five_bits(codes, block->nibbles, block->high);
    }
}

/* ---- Q8_0 ---- */

/* -128 is not used: integer kernels take absolute values and 16-bit products of two codes. */
INLINE lanes nearest_q8_0(lanes value)
{
    return round_within(value, -127, 127);
}

static void dequantize_q8_0(const void *blocks, size_t block_count, float *out)
{
    const struct block_q8_0 *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        float scale = f16_to_f32(block->scale);
        for (int j = 0; j < 32; j++)
            out[j] = scale * (float)block->codes[j];
    }
}

/* With 255 codes the largest value gets the last code: a search would reduce the error by less than 0.1 %. */
static void quantize_q8_0(const float *values, size_t block_count, void *blocks)
{
    struct block_q8_0 *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        float normal[32], unit = normalise(values, 32, normal);
        struct half_scale scale = half_scale_outward(largest_magnitude(normal, 32) / 127, unit);
        block->scale = scale.bits;
        encode(normal, 32, scale.value, 0, nearest_q8_0, 0, (uint8_t *)block->codes);
    }
}

const struct format format_q4_0 = {dequantize_q4_0, quantize_q4_0};
const struct format format_q4_1 = {dequantize_q4_1, quantize_q4_1};
const struct format format_q5_0 = {dequantize_q5_0, quantize_q5_0};
const struct format format_q5_1 = {dequantize_q5_1, quantize_q5_1};
const struct format format_q8_0 = {dequantize_q8_0, quantize_q8_0};
