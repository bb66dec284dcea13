/* Vectors of bytes for matmul_codes.h, for AVX2 and AVX-VNNI. */
#ifndef CPU_BYTES_AVX2_H
#define CPU_BYTES_AVX2_H

#include "backend/cpu/vec8.h"

typedef __m256i bytes; /* octets of four rows */

enum { VECTORS = 2, PREFETCH_AHEAD = 2048 };

INLINE bytes bytes_load(const void *from)
{
    return _mm256_loadu_si256(from);
}

INLINE void bytes_store(bytes v, void *to)
{
    _mm256_storeu_si256(to, v);
}

INLINE bytes bytes_all(uint8_t x)
{
    return _mm256_set1_epi8((char)x);
}

INLINE bytes bytes_field(bytes v, int shift, uint8_t mask)
{
    bytes shifted = shift >= 0 ? _mm256_srli_epi16(v, shift) : _mm256_slli_epi16(v, -shift);
    return shifted & bytes_all(mask);
}

INLINE bytes bytes_look_up(const int8_t table[16], bytes v)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_16_bytes((const uint8_t *)table)), v);
}

INLINE bytes bytes_bit(const uint8_t *half_plane, unsigned index, unsigned octet)
{
    bytes bits = _mm256_broadcastsi128_si256(load_16_bytes(half_plane + index * 16));
    bytes wanted = _mm256_set_m128i(_mm_set1_epi8((char)(16 << octet)), _mm_set1_epi8((char)(1 << octet)));
    return _mm256_cmpeq_epi8(bits & wanted, wanted);
}

#endif
