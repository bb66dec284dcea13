/* Thirty-two four-bit codes in sixteen bytes: byte i has code i in its lower half and code i + 16 in the
 * upper. */
#ifndef QUANT_NIBBLES_H
#define QUANT_NIBBLES_H

#include <stdint.h>

static inline void unpack_nibbles(const uint8_t nibbles[16], uint8_t codes[32])
{
    for (int i = 0; i < 16; i++) {
        codes[i] = nibbles[i] & 15;
        codes[i + 16] = nibbles[i] >> 4;
    }
}

/* The lower four bits of wider codes. */
static inline void pack_nibbles(const uint8_t codes[32], uint8_t nibbles[16])
{
    for (int i = 0; i < 16; i++)
        nibbles[i] = (uint8_t)((codes[i] & 15) | codes[i + 16] << 4);
}

/* Nonlinear codes. */
static inline void dequantize_nibbles(
    float scale, const int8_t values[16], const uint8_t nibbles[16], float out[32])
{
    uint8_t codes[32];
    unpack_nibbles(nibbles, codes);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)values[codes[i]];
}

#endif
