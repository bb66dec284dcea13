/* Q2_K, Q4_K, Q5_K: blocks of 256 in groups with a scale and a minimum each. */
#include "quant/fit_groups.h"
#include "quant/formats.h"

/* ---- From codes to values ---- */

INLINE void dequantize_group(float scale, float min, uint8_t group_scale, uint8_t group_min,
    const uint8_t *codes, size_t size, float *out)
{
    float step = scale * (float)group_scale, offset = min * (float)group_min;
    for (size_t i = 0; i < size; i++)
        out[i] = step * (float)codes[i] - offset;
}

/* ---- Q2_K ---- */

INLINE lanes nearest_q2_k(lanes value)
{
    return round_within(value, 0, 3);
}

static void dequantize_q2_k(const void *blocks, size_t block_count, float *out)
{
    const struct block_q2_k *block = blocks;
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, out += BLOCK_LARGE) {
        for (size_t e = 0; e < BLOCK_LARGE; e++)
            codes[e] = block->pairs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
        float scale = f16_to_f32(block->scale), min = f16_to_f32(block->min);
        for (size_t group = 0; group < 16; group++)
            dequantize_group(scale, min, block->groups[group] & 15, block->groups[group] >> 4,
                codes + group * 16, 16, out + group * 16);
    }
}

static void quantize_q2_k(const float *values, size_t block_count, void *blocks)
{
    const struct insets insets = {-0.05f, 0.07f, 5};
    struct block_q2_k *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct affine_groups fit = fit_affine_groups(normal, unit, 16, 15, 3, nearest_q2_k, insets);
        encode_affine_groups(normal, 16, nearest_q2_k, &fit, codes);
        block->scale = fit.scale.bits;
        block->min = fit.min.bits;
        for (size_t group = 0; group < 16; group++)
            block->groups[group] = (uint8_t)(fit.scales[group] | fit.mins[group] << 4);
        memset(block->pairs, 0, sizeof block->pairs);
        for (size_t e = 0; e < BLOCK_LARGE; e++)
            block->pairs[e / 128 * 32 + e % 32] |= (uint8_t)(codes[e] << (e % 128 / 32 * 2));
    }
}

/* ---- Shared by Q4_K and Q5_K ---- */

static void unpack_low_bits(const uint8_t nibbles[128], uint8_t codes[BLOCK_LARGE])
{
    for (size_t e = 0; e < BLOCK_LARGE; e++)
        codes[e] = nibbles[e / 64 * 32 + e % 32] >> (e / 32 % 2 * 4) & 15;
}

static void pack_low_bits(const uint8_t codes[BLOCK_LARGE], uint8_t nibbles[128])
{
    for (size_t i = 0; i < 128; i++) {
        const uint8_t *pair = codes + i / 32 * 64 + i % 32;
        nibbles[i] = (uint8_t)((pair[0] & 15) | pair[32] << 4);
    }
}

static void pack_groups(const struct affine_groups *fit, uint8_t groups[12])
{
    for (size_t i = 0; i < 4; i++) {
        uint8_t late_scale = fit->scales[i + 4], late_min = fit->mins[i + 4];
        groups[i] = (uint8_t)(fit->scales[i] | (late_scale >> 4) << 6);
        groups[i + 4] = (uint8_t)(fit->mins[i] | (late_min >> 4) << 6);
        groups[i + 8] = (uint8_t)((late_scale & 15) | late_min << 4);
    }
}

static void dequantize_groups(uint16_t scale_bits, uint16_t min_bits, const uint8_t groups[12],
    const uint8_t codes[BLOCK_LARGE], float *out)
{
    float scale = f16_to_f32(scale_bits), min = f16_to_f32(min_bits);
    for (unsigned group = 0; group < 8; group++)
        dequantize_group(scale, min, k_group_scale(groups, group), k_group_min(groups, group),
            codes + group * 32, 32, out + group * 32);
}

/* ---- Q4_K ---- */

INLINE lanes nearest_q4_k(lanes value)
{
    return round_within(value, 0, 15);
}

static void dequantize_q4_k(const void *blocks, size_t block_count, float *out)
{
    const struct block_q4_k *block = blocks;
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, out += BLOCK_LARGE) {
        unpack_low_bits(block->nibbles, codes);
        dequantize_groups(block->scale, block->min, block->groups, codes, out);
    }
}

static void quantize_q4_k(const float *values, size_t block_count, void *blocks)
{
    const struct insets insets = {-0.01f, 0.025f, 5};
    struct block_q4_k *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct affine_groups fit = fit_affine_groups(normal, unit, 32, 63, 15, nearest_q4_k, insets);
        encode_affine_groups(normal, 32, nearest_q4_k, &fit, codes);
        block->scale = fit.scale.bits;
        block->min = fit.min.bits;
        pack_groups(&fit, block->groups);
        pack_low_bits(codes, block->nibbles);
    }
}

/* ---- Q5_K ---- */

INLINE lanes nearest_q5_k(lanes value)
{
    return round_within(value, 0, 31);
}

static void dequantize_q5_k(const void *blocks, size_t block_count, float *out)
{
    const struct block_q5_k *block = blocks;
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, out += BLOCK_LARGE) {
        unpack_low_bits(block->nibbles, codes);
        for (size_t e = 0; e < BLOCK_LARGE; e++)
            codes[e] |= (uint8_t)((block->high[e % 32] >> (e / 32) & 1) << 4);
        dequantize_groups(block->scale, block->min, block->groups, codes, out);
    }
}

static void quantize_q5_k(const float *values, size_t block_count, void *blocks)
{
    const struct insets insets = {-0.01f, 0.012f, 5};
    struct block_q5_k *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct affine_groups fit = fit_affine_groups(normal, unit, 32, 63, 31, nearest_q5_k, insets);
        encode_affine_groups(normal, 32, nearest_q5_k, &fit, codes);
        block->scale = fit.scale.bits;
        block->min = fit.min.bits;
        pack_groups(&fit, block->groups);
        pack_low_bits(codes, block->nibbles);
        memset(block->high, 0, sizeof block->high);
        for (size_t e = 0; e < BLOCK_LARGE; e++)
            block->high[e % 32] |= (uint8_t)((codes[e] >> 4) << (e / 32));
    }
}

const struct format format_q2_k = {dequantize_q2_k, quantize_q2_k};
const struct format format_q4_k = {dequantize_q4_k, quantize_q4_k};
const struct format format_q5_k = {dequantize_q5_k, quantize_q5_k};
