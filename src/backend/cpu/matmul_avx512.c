/* VNNI: VPDPBUSD adds four products of an unsigned and a signed byte to each of sixteen sums. */
#include "backend/cpu/matmul_wide.h"

#define ISA(name) avx512_##name

typedef __m512i bytes; /* octets of eight rows: a plane */

enum { VECTORS = 1, PREFETCH_AHEAD = 2048 };

INLINE bytes bytes_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

INLINE void bytes_store(bytes v, void *to)
{
    _mm256_storeu_si256(to, _mm512_cvtepi64_epi32(v));
    _mm256_storeu_si256((__m256i *)to + 2, _mm512_cvtepi64_epi32(_mm512_srli_epi64(v, 32)));
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

/* x is copied with the bias of codes_dot added, so that the loop only loads and multiplies. */
INLINE void matmul_q8_tile(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    const unsigned quads = 8 / halves;
    struct wide_sums sums = wide_load(first, stride, out);
    for (size_t g = 0; g < k / 32; g++) {
        int8_t biased[WIDE_TOKENS][2][GROUP] __attribute__((aligned(64)));
        UNROLL
        for (unsigned i = 0; i < WIDE_TOKENS / 2 * terms; i++)
            _mm512_store_si512((int8_t *)biased + i * 64,
                bytes_load(x.values + (g * WIDE_TOKENS / 2 * terms + i) * 64) ^ bytes_all(0x80));
        UNROLL
        for (unsigned half = 0; half < halves; half++) {
            const size_t i = g * halves + half;
            bytes codes[8];
            __m512i excess = _mm512_setzero_si512();
            UNROLL
            for (unsigned q = 0; q < quads; q++) {
                codes[q] = bytes_load(tile.values + (i * quads + q) * 64);
                excess = _mm512_dpbusd_epi32(excess, bytes_all(0x80), codes[q]);
            }
            const struct wide_levels levels = wide_levels(tile, i, offsets);
            UNROLL
            for (unsigned t = 0; t < WIDE_TOKENS; t++) {
                __m512i dot = _mm512_setzero_si512();
                UNROLL
                for (unsigned term = 0; term < terms; term++) {
                    dot = _mm512_sub_epi32(_mm512_slli_epi32(dot, TERM_BITS), excess);
                    UNROLL
                    for (unsigned q = 0; q < quads; q++) {
                        int32_t quad;
                        memcpy(&quad, (int8_t *)biased + (t * terms + term) * GROUP + (half * quads + q) * 4,
                            sizeof quad);
                        dot = _mm512_dpbusd_epi32(dot, _mm512_set1_epi32(quad), codes[q]);
                    }
                }
                wide_add(&sums, t, dot, levels, x, g, halves, half, offsets);
            }
        }
    }
    wide_store(sums, stride, out);
}

#define WIDE_TILES
#include "backend/cpu/matmul_template.h"
