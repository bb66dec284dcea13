/* IQ4_NL, IQ4_XS: nonlinear four-bit codes, finer near zero. */
#include "quant/fit_groups.h"
#include "quant/formats.h"
#include "quant/nibbles.h"

/*
 * The nearest of iq4_values, and its code: both add up comparisons with fifteen thresholds, the midpoints
 * between neighbours. Without branches and tables, this vectorises.
 */
INLINE lane_mask above(lanes value, int code)
{
    return value > lanes_all(0.5f * (float)(iq4_values[code] + iq4_values[code + 1]));
}

INLINE lanes nearest_iq4(lanes value)
{
    lanes nearest = lanes_all((float)iq4_values[0]);
    for (int code = 0; code < 15; code++)
        nearest +=
            lanes_only(above(value, code), lanes_all((float)(iq4_values[code + 1] - iq4_values[code])));
    return nearest;
}

INLINE lanes nearest_iq4_code(lanes value)
{
    lanes nearest = lanes_all(0);
    for (int code = 0; code < 15; code++)
        nearest += lanes_only(above(value, code), lanes_all(1));
    return nearest;
}

/* The largest magnitude maps to -127 or, with the opposite sign, to 113. */
static const struct guesses guesses = {100, 4, 8};

static void dequantize_iq4_nl(const void *blocks, size_t block_count, float *out)
{
    const struct block_iq4_nl *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, out += 32)
        dequantize_nibbles(f16_to_f32(block->scale), iq4_values, block->nibbles, out);
}

static void quantize_iq4_nl(const float *values, size_t block_count, void *blocks)
{
    struct block_iq4_nl *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++, values += 32) {
        float normal[32], unit = normalise(values, 32, normal);
        struct half_scale scale = half_scale_nearest(fit_scale(normal, 32, nearest_iq4, guesses), unit);
        uint8_t codes[32];
        encode(normal, 32, scale.value, 0, nearest_iq4_code, 0, codes);
        block->scale = scale.bits;
        pack_nibbles(codes, block->nibbles);
    }
}

static void dequantize_iq4_xs(const void *blocks, size_t block_count, float *out)
{
    const struct block_iq4_xs *block = blocks;
    for (size_t i = 0; i < block_count; i++, block++) {
        float scale = f16_to_f32(block->scale);
        for (unsigned group = 0; group < 8; group++, out += 32) {
            float group_scale = scale * (float)iq4_xs_group_scale(block, group);
            dequantize_nibbles(group_scale, iq4_values, block->nibbles + group * 16, out);
        }
    }
}

static void quantize_iq4_xs(const float *values, size_t block_count, void *blocks)
{
    struct block_iq4_xs *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct signed_groups fit = fit_signed_groups(normal, unit, 32, -32, nearest_iq4, guesses);
        encode_signed_groups(normal, 32, nearest_iq4_code, 0, &fit, codes);
        memset(block, 0, sizeof *block);
        block->scale = fit.scale.bits;
        for (size_t group = 0; group < 8; group++) {
            int group_scale = fit.scales[group] + 32;
            block->groups_low[group / 2] |= (uint8_t)((group_scale & 15) << (group % 2 * 4));
            block->groups_high |= (uint16_t)((group_scale >> 4) << (group * 2));
            pack_nibbles(codes + group * 32, block->nibbles + group * 16);
        }
    }
}

const struct format format_iq4_nl = {dequantize_iq4_nl, quantize_iq4_nl};
const struct format format_iq4_xs = {dequantize_iq4_xs, quantize_iq4_xs};
