/* MXFP4: four-bit floats in blocks of 32, multiplied by a power of two, as the OCP microscaling formats
 * define it. */
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/nibbles.h"

/* 2^(exponent - 128): mxfp4_values are doubled, so the scale is half of the specification's. */
static float scale_of(uint8_t exponent)
{
    return f32_from_bits(exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

static void dequantize_mxfp4(const void *blocks, size_t block_count, float *out)
{
    const struct block_mxfp4 *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, out += 32)
        dequantize_nibbles(scale_of(block->exponent), mxfp4_values, block->nibbles, out);
}

/* Codes 0..7 are the magnitudes in rising order, 8..15 their negatives. */
INLINE lane_mask above(lanes value, int code)
{
    return lanes_magnitude(value) > lanes_all(0.5f * (float)(mxfp4_values[code] + mxfp4_values[code + 1]));
}

INLINE lanes nearest_mxfp4(lanes value)
{
    lanes nearest = lanes_all(0);
    for (int code = 0; code < 7; code++)
        nearest +=
            lanes_only(above(value, code), lanes_all((float)(mxfp4_values[code + 1] - mxfp4_values[code])));
    return lanes_select(value < 0, -nearest, nearest);
}

INLINE lanes nearest_mxfp4_code(lanes value)
{
    lanes nearest =
        lanes_only(value < -0.5f, lanes_all(8)); /* values that round to zero get code 0, never -0 */
    for (int code = 0; code < 7; code++)
        nearest += lanes_only(above(value, code), lanes_all(1));
    return nearest;
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
        uint8_t codes[32];
        encode(normal, 32, scale, 0, nearest_mxfp4_code, 0, codes);
        pack_nibbles(codes, block->nibbles);
    }
}

const struct format format_mxfp4 = {dequantize_mxfp4, quantize_mxfp4};
