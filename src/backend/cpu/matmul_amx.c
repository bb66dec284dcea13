/*
 * AMX: TDPBSSD multiplies a tile of 16 tokens by a tile of 16 rows. The sums of a group go through memory to
 * vectors, which scale and add them. While the vectors of one group are added, the tiles of the next are
 * multiplied: storing a tile waits for its product, so products begin one group before they are stored.
 */
#include "backend/cpu/matmul_wide.h"

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3 are sums of two groups and two terms, 4 and 5 tokens, 6 and 7 weights. */
void amx_matmul_begin(unsigned group)
{
    const uint16_t bytes = (uint16_t)group;
    const uint8_t rows = (uint8_t)(group / 4);
    const struct tile_config config = {.palette = 1,
        .row_bytes = {64, 64, 64, 64, bytes, bytes, 64, 64},
        .rows = {16, 16, 16, 16, WIDE_TOKENS, WIDE_TOKENS, rows, rows}};
    /* gcc 12 takes only the first 8 bytes for an input of the intrinsic and may omit the other stores. */
    __asm__ volatile("" ::"m"(config));
    _tile_loadconfig(&config);
}

/* A thread that holds no tiles costs the system nothing to switch. */
void amx_matmul_end(void)
{
    _tile_release();
}

typedef int32_t dots[2][WIDE_TOKENS][2 * TILE_ROWS];

/* The intrinsics take the numbers of tiles as literals. */
#define MULTIPLY(sum, x, weights, tokens, row_bytes) \
    _tile_zero(sum);                                 \
    _tile_loadd(x, tokens, row_bytes);               \
    _tile_dpbssd(sum, x, weights)

/* Begins the dot products of part i, a group of the weights; odd parts have tiles of their own. */
INLINE void multiply(
    struct unpacked_tiles tile, size_t i, const unsigned halves, const unsigned terms, struct q8_tile x)
{
    const int8_t *tokens = x.values + i / halves * GROUP * WIDE_TOKENS * terms + i % halves * 16;
    const int8_t *weights = tile.values + i * (GROUP / halves) * 2 * TILE_ROWS;
    if (i % 2 == 0) {
        _tile_loadd(6, weights, 64);
        MULTIPLY(0, 4, 6, tokens, GROUP * terms);
        if (terms == 2) {
            MULTIPLY(1, 5, 6, tokens + GROUP, GROUP * terms);
        }
    } else if (terms == 1) {
        _tile_loadd(7, weights, 64);
        MULTIPLY(2, 5, 7, tokens, GROUP * terms);
    } else {
        _tile_loadd(7, weights, 64);
        MULTIPLY(2, 4, 7, tokens, GROUP * terms);
        MULTIPLY(3, 5, 7, tokens + GROUP, GROUP * terms);
    }
}

INLINE void store(size_t i, const unsigned terms, dots out)
{
    if (i % 2 == 0) {
        _tile_stored(0, out[0], 64);
        if (terms == 2)
            _tile_stored(1, out[1], 64);
    } else {
        _tile_stored(2, out[0], 64);
        if (terms == 2)
            _tile_stored(3, out[1], 64);
    }
}

INLINE void matmul_q8_tile(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    dots buffers[2] __attribute__((aligned(64)));
    struct wide_sums sums = wide_load(first, stride, out);
    const size_t parts = k / GROUP * halves;
    multiply(tile, 0, halves, terms, x);
    store(0, terms, buffers[0]);
    if (parts > 1)
        multiply(tile, 1, halves, terms, x);
    for (size_t i = 0; i < parts; i++) {
        if (i + 1 < parts)
            store(i + 1, terms, buffers[(i + 1) % 2]);
        if (i + 2 < parts)
            multiply(tile, i + 2, halves, terms, x);
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
    wide_store(sums, stride, out);
}

DEFINE_MATMUL_Q8(amx_matmul_q8, matmul_q8_tile)
