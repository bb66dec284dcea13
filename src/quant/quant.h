/*
 * Conversion between floats and the element types of GGUF files: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1,
 * Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4. This is the reference for the kernels of every backend;
 * blocks.h defines the layouts. `count` is a multiple of the type's block_elements, and block pointers are
 * aligned for uint16_t (for F32, float).
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include "base/status.h"
#include "base/tensor_type.h"

/* Fails, naming the type, unless both functions below support it. */
enum salvo_status quant_check(uint32_t type);

/* Results are exact to the bit: each product and sum is rounded to f32, in the order of the formula in
 * blocks.h. */
void dequantize(enum tensor_type type, const void *blocks, size_t count, float *out);

/*
 * Minimises the squared error of each block independently, so that threads may convert any blocks of a
 * tensor; the same values give the same bytes on every machine. In the block formats NaN counts as 0 and
 * values are clamped to the range of the format, at most 2^64, so that results are finite. Callers that treat
 * such values as errors check for them first.
 */
void quantize(enum tensor_type type, const float *values, size_t count, void *blocks);

#endif
