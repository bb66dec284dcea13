/* AVX-VNNI: VPDPBUSD on vectors of 256 bits, for processors without AVX-512. */
#include "backend/cpu/bytes_avx2.h"

#define ISA(name) avx_vnni_##name

#define DPBUSD     _mm256_dpbusd_avx_epi32
#define SET1_EPI64 _mm256_set1_epi64x
#define XOR        _mm256_xor_si256
#include "backend/cpu/matmul_vnni.h"

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    const __m256i low = codes_sums(codes, !f.offsets, correction, x, step, terms * step, octets, terms),
                  high = codes_sums(codes + 1, !f.offsets, correction, x, step, terms * step, octets, terms);
    const __m256i rows = _mm256_hadd_epi32(low, high); /* 0 1 4 5 2 3 6 7 */
    return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(rows, 0xd8));
}

#include "backend/cpu/matmul_template.h"

#include "backend/cpu/matmul_packed_avx2.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, avx_vnni)
