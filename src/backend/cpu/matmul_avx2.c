/*
 * AVX2 multiplies unsigned by signed bytes into 16-bit sums of two products. Codes below 32 are added up
 * there, after a bias has made them unsigned: `correction` of q8_tile makes up for it. For larger codes the
 * sign of one operand is moved to the other.
 */
#include "backend/cpu/vec8.h"

#define ISA(name) avx2_##name

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

/* ---- Two or four tokens with packed tiles, unpacked in registers ---- */

/* One tile times `pairs` pairs of tokens; the rows of `out` are `stride` floats apart. */
INLINE void multiply_packed(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct tile_format f = DOT_FORMAT(tile_formats[type]);
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group, octets = 4 / halves;
    vec8 sums[QUAD];
    UNROLL
    for (unsigned t = 0; t < pairs * 2; t++)
        sums[t] = vec8_all(0);
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        prefetch_block(block, tile_block_bytes(f));
        const struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            const size_t g = first + i;
            const struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
            UNROLL
            for (unsigned half = 0; half < halves; half++) {
                const size_t part = g * halves + half; /* of the row */
                const struct levels group = group_levels(f, block, levels, i * halves + half);
                const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + part * QUAD;
                const int32_t *corrections = (halves == 1 ? x.corrections : x.half_corrections) + part * QUAD;
                UNROLL
                for (unsigned t = 0; t < pairs * 2; t++) {
                    const vec8 dot = codes_dot(f, codes.v + half * 2 * VECTORS,
                        x.values + (part * octets * terms * QUAD + t) * OCTET, corrections + t, QUAD * OCTET,
                        octets, terms);
                    sums[t] = add_group(sums[t], dot, group, x.scales[g * QUAD + t], f.offsets, x_sums + t);
                }
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < pairs * 2; t++)
        vec8_store(sums[t], out + t * stride);
}

#include "backend/cpu/matmul_packed.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, avx2)
