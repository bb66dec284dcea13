/* AVX-512 with VNNI. */
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

#define DPBUSD     _mm512_dpbusd_epi32
#define SET1_EPI64 _mm512_set1_epi64
#define XOR        _mm512_xor_si512
#include "backend/cpu/matmul_vnni.h"

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    __m512i sums = codes_sums(codes, !f.offsets, correction, x, step, terms * step, octets, terms);
    sums = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    return _mm256_cvtepi32_ps(_mm512_cvtepi64_epi32(sums));
}

INLINE void matmul_q8_tile(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    const unsigned quads = 8 / halves;
    struct wide_sums sums = wide_load(first, stride, out);
    for (size_t g = 0; g < k / 32; g++) {
        UNROLL
        for (unsigned half = 0; half < halves; half++) {
            const size_t i = g * halves + half;
            const int32_t *corrections =
                halves == 1 ? x.corrections + g * WIDE_TOKENS : x.half_corrections + i * WIDE_TOKENS;
            bytes codes[8];
            UNROLL
            for (unsigned q = 0; q < quads; q++)
                codes[q] = unsigned_codes(bytes_load(tile.values + (i * quads + q) * 64), !offsets);
            const struct wide_levels levels = wide_levels(tile, i, offsets);
            UNROLL
            for (unsigned t = 0; t < WIDE_TOKENS; t++) {
                const __m512i start = offsets ? _mm512_setzero_si512() : _mm512_set1_epi32(corrections[t]);
                __m512i dot = terms == 1 ? start : _mm512_setzero_si512();
                UNROLL
                for (unsigned term = 0; term < terms; term++) {
                    const int8_t *from =
                        x.values + ((g * WIDE_TOKENS + t) * terms + term) * GROUP + half * quads * 4;
                    if (term > 0)
                        dot = _mm512_add_epi32(_mm512_slli_epi32(dot, TERM_BITS), start);
                    UNROLL
                    for (unsigned q = 0; q < quads; q++) {
                        int32_t quad;
                        memcpy(&quad, from + q * 4, sizeof quad);
                        dot = _mm512_dpbusd_epi32(dot, codes[q], _mm512_set1_epi32(quad));
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

/* ---- Two or four tokens with packed tiles, unpacked in registers ---- */

/* For two tokens the sums of 8 rows: [row][token]. */
INLINE __m512i join_tokens(__m512i first, __m512i second)
{
    const __mmask16 odd = 0xAAAA;
    return _mm512_add_epi32(_mm512_mask_shuffle_epi32(first, odd, second, _MM_PERM_CCAA),
        _mm512_mask_shuffle_epi32(_mm512_srli_epi64(first, 32), odd, second, _MM_PERM_DDBB));
}

/* Eight values, one per row, each for two tokens. */
INLINE __m512 both_tokens(vec8 level)
{
    return _mm512_permutexvar_ps(
        _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), _mm512_castps256_ps512(level));
}

/* The values of two tokens, for all rows. */
INLINE __m512 all_rows(const float *pair)
{
    return _mm512_castsi512_ps(_mm512_set1_epi64((long long)load_octet((const int8_t *)pair)));
}

/* One tile times `pairs` pairs of tokens; the rows of `out` are `stride` floats apart. */
INLINE void multiply_packed(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct tile_format f = tile_formats[type];
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group, octets = 4 / halves;
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        prefetch_block(block, tile_block_bytes(f));
        const struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            const size_t g = first + i;
            const struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
            UNROLL
            for (unsigned half = 0; half < halves; half++) {
                const bytes *part = codes.v + half * octets;
                const int8_t *tokens = x.values + g * WIDE_TOKENS * terms * GROUP + half * 16;
                const struct levels group = group_levels(f, block, levels, i * halves + half);
                const __m512 scale = both_tokens(group.scale), offset = both_tokens(group.offset);
                const size_t at = halves == 1 ? g * WIDE_TOKENS : (g * 2 + half) * WIDE_TOKENS;
                const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + at;
                const int32_t *corrections = (halves == 1 ? x.corrections : x.half_corrections) + at;
                UNROLL
                for (unsigned p = 0; p < pairs; p++) {
                    __m512i dots[2];
                    UNROLL
                    for (unsigned t = 0; t < 2; t++) {
                        dots[t] = codes_sums(part, !f.offsets, corrections + p * 2 + t,
                            tokens + (size_t)(p * 2 + t) * terms * GROUP, GROUP, OCTET, octets, terms);
                    }
                    const __m512i dot = join_tokens(dots[0], dots[1]);
                    sums[p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                        _mm512_mul_ps(scale, all_rows(x.scales + g * WIDE_TOKENS + p * 2)), sums[p]);
                    if (f.offsets)
                        sums[p] = _mm512_fmadd_ps(offset, all_rows(x_sums + p * 2), sums[p]);
                }
            }
        }
    }
    UNROLL
    for (unsigned p = 0; p < pairs; p++) {
        const __m512i even = _mm512_castps_si512(sums[p]), odd = _mm512_srli_epi64(even, 32);
        vec8_store(_mm256_castsi256_ps(_mm512_cvtepi64_epi32(even)), out + p * 2 * stride);
        vec8_store(_mm256_castsi256_ps(_mm512_cvtepi64_epi32(odd)), out + (p * 2 + 1) * stride);
    }
}

#include "backend/cpu/matmul_packed.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, avx512)
