/*
 * Functions of recurrent models, for each instruction set; kernels.h defines their results. The order of
 * roundings, with row_sum of kernels.h:
 *
 *   layer_norm  mean = row_sum(x) / n, d = x - mean,
 *               out = fma(d * (1 / sqrt(row_sum(d * d) / n + epsilon)), weight, bias)
 *   l2_norm     y = x * weight, out = y * (1 / max(sqrt(row_sum(y * y)), epsilon))
 *   lerp        fma(y - x, weight, x)
 *   rwkv_key    k * fma(a - 1, weight, 1)
 *   rwkv_bonus  fma(row_sum(r * k * weight), v, x)
 *   sigmoid     1 / (1 + exp(-x))
 *   decay       exp(-0.60653066 * sigmoid(x))
 *
 * All tables give the same bits as the scalar one, except for the payload of NaN.
 */
#ifndef CPU_RECURRENT_H
#define CPU_RECURRENT_H

#include "backend/cpu/kernels.h"

/* -exp(-0.5) */
#define DECAY_RATE (-0x1.368b30p-1f)

#define DECLARE_RECURRENT(isa)                                                                        \
    void isa##_layer_norm(                                                                            \
        const float *x, const float *weight, const float *bias, size_t n, float epsilon, float *out); \
    void isa##_l2_norm(const float *x, const float *weight, size_t n, float epsilon, float *out);     \
    void isa##_mul(const float *x, const float *y, size_t n, float *out);                             \
    void isa##_lerp(const float *x, const float *y, const float *weight, size_t n, float *out);       \
    void isa##_rwkv_key(const float *k, const float *a, const float *weight, size_t n, float *out);   \
    void isa##_rwkv_bonus(const float *x, const float *r, const float *k, const float *v,             \
        const float *weight, size_t n, float *out);                                                   \
    void isa##_sigmoid(size_t n, float *in_out);                                                      \
    void isa##_relu_squared(size_t n, float *in_out);                                                 \
    void isa##_decay(size_t n, float *in_out);                                                        \
    void isa##_wkv7(const struct wkv7_head *head);

DECLARE_RECURRENT(scalar)
DECLARE_RECURRENT(neon)
DECLARE_RECURRENT(avx2)
DECLARE_RECURRENT(avx512)

/* The members of struct cpu_kernels that these functions fill. */
#define RECURRENT_KERNELS(isa)                                                                      \
    .layer_norm = isa##_layer_norm, .l2_norm = isa##_l2_norm, .mul = isa##_mul, .lerp = isa##_lerp, \
    .rwkv_key = isa##_rwkv_key, .rwkv_bonus = isa##_rwkv_bonus, .sigmoid = isa##_sigmoid,           \
    .relu_squared = isa##_relu_squared, .decay = isa##_decay, .wkv7 = isa##_wkv7

#endif
