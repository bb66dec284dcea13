/*
 * Matmul of four tokens with the matrix products of Armv8.6: SMMLA multiplies two rows of eight bytes by two
 * tokens of eight bytes. Included by one file for each number of terms of x, because these need different
 * compiler flags.
 */
#ifndef CPU_MATMUL_SMMLA_H
#define CPU_MATMUL_SMMLA_H

#include "backend/cpu/matmul.h"
#include "backend/cpu/vec8.h"

#include <arm_neon.h>

enum { PAIRS = 4 }; /* pairs of rows */

/* The sums of a tile as SMMLA returns them: [row][token] for a pair of rows and a pair of tokens. */
struct squares {
    float32x4_t v[2][PAIRS]; /* [token pair][row pair] */
};

INLINE struct squares load_squares(size_t stride, const float *out)
{
    struct squares squares;
    for (unsigned t = 0; t < 2; t++) {
        for (unsigned p = 0; p < PAIRS; p++) {
            const float *from = out + t * 2 * stride + p * 2;
            squares.v[t][p] = vcombine_f32(vld1_f32(from), vld1_f32(from + stride));
            squares.v[t][p] = vzip1q_f32(squares.v[t][p], vextq_f32(squares.v[t][p], squares.v[t][p], 2));
        }
    }
    return squares;
}

/* The sums of a pair of tokens, whose rows are `stride` floats apart. */
INLINE void store_pair(const float32x4_t squares[PAIRS], size_t stride, float *out)
{
    for (unsigned p = 0; p < PAIRS; p++) {
        vst1_f32(out + p * 2, vget_low_f32(vuzp1q_f32(squares[p], squares[p])));
        vst1_f32(out + stride + p * 2, vget_low_f32(vuzp2q_f32(squares[p], squares[p])));
    }
}

INLINE void store_squares(struct squares squares, size_t stride, float *out)
{
    for (unsigned t = 0; t < 2; t++)
        store_pair(squares.v[t], stride, out + t * 2 * stride);
}

/* Eight values, one per row, each twice: for both tokens of a square. */
INLINE void load_twice(const float *from, float32x4_t out[PAIRS])
{
    for (unsigned half = 0; half < 2; half++) {
        float32x4_t rows = vld1q_f32(from + half * 4);
        out[half * 2] = vzip1q_f32(rows, rows);
        out[half * 2 + 1] = vzip2q_f32(rows, rows);
    }
}

/* The values of two tokens, for both rows of a square. */
INLINE float32x4_t load_pair(const float *from)
{
    float32x2_t pair = vld1_f32(from);
    return vcombine_f32(pair, pair);
}

INLINE void dot_one_term(const int8_t *rows, const int8_t *x, const unsigned octets, int32x4_t dots[2][PAIRS])
{
    for (unsigned p = 0; p < PAIRS; p++) {
        dots[0][p] = new_zeros();
        dots[1][p] = new_zeros();
    }
    UNROLL
    for (unsigned o = 0; o < octets; o++) {
        int8x16_t first_two = vld1q_s8(x + o * QUAD * 8), last_two = vld1q_s8(x + o * QUAD * 8 + 16);
        for (unsigned p = 0; p < PAIRS; p++) {
            int8x16_t pair = vld1q_s8(rows + o * PLANE + p * 16);
            dots[0][p] = vmmlaq_s32(dots[0][p], pair, first_two);
            dots[1][p] = vmmlaq_s32(dots[1][p], pair, last_two);
        }
    }
}

INLINE void dot_two_terms(
    const int8_t *rows, const int8_t *x, const unsigned octets, int32x4_t dots[2][PAIRS])
{
    int32x4_t low[2][PAIRS];
    for (unsigned p = 0; p < PAIRS; p++) {
        dots[0][p] = new_zeros();
        dots[1][p] = new_zeros();
        low[0][p] = new_zeros();
        low[1][p] = new_zeros();
    }
    UNROLL
    for (unsigned o = 0; o < octets; o++) {
        const int8_t *octet = x + o * 2 * QUAD * 8;
        int8x16_t a = vld1q_s8(octet), b = vld1q_s8(octet + 16), c = vld1q_s8(octet + 32),
                  d = vld1q_s8(octet + 48);
        for (unsigned p = 0; p < PAIRS; p++) {
            int8x16_t pair = vld1q_s8(rows + o * PLANE + p * 16);
            dots[0][p] = vmmlaq_s32(dots[0][p], pair, a);
            dots[1][p] = vmmlaq_s32(dots[1][p], pair, b);
            low[0][p] = vmmlaq_s32(low[0][p], pair, c);
            low[1][p] = vmmlaq_s32(low[1][p], pair, d);
        }
    }
    for (unsigned p = 0; p < PAIRS; p++) {
        dots[0][p] = vmlaq_n_s32(low[0][p], dots[0][p], TERM_SCALE);
        dots[1][p] = vmlaq_n_s32(low[1][p], dots[1][p], TERM_SCALE);
    }
}

INLINE void multiply(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    const unsigned octets = 4 / halves;
    struct squares sums = first ? (struct squares){{{{0}}}} : load_squares(stride, out);
    for (size_t i = 0; i < k / 32 * halves; i++) {
        int32x4_t dots[2][PAIRS];
        const int8_t *rows = tile.values + i * octets * PLANE,
                     *tokens = x.values + i * octets * terms * QUAD * 8;
        if (terms == 2)
            dot_two_terms(rows, tokens, octets, dots);
        else
            dot_one_term(rows, tokens, octets, dots);
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
    store_squares(sums, stride, out);
}

INLINE void multiply_any(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    if (group == 32 && !offsets) /* first: gcc schedules the first case best, by 7 % */
        multiply(tile, k, 1, false, terms, x, first, stride, out);
    else if (group == 32)
        multiply(tile, k, 1, true, terms, x, first, stride, out);
    else if (offsets)
        multiply(tile, k, 2, true, terms, x, first, stride, out);
    else
        multiply(tile, k, 2, false, terms, x, first, stride, out);
}

#endif
