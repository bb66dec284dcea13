/* The sums of a wide tile, 16 tokens by 16 rows, in registers of AVX-512; for matmul_avx512.c and
 * matmul_amx.c. */
#ifndef CPU_MATMUL_WIDE_H
#define CPU_MATMUL_WIDE_H

#include "backend/cpu/matmul.h"
#include "backend/cpu/vec8.h"

struct wide_sums {
    __m512 v[WIDE_TOKENS]; /* of each token, 16 rows */
};

struct wide_levels {
    __m512 scale, offset;
};

INLINE struct wide_sums wide_load(bool first, size_t stride, const float *out)
{
    struct wide_sums sums;
    UNROLL
    for (unsigned t = 0; t < WIDE_TOKENS; t++)
        sums.v[t] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(out + t * stride);
    return sums;
}

INLINE void wide_store(struct wide_sums sums, size_t stride, float *out)
{
    UNROLL
    for (unsigned t = 0; t < WIDE_TOKENS; t++)
        _mm512_storeu_ps(out + t * stride, sums.v[t]);
}

INLINE struct wide_levels wide_levels(struct unpacked_tiles tile, size_t i, const bool offsets)
{
    return (struct wide_levels){_mm512_loadu_ps(tile.scales + i * 2 * TILE_ROWS),
        offsets ? _mm512_loadu_ps(tile.offsets + i * 2 * TILE_ROWS) : _mm512_setzero_ps()};
}

/* One step of the sum that kernels.h defines, for token t. */
INLINE void wide_add(struct wide_sums *sums, unsigned t, __m512i dot, struct wide_levels levels,
    struct q8_tile x, size_t g, const unsigned halves, unsigned half, const bool offsets)
{
    __m512 scale = _mm512_mul_ps(levels.scale, _mm512_set1_ps(x.scales[g * WIDE_TOKENS + t]));
    sums->v[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums->v[t]);
    if (offsets) {
        const float *x_sums =
            halves == 1 ? x.sums + g * WIDE_TOKENS : x.half_sums + (g * 2 + half) * WIDE_TOKENS;
        sums->v[t] = _mm512_fmadd_ps(levels.offset, _mm512_set1_ps(x_sums[t]), sums->v[t]);
    }
}

#endif
