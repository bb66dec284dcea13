/*
 * AVX-VNNI, for processors without AVX-512: VPDPBUSD adds four products of an unsigned and a signed byte to
 * each of eight sums. As in matmul_avx512.c, 128 is added to signed codes, and the sum starts with the
 * correction of q8_tile.
 */
#include "backend/cpu/bytes_avx2.h"

#define ISA(name) avx_vnni_##name

/* For each of four rows two sums, which are not added yet. */
INLINE __m256i codes_sums(const bytes *codes, const bool are_signed, const int32_t *correction,
    const int8_t *x, size_t step, const unsigned octets, const unsigned terms)
{
    const __m256i start = are_signed ? _mm256_set1_epi64x((uint32_t)*correction) : _mm256_setzero_si256();
    __m256i sums = terms == 1 ? start : _mm256_setzero_si256();
    UNROLL
    for (unsigned term = 0; term < terms; term++) {
        if (term > 0)
            sums = _mm256_add_epi32(_mm256_slli_epi32(sums, TERM_BITS), start);
        UNROLL
        for (unsigned o = 0; o < octets; o++) {
            const bytes code = are_signed ? _mm256_xor_si256(codes[o * 2], bytes_all(0x80)) : codes[o * 2];
            sums = _mm256_dpbusd_avx_epi32(
                sums, code, _mm256_set1_epi64x((long long)load_octet(x + (o * terms + term) * step)));
        }
    }
    return sums;
}

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    const __m256i low = codes_sums(codes, !f.offsets, correction, x, step, octets, terms),
                  high = codes_sums(codes + 1, !f.offsets, correction, x, step, octets, terms);
    const __m256i rows = _mm256_hadd_epi32(low, high); /* 0 1 4 5 2 3 6 7 */
    return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(rows, 0xd8));
}

#include "backend/cpu/matmul_template.h"

#include "backend/cpu/matmul_packed_avx2.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, avx_vnni)
