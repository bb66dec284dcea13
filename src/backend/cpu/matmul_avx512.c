/* VNNI: VPDPBUSD adds four products of an unsigned and a signed byte to each of sixteen sums. */
#include "backend/cpu/vec8.h"

#define ISA(name) avx512_##name

typedef __m512i bytes; /* octets of eight rows: a plane */

enum { VECTORS = 1, PREFETCH_AHEAD = 2048 };

INLINE bytes bytes_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

INLINE void bytes_store(bytes v, void *to)
{
    _mm512_storeu_si512(to, v);
}

INLINE bytes bytes_all(uint8_t x)
{
    return _mm512_set1_epi8((char)x);
}

typedef uint16_t words __attribute__((vector_size(64)));

INLINE bytes bytes_field(bytes v, int shift, uint8_t mask)
{
    bytes shifted = shift >= 0 ? (bytes)((words)v >> shift) : (bytes)((words)v << -shift);
    return shifted & bytes_all(mask);
}

INLINE bytes bytes_look_up(const int8_t table[16], bytes v)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_16_bytes((const uint8_t *)table)), v);
}

INLINE bytes bytes_bit(const uint8_t *half_plane, unsigned index, unsigned octet)
{
    (void)index;
    __m512i bits = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0),
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)half_plane)));
    __m512i wanted =
        _mm512_mask_blend_epi64(0xcc, bytes_all((uint8_t)(1 << octet)), bytes_all((uint8_t)(16 << octet)));
    return _mm512_movm_epi8(_mm512_test_epi8_mask(bits, wanted));
}

/* x + 128 is unsigned; the excess, 128 times the sum of the codes, is the same for every x. */
INLINE vec8 codes_dot(
    const bytes *codes, const int8_t *x, size_t step, const unsigned octets, const unsigned terms)
{
    const bytes bias = bytes_all(0x80);
    __m512i added = _mm512_setzero_si512();
    for (unsigned o = 0; o < octets; o++)
        added = _mm512_dpbusd_epi32(added, bias, codes[o]);
    __m512i sums = _mm512_setzero_si512();
    UNROLL
    for (unsigned term = 0; term < terms; term++) {
        sums = _mm512_sub_epi32(_mm512_slli_epi32(sums, TERM_BITS), added);
        UNROLL
        for (unsigned o = 0; o < octets; o++) {
            bytes everywhere = _mm512_set1_epi64((long long)load_octet(x + (o * terms + term) * step));
            sums = _mm512_dpbusd_epi32(sums, everywhere ^ bias, codes[o]);
        }
    }
    sums = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    return _mm256_cvtepi32_ps(_mm512_cvtepi64_epi32(sums));
}

#include "backend/cpu/matmul_template.h"
