/* The reference row functions: one element at a time, in the order that kernels.h defines. */
#include "backend/cpu/rows.h"
#include "backend/cpu/rows_math.h"

#include <math.h>

static float exp_one(float x)
{
    x = x < EXP_LOWEST ? EXP_LOWEST : x > EXP_HIGHEST ? EXP_HIGHEST : x;
    if (isnan(x))
        return x;
    float n = fmaf(x, LOG2_E, ROUNDER) - ROUNDER;
    float r = fmaf(n, -LN2_LOW, fmaf(n, -LN2_HIGH, x));
    float square = r * r, low = fmaf(EXP_1, r, EXP_0), high = fmaf(EXP_3, r, EXP_2);
    float p = fmaf(fmaf(EXP_4, square, high), square, low);
    return ldexpf(1 + fmaf(square, p, r), (int)n);
}

static float tanh_one(float x)
{
    float magnitude = fabsf(x), square = x * x;
    if (magnitude < TANH_SMALL) {
        float p =
            fmaf(fmaf(fmaf(fmaf(TANH_4, square, TANH_3), square, TANH_2), square, TANH_1), square, TANH_0);
        return copysignf(fmaf(square * magnitude, p, magnitude), x);
    }
    return copysignf(1 - 2 / (exp_one(magnitude + magnitude) + 1), x);
}

static float row_sum(const float partial[8])
{
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
           ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

void scalar_rms_norm(const float *x, const float *weight, size_t n, float epsilon, float *out)
{
    float partial[8] = {0};
    for (size_t i = 0; i < n; i++)
        partial[i % 8] += x[i] * x[i];
    float scale = 1 / sqrtf(row_sum(partial) / (float)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * scale * weight[i] : x[i] * scale;
}

void scalar_glu_silu(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1 + exp_one(-gate[i])) * up[i];
}

void scalar_glu_gelu(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i];
        float power = x * fmaf(x * x, GELU_CUBE, 1) * GELU_SLOPE;
        out[i] = x / (1 + exp_one(power)) * up[i];
    }
}

void scalar_add(const float *x, size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] += x[i];
}

void scalar_softcap(float cap, size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] = cap * tanh_one(in_out[i] / cap);
}

void scalar_exp_f32(size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] = exp_one(in_out[i]);
}

void scalar_tanh_f32(size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] = tanh_one(in_out[i]);
}

size_t scalar_argmax(const float *x, size_t n, float *out_value)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (best == n ? !isnan(x[i]) : x[i] > x[best])
            best = i;
    *out_value = best < n ? x[best] : NAN;
    return best;
}

static void rotate(float cosine, float sine, float *a, float *b)
{
    float left = fmaf(*a, cosine, -(*b * sine)), right = fmaf(*b, cosine, *a * sine);
    *a = left;
    *b = right;
}

void scalar_rope_halves(const float *cosines, const float *sines, size_t pairs, float *in_out)
{
    for (size_t i = 0; i < pairs; i++)
        rotate(cosines[i], sines[i], &in_out[i], &in_out[i + pairs]);
}

void scalar_rope_neighbours(const float *cosines, const float *sines, size_t pairs, float *in_out)
{
    for (size_t i = 0; i < pairs; i++)
        rotate(cosines[i], sines[i], &in_out[2 * i], &in_out[2 * i + 1]);
}
