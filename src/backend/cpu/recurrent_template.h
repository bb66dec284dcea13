/*
 * The functions of recurrent models for one instruction set; included by recurrent_neon.c and the like, which
 * define ISA(name). The remainder of a row is padded and computed with the same vectors.
 */
#include "backend/cpu/recurrent.h"
#include "backend/cpu/rows_vec.h"

/* ---- Rows ---- */

typedef vec map3_function(vec x, vec y, vec z);

INLINE vec load_up_to(const float *from, size_t n)
{
    return n >= VEC ? vec_load(from) : vec_load_some(from, n);
}

/* out = function(x, y, z); if y or z is NULL, x is passed instead. */
INLINE void map3(
    const float *x, const float *y, const float *z, size_t n, float *out, map3_function *function)
{
    y = y ? y : x;
    z = z ? z : x;
    size_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(function(vec_load(x + i), vec_load(y + i), vec_load(z + i)), out + i);
    if (i < n) {
        size_t left = n - i;
        vec result =
            function(vec_load_some(x + i, left), vec_load_some(y + i, left), vec_load_some(z + i, left));
        vec_store_some(result, out + i, left);
    }
}

INLINE vec product_of(vec x, vec y, vec unused)
{
    (void)unused;
    return x * y;
}

INLINE vec lerp_of(vec x, vec y, vec weight)
{
    return vec_fma(y - x, weight, x);
}

INLINE vec key_of(vec k, vec a, vec weight)
{
    return k * vec_fma(a - vec_all(1), weight, vec_all(1));
}

INLINE vec sigmoid_of(vec x, vec unused_y, vec unused_z)
{
    (void)unused_y;
    (void)unused_z;
    return vec_all(1) / (vec_all(1) + vec_exp(-x));
}

INLINE vec relu_squared_of(vec x, vec unused_y, vec unused_z)
{
    (void)unused_y;
    (void)unused_z;
    vec positive = vec_at_least(0, x);
    return positive * positive;
}

INLINE vec decay_of(vec x, vec y, vec z)
{
    return vec_exp(vec_all(DECAY_RATE) * sigmoid_of(x, y, z));
}

void ISA(mul)(const float *x, const float *y, size_t n, float *out)
{
    map3(x, y, NULL, n, out, product_of);
}

void ISA(lerp)(const float *x, const float *y, const float *weight, size_t n, float *out)
{
    map3(x, y, weight, n, out, lerp_of);
}

void ISA(rwkv_key)(const float *k, const float *a, const float *weight, size_t n, float *out)
{
    map3(k, a, weight, n, out, key_of);
}

void ISA(sigmoid)(size_t n, float *in_out)
{
    map3(in_out, NULL, NULL, n, in_out, sigmoid_of);
}

void ISA(relu_squared)(size_t n, float *in_out)
{
    map3(in_out, NULL, NULL, n, in_out, relu_squared_of);
}

void ISA(decay)(size_t n, float *in_out)
{
    map3(in_out, NULL, NULL, n, in_out, decay_of);
}

/* ---- Sums over rows ---- */

/* row_sum of function(x, y, z), which must be 0 for zeros: zeros pad the last eight. */
INLINE float sum3(const float *x, const float *y, const float *z, size_t n, map3_function *function)
{
    struct partial_sums sums = {{{0}}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        UNROLL
        for (size_t part = 0; part < 8 / VEC; part++) {
            size_t at = i + part * VEC;
            sums.part[part] += function(vec_load(x + at), vec_load(y + at), vec_load(z + at));
        }
    }
    for (size_t part = 0; part < 8 / VEC && i < n; part++, i += VEC) {
        size_t left = n - i;
        sums.part[part] +=
            function(load_up_to(x + i, left), load_up_to(y + i, left), load_up_to(z + i, left));
    }
    return row_sum(sums);
}

INLINE vec itself(vec x, vec unused_y, vec unused_z)
{
    (void)unused_y;
    (void)unused_z;
    return x;
}

INLINE vec square_of(vec x, vec unused_y, vec unused_z)
{
    (void)unused_y;
    (void)unused_z;
    return x * x;
}

INLINE vec square_of_product(vec x, vec weight, vec unused)
{
    (void)unused;
    return x * weight * (x * weight);
}

INLINE vec product_of_three(vec r, vec k, vec weight)
{
    return r * k * weight;
}

/* row_sum of (x - mean)^2. The padding would not be 0, so its lanes are excluded. */
INLINE float sum_of_deviations(const float *x, float mean, size_t n)
{
    struct partial_sums sums = {{{0}}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        UNROLL
        for (size_t part = 0; part < 8 / VEC; part++) {
            vec deviation = vec_load(x + i + part * VEC) - vec_all(mean);
            sums.part[part] += deviation * deviation;
        }
    }
    for (size_t part = 0; part < 8 / VEC && i < n; part++, i += VEC) {
        size_t left = n - i < VEC ? n - i : VEC;
        float deviations[VEC] = {0};
        vec_store_some(load_up_to(x + i, left) - vec_all(mean), deviations, left);
        vec deviation = vec_load(deviations);
        sums.part[part] += deviation * deviation;
    }
    return row_sum(sums);
}

void ISA(layer_norm)(
    const float *x, const float *weight, const float *bias, size_t n, float epsilon, float *out)
{
    const float mean = sum3(x, x, x, n, itself) / (float)n;
    const float scale = 1 / sqrtf(sum_of_deviations(x, mean, n) / (float)n + epsilon);
    size_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec_store(vec_fma((vec_load(x + i) - vec_all(mean)) * vec_all(scale), vec_load(weight + i),
                      vec_load(bias + i)),
            out + i);
    }
    if (i < n) {
        size_t left = n - i;
        vec normed = (vec_load_some(x + i, left) - vec_all(mean)) * vec_all(scale);
        vec_store_some(
            vec_fma(normed, vec_load_some(weight + i, left), vec_load_some(bias + i, left)), out + i, left);
    }
}

void ISA(l2_norm)(const float *x, const float *weight, size_t n, float epsilon, float *out)
{
    const float length =
        sqrtf(weight ? sum3(x, weight, x, n, square_of_product) : sum3(x, x, x, n, square_of));
    const vec scale = vec_all(1 / (length < epsilon ? epsilon : length));
    for (size_t i = 0; i < n; i += VEC) {
        size_t left = n - i;
        vec y = load_up_to(x + i, left);
        if (weight)
            y *= load_up_to(weight + i, left);
        if (left >= VEC)
            vec_store(y * scale, out + i);
        else
            vec_store_some(y * scale, out + i, left);
    }
}

void ISA(rwkv_bonus)(
    const float *x, const float *r, const float *k, const float *v, const float *weight, size_t n, float *out)
{
    const vec bonus = vec_all(sum3(r, k, weight, n, product_of_three));
    for (size_t i = 0; i < n; i += VEC) {
        size_t left = n - i;
        vec sum = vec_fma(bonus, load_up_to(v + i, left), load_up_to(x + i, left));
        if (left >= VEC)
            vec_store(sum, out + i);
        else
            vec_store_some(sum, out + i, left);
    }
}

/* ---- wkv7 ---- */

/*
 * Values are lanes, so that sums over keys never cross lanes and every vector width sums in the same order. A
 * block of values stays in the L1 cache for all tokens: each key's vectors are loaded and stored once per
 * token, since the sums of the next token are formed while the new state is in registers. Four keys are
 * processed at a time, so that their data fit into registers.
 */
#define DEFINE_WKV7_BLOCK(name, type, lanes, count, load, store, fma)                               \
    INLINE void name(const struct wkv7_head *head, size_t first)                                    \
    {                                                                                               \
        const size_t dim = head->head_dim, stride = head->stride;                                   \
        const float *from = head->before + first;                                                   \
        float *to = head->after + first;                                                            \
        type removed[count] = {{0}};                                                                \
        for (size_t j = 0; j < dim; j++) {                                                          \
            UNROLL                                                                                  \
            for (int n = 0; n < (count); n++)                                                       \
                removed[n] = fma(load(from + j * dim + n * (lanes)), head->kk[j], removed[n]);      \
        }                                                                                           \
        for (size_t t = 0; t < head->tokens; t++) {                                                 \
            const size_t row = t * stride, next_row = t + 1 < head->tokens ? row + stride : row;    \
            type v[count], minus[count], sums[count] = {{0}};                                       \
            UNROLL                                                                                  \
            for (int n = 0; n < (count); n++) {                                                     \
                v[n] = load(head->v + row + first + n * (lanes));                                   \
                minus[n] = -removed[n];                                                             \
                removed[n] = (type){0};                                                             \
            }                                                                                       \
            for (size_t j = 0; j < dim; j += 4) {                                                   \
                const float_group r = float_group_load(head->r + row + j);                          \
                const float_group w = float_group_load(head->w + row + j);                          \
                const float_group k = float_group_load(head->k + row + j);                          \
                const float_group next = float_group_load(head->kk + next_row + j);                 \
                const float *kk = head->kk + row + j, *a = head->a + row + j;                       \
                const float products[4] = {kk[0] * a[0], kk[1] * a[1], kk[2] * a[2], kk[3] * a[3]}; \
                const float_group rates = float_group_load(products);                               \
                UNROLL                                                                              \
                for (int i = 0; i < 4; i++) {                                                       \
                    const size_t key = (j + (size_t)i) * dim;                                       \
                    UNROLL                                                                          \
                    for (int n = 0; n < (count); n++) {                                             \
                        type state = load(from + key + n * (lanes)) * w[i];                         \
                        state = fma(v[n], k[i], fma(minus[n], rates[i], state));                    \
                        store(state, to + key + n * (lanes));                                       \
                        sums[n] = fma(state, r[i], sums[n]);                                        \
                        removed[n] = fma(state, next[i], removed[n]);                               \
                    }                                                                               \
                }                                                                                   \
            }                                                                                       \
            UNROLL                                                                                  \
            for (int n = 0; n < (count); n++)                                                       \
                store(sums[n], head->out + row + first + n * (lanes));                              \
            from = to;                                                                              \
        }                                                                                           \
    }

INLINE vec fma_with_all(vec a, float b, vec sum)
{
    return vec_fma(a, vec_all(b), sum);
}

/* Two vectors of 16 lanes hide each other's latency; narrower ones need four. */
enum { BLOCK_VECTORS = WIDE == 16 ? 2 : 4 };
DEFINE_WKV7_BLOCK(wkv7_block, wide, WIDE, BLOCK_VECTORS, wide_load, wide_store, wide_fma)
DEFINE_WKV7_BLOCK(wkv7_eight, vec, VEC, 8 / VEC, vec_load, vec_store, fma_with_all)

void ISA(wkv7)(const struct wkv7_head *head)
{
    size_t first = 0;
    for (; first + BLOCK_VECTORS * WIDE <= head->values; first += BLOCK_VECTORS * WIDE)
        wkv7_block(head, first);
    for (; first < head->values; first += 8)
        wkv7_eight(head, first);
}
