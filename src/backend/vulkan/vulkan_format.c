#include "backend/vulkan/vulkan_format.h"

#include "quant/blocks.h"
#include "quant/half.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum scale_kind {
    SCALES_NONE,
    SCALES_HALF,
    SCALES_HALF_MINIMUM,
    SCALES_EXPONENT,
    SCALES_LEVELS,
    SCALES_LEVELS_3
};

struct format {
    uint8_t code_words, high_words; /* words of 32 elements */
    uint8_t scales;
};

static const struct format *format_of(enum tensor_type type)
{
    static const struct format formats[] = {
        [TYPE_Q4_0] = {4, 0, SCALES_HALF},
        [TYPE_Q4_1] = {4, 0, SCALES_HALF_MINIMUM},
        [TYPE_Q5_0] = {4, 1, SCALES_HALF},
        [TYPE_Q5_1] = {4, 1, SCALES_HALF_MINIMUM},
        [TYPE_Q8_0] = {8, 0, SCALES_HALF},
        [TYPE_Q2_K] = {2, 0, SCALES_LEVELS},
        [TYPE_Q3_K] = {2, 1, SCALES_LEVELS},
        [TYPE_Q4_K] = {4, 0, SCALES_LEVELS},
        [TYPE_Q5_K] = {4, 1, SCALES_LEVELS},
        [TYPE_Q6_K] = {4, 2, SCALES_LEVELS},
        [TYPE_IQ4_NL] = {4, 0, SCALES_HALF},
        [TYPE_IQ4_XS] = {4, 0, SCALES_LEVELS_3},
        [TYPE_MXFP4] = {4, 0, SCALES_EXPONENT},
    };
    return (size_t)type < sizeof formats / sizeof *formats && formats[type].code_words ? &formats[type]
                                                                                       : NULL;
}

static bool is_float(enum tensor_type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

static uint64_t scale_words(enum scale_kind kind, uint64_t blocks)
{
    switch (kind) {
    case SCALES_HALF:
        return (blocks + 1) / 2;
    case SCALES_HALF_MINIMUM:
        return blocks;
    case SCALES_EXPONENT:
        return (blocks + 3) / 4;
    case SCALES_LEVELS:
        return blocks / 8 * 5;
    case SCALES_LEVELS_3:
        return blocks / 8 * 3;
    case SCALES_NONE:
        break;
    }
    return 0;
}

bool vulkan_format_planes(enum tensor_type type, uint64_t columns, struct row_planes *out)
{
    *out = (struct row_planes){0};
    if (columns == 0 || columns > 1u << 24)
        return false;
    if (is_float(type)) {
        out->codes = (uint32_t)((columns + 3) / 4 * (type == TYPE_F32 ? 4 : 2));
        return true;
    }
    const struct format *format = format_of(type);
    const struct tensor_type_info *info = tensor_type_info(type);
    if (!format || columns % info->block_elements)
        return false;
    out->codes = (uint32_t)(columns / 32 * format->code_words);
    out->high = (uint32_t)(columns / 32 * format->high_words);
    out->scales = (uint32_t)scale_words((enum scale_kind)format->scales, columns / 32);
    return true;
}

/* ---- Codes of 32 elements as eight words with a byte each: extracted from the file's blocks, stored in the
 * planes ---- */

/* Extracts some bits of each of 32 bytes. */
static void take_bits(const uint8_t bytes[32], unsigned shift, uint32_t mask, uint32_t codes[8])
{
    memcpy(codes, bytes, 32);
    for (unsigned i = 0; i < 8; i++)
        codes[i] = codes[i] >> shift & mask;
}

static void put_nibbles(const uint32_t codes[8], uint32_t *out)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = codes[i] | codes[4 + i] << 4;
}

static void put_pairs(const uint32_t codes[8], uint32_t *out)
{
    for (unsigned i = 0; i < 2; i++)
        out[i] = codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 | codes[4 * i + 3] << 6;
}

static void put_bits(const uint32_t codes[8], uint32_t *out)
{
    uint32_t word = 0;
    for (unsigned i = 0; i < 8; i++)
        word |= codes[i] << i;
    *out = word;
}

/* Stores 32 bits, one for each element. */
static void put_high_bits(const uint8_t bits[4], uint32_t *out)
{
    uint32_t codes[8];
    for (unsigned i = 0; i < 8; i++) {
        const uint32_t four = bits[i / 2] >> (i % 2 * 4) & 15u;
        codes[i] = four * 0x00204081u & 0x01010101u; /* bit n goes to byte n */
    }
    put_bits(codes, out);
}

/* ---- Blocks of 32 ---- */

/* Stores a half in a row of halves, two per word. */
static void put_half(uint32_t *scales, uint64_t index, uint16_t half)
{
    uint8_t *bytes = (uint8_t *)(scales + index / 2) + index % 2 * sizeof half;
    memcpy(bytes, &half, sizeof half);
}

static uint32_t two_halves(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

static void pack_small(enum tensor_type type, const uint8_t *data, uint64_t index, uint32_t *codes,
    uint32_t *high, uint32_t *scales)
{
    switch (type) {
    case TYPE_Q4_0:
    case TYPE_IQ4_NL: {
        const struct block_q4_0 *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        put_half(scales, index, block->scale);
        break;
    }
    case TYPE_Q4_1: {
        const struct block_q4_1 *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        scales[index] = two_halves(block->scale, block->min);
        break;
    }
    case TYPE_Q5_0: {
        const struct block_q5_0 *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        put_high_bits(block->high, high);
        put_half(scales, index, block->scale);
        break;
    }
    case TYPE_Q5_1: {
        const struct block_q5_1 *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        put_high_bits(block->high, high);
        scales[index] = two_halves(block->scale, block->min);
        break;
    }
    case TYPE_Q8_0: {
        const struct block_q8_0 *block = (const void *)data;
        memcpy(codes, block->codes, sizeof block->codes);
        put_half(scales, index, block->scale);
        break;
    }
    default: {
        const struct block_mxfp4 *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        ((uint8_t *)scales)[index] = block->exponent;
        break;
    }
    }
}

/* ---- Blocks of 256: for each block a word with the outer scales, then the scales of its groups ---- */

static const uint32_t bit = 0x01010101, pair = 0x03030303, nibble = 0x0f0f0f0f; /* masks of four bytes */

static void nibbles_of_k(const uint8_t *nibbles, unsigned group, uint32_t codes[8])
{
    take_bits(nibbles + group / 2 * 32, group % 2 * 4, nibble, codes);
}

static void pairs_of_k(const uint8_t *pairs, unsigned group, uint32_t codes[8])
{
    take_bits(pairs + group / 4 * 32, group % 4 * 2, pair, codes);
}

static void pack_q4_k(const uint8_t groups[12], uint16_t scale, uint16_t min, uint32_t *scales)
{
    uint8_t bytes[16];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = k_group_scale(groups, i);
        bytes[8 + i] = k_group_min(groups, i);
    }
    scales[0] = two_halves(scale, min);
    memcpy(scales + 1, bytes, sizeof bytes);
}

static void pack_large(
    enum tensor_type type, const uint8_t *data, uint32_t *codes, uint32_t *high, uint32_t *scales)
{
    uint32_t taken[8];
    uint8_t bytes[16];
    switch (type) {
    case TYPE_Q2_K: {
        const struct block_q2_k *block = (const void *)data;
        for (unsigned g = 0; g < 8; g++) {
            pairs_of_k(block->pairs, g, taken);
            put_pairs(taken, codes + g * 2);
        }
        scales[0] = two_halves(block->scale, block->min);
        memcpy(scales + 1, block->groups, sizeof block->groups);
        break;
    }
    case TYPE_Q3_K: {
        const struct block_q3_k *block = (const void *)data;
        for (unsigned g = 0; g < 8; g++) {
            pairs_of_k(block->pairs, g, taken);
            put_pairs(taken, codes + g * 2);
            take_bits(block->high, g, bit, taken);
            put_bits(taken, high + g);
        }
        for (unsigned g = 0; g < 16; g++)
            bytes[g] = (uint8_t)q3_k_group_scale(block->groups, g);
        scales[0] = block->scale;
        memcpy(scales + 1, bytes, 16);
        break;
    }
    case TYPE_Q4_K: {
        const struct block_q4_k *block = (const void *)data;
        for (unsigned g = 0; g < 8; g++) {
            nibbles_of_k(block->nibbles, g, taken);
            put_nibbles(taken, codes + g * 4);
        }
        pack_q4_k(block->groups, block->scale, block->min, scales);
        break;
    }
    case TYPE_Q5_K: {
        const struct block_q5_k *block = (const void *)data;
        for (unsigned g = 0; g < 8; g++) {
            nibbles_of_k(block->nibbles, g, taken);
            put_nibbles(taken, codes + g * 4);
            take_bits(block->high, g, bit, taken);
            put_bits(taken, high + g);
        }
        pack_q4_k(block->groups, block->scale, block->min, scales);
        break;
    }
    case TYPE_Q6_K: {
        const struct block_q6_k *block = (const void *)data;
        for (unsigned g = 0; g < 8; g++) {
            take_bits(block->nibbles + g / 4 * 64 + g % 2 * 32, g % 4 / 2 * 4, nibble, taken);
            put_nibbles(taken, codes + g * 4);
            pairs_of_k(block->pairs, g, taken);
            put_pairs(taken, high + g * 2);
        }
        scales[0] = block->scale;
        memcpy(scales + 1, block->groups, sizeof block->groups);
        break;
    }
    default: {
        const struct block_iq4_xs *block = (const void *)data;
        memcpy(codes, block->nibbles, sizeof block->nibbles);
        for (unsigned g = 0; g < 8; g++)
            bytes[g] = (uint8_t)iq4_xs_group_scale(block, g);
        scales[0] = block->scale;
        memcpy(scales + 1, bytes, 8);
        break;
    }
    }
}

void vulkan_format_pack(enum tensor_type type, const uint8_t *blocks, uint64_t columns, uint32_t *codes,
    uint32_t *high, uint32_t *scales)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    if (is_float(type)) {
        memcpy(codes, blocks, columns * info->block_bytes);
        return;
    }
    const struct format *format = format_of(type);
    const uint32_t each = info->block_elements / 32; /* blocks of 32 elements in one block of the file */
    for (uint64_t i = 0; i < columns / info->block_elements; i++, blocks += info->block_bytes) {
        if (each == 1)
            pack_small(type, blocks, i, codes, high, scales);
        else
            pack_large(type, blocks, codes, high, scales);
        codes += (size_t)each * format->code_words;
        high += (size_t)each * format->high_words;
        scales += each == 1 ? 0 : format->scales == SCALES_LEVELS ? 5 : 3;
    }
}

/* ---- The largest possible element ---- */

/* Offsets of a block's scale and minimum, both f16, and the largest factors that they are multiplied by. */
struct scale_limits {
    uint16_t scale_at, minimum_at;
    float code, minimum;
};

static const struct scale_limits *scale_limits_of(enum tensor_type type)
{
#define LIMITS(type, most)                                                  \
    {                                                                       \
        offsetof(struct type, scale), offsetof(struct type, scale), most, 0 \
    }
#define LIMITS_MINIMUM(type, most, least)                                     \
    {                                                                         \
        offsetof(struct type, scale), offsetof(struct type, min), most, least \
    }
    static const struct scale_limits limits[] = {
        [TYPE_Q4_0] = LIMITS(block_q4_0, 8),
        [TYPE_Q4_1] = LIMITS_MINIMUM(block_q4_1, 15, 1),
        [TYPE_Q5_0] = LIMITS(block_q5_0, 16),
        [TYPE_Q5_1] = LIMITS_MINIMUM(block_q5_1, 31, 1),
        [TYPE_Q8_0] = LIMITS(block_q8_0, 128),
        [TYPE_Q2_K] = LIMITS_MINIMUM(block_q2_k, 15 * 3, 15),
        [TYPE_Q3_K] = LIMITS(block_q3_k, 32 * 4),
        [TYPE_Q4_K] = LIMITS_MINIMUM(block_q4_k, 63 * 15, 63),
        [TYPE_Q5_K] = LIMITS_MINIMUM(block_q5_k, 63 * 31, 63),
        [TYPE_Q6_K] = LIMITS(block_q6_k, 128 * 32),
        [TYPE_IQ4_NL] = LIMITS(block_q4_0, 127),
        [TYPE_IQ4_XS] = LIMITS(block_iq4_xs, 32 * 127),
    };
#undef LIMITS
#undef LIMITS_MINIMUM
    return (size_t)type < sizeof limits / sizeof *limits && limits[type].code > 0 ? &limits[type] : NULL;
}

static uint16_t larger_half(uint16_t largest, const uint8_t *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    half &= 0x7fff;
    return half > largest ? half : largest;
}

float vulkan_format_largest(enum tensor_type type, const uint8_t *blocks, uint64_t columns)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const struct scale_limits *limits = scale_limits_of(type);
    const uint8_t *end = blocks + columns / info->block_elements * info->block_bytes;
    uint16_t scale = 0, minimum = 0;
    if (type == TYPE_MXFP4) {
        for (; blocks < end; blocks += info->block_bytes) {
            const uint8_t exponent = ((const struct block_mxfp4 *)(const void *)blocks)->exponent;
            scale = exponent > scale ? exponent : scale;
        }
        return ldexpf(12, scale - 128);
    }
    if (!limits)
        return 0;
    for (; blocks < end; blocks += info->block_bytes) {
        scale = larger_half(scale, blocks + limits->scale_at);
        minimum = larger_half(minimum, blocks + limits->minimum_at);
    }
    if (scale >= 0x7c00 || minimum >= 0x7c00)
        return INFINITY;
    return f16_to_f32(scale) * limits->code + f16_to_f32(minimum) * limits->minimum;
}
