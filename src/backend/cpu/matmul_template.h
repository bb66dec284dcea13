/*
 * The matmul functions for one instruction set, included by matmul_neon.c and the like. What those define:
 *
 *   ISA(name)     the name with its prefix
 *   bytes         a vector of bytes, with the operators & and |
 *   VECTORS       how many make a plane of 64 bytes
 *   PREFETCH_AHEAD  bytes; 0: none
 *   bytes_load, bytes_store, bytes_all
 *   bytes_field   (v >> shift) & mask for each byte; shift may be negative
 *   bytes_look_up table[v] for each byte, 0..15
 *   bytes_bit     from half a plane of bits: all ones where the bit of an octet is set; for vector `index` of
 *                 the plane
 *   codes_dot     the sums of products over `octets` octets of 8 rows with those of one x, `stride` bytes
 *                 apart, as floats
 */
#include "backend/cpu/matmul.h"
#include "backend/cpu/vec8.h"
#include "quant/blocks.h"
#include "quant/half.h"

#include <float.h>
#include <math.h>

/* ---- Codes: 32 elements of 8 rows in registers
 * ------------------------------------------------------------- */

struct codes {
    bytes v[4 * VECTORS]; /* four planes, one for each octet */
};

/* `low` is octet i / VECTORS of vector i of the nibble planes, `high` the octet two further on. */
INLINE void finish_nibbles(
    struct tile_format f, const uint8_t *from, unsigned i, bytes nibbles, bytes *low, bytes *high)
{
    const unsigned octet = i / VECTORS, index = i % VECTORS;
    if (f.codes == CODES_4_SIGNED || f.codes == CODES_6_SIGNED) {
        *low = bytes_field(nibbles, -4, 0xF0);
        *high = nibbles & bytes_all(0xF0);
    } else {
        *low = nibbles & bytes_all(0x0F);
        *high = bytes_field(nibbles, 4, 0x0F);
    }
    if (f.codes == CODES_IQ4 || f.codes == CODES_MXFP4) {
        const int8_t *table = f.codes == CODES_IQ4 ? iq4_values : mxfp4_values;
        *low = bytes_look_up(table, *low);
        *high = bytes_look_up(table, *high);
    } else if (f.codes == CODES_5) {
        *low |= bytes_bit(from + 2 * PLANE, index, octet) & bytes_all(f.top);
        *high |= bytes_bit(from + 2 * PLANE, index, octet + 2) & bytes_all(f.top);
    } else if (f.codes == CODES_6_SIGNED) {
        bytes pairs = bytes_load(from + (2 * VECTORS + index) * sizeof(bytes));
        *low |= bytes_field(pairs, (int)octet * 2 - 2, 0x0C);
        *high |= bytes_field(pairs, (int)octet * 2 + 2, 0x0C);
    }
}

INLINE struct codes load_codes(struct tile_format f, const uint8_t *from)
{
    struct codes codes;
    if (f.codes == CODES_8) {
        UNROLL
        for (unsigned i = 0; i < 4 * VECTORS; i++)
            codes.v[i] = bytes_load(from + i * sizeof(bytes));
    } else if (f.codes == CODES_2 || f.codes == CODES_3) {
        UNROLL
        for (unsigned i = 0; i < VECTORS; i++) {
            bytes pairs = bytes_load(from + i * sizeof(bytes));
            UNROLL
            for (unsigned o = 0; o < 4; o++) {
                codes.v[o * VECTORS + i] = bytes_field(pairs, (int)o * 2, 3);
                if (f.codes == CODES_3)
                    codes.v[o * VECTORS + i] |= bytes_bit(from + PLANE, i, o) & bytes_all(f.top);
            }
        }
    } else {
        UNROLL
        for (unsigned i = 0; i < 2 * VECTORS; i++) {
            bytes nibbles = bytes_load(from + i * sizeof(bytes));
            finish_nibbles(f, from, i, nibbles, &codes.v[i], &codes.v[i + 2 * VECTORS]);
        }
    }
    return codes;
}

/* ---- Scales and offsets of 8 rows
 * --------------------------------------------------------------------------- */

struct levels {
    vec8 scale, offset;
};

INLINE struct levels block_levels(struct tile_format f, const uint8_t *block)
{
    struct levels levels;
    levels.scale = f.exponent_scale ? vec8_load_exponents(block) : vec8_load_f16(block);
    if (f.unit != 1)
        levels.scale = vec8_mul(levels.scale, vec8_all(f.unit));
    levels.offset = f.offsets ? vec8_load_f16(block + tile_minimums_at(f)) : vec8_all(0);
    if (f.offsets && f.levels != LEVELS_ONE)
        levels.offset = vec8_mul(levels.offset, vec8_all(-1));
    return levels;
}

INLINE struct levels group_levels(
    struct tile_format f, const uint8_t *block, struct levels levels, size_t group)
{
    const uint8_t *at = block + tile_levels_at(f) + group * 8;
    if (f.levels == LEVELS_SIGNED) {
        levels.scale = vec8_mul(levels.scale, vec8_load_int8(at));
    } else if (f.levels == LEVELS_BYTES) {
        levels.scale = vec8_mul(levels.scale, vec8_load_uint8(at));
        levels.offset = vec8_mul(levels.offset, vec8_load_uint8(at + 256 / f.group * 8));
    } else if (f.levels == LEVELS_NIBBLES) {
        levels.scale = vec8_mul(levels.scale, vec8_load_low_nibbles(at));
        levels.offset = vec8_mul(levels.offset, vec8_load_high_nibbles(at));
    }
    return levels;
}

/* ---- Quantised weights
 * ---------------------------------------------------------------------------------------- */

/* One step of the sum that kernels.h defines. */
INLINE vec8 add_group(
    vec8 sum, vec8 dot, struct levels levels, float x_scale, const bool offsets, const float *x_sum)
{
    sum = vec8_fma(dot, vec8_mul(levels.scale, vec8_all(x_scale)), sum);
    return offsets ? vec8_fma(levels.offset, vec8_all(*x_sum), sum) : sum;
}

/* Weights are read once, as fast as they come: where the processor does not look ahead far enough, it is
 * told. */
INLINE void prefetch_block(const uint8_t *block, size_t size)
{
    for (size_t at = 0; PREFETCH_AHEAD && at < size; at += 64)
        __builtin_prefetch(block + PREFETCH_AHEAD + at);
}

INLINE void matvec_q8(
    enum tensor_type type, const uint8_t *block, size_t tile_count, size_t k, struct q8_panel x, float *out)
{
    const struct tile_format f = tile_formats[type];
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group;
    for (size_t tile = 0; tile < tile_count; tile++, out += TILE_ROWS) {
        vec8 sum = vec8_all(0);
        for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
            prefetch_block(block, tile_block_bytes(f));
            struct levels levels = block_levels(f, block);
            for (size_t i = 0; i < groups; i++) {
                const size_t g = first + i;
                struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
                UNROLL
                for (unsigned half = 0; half < halves; half++) {
                    const float *x_sum = halves == 1 ? x.sums + g : x.half_sums + g * 2 + half;
                    vec8 dot =
                        codes_dot(codes.v + half * 2 * VECTORS, x.values + g * 32 + half * 16, 8, 4 / halves);
                    sum = add_group(sum, dot, group_levels(f, block, levels, i * halves + half), x.scales[g],
                        f.offsets, x_sum);
                }
            }
        }
        vec8_store(sum, out);
    }
}

INLINE void unpack_q8(enum tensor_type type, const uint8_t *block, size_t k, struct weight_panel out)
{
    const struct tile_format f = tile_formats[type];
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group;
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
            UNROLL
            for (unsigned v = 0; v < 4 * VECTORS; v++, out.values += sizeof(bytes))
                bytes_store(codes.v[v], out.values);
            UNROLL
            for (unsigned half = 0; half < halves; half++, out.scales += TILE_ROWS) {
                struct levels group = group_levels(f, block, levels, i * halves + half);
                vec8_store(group.scale, out.scales);
                if (f.offsets) {
                    vec8_store(group.offset, out.offsets);
                    out.offsets += TILE_ROWS;
                }
            }
        }
    }
}

#ifndef HAS_MATMUL_Q8

INLINE void matmul_q8_panel(struct weight_panel tile, size_t k, const unsigned halves, const bool offsets,
    struct q8_panel x, bool first, float *out)
{
    vec8 sums[QUAD];
    UNROLL
    for (unsigned t = 0; t < QUAD; t++)
        sums[t] = first ? vec8_all(0) : vec8_load(out + t * TILE_ROWS);
    for (size_t g = 0; g < k / 32; g++) {
        struct codes codes =
            load_codes((struct tile_format){.codes = CODES_8}, (const uint8_t *)tile.values + g * 4 * PLANE);
        UNROLL
        for (unsigned half = 0; half < halves; half++) {
            const size_t i = g * halves + half;
            struct levels levels = {vec8_load(tile.scales + i * TILE_ROWS), vec8_all(0)};
            if (offsets)
                levels.offset = vec8_load(tile.offsets + i * TILE_ROWS);
            const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + i * QUAD;
            UNROLL
            for (unsigned t = 0; t < QUAD; t++) {
                vec8 dot = codes_dot(codes.v + half * 2 * VECTORS,
                    x.values + (i * (4 / halves) * QUAD + t) * 8, QUAD * 8, 4 / halves);
                sums[t] = add_group(sums[t], dot, levels, x.scales[g * QUAD + t], offsets, x_sums + t);
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < QUAD; t++)
        vec8_store(sums[t], out + t * TILE_ROWS);
}

void ISA(matmul_q8)(struct weight_panel tile, size_t k, unsigned group, bool offsets, struct q8_panel x,
    bool first, float *out)
{
    if (group == 32 && offsets)
        matmul_q8_panel(tile, k, 1, true, x, first, out);
    else if (group == 32)
        matmul_q8_panel(tile, k, 1, false, x, first, out);
    else if (offsets)
        matmul_q8_panel(tile, k, 2, true, x, first, out);
    else
        matmul_q8_panel(tile, k, 2, false, x, first, out);
}

#endif

/* ---- Activations
 * ------------------------------------------------------------------------------------------------ */

void ISA(round_q8)(const float *x, size_t k, struct q8_panel panel, size_t width, size_t t)
{
    for (size_t g = 0; g < k / GROUP; g++, x += GROUP) {
        vec8 v[4] = {vec8_load(x), vec8_load(x + 8), vec8_load(x + 16), vec8_load(x + 24)};
        uint32_t bits = vec8_largest_bits(
            vec8_larger_magnitude(vec8_larger_magnitude(v[0], v[1]), vec8_larger_magnitude(v[2], v[3])));
        float largest;
        memcpy(&largest, &bits, sizeof largest);
        float scale = largest / 127, inverse = 1 / scale;
        if (!(largest <= FLT_MAX) || scale < FLT_MIN) { /* nothing that a byte could tell */
            scale = largest <= FLT_MAX ? 0 : NAN;
            inverse = 0;
            v[0] = v[1] = v[2] = v[3] = vec8_all(0);
        }
        int sums[4];
        UNROLL
        for (unsigned o = 0; o < 4; o++)
            sums[o] = vec8_store_bytes(
                vec8_mul(v[o], vec8_all(inverse)), panel.values + ((g * 4 + o) * width + t) * 8);
        panel.scales[g * width + t] = scale;
        panel.sums[g * width + t] = scale * (float)(sums[0] + sums[1] + sums[2] + sums[3]);
        panel.half_sums[(g * 2) * width + t] = scale * (float)(sums[0] + sums[1]);
        panel.half_sums[(g * 2 + 1) * width + t] = scale * (float)(sums[2] + sums[3]);
    }
}

/* ---- Float weights
 * ------------------------------------------------------------------------------------------------ */

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

/* Each sum is one chain of additions; several tiles side by side keep the adders busy. */
INLINE void matvec_float_tiles(
    enum tensor_type type, const unsigned tiles, const uint8_t *tile, size_t k, const float *x, float *out)
{
    const size_t tile_bytes = k * TILE_ROWS * float_bytes(type);
    vec8 sums[4];
    UNROLL
    for (unsigned t = 0; t < tiles; t++)
        sums[t] = vec8_all(0);
    for (size_t i = 0; i < k; i++) {
        vec8 xi = vec8_all(type == TYPE_F16 ? f16_rounded(x[i]) : x[i]);
        UNROLL
        for (unsigned t = 0; t < tiles; t++)
            sums[t] = vec8_fma(load_column(type, tile + t * tile_bytes, i), xi, sums[t]);
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
    vec8 sums[OCTET];
    UNROLL
    for (unsigned t = 0; t < OCTET; t++)
        sums[t] = first ? vec8_all(0) : vec8_load(out + t * TILE_ROWS);
    for (size_t i = 0; i < k; i++) {
        vec8 column = vec8_load(tile + i * TILE_ROWS), tokens = vec8_load(x + i * OCTET);
        UNROLL
        for (unsigned t = 0; t < OCTET; t++)
            sums[t] = vec8_fma(column, vec8_pick(tokens, t), sums[t]);
    }
    UNROLL
    for (unsigned t = 0; t < OCTET; t++)
        vec8_store(sums[t], out + t * TILE_ROWS);
}

/* ---- One function per type
 * ----------------------------------------------------------------------------------------- */

#define DEFINE_QUANTISED(unused, type)                                                    \
    void ISA(matvec_##type)(                                                              \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_panel x, float *out) \
    {                                                                                     \
        matvec_q8(TYPE_##type, tiles, tile_count, k, x, out);                             \
    }                                                                                     \
    void ISA(unpack_##type)(const uint8_t *tile, size_t k, struct weight_panel out)       \
    {                                                                                     \
        unpack_q8(TYPE_##type, tile, k, out);                                             \
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
