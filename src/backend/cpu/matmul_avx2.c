/* AVX2 multiplies unsigned by signed bytes into pairs of 16-bit sums: the sign of one operand is moved to the
 * other. */
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

/* No sum of two products overflows 16 bits: x is at least -127, so the largest is 2 * 128 * 127. */
INLINE vec8 codes_dot(
    const bytes *codes, const int8_t *x, size_t step, const unsigned octets, const unsigned terms)
{
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    UNROLL
    for (unsigned term = 0; term < terms; term++) {
        for (unsigned i = 0; term > 0 && i < 2; i++)
            sums[i] = _mm256_slli_epi32(sums[i], TERM_BITS);
        UNROLL
        for (unsigned o = 0; o < octets; o++) {
            __m256i everywhere = _mm256_set1_epi64x((long long)load_octet(x + (o * terms + term) * step));
            for (unsigned i = 0; i < 2; i++) {
                __m256i code = codes[o * 2 + i];
                __m256i words =
                    _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(everywhere, code));
                sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
            }
        }
    }
    __m256i rows = _mm256_hadd_epi32(sums[0], sums[1]); /* rows 0 1 4 5 2 3 6 7 */
    return _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(rows, 0xd8));
}

#include "backend/cpu/matmul_template.h"

/* ---- Two or four tokens with packed tiles, unpacked in registers ---- */

/* One tile times `pairs` pairs of tokens; the rows of `out` are `stride` floats apart. */
INLINE void multiply_packed(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct tile_format f = tile_formats[type];
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
                UNROLL
                for (unsigned t = 0; t < pairs * 2; t++) {
                    const vec8 dot = codes_dot(codes.v + half * 2 * VECTORS,
                        x.values + (part * octets * terms * QUAD + t) * OCTET, QUAD * OCTET, octets, terms);
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
