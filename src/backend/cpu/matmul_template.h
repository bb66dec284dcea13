/*
 * The matmul functions for one instruction set, included by matmul_neon.c and the like, which define
 * ISA(name), the name with its prefix, and the names that matmul_codes.h requires.
 */
#include "backend/cpu/matmul.h"
#include "backend/cpu/matmul_codes.h"
#include "quant/half.h"

#include <float.h>
#include <math.h>

#ifdef WIDE_TILES /* matmul_q8_tile is defined */
enum { WEIGHT_TILES = 2 };
#else
enum { WEIGHT_TILES = 1 };
#endif

/* ---- Quantised weights ---- */

INLINE void unpack_q8(
    enum tensor_type type, const uint8_t *block, size_t k, struct unpacked_tiles out, unsigned index)
{
    out.values += index * (PLANE / WEIGHT_TILES);
    out.scales += index * TILE_ROWS;
    out.offsets += index * TILE_ROWS;
    const struct tile_format f = tile_formats[type];
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group;
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
            UNROLL
            for (unsigned v = 0; v < 4 * VECTORS; v++, out.values += sizeof(bytes) * WEIGHT_TILES)
                bytes_store(codes.v[v], out.values);
            UNROLL
            for (unsigned half = 0; half < halves; half++, out.scales += TILE_ROWS * WEIGHT_TILES) {
                struct levels group = group_levels(f, block, levels, i * halves + half);
                vec8_store(group.scale, out.scales);
                if (f.offsets) {
                    vec8_store(group.offset, out.offsets);
                    out.offsets += TILE_ROWS * WEIGHT_TILES;
                }
            }
        }
    }
}

#ifndef WIDE_TILES

INLINE void matmul_q8_tile(struct unpacked_tiles tile, size_t k, const unsigned halves, const bool offsets,
    const unsigned terms, struct q8_tile x, bool first, size_t stride, float *out)
{
    const struct tile_format bytes_format = {.codes = CODES_8, .offsets = offsets};
    vec8 sums[QUAD];
    UNROLL
    for (unsigned t = 0; t < QUAD; t++)
        sums[t] = first ? vec8_all(0) : vec8_load(out + t * stride);
    for (size_t g = 0; g < k / 32; g++) {
        struct codes codes = load_codes(bytes_format, (const uint8_t *)tile.values + g * 4 * PLANE);
        UNROLL
        for (unsigned half = 0; half < halves; half++) {
            const size_t i = g * halves + half;
            struct levels levels = {vec8_load(tile.scales + i * TILE_ROWS), vec8_all(0)};
            if (offsets)
                levels.offset = vec8_load(tile.offsets + i * TILE_ROWS);
            const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + i * QUAD;
            const int32_t *corrections = (halves == 1 ? x.corrections : x.half_corrections) + i * QUAD;
            UNROLL
            for (unsigned t = 0; t < QUAD; t++) {
                vec8 dot = codes_dot(bytes_format, codes.v + half * 2 * VECTORS,
                    x.values + (i * (4 / halves) * terms * QUAD + t) * 8, corrections + t, QUAD * 8,
                    4 / halves, terms);
                sums[t] = add_group(sums[t], dot, levels, x.scales[g * QUAD + t], offsets, x_sums + t);
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < QUAD; t++)
        vec8_store(sums[t], out + t * stride);
}

#endif

DEFINE_MATMUL_Q8(ISA(matmul_q8), matmul_q8_tile)

/* ---- Activations ---- */

struct group_scale {
    float scale, inverse; /* d and 1 / d; an inverse of 0 stands for p = 0 */
};

INLINE struct group_scale group_scale(const float *x, unsigned terms)
{
    const uint32_t bits =
        vec8_largest_bits(vec8_larger_magnitude(vec8_larger_magnitude(vec8_load(x), vec8_load(x + 8)),
            vec8_larger_magnitude(vec8_load(x + 16), vec8_load(x + 24))));
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    const float scale = largest / q8_largest(terms);
    if (!(largest <= FLT_MAX) || largest < Q8_SMALLEST) /* zero or not finite */
        return (struct group_scale){largest <= FLT_MAX ? 0 : NAN, 0};
    return (struct group_scale){scale, 1 / scale};
}

INLINE void round_group(const float *x, struct group_scale scale, unsigned terms, struct q8_tile q8, size_t g,
    size_t width, size_t t)
{
    const struct q8_steps steps = q8_steps(q8.terms, width);
    const int unit = terms < q8.terms ? -128 * TERM_SCALE : -128;
    int sums[4];
    UNROLL
    for (unsigned o = 0; o < 4; o++) {
        int8_t *to = q8.values + g * GROUP * q8.terms * width + t * steps.token + o * steps.octet;
        const vec8 v =
            scale.inverse == 0 ? vec8_all(0) : vec8_mul(vec8_load(x + o * 8), vec8_all(scale.inverse));
        sums[o] = terms == 1 ? vec8_store_bytes(v, to) : vec8_store_terms(v, to, to + steps.term);
        if (terms < q8.terms)
            store_octet(to + steps.term, 0);
    }
    const int half_sums[2] = {sums[0] + sums[1], sums[2] + sums[3]}, sum = half_sums[0] + half_sums[1];
    q8.scales[g * width + t] = terms < q8.terms ? scale.scale * (1.0f / TERM_SCALE) : scale.scale;
    q8.sums[g * width + t] = scale.scale * (float)sum;
    q8.corrections[g * width + t] = unit * sum;
    for (size_t half = 0; half < 2; half++) {
        q8.half_sums[(g * 2 + half) * width + t] = scale.scale * (float)half_sums[half];
        q8.half_corrections[(g * 2 + half) * width + t] = unit * half_sums[half];
    }
}

/* The divisions of a few groups overlap. */
void ISA(round_q8)(const float *x, size_t k, unsigned terms, struct q8_tile q8, size_t width, size_t t)
{
    enum { TOGETHER = 4 };
    for (size_t first = 0; first < k / GROUP; first += TOGETHER) {
        const size_t rest = k / GROUP - first, count = rest < TOGETHER ? rest : TOGETHER;
        struct group_scale scales[TOGETHER];
        for (size_t i = 0; i < count; i++)
            scales[i] = group_scale(x + (first + i) * GROUP, terms);
        for (size_t i = 0; i < count; i++)
            round_group(x + (first + i) * GROUP, scales[i], terms, q8, first + i, width, t);
    }
}

/* ---- Float weights ---- */

INLINE size_t float_bytes(enum tensor_type type)
{
    return type == TYPE_F32 ? 4 : 2;
}

/* Column i of a tile. */
INLINE vec8 load_column(enum tensor_type type, const uint8_t *tile, size_t i)
{
    const uint8_t *from = tile + i * TILE_ROWS * float_bytes(type);
    if (type == TYPE_F16)
        return vec8_load_f16(from);
    if (type == TYPE_BF16)
        return vec8_load_bf16(from);
    return vec8_load((const float *)(const void *)from);
}

/* Each sum is one chain of additions; several tiles at once hide their latency. */
INLINE void matvec_float_tiles(
    enum tensor_type type, const unsigned tiles, const uint8_t *tile, size_t k, const float *x, float *out)
{
    const size_t tile_bytes = k * TILE_ROWS * float_bytes(type);
    vec8 sums[4];
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        sums[t] = vec8_zeros();
    for (size_t i = 0; i < k;) {
        const size_t end = i + GROUP < k ? i + GROUP : k;
        vec8 parts[4];
        UNROLL
        for (unsigned t = 0; t < tiles; t++)
            parts[t] = vec8_zeros();
        for (; i < end; i++) {
            vec8 xi = vec8_all(type == TYPE_F16 ? f16_rounded(x[i]) : x[i]);
            UNROLL
            for (unsigned t = 0; t < tiles; t++)
                parts[t] = vec8_fma(load_column(type, tile + t * tile_bytes, i), xi, parts[t]);
        }
        UNROLL
        for (unsigned t = 0; t < tiles; t++)
            sums[t] = vec8_add(sums[t], parts[t]);
    }
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        vec8_store(sums[t], out + t * TILE_ROWS);
}

INLINE void matvec_float(
    enum tensor_type type, const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out)
{
    const size_t tile_bytes = k * TILE_ROWS * float_bytes(type);
    size_t tile = 0;
    for (; tile + 4 <= tile_count; tile += 4)
        matvec_float_tiles(type, 4, tiles + tile * tile_bytes, k, x, out + tile * TILE_ROWS);
    for (; tile < tile_count; tile++)
        matvec_float_tiles(type, 1, tiles + tile * tile_bytes, k, x, out + tile * TILE_ROWS);
}

INLINE void unpack_float(enum tensor_type type, const uint8_t *tile, size_t k, float *out)
{
    for (size_t i = 0; i < k; i++)
        vec8_store(load_column(type, tile, i), out + i * TILE_ROWS);
}

void ISA(matmul_float)(const float *tile, size_t k, const float *x, bool first, float *out)
{
    for (size_t i = 0; i < k; first = false) {
        const size_t end = i + GROUP < k ? i + GROUP : k;
        vec8 parts[OCTET];
        UNROLL
        for (unsigned t = 0; t < OCTET; t++)
            parts[t] = vec8_zeros();
        for (; i < end; i++) {
            vec8 column = vec8_load(tile + i * TILE_ROWS), tokens = vec8_load(x + i * OCTET);
            UNROLL
            for (unsigned t = 0; t < OCTET; t++)
                parts[t] = vec8_fma(column, vec8_pick(tokens, t), parts[t]);
        }
        UNROLL
        for (unsigned t = 0; t < OCTET; t++) {
            vec8 sum = first ? vec8_all(0) : vec8_load(out + t * TILE_ROWS);
            vec8_store(vec8_add(sum, parts[t]), out + t * TILE_ROWS);
        }
    }
}

/* ---- One function per type ---- */

#define DEFINE_QUANTISED(unused, type)                                                                       \
    void ISA(matvec_##type)(const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out) \
    {                                                                                                        \
        if (x.terms == 1)                                                                                    \
            matvec_q8(TYPE_##type, 1, tiles, tile_count, k, x, out);                                         \
        else                                                                                                 \
            matvec_q8(TYPE_##type, 2, tiles, tile_count, k, x, out);                                         \
    }                                                                                                        \
    void ISA(unpack_##type)(const uint8_t *tile, size_t k, struct unpacked_tiles out, unsigned index)        \
    {                                                                                                        \
        unpack_q8(TYPE_##type, tile, k, out, index);                                                         \
    }

#define DEFINE_FLOAT(unused, type)                                                                         \
    void ISA(matvec_##type)(const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out) \
    {                                                                                                      \
        matvec_float(TYPE_##type, tiles, tile_count, k, x, out);                                           \
    }                                                                                                      \
    void ISA(unpack_##type)(const uint8_t *tile, size_t k, float *out)                                     \
    {                                                                                                      \
        unpack_float(TYPE_##type, tile, k, out);                                                           \
    }

FOR_QUANTISED_TYPES(DEFINE_QUANTISED, )
FOR_FLOAT_TYPES(DEFINE_FLOAT, )
