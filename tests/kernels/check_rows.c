/* Row functions against the scalar ones, bit for bit; exp and tanh against the C library's in double. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 49152 };

static const size_t lengths[] = {576, 1536, 0};

/* 1 .. 70, then the lengths above; 0 ends. */
static size_t length_at(size_t index)
{
    return index < 70 ? index + 1 : lengths[index - 70];
}

static float *random_row(size_t n, bool extreme)
{
    float *row = guarded_new(n * sizeof *row);
    for (size_t i = 0; i < n; i++)
        row[i] = extreme ? random_extreme() : random_float() * 8;
    return row;
}

static float *copy_row(const float *row, size_t n)
{
    float *copy = guarded_new(n * sizeof *copy);
    memcpy(copy, row, n * sizeof *copy);
    return copy;
}

/* ---- Every function at every length ------------------------------------------------------------------ */

typedef void in_place_function(const struct cpu_kernels *kernels, const float *other, size_t n, float *row);

static void call_exp(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    (void)other;
    kernels->exp_f32(n, row);
}

static void call_tanh(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    (void)other;
    kernels->tanh_f32(n, row);
}

static void call_softcap(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    (void)other;
    kernels->softcap(30, n, row);
}

static void call_add(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->add(other, n, row);
}

static void call_silu(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->glu_silu(row, other, n, row);
}

static void call_gelu(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->glu_gelu(row, other, n, row);
}

static void call_rms_norm(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->rms_norm(row, other, n, 1e-5f, row);
}

static void call_rms_norm_alone(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    (void)other;
    kernels->rms_norm(row, NULL, n, 1e-5f, row);
}

/* A row of 2 n elements, of which the cosines and sines are the first and the last n of `other`; one more
 * element must stay. */
static void call_rope_halves(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->rope_halves(other, other + (n - n / 2), n / 2, row);
}

static void call_rope_neighbours(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->rope_neighbours(other, other + (n - n / 2), n / 2, row);
}

static const struct {
    const char *name;
    in_place_function *call;
    bool elementwise; /* each element of the result depends on its own input alone */
} functions[] = {
    {"exp", call_exp, true},
    {"tanh", call_tanh, true},
    {"softcap", call_softcap, true},
    {"add", call_add, true},
    {"glu_silu", call_silu, true},
    {"glu_gelu", call_gelu, true},
    {"rms_norm", call_rms_norm, false},
    {"rms_norm without weight", call_rms_norm_alone, false},
    {"rope_halves", call_rope_halves, false},
    {"rope_neighbours", call_rope_neighbours, false},
};

static void check_function(
    const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t index, size_t n, bool extreme)
{
    check_begin(kernels, "%s n %zu%s", functions[index].name, n, extreme ? " extreme" : "");
    float *row = random_row(n, extreme), *other = random_row(n, extreme);
    float *got = copy_row(row, n), *want = copy_row(row, n);
    functions[index].call(kernels, other, n, got);
    functions[index].call(scalar, other, n, want);
    check_same_floats("out", got, want, n);
    for (size_t i = 0; functions[index].elementwise && i < n && n <= 70; i++) {
        float *alone = copy_row(row + i, 1);
        functions[index].call(kernels, other + i, 1, alone);
        check_same_floats("the same element alone", alone, got + i, 1);
        guarded_free(alone);
    }
    guarded_free(want);
    guarded_free(got);
    guarded_free(other);
    guarded_free(row);
}

/* Outputs elsewhere than the inputs. */
static void check_apart(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t n)
{
    check_begin(kernels, "out of place n %zu", n);
    float *x = random_row(n, false), *y = random_row(n, false), *got = guarded_new(n * sizeof *got),
          *want = guarded_new(n * sizeof *want);
    kernels->rms_norm(x, y, n, 1e-6f, got);
    scalar->rms_norm(x, y, n, 1e-6f, want);
    check_same_floats("rms_norm", got, want, n);
    kernels->glu_silu(x, y, n, got);
    scalar->glu_silu(x, y, n, want);
    check_same_floats("glu_silu", got, want, n);
    kernels->glu_gelu(x, y, n, got);
    scalar->glu_gelu(x, y, n, want);
    check_same_floats("glu_gelu", got, want, n);
    guarded_free(want);
    guarded_free(got);
    guarded_free(y);
    guarded_free(x);
}

/* ---- Against the C library --------------------------------------------------------------------------- */

/* A NaN is the worst. */
static double worse(double a, double b)
{
    return b <= a || isnan(a) ? a : b;
}

/* In units of the last place of a float near `want`. */
static double ulps_off(float got, double want)
{
    if (isnan(want))
        return isnan(got) ? 0 : INFINITY;
    if (fabs(want) >= 0x1.ffffffp127) /* rounds to infinity */
        return isinf(got) && (got > 0) == (want > 0) ? 0 : fabs(want) < 0x1.000004p128 ? 1 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* Every `step`th of the floats from 2^-30 to 2^8 in magnitude, and fewer of the others. */
static void check_accuracy(const struct cpu_kernels *kernels, uint32_t step)
{
    enum { CHUNK = 1024 };
    static float x[CHUNK], exps[CHUNK], tanhs[CHUNK];
    double worst_exp = 0, worst_tanh = 0;
    check_begin(kernels, "accuracy of exp and tanh");
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        for (size_t i = 0; i < CHUNK; i++) {
            uint32_t low = (uint32_t)bits, exponent = low >> 23 & 255;
            memcpy(&x[i], &low, sizeof low);
            bits += exponent >= 127 - 30 && exponent < 127 + 8 ? step : step * 50;
        }
        memcpy(exps, x, sizeof x);
        memcpy(tanhs, x, sizeof x);
        kernels->exp_f32(CHUNK, exps);
        kernels->tanh_f32(CHUNK, tanhs);
        for (size_t i = 0; i < CHUNK; i++) {
            worst_exp = worse(worst_exp, ulps_off(exps[i], exp((double)x[i])));
            worst_tanh = worse(worst_tanh, ulps_off(tanhs[i], tanh((double)x[i])));
        }
    }
    printf("%s: exp within %.2f, tanh within %.2f units in the last place\n", kernels->name, worst_exp,
        worst_tanh);
    check_that(worst_exp <= 2, "exp off by more than 2 units in the last place");
    check_that(worst_tanh <= 2, "tanh off by more than 2 units in the last place");
    float points[] = {0, -0.0f, -INFINITY, INFINITY, -200, 200};
    const float exp_points[] = {1, 1, 0, INFINITY, 0, INFINITY}, tanh_points[] = {0, -0.0f, -1, 1, -1, 1};
    float copy[6];
    memcpy(copy, points, sizeof points);
    kernels->exp_f32(6, copy);
    check_same_floats("exp of a point", copy, exp_points, 6);
    kernels->tanh_f32(6, points);
    check_same_floats("tanh of a point", points, tanh_points, 6);
}

/* Compares the row functions with their definitions, computed in double. */
static void check_meaning(const struct cpu_kernels *kernels)
{
    enum { N = 576 };
    check_begin(kernels, "meaning of the row functions");
    float *x = random_row(N, false), *y = random_row(N, false), *out = guarded_new(N * sizeof *out);
    double squares = 0, worst_norm = 0, worst_silu = 0, worst_gelu = 0;
    for (size_t i = 0; i < N; i++)
        squares += (double)x[i] * x[i];
    kernels->rms_norm(x, y, N, 1e-5f, out);
    for (size_t i = 0; i < N; i++)
        worst_norm = worse(worst_norm, fabs(out[i] - x[i] / sqrt(squares / N + 1e-5) * y[i]));
    kernels->glu_silu(x, y, N, out);
    for (size_t i = 0; i < N; i++)
        worst_silu = worse(worst_silu, fabs(out[i] - x[i] / (1 + exp(-(double)x[i])) * y[i]));
    kernels->glu_gelu(x, y, N, out);
    for (size_t i = 0; i < N; i++) {
        double gate = x[i], inner = sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate);
        worst_gelu = worse(worst_gelu, fabs(out[i] - 0.5 * gate * (1 + tanh(inner)) * y[i]));
    }
    check_that(worst_norm < 1e-5, "rms_norm");
    check_that(worst_silu < 2e-5, "glu_silu");
    check_that(worst_gelu < 2e-5, "glu_gelu");
    guarded_free(out);
    guarded_free(y);
    guarded_free(x);
}

/* ---- Argmax ------------------------------------------------------------------------------------------ */

static void check_argmax(
    const struct cpu_kernels *kernels, const char *name, const float *values, size_t n, size_t want)
{
    check_begin(kernels, "argmax: %s, %zu elements", name, n);
    float *row = copy_row(values, n), value = 0;
    check_that(kernels->argmax(row, n, &value) == want, "index");
    float want_value = want < n ? values[want] : NAN;
    check_same_floats("value", &value, &want_value, 1);
    guarded_free(row);
}

static void check_argmax_cases(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar)
{
    static float x[VOCABULARY];
    static const size_t sizes[] = {1, 2, 3, 7, 8, 31, 64, 65, 1000, VOCABULARY};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s];
        for (size_t i = 0; i < n; i++)
            x[i] = 1.5f;
        check_argmax(kernels, "all equal", x, n, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = (float)i;
        check_argmax(kernels, "maximum last", x, n, n - 1);
        for (size_t i = 0; i < n; i++)
            x[i] = -1 - (float)i;
        check_argmax(kernels, "all negative", x, n, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = NAN;
        check_argmax(kernels, "all NaN", x, n, n);
        x[n - 1] = -INFINITY;
        check_argmax(kernels, "NaN and minus infinity", x, n, n - 1);
        for (size_t i = 0; i < n; i++)
            x[i] = -INFINITY;
        check_argmax(kernels, "minus infinity alone", x, n, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = i % 3 ? -INFINITY : NAN;
        x[n / 2] = INFINITY;
        check_argmax(kernels, "both infinities and NaN", x, n, n / 2);
        for (size_t i = 0; i < n; i++)
            x[i] = i % 2 ? 0.0f : -0.0f;
        check_argmax(kernels, "two kinds of zero", x, n, 0);
        for (int round = 0; round < 20; round++) {
            float value;
            for (size_t i = 0; i < n; i++)
                x[i] = round % 2 ? random_extreme() : rintf(random_float() * 50);
            check_argmax(kernels, "random", x, n, scalar->argmax(x, n, &value));
        }
    }
    float value = 0;
    check_begin(kernels, "argmax of nothing");
    check_that(kernels->argmax(x, 0, &value) == 0 && isnan(value), "index 0 and NaN");
}

void check_rows(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar)
{
    for (size_t i = 0; length_at(i); i++) {
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
            check_function(kernels, scalar, f, length_at(i), false);
            check_function(kernels, scalar, f, length_at(i), true);
        }
        check_apart(kernels, scalar, length_at(i));
    }
    check_accuracy(kernels, kernels == scalar ? 1553 : 97);
    check_meaning(kernels);
    check_argmax_cases(kernels, scalar);
}

/* ---- Speed ------------------------------------------------------------------------------------------- */

struct row_bench {
    const struct cpu_kernels *kernels;
    in_place_function *call;
    float *row, *other;
    size_t n;
};

static void bench_call(void *argument)
{
    struct row_bench *row = argument;
    row->call(row->kernels, row->other, row->n, row->row);
}

static void call_argmax(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->argmax(other, n, row);
}

static void call_silu_apart(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->glu_silu(other, other, n, row);
}

static void call_gelu_apart(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->glu_gelu(other, other, n, row);
}

static void call_rms_norm_apart(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->rms_norm(other, other, n, 1e-5f, row);
}

static void call_add_apart(const struct cpu_kernels *kernels, const float *other, size_t n, float *row)
{
    kernels->add(other, n, row);
    row[0] = 0;
}

void bench_rows(const struct cpu_kernels *kernels)
{
    static const struct {
        const char *name;
        in_place_function *call;
        size_t n;
    } cases[] = {{"rms_norm/576", call_rms_norm_apart, 576}, {"rms_norm/4096", call_rms_norm_apart, 4096},
        {"glu_silu/1536", call_silu_apart, 1536}, {"glu_gelu/1536", call_gelu_apart, 1536},
        {"add/576", call_add_apart, 576}, {"softcap/49152", call_softcap, VOCABULARY},
        {"tanh/1536", call_tanh, 1536}, {"exp/256", call_exp, 256}, {"argmax/49152", call_argmax, VOCABULARY},
        {"rope_halves/64", call_rope_halves, 64}, {"rope_neighbours/64", call_rope_neighbours, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!bench_wanted(cases[i].name))
            continue;
        float *row = random_row(cases[i].n, false), *other = random_row(cases[i].n, false);
        struct row_bench argument = {kernels, cases[i].call, row, other, cases[i].n};
        bench_print(kernels, cases[i].name, (double)cases[i].n, "G/s", bench(bench_call, &argument));
        guarded_free(other);
        guarded_free(row);
    }
}
