/* Matrix products of Armv8.6: SMMLA multiplies two rows of eight bytes by two tokens of eight bytes. */
#include "backend/cpu/bytes_neon.h"
#include "backend/cpu/matmul_smmla.h"

/* ---- One token: the two terms of x are used as two tokens ---- */

INLINE float32x4_t join_terms(int32x4_t rows01, int32x4_t rows23)
{
    int32x4_t high = vuzp1q_s32(rows01, rows23), low = vuzp2q_s32(rows01, rows23);
    return vcvtq_f32_s32(vmlaq_n_s32(low, high, 1 << TERM_BITS));
}

INLINE vec8 codes_dot(
    const bytes *codes, const int8_t *x, size_t step, const unsigned octets, const unsigned terms)
{
    int32x4_t sums[PAIRS] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
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

/* ---- Four tokens ---- */

void neon_i8mm_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
    bool first, float *out)
{
    if (x.terms == 1)
        multiply_any(tile, k, group, offsets, 1, x, first, out);
    else
        neon_i8mm_matmul_q15(tile, k, group, offsets, x, first, out);
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
        sums[t] = parts[t] = vec8_all(0);
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
                parts[t] = vec8_all(0);
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
