/*
 * Dot products of packed tiles, common to the quantised matmul functions of all instruction sets. Included by
 * matmul_template.h and matmul_neon_i8mm.c, after these definitions:
 *
 *   bytes           a vector of bytes, with the operators & and |
 *   VECTORS         vectors in a plane of 64 bytes
 *   PREFETCH_AHEAD  in bytes; 0: none
 *   bytes_load, bytes_all
 *   bytes_store     stores a part of a plane of codes in an unpacked tile
 *   bytes_field     (v >> shift) & mask for each byte; shift may be negative
 *   bytes_look_up   table[v] for each byte, 0..15
 *   bytes_bit       from half a plane of bits: all ones where the bit of an octet is set, for vector `index`
 *                   of the plane
 *   codes_dot       the dot products of `octets` octets of 8 rows with one x, as floats; octet o of term i of
 *                   x is at step * (o * terms + i) bytes. `correction` is the one of x, for functions that
 *                   multiply signed codes as unsigned ones
 *   DOT_FORMAT      optional: the format as which codes are loaded for codes_dot
 */
#include "backend/cpu/vec8.h"
#include "quant/blocks.h"

#ifndef DOT_FORMAT
#define DOT_FORMAT(format) (format)
#endif

/* ---- Codes: 32 elements of 8 rows in registers ---- */

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

/* ---- Scales and offsets of 8 rows ---- */

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

/* ---- Quantised weights ---- */

/* One step of the sum that kernels.h defines. */
INLINE vec8 add_group(
    vec8 sum, vec8 dot, struct levels levels, float x_scale, const bool offsets, const float *x_sum)
{
    sum = vec8_fma(dot, vec8_mul(levels.scale, vec8_all(x_scale)), sum);
    return offsets ? vec8_fma(levels.offset, vec8_all(*x_sum), sum) : sum;
}

/* Weights are read once, at memory bandwidth: prefetch for processors that do not look ahead far enough. */
INLINE void prefetch_block(const uint8_t *block, size_t size)
{
    for (size_t at = 0; PREFETCH_AHEAD > 0 && at < size; at += 64)
        __builtin_prefetch(block + PREFETCH_AHEAD + at);
}

INLINE void matvec_q8(enum tensor_type type, const unsigned terms, const uint8_t *block, size_t tile_count,
    size_t k, struct q8_tile x, float *out)
{
    const struct tile_format f = DOT_FORMAT(tile_formats[type]);
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
                    const size_t at = g * halves + half;
                    const float *x_sum = (halves == 1 ? x.sums : x.half_sums) + at;
                    const int32_t *correction = (halves == 1 ? x.corrections : x.half_corrections) + at;
                    vec8 dot = codes_dot(f, codes.v + half * 2 * VECTORS,
                        x.values + (g * 32 + half * 16) * terms, correction, 8, 4 / halves, terms);
                    sum = add_group(sum, dot, group_levels(f, block, levels, i * halves + half), x.scales[g],
                        f.offsets, x_sum);
                }
            }
        }
        vec8_store(sum, out);
    }
}
