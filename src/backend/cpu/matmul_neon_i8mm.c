/* Matrix products of Armv8.6: SMMLA multiplies two rows of eight bytes by two tokens of eight bytes. */
#include "backend/cpu/bytes_neon.h"
#include "backend/cpu/matmul_smmla.h"

/* ---- One token: the two terms of x are used as two tokens ---- */

INLINE float32x4_t join_terms(int32x4_t rows01, int32x4_t rows23)
{
    int32x4_t high = vuzp1q_s32(rows01, rows23), low = vuzp2q_s32(rows01, rows23);
    return vcvtq_f32_s32(vmlaq_n_s32(low, high, 1 << TERM_BITS));
}

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    (void)f, (void)correction;
    int32x4_t sums[PAIRS] = {new_zeros(), new_zeros(), new_zeros(), new_zeros()};
    UNROLL
    for (unsigned o = 0; o < octets; o++) {
        int8x16_t both = vld1q_s8(x + o * terms * step);
        for (unsigned i = 0; i < PAIRS; i++)
            sums[i] = vmmlaq_s32(sums[i], vreinterpretq_s8_u8(codes[o * PAIRS + i]), both);
    }
    return (vec8){join_terms(sums[0], sums[1]), join_terms(sums[2], sums[3])};
}

#include "backend/cpu/matmul_codes.h"

#define DEFINE_MATVEC(isa, type)                                                         \
    void isa##_matvec_##type(                                                            \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out) \
    {                                                                                    \
        if (x.terms == 1)                                                                \
            neon_matvec_##type(tiles, tile_count, k, x, out);                            \
        else                                                                             \
            matvec_q8(TYPE_##type, 2, tiles, tile_count, k, x, out);                     \
    }

FOR_QUANTISED_TYPES(DEFINE_MATVEC, neon_i8mm)

/* ---- Two or four tokens with packed tiles, unpacked in registers ---- */

/* The products of 32 or 16 elements with the first tokens of a tile of QUAD tokens. */
struct packed_dots {
    int32x4_t high[2][PAIRS], low[2][PAIRS]; /* [token pair][row pair]; `low` is the second term */
};

INLINE void add_codes(struct packed_dots *dots, bytes codes, unsigned p, const int8_t *x,
    const unsigned terms, const unsigned pairs)
{
    UNROLL
    for (unsigned t = 0; t < pairs; t++) {
        const int8_t *pair = x + t * 16;
        dots->high[t][p] = vmmlaq_s32(dots->high[t][p], vreinterpretq_s8_u8(codes), vld1q_s8(pair));
        if (terms == 2)
            dots->low[t][p] =
                vmmlaq_s32(dots->low[t][p], vreinterpretq_s8_u8(codes), vld1q_s8(pair + QUAD * OCTET));
    }
}

/* Part `half` of 32 elements, of one or two `halves`. Vectors of nibbles are multiplied as soon as they are
 * unpacked, so that few registers are in use. */
INLINE struct packed_dots dot_packed(const struct tile_format f, const uint8_t *from, const int8_t *x,
    const unsigned halves, const unsigned half, const unsigned terms, const unsigned pairs)
{
    const size_t octet_bytes = (size_t)terms * QUAD * OCTET;
    struct packed_dots dots;
    for (unsigned p = 0; p < PAIRS; p++) {
        for (unsigned t = 0; t < pairs; t++) {
            dots.high[t][p] = new_zeros();
            if (terms == 2)
                dots.low[t][p] = new_zeros();
        }
    }
    if (halves == 2 || f.codes == CODES_8) {
        const struct codes codes = load_codes(f, from);
        const unsigned first = half * 2 * VECTORS;
        UNROLL
        for (unsigned i = first; i < first + 4 / halves * VECTORS; i++)
            add_codes(&dots, codes.v[i], i % PAIRS, x + i / VECTORS * octet_bytes, terms, pairs);
    } else {
        UNROLL
        for (unsigned i = 0; i < 2 * VECTORS; i++) {
            bytes low, high;
            finish_nibbles(f, from, i, bytes_load(from + i * sizeof(bytes)), &low, &high);
            add_codes(&dots, low, i % PAIRS, x + i / VECTORS * octet_bytes, terms, pairs);
            add_codes(&dots, high, i % PAIRS, x + (i / VECTORS + 2) * octet_bytes, terms, pairs);
        }
    }
    return dots;
}

INLINE void levels_twice(vec8 level, float32x4_t out[PAIRS])
{
    out[0] = vzip1q_f32(level.low, level.low);
    out[1] = vzip2q_f32(level.low, level.low);
    out[2] = vzip1q_f32(level.high, level.high);
    out[3] = vzip2q_f32(level.high, level.high);
}

/* One tile times `pairs` pairs of tokens; the rows of `out` are `stride` floats apart. */
INLINE void multiply_pairs(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct tile_format f = tile_formats[type];
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group;
    float32x4_t sums[2][PAIRS] = {{{0}}};
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        const struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            const size_t g = first + i;
            const uint8_t *codes = block + tile_codes_at(f) + i * tile_code_bytes(f);
            UNROLL
            for (unsigned half = 0; half < halves; half++) {
                const struct packed_dots dots =
                    dot_packed(f, codes, x.values + g * GROUP * QUAD * terms, halves, half, terms, pairs);
                const struct levels group = group_levels(f, block, levels, i * halves + half);
                float32x4_t scales[PAIRS], offsets[PAIRS];
                levels_twice(group.scale, scales);
                levels_twice(group.offset, offsets);
                const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + (g * halves + half) * QUAD;
                UNROLL
                for (unsigned t = 0; t < pairs; t++) {
                    const float32x4_t x_scale = load_pair(x.scales + g * QUAD + t * 2),
                                      x_sum = load_pair(x_sums + t * 2);
                    UNROLL
                    for (unsigned p = 0; p < PAIRS; p++) {
                        const int32x4_t dot = terms == 1
                                                  ? dots.high[t][p]
                                                  : vmlaq_n_s32(dots.low[t][p], dots.high[t][p], TERM_SCALE);
                        sums[t][p] = vfmaq_f32(sums[t][p], vcvtq_f32_s32(dot), vmulq_f32(scales[p], x_scale));
                        if (f.offsets)
                            sums[t][p] = vfmaq_f32(sums[t][p], offsets[p], x_sum);
                    }
                }
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < pairs; t++)
        store_pair(sums[t], stride, out + t * 2 * stride);
}

/* With two terms, four tokens at once need more registers than there are. */
INLINE void multiply_packed(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct q8_tile last_two = q8_tile_from(x, 16, 2, 2);
    multiply_pairs(type, terms, terms == 2 ? 1 : pairs, block, k, x, stride, out);
    if (terms == 2 && pairs == 2)
        multiply_pairs(type, 2, 1, block, k, last_two, stride, out + 2 * stride);
}

#include "backend/cpu/matmul_packed.h"

FOR_QUANTISED_TYPES(DEFINE_MATMUL_PACKED, neon_i8mm)

/* ---- Four tokens ---- */

void neon_i8mm_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
    bool first, size_t stride, float *out)
{
    if (x.terms == 1)
        multiply_any(tile, k, group, offsets, 1, x, first, stride, out);
    else
        neon_i8mm_matmul_q15(tile, k, group, offsets, x, first, stride, out);
}

/* ---- F16 weights ---- */

/* Eight activations as f16_rounded rounds them: fmin and fmax keep a NaN. */
INLINE float16x8_t round_halves(const float *x)
{
    const float32x4_t largest = vdupq_n_f32(65504), smallest = vdupq_n_f32(-65504);
    float32x4_t low = vmaxq_f32(vminq_f32(vld1q_f32(x), largest), smallest);
    float32x4_t high = vmaxq_f32(vminq_f32(vld1q_f32(x + 4), largest), smallest);
    return vcvt_high_f16_f32(vcvt_f16_f32(low), high);
}

/* FMLAL multiplies halves and adds to floats with one rounding, like fma of the converted weights. */
INLINE vec8 add_f16_column(const float16_t *column, float16x8_t x, vec8 sum)
{
    const float16x8_t weights = vld1q_f16(column);
    return (vec8){vfmlalq_low_f16(sum.low, weights, x), vfmlalq_high_f16(sum.high, weights, x)};
}

INLINE void matvec_f16_tiles(
    const unsigned tiles, const float16_t *tile, size_t k, const float *x, float *out)
{
    vec8 sums[4], parts[4];
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        sums[t] = parts[t] = vec8_zeros();
    for (size_t first = 0; first < k; first += 8) {
        const size_t count = k - first < 8 ? k - first : 8;
        float16_t halves[8];
        float last[8] = {0};
        if (count < 8)
            memcpy(last, x + first, count * sizeof *x);
        vst1q_f16(halves, round_halves(count < 8 ? last : x + first));
        for (size_t i = 0; i < count; i++) {
            const float16x8_t xi = vld1q_dup_f16(halves + i);
            UNROLL
            for (unsigned t = 0; t < tiles; t++)
                parts[t] = add_f16_column(tile + (t * k + first + i) * TILE_ROWS, xi, parts[t]);
        }
        const bool whole = first % GROUP == GROUP - 8 || first + 8 >= k;
        UNROLL
        for (unsigned t = 0; t < tiles; t++) {
            if (whole) {
                sums[t] = vec8_add(sums[t], parts[t]);
                parts[t] = vec8_zeros();
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        vec8_store(sums[t], out + t * TILE_ROWS);
}

void neon_i8mm_matvec_F16(const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out)
{
    const float16_t *tile = (const float16_t *)(const void *)tiles;
    for (; tile_count >= 4; tile_count -= 4, tile += 4 * k * TILE_ROWS, out += 4 * TILE_ROWS)
        matvec_f16_tiles(4, tile, k, x, out);
    for (; tile_count; tile_count--, tile += k * TILE_ROWS, out += TILE_ROWS)
        matvec_f16_tiles(1, tile, k, x, out);
}
