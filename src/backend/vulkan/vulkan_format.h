/*
 * How matrices lie on the device: three planes, so that neighbouring invocations read neighbouring words. For
 * each row the codes of all blocks of 32 elements, then for all rows the upper bits of codes that have more
 * than four or two, then the scales. shaders/blocks.glsl reads what vulkan_format.c writes:
 *
 *   bytes    8 words, element 4 i + e in byte e of word i
 *   nibbles  4 words: word j has elements 4 j + e in the lower halves of its bytes and 16 + 4 j + e in the
 * upper pairs    2 words: element 4 i + e at bits 2 (i % 4) of byte e of word i / 4 bits     1 word: element
 * 4 i + e at bit i of byte e
 *
 * Scales: f16 (two a word), f16 with f16 minimum (a word), an exponent (four a word), or for each 256
 * elements a word with one or two f16 and then the group's scales as bytes. Rows of floats are padded to four
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

/* One row, `blocks` as in the file, into its places in the planes. */
void vulkan_format_pack(enum tensor_type type, const uint8_t *blocks, uint64_t columns, uint32_t *codes,
    uint32_t *high, uint32_t *scales);

/* No element of a row of a quantised type is larger, infinite where a scale is not finite; 0 for floats. */
float vulkan_format_largest(enum tensor_type type, const uint8_t *blocks, uint64_t columns);

#endif
