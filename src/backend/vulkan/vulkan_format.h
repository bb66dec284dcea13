/*
 * Layout of matrices on the device: three planes, so that neighbouring invocations read neighbouring words.
 * The first plane has the codes of all blocks of 32 elements, row by row; the second the upper bits of codes
 * that have more than four bits (or more than two); the third the scales. vulkan_format.c writes them,
 * shaders/blocks.glsl reads them. Codes of a block:
 *
 *   8 bits: 8 words; byte e of word i has element 4 i + e
 *   4 bits: 4 words; byte e of word j has element 4 j + e in its lower and 16 + 4 j + e in its upper half
 *   2 bits: 2 words; byte e of word i / 4 has element 4 i + e at bit 2 (i % 4)
 *   1 bit:  1 word; byte e has element 4 i + e at bit i
 *
 * Scales: f16 (two per word), f16 with f16 minimum (a word), an exponent (four per word), or for each 256
 * elements a word with one or two f16, then the groups' scales as bytes. Rows of floats are padded to four
 * elements.
 */
#ifndef VULKAN_FORMAT_H
#define VULKAN_FORMAT_H

#include "base/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words of one row in each plane. */
struct row_planes {
    uint32_t codes, high, scales;
};

/* False for types and widths that cannot be packed. */
bool vulkan_format_planes(enum tensor_type type, uint64_t columns, struct row_planes *out);

/* Packs one row, `blocks` as in the file, into its places in the planes. */
void vulkan_format_pack(enum tensor_type type, const uint8_t *blocks, uint64_t columns, uint32_t *codes,
    uint32_t *high, uint32_t *scales);

/* An upper bound of a row's magnitudes; infinite if a scale is not finite, 0 for float types. */
float vulkan_format_largest(enum tensor_type type, const uint8_t *blocks, uint64_t columns);

#endif
