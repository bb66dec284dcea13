/* Q3_K, Q6_K: blocks of 256 in groups of 16 with a signed scale each. */
#include "quant/fit_groups.h"
#include "quant/formats.h"

INLINE void dequantize_group(float step, const int8_t codes[16], float *out)
{
    for (size_t i = 0; i < 16; i++)
        out[i] = step * (float)codes[i];
}

/* ---- Q3_K ---- */

INLINE lanes nearest_q3_k(lanes value)
{
    return round_within(value, -4, 3);
}

static void dequantize_q3_k(const void *blocks, size_t block_count, float *out)
{
    const struct block_q3_k *block = blocks;
    int8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, out += BLOCK_LARGE) {
        for (size_t e = 0; e < BLOCK_LARGE; e++) {
            int low = block->pairs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            int high = block->high[e % 32] >> (e / 32) & 1;
            codes[e] = (int8_t)((low | high << 2) - 4);
        }
        float scale = f16_to_f32(block->scale);
        for (unsigned group = 0; group < 16; group++)
            dequantize_group(
                scale * (float)q3_k_group_scale(block->groups, group), codes + group * 16, out + group * 16);
    }
}

static void quantize_q3_k(const float *values, size_t block_count, void *blocks)
{
    const struct guesses guesses = {2.8f, 0.15f, 11};
    struct block_q3_k *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct signed_groups fit = fit_signed_groups(normal, unit, 16, -32, nearest_q3_k, guesses);
        encode_signed_groups(normal, 16, nearest_q3_k, -4, &fit, codes);
        memset(block, 0, sizeof *block);
        block->scale = fit.scale.bits;
        for (size_t group = 0; group < 16; group++) {
            int group_scale = fit.scales[group] + 32;
            block->groups[group % 8] |= (uint8_t)((group_scale & 15) << (group / 8 * 4));
            block->groups[8 + group % 4] |= (uint8_t)((group_scale >> 4) << (group / 4 * 2));
        }
        for (size_t e = 0; e < BLOCK_LARGE; e++) {
            block->pairs[e / 128 * 32 + e % 32] |= (uint8_t)((codes[e] & 3) << (e % 128 / 32 * 2));
            block->high[e % 32] |= (uint8_t)((codes[e] >> 2) << (e / 32));
        }
    }
}

/* ---- Q6_K ---- */

INLINE lanes nearest_q6_k(lanes value)
{
    return round_within(value, -32, 31);
}

static void dequantize_q6_k(const void *blocks, size_t block_count, float *out)
{
    const struct block_q6_k *block = blocks;
    int8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, out += BLOCK_LARGE) {
        for (size_t e = 0; e < BLOCK_LARGE; e++) {
            int low = block->nibbles[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
            int high = block->pairs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
            codes[e] = (int8_t)((low | high << 4) - 32);
        }
        float scale = f16_to_f32(block->scale);
        for (size_t group = 0; group < 16; group++)
            dequantize_group(scale * (float)block->groups[group], codes + group * 16, out + group * 16);
    }
}

static void quantize_q6_k(const float *values, size_t block_count, void *blocks)
{
    const struct guesses guesses = {30.0f, 0.3f, 9};
    struct block_q6_k *block = blocks;
    float normal[BLOCK_LARGE];
    uint8_t codes[BLOCK_LARGE];
    for (size_t i = 0; i < block_count; i++, block++, values += BLOCK_LARGE) {
        float unit = normalise(values, BLOCK_LARGE, normal);
        struct signed_groups fit = fit_signed_groups(normal, unit, 16, -128, nearest_q6_k, guesses);
        encode_signed_groups(normal, 16, nearest_q6_k, -32, &fit, codes);
        memset(block, 0, sizeof *block);
        block->scale = fit.scale.bits;
        memcpy(block->groups, fit.scales, sizeof block->groups);
        for (size_t e = 0; e < BLOCK_LARGE; e++) {
            block->nibbles[e / 128 * 64 + e % 64] |= (uint8_t)((codes[e] & 15) << (e % 128 / 64 * 4));
            block->pairs[e / 128 * 32 + e % 32] |= (uint8_t)((codes[e] >> 4) << (e % 128 / 32 * 2));
        }
    }
}

const struct format format_q3_k = {dequantize_q3_k, quantize_q3_k};
const struct format format_q6_k = {dequantize_q6_k, quantize_q6_k};
