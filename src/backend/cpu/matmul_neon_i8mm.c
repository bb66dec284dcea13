/* With the matrix products of Armv8.6: SMMLA multiplies two rows of eight bytes by two tokens of eight bytes.
 */
#include "backend/cpu/matmul.h"
#include "backend/cpu/vec8.h"

#include <arm_neon.h>

enum { PAIRS = 4 }; /* of rows */

/* The tile's result as SMMLA makes it: for a pair of rows and a pair of tokens, [row][token]. */
struct squares {
    float32x4_t v[2][PAIRS]; /* [token pair][row pair] */
};

INLINE struct squares load_squares(const float *out)
{
    struct squares squares;
    for (unsigned t = 0; t < 2; t++) {
        for (unsigned p = 0; p < PAIRS; p++) {
            const float *from = out + t * 2 * TILE_ROWS + p * 2;
            squares.v[t][p] = vcombine_f32(vld1_f32(from), vld1_f32(from + TILE_ROWS));
            squares.v[t][p] = vzip1q_f32(squares.v[t][p], vextq_f32(squares.v[t][p], squares.v[t][p], 2));
        }
    }
    return squares;
}

INLINE void store_squares(struct squares squares, float *out)
{
    for (unsigned t = 0; t < 2; t++) {
        for (unsigned p = 0; p < PAIRS; p++) {
            float *to = out + t * 2 * TILE_ROWS + p * 2;
            vst1_f32(to, vget_low_f32(vuzp1q_f32(squares.v[t][p], squares.v[t][p])));
            vst1_f32(to + TILE_ROWS, vget_low_f32(vuzp2q_f32(squares.v[t][p], squares.v[t][p])));
        }
    }
}

/* Eight values, one a row, each twice: for the two tokens of a square. */
INLINE void load_twice(const float *from, float32x4_t out[PAIRS])
{
    for (unsigned half = 0; half < 2; half++) {
        float32x4_t rows = vld1q_f32(from + half * 4);
        out[half * 2] = vzip1q_f32(rows, rows);
        out[half * 2 + 1] = vzip2q_f32(rows, rows);
    }
}

/* The values of two tokens, for each of two rows. */
INLINE float32x4_t load_pair(const float *from)
{
    float32x2_t pair = vld1_f32(from);
    return vcombine_f32(pair, pair);
}

INLINE void multiply(struct weight_panel tile, size_t k, const unsigned halves, const bool offsets,
    struct q8_panel x, bool first, float *out)
{
    const unsigned octets = 4 / halves;
    struct squares sums = first ? (struct squares){{{{0}}}} : load_squares(out);
    for (size_t i = 0; i < k / 32 * halves; i++) {
        int32x4_t dots[2][PAIRS];
        for (unsigned p = 0; p < PAIRS; p++)
            dots[0][p] = dots[1][p] = vdupq_n_s32(0);
        for (unsigned o = 0; o < octets; o++) {
            const int8_t *tokens = x.values + (i * octets + o) * QUAD * 8;
            int8x16_t first_two = vld1q_s8(tokens), last_two = vld1q_s8(tokens + 16);
            for (unsigned p = 0; p < PAIRS; p++) {
                int8x16_t rows = vld1q_s8(tile.values + (i * octets + o) * PLANE + p * 16);
                dots[0][p] = vmmlaq_s32(dots[0][p], rows, first_two);
                dots[1][p] = vmmlaq_s32(dots[1][p], rows, last_two);
            }
        }
        float32x4_t scales[PAIRS], minimums[PAIRS];
        load_twice(tile.scales + i * TILE_ROWS, scales);
        if (offsets)
            load_twice(tile.offsets + i * TILE_ROWS, minimums);
        for (unsigned t = 0; t < 2; t++) {
            float32x4_t x_scale = load_pair(x.scales + i / halves * QUAD + t * 2);
            float32x4_t x_sum = load_pair((halves == 1 ? x.sums : x.half_sums) + i * QUAD + t * 2);
            for (unsigned p = 0; p < PAIRS; p++) {
                sums.v[t][p] =
                    vfmaq_f32(sums.v[t][p], vcvtq_f32_s32(dots[t][p]), vmulq_f32(scales[p], x_scale));
                if (offsets)
                    sums.v[t][p] = vfmaq_f32(sums.v[t][p], minimums[p], x_sum);
            }
        }
    }
    store_squares(sums, out);
}

void neon_i8mm_matmul_q8(struct weight_panel tile, size_t k, unsigned group, bool offsets, struct q8_panel x,
    bool first, float *out)
{
    if (group == 32 && offsets)
        multiply(tile, k, 1, true, x, first, out);
    else if (group == 32)
        multiply(tile, k, 1, false, x, first, out);
    else if (offsets)
        multiply(tile, k, 2, true, x, first, out);
    else
        multiply(tile, k, 2, false, x, first, out);
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

/* FMLAL multiplies halves and adds to floats with one rounding: what fma of the converted weights would give.
 */
INLINE vec8 add_f16_column(const float16_t *column, float16x8_t x, vec8 sum)
{
    const float16x8_t weights = vld1q_f16(column);
    return (vec8){vfmlalq_low_f16(sum.low, weights, x), vfmlalq_high_f16(sum.high, weights, x)};
}

INLINE void matvec_f16_tiles(
    const unsigned tiles, const float16_t *tile, size_t k, const float *x, float *out)
{
    vec8 sums[4];
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        sums[t] = vec8_all(0);
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
                sums[t] = add_f16_column(tile + (t * k + first + i) * TILE_ROWS, xi, sums[t]);
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
