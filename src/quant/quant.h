/*
 * Conversion between floats and the element types of GGUF files: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1,
 * Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4. This is the reference that every backend's kernels are
 * measured against; blocks.h says how the bytes lie.
 *
 * `count` is a multiple of the type's block_elements, and block pointers are aligned for uint16_t (for F32,
 * float).
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include "base/status.h"
#include "base/tensor_type.h"

/* An error that names the type unless both functions below handle it. */
enum salvo_status quant_check(uint32_t type);

/* Every bit is defined: each product and sum is rounded to f32, in the order that blocks.h writes. */
void dequantize(enum tensor_type type, const void *blocks, size_t count, float *out);

/*
 * Minimises the squared error of each block on its own, so that a tensor may be cut at any block and done by
 * several threads; the same values give the same bytes on every machine. In the block formats NaN counts as 0
 * and values are limited to what the format can hold, at most 2^64: what comes out is finite. A caller to
 * whom such values are an error looks for them first.
 */
void quantize(enum tensor_type type, const float *values, size_t count, void *blocks);

#endif
