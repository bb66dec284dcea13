/* The reference functions of recurrent models: one element at a time, in the order that kernels.h and
 * recurrent.h define. */
#include "backend/cpu/recurrent.h"
#include "backend/cpu/rows.h"

#include <math.h>

static float row_sum(const float partial[8])
{
    return ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
           ((partial[1] + partial[5]) + (partial[3] + partial[7]));
}

static float exp_one(float x)
{
    scalar_exp_f32(1, &x);
    return x;
}

static float sigmoid_one(float x)
{
    return 1 / (1 + exp_one(-x));
}

void scalar_layer_norm(
    const float *x, const float *weight, const float *bias, size_t n, float epsilon, float *out)
{
    float sums[8] = {0}, squares[8] = {0};
    for (size_t i = 0; i < n; i++)
        sums[i % 8] += x[i];
    float mean = row_sum(sums) / (float)n;
    for (size_t i = 0; i < n; i++)
        squares[i % 8] += (x[i] - mean) * (x[i] - mean);
    float scale = 1 / sqrtf(row_sum(squares) / (float)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf((x[i] - mean) * scale, weight[i], bias[i]);
}

void scalar_l2_norm(const float *x, const float *weight, size_t n, float epsilon, float *out)
{
    float squares[8] = {0};
    for (size_t i = 0; i < n; i++) {
        float y = weight ? x[i] * weight[i] : x[i];
        squares[i % 8] += y * y;
    }
    float length = sqrtf(row_sum(squares));
    float scale = 1 / (length < epsilon ? epsilon : length);
    for (size_t i = 0; i < n; i++)
        out[i] = (weight ? x[i] * weight[i] : x[i]) * scale;
}

void scalar_mul(const float *x, const float *y, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * y[i];
}

void scalar_lerp(const float *x, const float *y, const float *weight, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf(y[i] - x[i], weight[i], x[i]);
}

void scalar_rwkv_key(const float *k, const float *a, const float *weight, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = k[i] * fmaf(a[i] - 1, weight[i], 1);
}

void scalar_rwkv_bonus(
    const float *x, const float *r, const float *k, const float *v, const float *weight, size_t n, float *out)
{
    float partial[8] = {0};
    for (size_t i = 0; i < n; i++)
        partial[i % 8] += r[i] * k[i] * weight[i];
    float bonus = row_sum(partial);
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf(bonus, v[i], x[i]);
}

void scalar_sigmoid(size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] = sigmoid_one(in_out[i]);
}

void scalar_relu_squared(size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++) {
        float positive = in_out[i] < 0 ? 0 : in_out[i];
        in_out[i] = positive * positive;
    }
}

void scalar_decay(size_t n, float *in_out)
{
    for (size_t i = 0; i < n; i++)
        in_out[i] = exp_one(DECAY_RATE * sigmoid_one(in_out[i]));
}

static void step_value(const struct wkv7_head *head, size_t t, size_t i, const float *before)
{
    const size_t row = t * head->stride;
    const float *r = head->r + row, *w = head->w + row, *k = head->k + row;
    const float *kk = head->kk + row, *a = head->a + row;
    const float v = head->v[row + i];
    float removed = 0, sum = 0;
    for (size_t j = 0; j < head->head_dim; j++)
        removed = fmaf(before[j * head->head_dim + i], kk[j], removed);
    for (size_t j = 0; j < head->head_dim; j++) {
        const size_t place = j * head->head_dim + i;
        float kept = fmaf(-removed, kk[j] * a[j], before[place] * w[j]);
        head->after[place] = fmaf(v, k[j], kept);
        sum = fmaf(head->after[place], r[j], sum);
    }
    head->out[row + i] = sum;
}

void scalar_wkv7(const struct wkv7_head *head)
{
    for (size_t t = 0; t < head->tokens; t++) {
        for (size_t i = 0; i < head->values; i++)
            step_value(head, t, i, t ? head->after : head->before);
    }
}
