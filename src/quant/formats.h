/* An entry of the table of formats in quant.c; the file of each format family defines its own. */
#ifndef QUANT_FORMATS_H
#define QUANT_FORMATS_H

#include <stddef.h>

struct format {
    void (*dequantize)(const void *blocks, size_t block_count, float *out);
    void (*quantize)(const float *values, size_t block_count, void *blocks);
};

extern const struct format format_f32, format_f16, format_bf16;
extern const struct format format_q4_0, format_q4_1, format_q5_0, format_q5_1, format_q8_0;
extern const struct format format_q2_k, format_q3_k, format_q4_k, format_q5_k, format_q6_k;
extern const struct format format_iq4_nl, format_iq4_xs;
extern const struct format format_mxfp4;

#endif
