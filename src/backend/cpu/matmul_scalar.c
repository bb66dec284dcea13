/* The reference matmul functions: the definitions of kernels.h in plain loops. */
#include "backend/cpu/matmul.h"
#include "backend/cpu/packing.h"
#include "backend/cpu/tile_row.h"
#include "quant/half.h"

#include <math.h>

/* ---- Activations ---- */

void scalar_round_q8(const float *x, size_t k, unsigned terms, struct q8_tile q8, size_t width, size_t t)
{
    const struct q8_steps steps = q8_steps(q8.terms, width);
    for (size_t g = 0; g < k / GROUP; g++, x += GROUP) {
        uint32_t largest = 0; /* bits of |x|: NaN > infinity > every number */
        for (size_t i = 0; i < GROUP; i++) {
            uint32_t magnitude = f32_bits(x[i]) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        float scale = f32_from_bits(largest) / q8_largest(terms);
        bool finite = largest < f32_bits(INFINITY), zero = largest < f32_bits(Q8_SMALLEST);
        float inverse = zero || !finite ? 0 : 1 / scale;
        int half_sums[2] = {0, 0};
        for (size_t i = 0; i < GROUP; i++) {
            int p = inverse != 0 ? (int)nearbyintf(x[i] * inverse) : 0;
            int8_t *at =
                q8.values + g * GROUP * q8.terms * width + t * steps.token + i / 8 * steps.octet + i % 8;
            int first = terms == 2 ? (p + TERM_SCALE / 2 + 128 * TERM_SCALE) / TERM_SCALE - 128
                                   : p; /* never below 0 */
            at[0] = (int8_t)first;
            if (q8.terms == 2)
                at[steps.term] = (int8_t)(terms == 2 ? p - first * TERM_SCALE : 0);
            half_sums[i / 16] += p;
        }
        scale = !finite ? NAN : zero ? 0 : scale;
        const int unit = terms < q8.terms ? TERM_SCALE : 1; /* of p in a tile of two terms */
        q8.scales[g * width + t] = scale / (float)unit;
        q8.sums[g * width + t] = scale * (float)(half_sums[0] + half_sums[1]);
        q8.corrections[g * width + t] = -128 * unit * (half_sums[0] + half_sums[1]);
        for (size_t half = 0; half < 2; half++) {
            q8.half_sums[(g * 2 + half) * width + t] = scale * (float)half_sums[half];
            q8.half_corrections[(g * 2 + half) * width + t] = -128 * unit * half_sums[half];
        }
    }
}

/* ---- Quantised weights -----------------------------------------------------------------------------------
 */

/* The octets of the codes are `stride` bytes apart, those of x `step` bytes; the terms of an octet are
 * adjacent octets. */
static int dot_octets(
    const int8_t *codes, size_t stride, const int8_t *x, size_t step, size_t octets, unsigned terms)
{
    int sum = 0;
    for (size_t o = 0; o < octets; o++) {
        for (size_t e = 0; e < 8; e++) {
            const int8_t *p = x + o * terms * step + e;
            sum += codes[o * stride + e] * (terms == 2 ? p[0] * TERM_SCALE + p[step] : p[0]);
        }
    }
    return sum;
}

static void matvec_q8(
    enum tensor_type type, const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out)
{
    const struct tile_format format = tile_formats[type];
    const size_t tile_bytes = packing_tile_bytes(type, k), halves = 32 / format.group;
    struct row_group w;
    for (size_t row = 0; row < tile_count * TILE_ROWS; row++) {
        float sum = 0;
        for (size_t g = 0; g < k / GROUP; g++) {
            tile_row_group(format, tiles + row / TILE_ROWS * tile_bytes, g, row % TILE_ROWS, &w);
            for (size_t half = 0; half < halves; half++) {
                int dot = dot_octets(w.codes + half * 16, 8, x.values + (g * 32 + half * 16) * x.terms, 8,
                    4 / halves, x.terms);
                sum = fmaf((float)dot, w.scales[half] * x.scales[g], sum);
                if (format.offsets)
                    sum = fmaf(w.offsets[half], halves == 1 ? x.sums[g] : x.half_sums[g * 2 + half], sum);
            }
        }
        out[row] = sum;
    }
}

static void unpack_q8(
    enum tensor_type type, const uint8_t *tile, size_t k, struct unpacked_tiles out, unsigned index)
{
    (void)index; /* one tile */
    const struct tile_format format = tile_formats[type];
    const size_t halves = 32 / format.group;
    struct row_group w;
    for (size_t g = 0; g < k / GROUP; g++) {
        for (unsigned row = 0; row < TILE_ROWS; row++) {
            tile_row_group(format, tile, g, row, &w);
            for (size_t o = 0; o < 4; o++)
                memcpy(out.values + ((g * 4 + o) * TILE_ROWS + row) * 8, w.codes + o * 8, 8);
            for (size_t half = 0; half < halves; half++) {
                out.scales[(g * halves + half) * TILE_ROWS + row] = w.scales[half];
                if (format.offsets)
                    out.offsets[(g * halves + half) * TILE_ROWS + row] = w.offsets[half];
            }
        }
    }
}

void scalar_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
    bool first, size_t stride, float *out)
{
    const size_t halves = 32 / group;
    for (size_t token = 0; token < QUAD; token++) {
        for (size_t row = 0; row < TILE_ROWS; row++) {
            float sum = first ? 0 : out[token * stride + row];
            for (size_t i = 0; i < k / group; i++) {
                size_t g = i / halves, octet = i * group / 8, octets = group / 8;
                int dot = dot_octets(tile.values + octet * PLANE + row * 8, PLANE,
                    x.values + (octet * x.terms * QUAD + token) * 8, QUAD * 8, octets, x.terms);
                sum = fmaf((float)dot, tile.scales[i * TILE_ROWS + row] * x.scales[g * QUAD + token], sum);
                if (offsets)
                    sum = fmaf(tile.offsets[i * TILE_ROWS + row],
                        (halves == 1 ? x.sums : x.half_sums)[i * QUAD + token], sum);
            }
            out[token * stride + row] = sum;
        }
    }
}

/* ---- Float weights ----------------------------------------------------------------------------------------
 */

static float load_float(enum tensor_type type, const uint8_t *tile, size_t index)
{
    float value;
    uint16_t half;
    if (type == TYPE_F32) {
        memcpy(&value, tile + index * 4, 4);
        return value;
    }
    memcpy(&half, tile + index * 2, 2);
    return type == TYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void matvec_float(
    enum tensor_type type, const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out)
{
    const size_t tile_bytes = packing_tile_bytes(type, k);
    for (size_t row = 0; row < tile_count * TILE_ROWS; row++) {
        const uint8_t *tile = tiles + row / TILE_ROWS * tile_bytes;
        float sum = 0, part = 0;
        for (size_t i = 0; i < k; i++) {
            part = fmaf(load_float(type, tile, i * TILE_ROWS + row % TILE_ROWS),
                type == TYPE_F16 ? f16_rounded(x[i]) : x[i], i % GROUP ? part : 0);
            if (i % GROUP == GROUP - 1 || i == k - 1)
                sum += part;
        }
        out[row] = sum;
    }
}

static void unpack_float(enum tensor_type type, const uint8_t *tile, size_t k, float *out)
{
    for (size_t i = 0; i < k * TILE_ROWS; i++)
        out[i] = load_float(type, tile, i);
}

void scalar_matmul_float(const float *tile, size_t k, const float *x, bool first, float *out)
{
    for (size_t token = 0; token < OCTET; token++) {
        for (size_t row = 0; row < TILE_ROWS; row++) {
            float sum = first ? 0 : out[token * TILE_ROWS + row], part = 0;
            for (size_t i = 0; i < k; i++) {
                part = fmaf(tile[i * TILE_ROWS + row], x[i * OCTET + token], i % GROUP ? part : 0);
                if (i % GROUP == GROUP - 1 || i == k - 1)
                    sum += part;
            }
            out[token * TILE_ROWS + row] = sum;
        }
    }
}

/* ---- One function per type ---- */

#define DEFINE_QUANTISED(isa, type)                                                                    \
    void isa##_matvec_##type(                                                                          \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out)               \
    {                                                                                                  \
        matvec_q8(TYPE_##type, tiles, tile_count, k, x, out);                                          \
    }                                                                                                  \
    void isa##_unpack_##type(const uint8_t *tile, size_t k, struct unpacked_tiles out, unsigned index) \
    {                                                                                                  \
        unpack_q8(TYPE_##type, tile, k, out, index);                                                   \
    }

#define DEFINE_FLOAT(isa, type)                                                                             \
    void isa##_matvec_##type(const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out) \
    {                                                                                                       \
        matvec_float(TYPE_##type, tiles, tile_count, k, x, out);                                            \
    }                                                                                                       \
    void isa##_unpack_##type(const uint8_t *tile, size_t k, float *out)                                     \
    {                                                                                                       \
        unpack_float(TYPE_##type, tile, k, out);                                                            \
    }

FOR_QUANTISED_TYPES(DEFINE_QUANTISED, scalar)
FOR_FLOAT_TYPES(DEFINE_FLOAT, scalar)
