/*
 * AVX2 multiplies unsigned by signed bytes into 16-bit sums of two products. Codes below 32 are added up
 * there, after a bias has made them unsigned: `correction` of q8_tile makes up for it. For larger codes the
 * sign of one operand is moved to the other.
 */
#include "backend/cpu/bytes_avx2.h"

#define ISA(name) avx2_##name

/* Signed nibbles stay in the low bits of bytes. */
INLINE struct tile_format low_nibbles(struct tile_format f)
{
    f.codes = f.codes == CODES_4_SIGNED ? CODES_4 : f.codes;
    return f;
}

#define DOT_FORMAT(format) low_nibbles(format)

/* Codes q as unsigned ones, u: q = (u - 2^bias_bits) << unit_bits. */
struct small_codes {
    bool exist;  /* u is below 32 */
    bool biased; /* if not, u = q */
    unsigned bias_bits, unit_bits;
};

INLINE struct small_codes small_codes(struct tile_format f)
{
    switch (f.codes) {
    case CODES_4: /* without offsets, signed nibbles */
        return (struct small_codes){true, !f.offsets, 3, f.offsets ? 0 : 4};
    case CODES_3:
        return (struct small_codes){true, true, 2, 0};
    case CODES_MXFP4:
        return (struct small_codes){true, true, 4, 0};
    case CODES_5:
        return (struct small_codes){true, !f.offsets, 4, 0};
    default: /* also CODES_6_SIGNED, which is not faster in this way */
        return (struct small_codes){.exist = f.offsets};
    }
}

INLINE bytes unsigned_code(struct tile_format f, struct small_codes small, bytes code)
{
    const bytes bias = bytes_all((uint8_t)(1 << small.bias_bits));
    if (!small.biased)
        return code;
    return f.codes == CODES_4 ? _mm256_xor_si256(code, bias) : _mm256_add_epi8(code, bias);
}

/* The products of four rows with one term, without the bias. */
INLINE __m256i products(
    struct tile_format f, const bytes *codes, const int8_t *x, size_t step, const unsigned octets)
{
    const struct small_codes small = small_codes(f);
    __m256i words = _mm256_setzero_si256(), sums = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (unsigned o = 0; o < octets; o++) {
        const __m256i everywhere = _mm256_set1_epi64x((long long)load_octet(x + o * step));
        const bytes code = codes[o * 2];
        if (small.exist) { /* at most 4 * 2 * 31 * 127 */
            words = _mm256_add_epi16(words, _mm256_maddubs_epi16(unsigned_code(f, small, code), everywhere));
        } else { /* at most 2 * 128 * 127: x is at least -127 */
            words = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(everywhere, code));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(words, ones));
        }
    }
    return small.exist ? _mm256_madd_epi16(words, ones) : sums;
}

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    const struct small_codes small = small_codes(f);
    __m256i sums[2];
    UNROLL
    for (unsigned i = 0; i < 2; i++) {
        sums[i] = products(f, codes + i, x, terms * step, octets);
        if (terms == 2) {
            sums[i] = _mm256_add_epi32(_mm256_slli_epi32(sums[i], TERM_BITS),
                products(f, codes + i, x + step, terms * step, octets));
        }
    }
    __m256i rows = _mm256_hadd_epi32(sums[0], sums[1]); /* rows 0 1 4 5 2 3 6 7 */
    if (small.biased) {
        const __m256i excess = _mm256_srai_epi32(_mm256_set1_epi32(*correction), 7 - (int)small.bias_bits);
        rows = _mm256_slli_epi32(_mm256_add_epi32(rows, excess), (int)small.unit_bits);
    }
    return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(rows, 0xd8));
}

#include "backend/cpu/matmul_template.h"

#include "backend/cpu/matmul_packed_avx2.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, avx2)
