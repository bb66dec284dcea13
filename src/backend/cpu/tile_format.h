/*
 * The layout of a tile of quantised weights. Eight rows are divided into blocks of 32 or 256 elements; a
 * block is a header with the scales of the eight rows, then the codes of its groups of 32 elements:
 *
 *   8 scales, one per row: f16, or for MXFP4 an exponent byte
 *   8 minimums (f16), for formats with offsets
 *   blocks of 256 only, the second level: for each group 8 scale bytes; then for each group 8 minimum bytes
 *       (Q2_K: one byte holds both, the scale in its lower half)
 *   for each 32 elements the codes, in planes
 *
 * A *plane* is 64 bytes, [row][8]: an octet, 8 adjacent elements of one row, stays together, so that 16, 32
 * or 64 bytes of a plane are 2, 4 or 8 rows. The 32 elements of a row are octets 0..3.
 *
 *   bytes:   4 planes, plane o is octet o
 *   nibbles: 2 planes, plane j has octet j in the lower half of its bytes and octet j + 2 in the upper
 *   pairs:   1 plane, octet o at bits 2o and 2o + 1
 *   bits:    half a plane: 16 bytes for rows 0, 1 (octet o at bit o) and 2, 3 (at bit o + 4), then 16 for
 *            rows 4, 5 and 6, 7
 *
 * Signed codes are two's complement. Signed codes of four and six bits (a nibble with a pair below it) are
 * kept at the top of a byte, where they need no sign extension: the code is then 16 or 4 times its value, and
 * the scale is multiplied by `unit` to compensate. Codes of three and five bits have their top bit in a
 * separate plane; a set top bit ORs `top` into the byte.
 */
#ifndef CPU_TILE_FORMAT_H
#define CPU_TILE_FORMAT_H

#include "backend/cpu/kernels.h"
#include "quant/block_parts.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

enum tile_codes {
    CODES_NONE,
    CODES_8,        /* bytes */
    CODES_4_SIGNED, /* nibbles */
    CODES_4,        /* nibbles */
    CODES_IQ4,      /* nibbles, an index into iq4_values */
    CODES_MXFP4,    /* nibbles, an index into mxfp4_values */
    CODES_5,        /* nibbles, bits */
    CODES_6_SIGNED, /* nibbles, pairs */
    CODES_2,        /* pairs */
    CODES_3,        /* pairs, bits */
};

enum tile_levels {
    LEVELS_ONE,     /* blocks of 32; all others have blocks of 256 */
    LEVELS_SIGNED,  /* int8 scales */
    LEVELS_BYTES,   /* uint8 scales and minimums */
    LEVELS_NIBBLES, /* both in one byte */
};

struct tile_format {
    enum tile_codes codes;
    enum tile_levels levels;
    unsigned group; /* elements that share a scale */
    bool offsets;   /* codes are not negative then */
    bool exponent_scale;
    uint8_t top;
    float unit;
};

static const struct tile_format tile_formats[TYPE_LIMIT] = {
    [TYPE_Q4_0] = {.codes = CODES_4_SIGNED, .group = 32, .unit = 0x1p-4f},
    [TYPE_Q4_1] = {.codes = CODES_4, .group = 32, .offsets = true, .unit = 1},
    [TYPE_Q5_0] = {.codes = CODES_5, .group = 32, .top = 0xF0, .unit = 1},
    [TYPE_Q5_1] = {.codes = CODES_5, .group = 32, .top = 0x10, .offsets = true, .unit = 1},
    [TYPE_Q8_0] = {.codes = CODES_8, .group = 32, .unit = 1},
    [TYPE_Q2_K] = {.codes = CODES_2, .levels = LEVELS_NIBBLES, .group = 16, .offsets = true, .unit = 1},
    [TYPE_Q3_K] = {.codes = CODES_3, .levels = LEVELS_SIGNED, .group = 16, .top = 0xFC, .unit = 1},
    [TYPE_Q4_K] = {.codes = CODES_4, .levels = LEVELS_BYTES, .group = 32, .offsets = true, .unit = 1},
    [TYPE_Q5_K] =
        {.codes = CODES_5, .levels = LEVELS_BYTES, .group = 32, .top = 0x10, .offsets = true, .unit = 1},
    [TYPE_Q6_K] = {.codes = CODES_6_SIGNED, .levels = LEVELS_SIGNED, .group = 16, .unit = 0x1p-2f},
    [TYPE_IQ4_NL] = {.codes = CODES_IQ4, .group = 32, .unit = 1},
    [TYPE_IQ4_XS] = {.codes = CODES_IQ4, .levels = LEVELS_SIGNED, .group = 32, .unit = 1},
    [TYPE_MXFP4] = {.codes = CODES_MXFP4, .group = 32, .exponent_scale = true, .unit = 1},
};

enum { PLANE = 64, HALF_PLANE = 32 };

INLINE size_t tile_block_elements(struct tile_format f)
{
    return f.levels == LEVELS_ONE ? 32 : 256;
}

/* Bytes of the codes of 32 elements of 8 rows. */
INLINE size_t tile_code_bytes(struct tile_format f)
{
    switch (f.codes) {
    case CODES_8:
        return 4 * PLANE;
    case CODES_5:
        return 2 * PLANE + HALF_PLANE;
    case CODES_6_SIGNED:
        return 3 * PLANE;
    case CODES_2:
        return PLANE;
    case CODES_3:
        return PLANE + HALF_PLANE;
    default:
        return 2 * PLANE;
    }
}

/* Offsets of the parts of a block. */
INLINE size_t tile_minimums_at(struct tile_format f)
{
    return f.exponent_scale ? 8 : 16;
}

INLINE size_t tile_levels_at(struct tile_format f)
{
    return tile_minimums_at(f) + (f.offsets ? 16 : 0);
}

INLINE size_t tile_codes_at(struct tile_format f)
{
    size_t groups = f.levels == LEVELS_ONE ? 0 : 256 / f.group;
    return tile_levels_at(f) + groups * (f.levels == LEVELS_BYTES ? 16 : 8);
}

INLINE size_t tile_block_bytes(struct tile_format f)
{
    return tile_codes_at(f) + tile_block_elements(f) / 32 * tile_code_bytes(f);
}

#endif
