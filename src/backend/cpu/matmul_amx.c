/*
 * AMX: TDPBSSD multiplies a tile of 16 tokens by a tile of 16 rows. The sums of a group go through memory to
 * vectors, which scale and add them. While the vectors of one group are added, the tiles of the next are
 * multiplied. Tiles are released after each activation tile: a thread that holds none costs the system
 * nothing to switch.
 */
#include "backend/cpu/matmul_wide.h"

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 and 1 are sums of the two terms, 2 and 3 their tokens, 4 is weights. */
INLINE void configure(unsigned group)
{
    const uint16_t bytes = (uint16_t)group;
    const struct tile_config config = {.palette = 1,
        .row_bytes = {64, 64, bytes, bytes, 64},
        .rows = {WIDE_TOKENS, WIDE_TOKENS, WIDE_TOKENS, WIDE_TOKENS, (uint8_t)(group / 4)}};
    _tile_loadconfig(&config);
}

typedef int32_t dots[2][WIDE_TOKENS][2 * TILE_ROWS];

/* The dot products of part i, a group of the weights. */
INLINE void multiply(struct unpacked_tiles tile, size_t i, const unsigned halves, const unsigned terms,
    struct q8_tile x, dots out)
{
    const int8_t *tokens = x.values + i / halves * GROUP * WIDE_TOKENS * terms + i % halves * 16;
    _tile_loadd(4, tile.values + i * (GROUP / halves) * 2 * TILE_ROWS, 64);
    _tile_zero(0);
    _tile_loadd(2, tokens, GROUP * terms);
    _tile_dpbssd(0, 2, 4);
    _tile_stored(0, out[0], 64);
    if (terms == 2) {
        _tile_zero(1);
        _tile_loadd(3, tokens + GROUP, GROUP * terms);
        _tile_dpbssd(1, 3, 4);
        _tile_stored(1, out[1], 64);
    }
}

INLINE void matmul_q8_tile(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    dots buffers[2] __attribute__((aligned(64)));
    configure(GROUP / halves);
    struct wide_sums sums = wide_load(first, stride, out);
    const size_t parts = k / GROUP * halves;
    multiply(tile, 0, halves, terms, x, buffers[0]);
    for (size_t i = 0; i < parts; i++) {
        if (i + 1 < parts)
            multiply(tile, i + 1, halves, terms, x, buffers[(i + 1) % 2]);
        const struct wide_levels levels = wide_levels(tile, i, offsets);
        UNROLL
        for (unsigned t = 0; t < WIDE_TOKENS; t++) {
            __m512i dot = _mm512_load_si512(buffers[i % 2][0][t]);
            if (terms == 2)
                dot = _mm512_add_epi32(
                    _mm512_slli_epi32(dot, TERM_BITS), _mm512_load_si512(buffers[i % 2][1][t]));
            wide_add(&sums, t, dot, levels, x, i / halves, halves, i % halves, offsets);
        }
    }
    _tile_release();
    wide_store(sums, stride, out);
}

DEFINE_MATMUL_Q8(amx_matmul_q8, matmul_q8_tile)
