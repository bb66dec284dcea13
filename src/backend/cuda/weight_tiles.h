/*
 * Memory layout of a weight tile for each type: C packs it, CUDA reads it. A tile is 8 rows by 128 columns; a
 * lane's share is 32 neighbouring elements of one row. Codes come first, in planes: [lane][16 bytes] as often
 * as needed, then [lane][8], then [lane][4]; then the scales that a row's four lanes share, [row], and each
 * lane's own, [lane].
 *
 *   nibbles (16 bytes): byte i has element i in its lower half and element i + 16 in the upper
 *   pairs (8 bytes):    byte i has elements i, i + 8, i + 16, i + 24, lowest bits first
 *   bits (4 bytes):     bit 8 * (e % 4) + e / 4 belongs to element e
 *   bytes, halves, floats: in order
 *
 * Signed codes are two's complement. Codes of four and six bits (a nibble above a pair) are used from the top
 * of a byte, as 16 or 4 times their value, and the scale is multiplied by `unit`; a separate top bit that is
 * set sets the bits `top` of the byte. K quants have f16 scales (and minimums) a row, and a byte or two a
 * lane: groups of 16 one for each half, groups of 32 with offsets a scale and a minimum.
 */
#ifndef CUDA_WEIGHT_TILES_H
#define CUDA_WEIGHT_TILES_H

/* X(type, 16-byte planes, 8-byte planes, 4-byte planes, row scale bytes, lane scale bytes, group, offsets,
 * top, unit) */
#define CUDA_TILE_FORMATS(X)                  \
    X(F32, 8, 0, 0, 0, 0, 0, 0, 0, 1.0f)      \
    X(F16, 4, 0, 0, 0, 0, 0, 0, 0, 1.0f)      \
    X(BF16, 4, 0, 0, 0, 0, 0, 0, 0, 1.0f)     \
    X(Q4_0, 1, 0, 0, 0, 2, 32, 0, 0, 0.0625f) \
    X(Q4_1, 1, 0, 0, 0, 4, 32, 1, 0, 1.0f)    \
    X(Q5_0, 1, 0, 1, 0, 2, 32, 0, 0xF0, 1.0f) \
    X(Q5_1, 1, 0, 1, 0, 4, 32, 1, 0x10, 1.0f) \
    X(Q8_0, 2, 0, 0, 0, 2, 32, 0, 0, 1.0f)    \
    X(IQ4_NL, 1, 0, 0, 0, 2, 32, 0, 0, 1.0f)  \
    X(MXFP4, 1, 0, 0, 0, 1, 32, 0, 0, 1.0f)   \
    X(Q2_K, 0, 1, 0, 4, 2, 16, 1, 0, 1.0f)    \
    X(Q3_K, 0, 1, 1, 2, 2, 16, 0, 0xFC, 1.0f) \
    X(Q4_K, 1, 0, 0, 4, 2, 32, 1, 0, 1.0f)    \
    X(Q5_K, 1, 0, 1, 4, 2, 32, 1, 0x10, 1.0f) \
    X(Q6_K, 1, 1, 0, 2, 2, 16, 0, 0, 0.25f)   \
    X(IQ4_XS, 1, 0, 0, 2, 1, 32, 0, 0, 1.0f)

#endif
