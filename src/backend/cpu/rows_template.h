/*
 * The row functions for one instruction set; included by rows_neon.c and the like, which define ISA(name).
 * The remainder of a row is padded and computed with the same vectors: an element gives the same bits at any
 * index.
 */
#include "backend/cpu/rows.h"
#include "backend/cpu/rows_vec.h"

typedef vec map_function(vec x, vec y);

/* out = function(x, y); if y is NULL, `parameter` is passed instead. */
INLINE void map(const float *x, const float *y, float parameter, size_t n, float *out, map_function *function)
{
    vec same = vec_all(parameter);
    size_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(function(vec_load(x + i), y ? vec_load(y + i) : same), out + i);
    if (i < n) {
        vec second = y ? vec_load_some(y + i, n - i) : same;
        vec_store_some(function(vec_load_some(x + i, n - i), second), out + i, n - i);
    }
}

INLINE vec exp_of(vec x, vec unused)
{
    (void)unused;
    return vec_exp(x);
}

INLINE vec tanh_of(vec x, vec unused)
{
    (void)unused;
    return vec_tanh(x);
}

INLINE vec cap_of(vec x, vec cap)
{
    return cap * vec_tanh(x / cap);
}

INLINE vec silu_of(vec gate, vec up)
{
    return gate / vec_one_plus_exp(-gate) * up;
}

INLINE vec gelu_of(vec gate, vec up)
{
    vec power = gate * vec_fma(gate * gate, vec_all(GELU_CUBE), vec_all(1)) * vec_all(GELU_SLOPE);
    return gate / vec_one_plus_exp(power) * up;
}

INLINE vec sum_of(vec x, vec y)
{
    return x + y;
}

INLINE void add_squares(const float *x, struct partial_sums *sums)
{
    UNROLL
    for (int part = 0; part < 8 / VEC; part++)
        sums->part[part] += vec_load(x + part * VEC) * vec_load(x + part * VEC);
}

void ISA(rms_norm)(const float *x, const float *weight, size_t n, float epsilon, float *out)
{
    struct partial_sums sums = {{{0}}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        add_squares(x + i, &sums);
    if (i < n) { /* zeros of the padding change no sum of squares */
        float padded[8] = {0};
        memcpy(padded, x + i, (n - i) * sizeof *x);
        add_squares(padded, &sums);
    }
    float scale = 1 / sqrtf(row_sum(sums) / (float)n + epsilon);

    if (!weight) {
        for (i = 0; i + VEC <= n; i += VEC)
            vec_store(vec_load(x + i) * vec_all(scale), out + i);
        if (i < n)
            vec_store_some(vec_load_some(x + i, n - i) * vec_all(scale), out + i, n - i);
        return;
    }
    for (i = 0; i + VEC <= n; i += VEC)
        vec_store(vec_load(x + i) * vec_all(scale) * vec_load(weight + i), out + i);
    if (i < n)
        vec_store_some(
            vec_load_some(x + i, n - i) * vec_all(scale) * vec_load_some(weight + i, n - i), out + i, n - i);
}

void ISA(glu_silu)(const float *gate, const float *up, size_t n, float *out)
{
    map(gate, up, 0, n, out, silu_of);
}

void ISA(glu_gelu)(const float *gate, const float *up, size_t n, float *out)
{
    map(gate, up, 0, n, out, gelu_of);
}

void ISA(add)(const float *x, size_t n, float *in_out)
{
    map(in_out, x, 0, n, in_out, sum_of);
}

void ISA(softcap)(float cap, size_t n, float *in_out)
{
    map(in_out, NULL, cap, n, in_out, cap_of);
}

void ISA(exp_f32)(size_t n, float *in_out)
{
    map(in_out, NULL, 0, n, in_out, exp_of);
}

void ISA(tanh_f32)(size_t n, float *in_out)
{
    map(in_out, NULL, 0, n, in_out, tanh_of);
}

/* Finds the largest value, in any order, then the first element that equals it. */
size_t ISA(argmax)(const float *x, size_t n, float *out_value)
{
    enum { CHAINS = 4 };
    const float maximum = vec_maximum(x, n);
    size_t i;
    for (i = 0; i + CHAINS * VEC <= n; i += CHAINS * VEC) {
        vec_int equal = {0};
        for (int chain = 0; chain < CHAINS; chain++)
            equal |= (vec_int)(vec_load(x + i + chain * VEC) == vec_all(maximum));
        int64_t words[VEC / 2], any = 0;
        memcpy(words, &equal, sizeof words);
        for (int word = 0; word < VEC / 2; word++)
            any |= words[word];
        if (any)
            break;
    }
    while (i < n && x[i] != maximum)
        i++;
    *out_value = i < n ? x[i] : NAN;
    return i;
}

/* (a, b) becomes (a cos - b sin, b cos + a sin). */
INLINE void rotate(vec cosines, vec sines, vec *a, vec *b)
{
    vec left = vec_fma(*a, cosines, -(*b * sines)), right = vec_fma(*b, cosines, *a * sines);
    *a = left;
    *b = right;
}

void ISA(rope_halves)(const float *cosines, const float *sines, size_t pairs, float *in_out)
{
    size_t i = 0;
    for (; i + VEC <= pairs; i += VEC) {
        vec a = vec_load(in_out + i), b = vec_load(in_out + pairs + i);
        rotate(vec_load(cosines + i), vec_load(sines + i), &a, &b);
        vec_store(a, in_out + i);
        vec_store(b, in_out + pairs + i);
    }
    if (i < pairs) {
        size_t left = pairs - i;
        vec a = vec_load_some(in_out + i, left), b = vec_load_some(in_out + pairs + i, left);
        rotate(vec_load_some(cosines + i, left), vec_load_some(sines + i, left), &a, &b);
        vec_store_some(a, in_out + i, left);
        vec_store_some(b, in_out + pairs + i, left);
    }
}

INLINE void rotate_neighbours(vec cosines, vec sines, float *at)
{
    vec low = vec_load(at), high = vec_load(at + VEC), a, b;
    vec_unzip(low, high, &a, &b);
    rotate(cosines, sines, &a, &b);
    vec_zip(a, b, &low, &high);
    vec_store(low, at);
    vec_store(high, at + VEC);
}

void ISA(rope_neighbours)(const float *cosines, const float *sines, size_t pairs, float *in_out)
{
    size_t i = 0;
    for (; i + VEC <= pairs; i += VEC)
        rotate_neighbours(vec_load(cosines + i), vec_load(sines + i), in_out + 2 * i);
    if (i < pairs) {
        size_t left = pairs - i;
        float padded[2 * VEC] = {0};
        memcpy(padded, in_out + 2 * i, 2 * left * sizeof *padded);
        rotate_neighbours(vec_load_some(cosines + i, left), vec_load_some(sines + i, left), padded);
        memcpy(in_out + 2 * i, padded, 2 * left * sizeof *padded);
    }
}
