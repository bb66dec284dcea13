/*
 * Two or four tokens with packed tiles, for AVX2 and AVX-VNNI: the codes are unpacked in registers for
 * codes_dot. Included after matmul_template.h.
 */

/* One tile times `pairs` pairs of tokens; the rows of `out` are `stride` floats apart. */
INLINE void multiply_packed(enum tensor_type type, const unsigned terms, const unsigned pairs,
    const uint8_t *block, size_t k, struct q8_tile x, size_t stride, float *out)
{
    const struct tile_format f = DOT_FORMAT(tile_formats[type]);
    const unsigned groups = tile_block_elements(f) / 32, halves = 32 / f.group, octets = 4 / halves;
    vec8 sums[QUAD];
    UNROLL
    for (unsigned t = 0; t < pairs * 2; t++)
        sums[t] = vec8_all(0);
    for (size_t first = 0; first < k / 32; first += groups, block += tile_block_bytes(f)) {
        prefetch_block(block, tile_block_bytes(f));
        const struct levels levels = block_levels(f, block);
        for (size_t i = 0; i < groups; i++) {
            const size_t g = first + i;
            const struct codes codes = load_codes(f, block + tile_codes_at(f) + i * tile_code_bytes(f));
            UNROLL
            for (unsigned half = 0; half < halves; half++) {
                const size_t part = g * halves + half; /* of the row */
                const struct levels group = group_levels(f, block, levels, i * halves + half);
                const float *x_sums = (halves == 1 ? x.sums : x.half_sums) + part * QUAD;
                const int32_t *corrections = (halves == 1 ? x.corrections : x.half_corrections) + part * QUAD;
                UNROLL
                for (unsigned t = 0; t < pairs * 2; t++) {
                    const vec8 dot = codes_dot(f, codes.v + half * 2 * VECTORS,
                        x.values + (part * octets * terms * QUAD + t) * OCTET, corrections + t, QUAD * OCTET,
                        octets, terms);
                    sums[t] = add_group(sums[t], dot, group, x.scales[g * QUAD + t], f.offsets, x_sums + t);
                }
            }
        }
    }
    UNROLL
    for (unsigned t = 0; t < pairs * 2; t++)
        vec8_store(sums[t], out + t * stride);
}

#include "backend/cpu/matmul_packed.h"
