/*
 * Row functions of each instruction set; kernels.h defines their results. The formulas that determine the
 * bits:
 *
 *   exp   n = round(x * log2 e), r = x - n ln 2 in two fma, 1 + (r + r^2 P(r)) times 2^n (rows_math.h)
 *   tanh  |x| < 0.625: x + x^3 Q(x^2); else 1 - 2 / (exp(2 |x|) + 1), with the sign of x
 *   silu  gate / (1 + exp(-gate)) * up
 *   gelu  gate / (1 + exp(-2 z)) * up with z = 0.79788456 gate (1 + 0.044715 gate^2), which is the tanh form
 *         0.5 gate (1 + tanh z), without its cancellation
 *
 * All tables give the same bits as the scalar one, except for the payload of NaN.
 */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "backend/cpu/kernels.h"

#define DECLARE_ROWS(isa)                                                                          \
    void isa##_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *out); \
    void isa##_glu_silu(const float *gate, const float *up, size_t n, float *out);                 \
    void isa##_glu_gelu(const float *gate, const float *up, size_t n, float *out);                 \
    void isa##_add(const float *x, size_t n, float *in_out);                                       \
    void isa##_softcap(float cap, size_t n, float *in_out);                                        \
    void isa##_exp_f32(size_t n, float *in_out);                                                   \
    void isa##_tanh_f32(size_t n, float *in_out);                                                  \
    size_t isa##_argmax(const float *x, size_t n, float *out_value);                               \
    void isa##_rope_halves(const float *cosines, const float *sines, size_t pairs, float *in_out); \
    void isa##_rope_neighbours(const float *cosines, const float *sines, size_t pairs, float *in_out);

DECLARE_ROWS(scalar)
DECLARE_ROWS(neon)
DECLARE_ROWS(avx2)
DECLARE_ROWS(avx512)

/* The members of struct cpu_kernels that these functions fill. */
#define ROW_KERNELS(isa)                                                                                    \
    .rms_norm = isa##_rms_norm, .glu_silu = isa##_glu_silu, .glu_gelu = isa##_glu_gelu, .add = isa##_add,   \
    .softcap = isa##_softcap, .exp_f32 = isa##_exp_f32, .tanh_f32 = isa##_tanh_f32, .argmax = isa##_argmax, \
    .rope_halves = isa##_rope_halves, .rope_neighbours = isa##_rope_neighbours

#endif
