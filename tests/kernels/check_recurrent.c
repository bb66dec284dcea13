/* Functions of recurrent models: the same bits as the scalar ones, which are compared with doubles. */
#include "check.h"

#include <math.h>
#include <string.h>

enum { MOST_INPUTS = 5 };

static float *random_row(size_t n, bool extreme)
{
    float *row = guarded_new(n * sizeof *row);
    for (size_t i = 0; i < n; i++)
        row[i] = extreme ? random_extreme() : random_float() * 4;
    return row;
}

/* Every function as one of up to five rows. */
typedef void row_function(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out);

static void call_layer_norm(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->layer_norm(inputs[0], inputs[1], inputs[2], n, 1e-5f, out);
}

static void call_l2_norm(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->l2_norm(inputs[0], inputs[1], n, 1e-12f, out);
}

static void call_plain_l2_norm(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->l2_norm(inputs[0], NULL, n, 1e-12f, out);
}

static void call_mul(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->mul(inputs[0], inputs[1], n, out);
}

static void call_lerp(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->lerp(inputs[0], inputs[1], inputs[2], n, out);
}

static void call_key(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->rwkv_key(inputs[0], inputs[1], inputs[2], n, out);
}

static void call_bonus(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    kernels->rwkv_bonus(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], n, out);
}

static void call_sigmoid(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    memmove(out, inputs[0], n * sizeof *out);
    kernels->sigmoid(n, out);
}

static void call_relu_squared(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    memmove(out, inputs[0], n * sizeof *out);
    kernels->relu_squared(n, out);
}

static void call_decay(
    const struct cpu_kernels *kernels, float *const inputs[MOST_INPUTS], size_t n, float *out)
{
    memmove(out, inputs[0], n * sizeof *out);
    kernels->decay(n, out);
}

static const struct {
    const char *name;
    row_function *call;
} functions[] = {{"layer_norm", call_layer_norm}, {"l2_norm", call_l2_norm},
    {"l2_norm without weight", call_plain_l2_norm}, {"mul", call_mul}, {"lerp", call_lerp},
    {"rwkv_key", call_key}, {"rwkv_bonus", call_bonus}, {"sigmoid", call_sigmoid},
    {"relu_squared", call_relu_squared}, {"decay", call_decay}};

enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Out of place and in place, with the guards around every row. */
static void check_row(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t function,
    size_t n, bool extreme)
{
    float *inputs[MOST_INPUTS], *got = guarded_new(n * sizeof *got), *want = guarded_new(n * sizeof *want);
    check_begin(kernels, "%s n %zu%s", functions[function].name, n, extreme ? " extreme" : "");
    for (int i = 0; i < MOST_INPUTS; i++)
        inputs[i] = random_row(n, extreme);
    functions[function].call(scalar, inputs, n, want);
    functions[function].call(kernels, inputs, n, got);
    check_same_floats("out of place", got, want, n);
    functions[function].call(kernels, inputs, n, inputs[0]);
    check_same_floats("in place", inputs[0], want, n);
    for (int i = 0; i < MOST_INPUTS; i++)
        guarded_free(inputs[i]);
    guarded_free(want);
    guarded_free(got);
}

/* ---- wkv7 ---- */

enum { R, W, K, V, KK, A, ROWS };

struct recurrence {
    float *rows[ROWS]; /* [tokens][stride] */
    float *state;      /* [head_dim][head_dim] */
    size_t tokens, stride, head_dim;
};

static struct recurrence new_recurrence(size_t tokens, size_t head_dim)
{
    struct recurrence made = {.tokens = tokens, .stride = head_dim + 3, .head_dim = head_dim};
    for (int i = 0; i < ROWS; i++) {
        made.rows[i] = random_row(tokens * made.stride, false);
        for (size_t j = 0; j < tokens * made.stride; j++) { /* as large as a model has them */
            made.rows[i][j] = i == W    ? 0.55f + fabsf(made.rows[i][j]) * 0.1f
                              : i == A  ? fabsf(made.rows[i][j]) * 0.25f
                              : i == KK ? made.rows[i][j] / (4 * sqrtf((float)head_dim))
                                        : made.rows[i][j];
        }
    }
    made.state = random_row(head_dim * head_dim, false);
    return made;
}

static void free_recurrence(struct recurrence *recurrence)
{
    for (int i = 0; i < ROWS; i++)
        guarded_free(recurrence->rows[i]);
    guarded_free(recurrence->state);
}

/* Tokens first .. first + count - 1, values by `part` at a time. */
static void run_recurrence(const struct cpu_kernels *kernels, const struct recurrence *recurrence,
    size_t first, size_t count, size_t part, const float *before, float *after, float *out)
{
    const size_t row = first * recurrence->stride;
    for (size_t value = 0; value < recurrence->head_dim; value += part) {
        kernels->wkv7(&(struct wkv7_head){
            .r = recurrence->rows[R] + row,
            .w = recurrence->rows[W] + row,
            .k = recurrence->rows[K] + row,
            .v = recurrence->rows[V] + row + value,
            .kk = recurrence->rows[KK] + row,
            .a = recurrence->rows[A] + row,
            .out = out + row + value,
            .before = before + value,
            .after = after + value,
            .tokens = count,
            .stride = recurrence->stride,
            .head_dim = recurrence->head_dim,
            .values = part,
        });
    }
}

/* The definition of op.h, in doubles; `state` is replaced. Returns the largest difference of `out`. */
static double compare_with_doubles(const struct recurrence *recurrence, const float *out)
{
    enum { MOST = 64 };
    static double state[MOST][MOST];
    const size_t dim = recurrence->head_dim;
    double worst = 0;
    for (size_t i = 0; i < dim * dim; i++)
        state[i / dim][i % dim] = (double)recurrence->state[i];
    for (size_t t = 0; t < recurrence->tokens; t++) {
        const float *rows[ROWS];
        for (int i = 0; i < ROWS; i++)
            rows[i] = recurrence->rows[i] + t * recurrence->stride;
        for (size_t i = 0; i < dim; i++) {
            double removed = 0, sum = 0;
            for (size_t j = 0; j < dim; j++)
                removed += state[j][i] * (double)rows[KK][j];
            for (size_t j = 0; j < dim; j++) {
                state[j][i] = state[j][i] * (double)rows[W][j] -
                              removed * (double)rows[KK][j] * (double)rows[A][j] +
                              (double)rows[V][i] * (double)rows[K][j];
                sum += state[j][i] * (double)rows[R][j];
            }
            double error = fabs(sum - (double)out[t * recurrence->stride + i]);
            worst = error <= worst ? worst : error; /* a NaN stays */
        }
    }
    return worst;
}

static void check_wkv7(
    const struct cpu_kernels *kernels, const struct cpu_kernels *scalar, size_t tokens, size_t head_dim)
{
    struct recurrence recurrence = new_recurrence(tokens, head_dim);
    const size_t size = tokens * recurrence.stride, states = head_dim * head_dim;
    float *want = guarded_new(size * sizeof *want), *got = guarded_new(size * sizeof *got);
    float *want_state = guarded_new(states * sizeof *want_state),
          *state = guarded_new(states * sizeof *state);
    check_begin(kernels, "wkv7 of %zu tokens, heads of %zu", tokens, head_dim);
    run_recurrence(scalar, &recurrence, 0, tokens, head_dim, recurrence.state, want_state, want);
    if (kernels == scalar)
        check_that(compare_with_doubles(&recurrence, want) < 1e-4 * 64, "far from the definition");

    run_recurrence(kernels, &recurrence, 0, tokens, head_dim, recurrence.state, state, got);
    check_same_floats("state", state, want_state, states);
    check_same_floats("all at once", got, want, size);
    memset(got, 0xFF, size * sizeof *got); /* bytes between the rows are unchanged */
    run_recurrence(kernels, &recurrence, 0, tokens, 8, recurrence.state, state, got);
    check_same_floats("by eight values", got, want, size);
    memset(got, 0xFF, size * sizeof *got);
    for (size_t t = 0; t < tokens; t++)
        run_recurrence(kernels, &recurrence, t, 1, head_dim, recurrence.state, recurrence.state, got);
    check_same_floats("token by token in place", got, want, size);
    check_same_floats("state in place", recurrence.state, want_state, states);
    guarded_free(state);
    guarded_free(want_state);
    guarded_free(got);
    guarded_free(want);
    free_recurrence(&recurrence);
}

/* A group of zeros has no direction, and is no NaN. */
static void check_zeros(const struct cpu_kernels *kernels)
{
    float zeros[64] = {0}, out[64];
    check_begin(kernels, "zeros");
    kernels->l2_norm(zeros, NULL, 64, 1e-12f, out);
    check_same_floats("l2_norm", out, zeros, 64);
    for (int i = 0; i < 64; i++)
        out[i] = i % 2 ? INFINITY : -INFINITY;
    kernels->decay(64, out);
    for (int i = 0; i < 64; i++)
        check_that(fabs((double)out[i] - (i % 2 ? exp(-exp(-0.5)) : 1)) < 1e-7, "decay at infinity");
}

void check_recurrent(const struct cpu_kernels *kernels, const struct cpu_kernels *scalar)
{
    static const size_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 200, 768};
    for (size_t function = 0; function < FUNCTIONS; function++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_row(kernels, scalar, function, sizes[i], false);
            check_row(kernels, scalar, function, sizes[i], true);
        }
    }
    check_zeros(kernels);
    static const size_t heads[] = {8, 16, 24, 40, 64};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        for (size_t tokens = 1; tokens <= 5; tokens += 2)
            check_wkv7(kernels, scalar, tokens, heads[i]);
    }
}

/* ---- Timing ---- */

struct wkv7_bench {
    const struct cpu_kernels *kernels;
    struct recurrence recurrence;
    float *out;
};

static void bench_wkv7_call(void *argument)
{
    struct wkv7_bench *it = argument;
    run_recurrence(it->kernels, &it->recurrence, 0, it->recurrence.tokens, it->recurrence.head_dim,
        it->recurrence.state, it->recurrence.state, it->out);
}

struct row_bench {
    const struct cpu_kernels *kernels;
    row_function *call;
    float *inputs[MOST_INPUTS], *out;
    size_t n;
};

static void bench_row_call(void *argument)
{
    struct row_bench *it = argument;
    it->call(it->kernels, it->inputs, it->n, it->out);
}

void bench_recurrent(const struct cpu_kernels *kernels)
{
    for (size_t tokens = 1; tokens <= 64; tokens *= 64) {
        if (!bench_wanted(tokens == 1 ? "wkv7/1" : "wkv7/64"))
            continue;
        struct wkv7_bench it = {kernels, new_recurrence(tokens, 64), NULL};
        it.out = guarded_new(tokens * it.recurrence.stride * sizeof(float));
        bench_print(kernels, tokens == 1 ? "wkv7/1" : "wkv7/64", (double)tokens * 64 * 64 * 5, "Gfma/s",
            bench(bench_wkv7_call, &it));
        guarded_free(it.out);
        free_recurrence(&it.recurrence);
    }
    for (size_t function = 0; function < FUNCTIONS; function++) {
        if (!bench_wanted(functions[function].name))
            continue;
        struct row_bench it = {.kernels = kernels, .call = functions[function].call, .n = 768};
        for (int i = 0; i < MOST_INPUTS; i++)
            it.inputs[i] = random_row(it.n, false);
        it.out = guarded_new(it.n * sizeof(float));
        bench_print(kernels, functions[function].name, (double)it.n, "G/s", bench(bench_row_call, &it));
        guarded_free(it.out);
        for (int i = 0; i < MOST_INPUTS; i++)
            guarded_free(it.inputs[i]);
    }
}
