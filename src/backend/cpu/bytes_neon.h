/* Vectors of bytes for matmul_codes.h, for both NEON instruction sets. */
#ifndef CPU_BYTES_NEON_H
#define CPU_BYTES_NEON_H

#include "backend/cpu/vec8.h"

typedef uint8x16_t bytes; /* 8 bytes of each of two rows */

enum { VECTORS = 4, PREFETCH_AHEAD = 0 };

INLINE bytes bytes_load(const void *from)
{
    return vld1q_u8(from);
}

INLINE void bytes_store(bytes v, void *to)
{
    vst1q_u8(to, v);
}

INLINE bytes bytes_all(uint8_t x)
{
    return vdupq_n_u8(x);
}

INLINE bytes bytes_field(bytes v, int shift, uint8_t mask)
{
    uint8_t left = shift >= 0 ? (uint8_t)(0xFF >> shift) : (uint8_t)(0xFF << -shift);
    v = shift >= 0 ? v >> bytes_all((uint8_t)shift) : v << bytes_all((uint8_t)-shift);
    return (left & ~mask) == 0 ? v : v & bytes_all(mask);
}

INLINE bytes bytes_look_up(const int8_t table[16], bytes v)
{
    return vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table)), v);
}

INLINE bytes bytes_bit(const uint8_t *half_plane, unsigned index, unsigned octet)
{
    return vtstq_u8(
        bytes_load(half_plane + index / 2 * 16), bytes_all((uint8_t)(1 << (octet + index % 2 * 4))));
}

#endif
