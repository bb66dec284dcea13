/*
 * The memory layout of the block formats of GGUF files: little-endian, no padding. A block is 32 or 256
 * neighbouring elements of one row. `f16` marks the bits of a half float (half.h). Blocks of 32: elements i
 * and i + 16 share byte i of `nibbles`; element i is in the lower half. Blocks of 256 are divided into groups
 * of 16 or 32 elements; each group has a small integer scale (and minimum), and the block has one f16 by
 * which these are multiplied.
 */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "base/tensor_type.h"

#include <assert.h>

enum { BLOCK_SMALL = 32, BLOCK_LARGE = 256 };

/* ---- Blocks of 32 ---- */

/* value = scale * (code - 8), code 0..15 */
struct block_q4_0 {
    uint16_t scale;      /* f16 */
    uint8_t nibbles[16]; /* [element % 16] */
};

/* value = scale * code + min, code 0..15 */
struct block_q4_1 {
    uint16_t scale, min; /* f16 */
    uint8_t nibbles[16];
};

/* value = scale * (code - 16), code 0..31; bit i of the 32 bits in `high` is the top bit of code i */
struct block_q5_0 {
    uint16_t scale;  /* f16 */
    uint8_t high[4]; /* [element / 8], bit element % 8 */
    uint8_t nibbles[16];
};

/* value = scale * code + min, code 0..31 */
struct block_q5_1 {
    uint16_t scale, min; /* f16 */
    uint8_t high[4];
    uint8_t nibbles[16];
};

/* value = scale * code; this quantiser never writes -128, but files may contain it */
struct block_q8_0 {
    uint16_t scale; /* f16 */
    int8_t codes[32];
};

/* value = scale * iq4_values[code] */
struct block_iq4_nl {
    uint16_t scale; /* f16 */
    uint8_t nibbles[16];
};

/* value = 2^(exponent - 128) * mxfp4_values[code]; exponents 0 and 1 are denormal and stay powers of two */
struct block_mxfp4 {
    uint8_t exponent;
    uint8_t nibbles[16];
};

/* ---- Blocks of 256 ---- */

/*
 * Two, three and six bit codes lie in two halves of 128 elements: element e of a half is in byte e % 32, and
 * e / 32 (0..3) selects two bits of it, lowest first.
 */

/* value = scale * group scale * code - min * group min; 16 groups of 16, code 0..3 */
struct block_q2_k {
    uint8_t groups[16];  /* [group]: scale in the lower half, min in the upper */
    uint8_t pairs[64];   /* [half][element % 32] */
    uint16_t scale, min; /* f16 */
};

/* value = scale * (group scale - 32) * (code - 4); 16 groups of 16, code 0..7 */
struct block_q3_k {
    uint8_t high[32];   /* [element % 32], bit element / 32: the top bit of the code */
    uint8_t pairs[64];  /* [half][element % 32]: its lower bits */
    uint8_t groups[12]; /* six bits each, see q3_k_group_scale */
    uint16_t scale;     /* f16 */
};

/* value = scale * group scale * code - min * group min; 8 groups of 32, code 0..15 */
struct block_q4_k {
    uint16_t scale, min; /* f16 */
    uint8_t groups[12];  /* six bits for each scale and min, see k_group_scale */
    /* [element / 64][element % 32]: even groups in the lower half, odd ones in the upper. */
    uint8_t nibbles[128];
};

/* as Q4_K, with code 0..31 */
struct block_q5_k {
    uint16_t scale, min; /* f16 */
    uint8_t groups[12];
    uint8_t high[32]; /* [element % 32], bit element / 32: the top bit of the code */
    uint8_t nibbles[128];
};

/* value = scale * group scale * (code - 32); 16 groups of 16, code 0..63 */
struct block_q6_k {
    /* [half][element % 64]: the first 64 elements of a half in the lower halves of its bytes, then the upper.
     */
    uint8_t nibbles[128];
    uint8_t pairs[64]; /* [half][element % 32]: the upper two bits */
    int8_t groups[16]; /* [group] */
    uint16_t scale;    /* f16 */
};

/* value = scale * (group scale - 32) * iq4_values[code]; 8 groups of 32 */
struct block_iq4_xs {
    uint16_t scale;        /* f16 */
    uint16_t groups_high;  /* upper two bits of each group's scale, group 0 lowest */
    uint8_t groups_low[4]; /* [group / 2]: lower four bits, even groups in the lower half */
    uint8_t nibbles[128];  /* [group][element % 16], as in a block of 32 */
};

static_assert(sizeof(struct block_q4_0) == 18, "Q4_0");
static_assert(sizeof(struct block_q4_1) == 20, "Q4_1");
static_assert(sizeof(struct block_q5_0) == 22, "Q5_0");
static_assert(sizeof(struct block_q5_1) == 24, "Q5_1");
static_assert(sizeof(struct block_q8_0) == 34, "Q8_0");
static_assert(sizeof(struct block_iq4_nl) == 18, "IQ4_NL");
static_assert(sizeof(struct block_mxfp4) == 17, "MXFP4");
static_assert(sizeof(struct block_q2_k) == 84, "Q2_K");
static_assert(sizeof(struct block_q3_k) == 110, "Q3_K");
static_assert(sizeof(struct block_q4_k) == 144, "Q4_K");
static_assert(sizeof(struct block_q5_k) == 176, "Q5_K");
static_assert(sizeof(struct block_q6_k) == 210, "Q6_K");
static_assert(sizeof(struct block_iq4_xs) == 136, "IQ4_XS");

/* ---- Small integers that are spread over bytes ---- */

/*
 * Q4_K and Q5_K: groups 0..3 have their scale in the lower six bits of bytes 0..3 and their min in the lower
 * six bits of bytes 4..7. Groups 4..7 have the lower four bits of both in bytes 8..11 and the upper two on
 * top of bytes 0..7.
 */
static inline uint8_t k_group_scale(const uint8_t groups[12], unsigned group)
{
    if (group < 4)
        return groups[group] & 63;
    return (uint8_t)((groups[group + 4] & 15) | (groups[group - 4] >> 6) << 4);
}

static inline uint8_t k_group_min(const uint8_t groups[12], unsigned group)
{
    if (group < 4)
        return groups[group + 4] & 63;
    /* cppcheck-suppress arrayIndexOutOfBoundsCond; it takes the end of a loop for a group */
    return (uint8_t)(groups[group + 4] >> 4 | (groups[group] >> 6) << 4);
}

/*
 * Q3_K: the lower four bits of groups 0..7 and 8..15 are the halves of bytes 0..7; the upper two of group g
 * are in byte 8 + g % 4, at bit 2 * (g / 4).
 */
static inline int q3_k_group_scale(const uint8_t groups[12], unsigned group)
{
    int low = groups[group % 8] >> (group / 8 * 4) & 15, high = groups[8 + group % 4] >> (group / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

static inline int iq4_xs_group_scale(const struct block_iq4_xs *block, unsigned group)
{
    int low = block->groups_low[group / 2] >> (group % 2 * 4) & 15,
        high = block->groups_high >> (group * 2) & 3;
    return (low | high << 4) - 32;
}

/* ---- Nonlinear codes ---- */

static const int8_t iq4_values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Twice the values of a four-bit float with two exponent bits and one mantissa bit. */
static const int8_t mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif
