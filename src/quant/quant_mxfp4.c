/* MXFP4: four-bit floats in blocks of 32 under a power of two, as the OCP microscaling formats define it. */
#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/formats.h"

/* 2^(exponent - 128): mxfp4_values are doubled, so the scale is half of what the format's text says. */
static float scale_of(uint8_t exponent)
{
    return f32_from_bits(exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

static void dequantize_mxfp4(const void *blocks, size_t block_count, float *out)
{
    const struct block_mxfp4 *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, out += 32) {
        float scale = scale_of(block->exponent);
        for (int j = 0; j < 16; j++) {
            out[j] = scale * (float)mxfp4_values[block->nibbles[j] & 15];
            out[j + 16] = scale * (float)mxfp4_values[block->nibbles[j] >> 4];
        }
    }
}

/* The codes of magnitudes 0..7 stand for 0, 1, 2, 3, 4, 6, 8, 12. */
FIT_INLINE float magnitude_threshold(int code)
{
    return 0.5f * (float)(mxfp4_values[code] + mxfp4_values[code + 1]);
}

static inline float nearest_mxfp4(float value)
{
    float magnitude = value < 0 ? -value : value, nearest = 0;
    for (int code = 0; code < 7; code++)
        nearest +=
            magnitude > magnitude_threshold(code) ? (float)(mxfp4_values[code + 1] - mxfp4_values[code]) : 0;
    return value < 0 ? -nearest : nearest;
}

static uint8_t mxfp4_code(float value)
{
    float magnitude = value < 0 ? -value : value;
    uint8_t code = 0;
    while (code < 7 && magnitude > magnitude_threshold(code))
        code++;
    return (uint8_t)(value < 0 && code ? code | 8 : code);
}

/* Once normalised, the largest magnitude is in [1, 2): 12 / 8 may clip it, 12 / 4 never does but is coarser.
 */
static void quantize_mxfp4(const float *values, size_t block_count, void *blocks)
{
    const float fine = 0x1p-3f, coarse = 0x1p-2f;
    struct block_mxfp4 *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        float normal[32], unit = normalise(values, 32, normal);
        float fine_error = squared_error(normal, 32, fine, 0, nearest_mxfp4);
        float scale = squared_error(normal, 32, coarse, 0, nearest_mxfp4) < fine_error ? coarse : fine;
        block->exponent = (uint8_t)((f32_bits(scale * unit) >> 23) + 1); /* the inverse of scale_of */
        for (int j = 0; j < 16; j++)
            block->nibbles[j] =
                (uint8_t)(mxfp4_code(normal[j] / scale) | mxfp4_code(normal[j + 16] / scale) << 4);
    }
}

const struct format format_mxfp4 = {dequantize_mxfp4, quantize_mxfp4};
