/*
 * The inner loops of the CPU backend: one table of functions per instruction set, chosen at start by the
 * features of the processor. The scalar table is the reference: it is written for readability, it defines the
 * results, and every other table is tested against it.
 *
 * BITS. A result does not depend on the number of tokens, tiles or threads that are computed together. Each
 * function defines its order of summation; integer sums may be reordered, float sums may not. `fma(a, b, c)`
 * is a*b + c with one rounding; nothing else is contracted. In one table, matvec and matmul of the same data
 * give the same bits.
 *
 * WEIGHTS are stored in tiles of 8 output rows, repacked once at load (packing.h): a tile contains its 8 rows
 * for all of K, so that decoding reads memory sequentially. Rows beyond the last are zero. Quantised formats
 * are sequences of *groups* of 16 or 32 elements: signed integers q that fit into a byte, a scale s, and in
 * some formats an offset m: w = s * q + m. s and m are float32; formats with two levels (K quants) define
 * them as the product of the two levels, which is exact. Where it saves work, q is a power of two times the
 * file's code, and s is divided by the same power (tile_format.h).
 *
 * QUANTISED MATMUL. Activations are rounded to integers, 32 at a time: x = d * p. p has one term, a byte, or
 * for finer rounding two, p = 128 * high + low, so that products of bytes give the products of p. Each output
 * starts with acc = 0; for each group of weights in order acc = fma((float)sum(q * p), s * d, acc), and then,
 * for formats with offsets, acc = fma(m, d * (float)sum(p), acc). s * d and d * sum(p) are rounded to
 * float32; sum(p) is over the group, so groups of 16 use half_sums.
 *
 * FLOAT MATMUL. For each 32 elements in order (the last may be fewer) part = fma(w[k], x[k], part), starting
 * from 0, then acc = acc + part, with w converted exactly to float32: a single chain over all of K would lose
 * more precision as the sum grows. For F16 weights x is rounded to f16 first (f16_rounded), so that a
 * processor can multiply halves: the products are exact. matvec rounds x itself, matmul expects it rounded.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "base/tensor_type.h"
#include "program/step.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TILE_ROWS = 8, /* output rows of a weight tile */
    GROUP = 32,    /* activations that share a scale */
    TERM_BITS = 7,
    TERM_SCALE = 1 << TERM_BITS, /* weight of the first of two terms */
    QUAD = 4,                    /* tokens of an activation tile for matmul_q8 */
    WIDE_TOKENS = 16,            /* the same, in tables with wide tiles */
    OCTET = 8,       /* tokens of a float tile for matmul_float; also the adjacent bytes in q8 layouts */
    TYPE_LIMIT = 40, /* tables indexed by enum tensor_type */
};

/*
 * An activation tile: activations of `width` tokens as integers. `width` is 1 for matvec, tile_tokens for
 * matmul_q8. For each 32 elements d = largest |x| / 127 and p = x * (1 / d) rounded to nearest even, -127 ..
 * 127. With two terms d = largest |x| / (127 * 128); the first term is p / 128 rounded, halves up, the second
 * is the remainder, -64 .. 63. If the largest |x| is below 2^-100, d = 0 and p = 0. A group with a NaN or an
 * infinity gets d = NaN and p = 0, so that the output is NaN. Below, t is the token, g the group, o the
 * octet, e the element in it, i the term.
 *
 * A tile of two terms may also contain tokens of one term: p is the first term, the second is 0, and d is
 * divided by 128. The products of such a token have the same bits as in a tile of one term, because only a
 * power of two differs.
 */
struct q8_tile {
    int8_t *values;   /* p: [(((g * 4 + o) * terms + i) * width + t) * 8 + e], or with width WIDE_TOKENS
                       * [(((g * width + t) * terms + i) * 4 + o) * 8 + e] */
    float *scales;    /* d: [g * width + t] */
    float *sums;      /* d * (float)(sum of 32 p): [g * width + t] */
    float *half_sums; /* d * (float)(sum of 16 p): [(g * 2 + half) * width + t] */
    /* -128 * sum of 32 p or of 16 p, in the places of sums and half_sums. Products of unsigned q + 128 give
     * the products of q if this is added to their sum. */
    int32_t *corrections, *half_corrections;
    unsigned terms; /* 1 or 2 */
};

/* The part of a tile from these elements of its arrays on. */
static inline struct q8_tile q8_tile_from(struct q8_tile tile, size_t value, size_t sum, size_t half_sum)
{
    tile.values += value;
    tile.scales += sum;
    tile.sums += sum;
    tile.half_sums += half_sum;
    tile.corrections += sum;
    tile.half_corrections += half_sum;
    return tile;
}

/* Distances in the values of a tile, in bytes. */
struct q8_steps {
    size_t token, term, octet;
};

static inline struct q8_steps q8_steps(unsigned terms, size_t width)
{
    struct q8_steps steps = {OCTET, OCTET * width, OCTET * width * terms};
    if (width == WIDE_TOKENS) {
        steps.token = GROUP * (size_t)terms;
        steps.term = GROUP;
        steps.octet = OCTET;
    }
    return steps;
}

/* The largest |p|. */
static inline float q8_largest(unsigned terms)
{
    return terms == 2 ? 127 * TERM_SCALE : 127;
}

/*
 * Groups of 32 activations that are all smaller count as zero, so that scales stay in the range of float32.
 */
#define Q8_SMALLEST 0x1p-100f

/* One weight tile, or two in tables with wide tiles, unpacked for matmul_q8. */
struct unpacked_tiles {
    int8_t *values; /* one: [K / 32][4 octets][8 rows][8], two: [K / 4][16 rows][4] */
    float *scales;  /* [K / group][rows] */
    float *offsets; /* [K / group][rows], untouched by formats without offsets */
};

/* The work of attention for one query and one page: keys begin .. end-1, counted within the page. */
struct attend_query {
    const float *query; /* [head_dim], already multiplied by the attention scale */
    float *output;      /* [head_dim]: the weighted sum of the values, not yet divided by `sum` */
    /* Results: the largest score and the sum of exp(score - maximum); -INFINITY and 0 when begin == end. */
    float maximum, sum;
    uint32_t begin, end;
};

/*
 * One page of the KV cache of one KV head. In keys, positions are innermost, [head_dim][256], so that scores
 * are summed over head_dim in order with one position per lane; values are [256][head_dim]. For TYPE_Q8_0
 * both are bytes in the same layouts, with f16 scales [head_dim / 32][256] for keys and [256][head_dim / 32]
 * for values (head_dim / 32 rounded up).
 */
struct kv_page {
    const void *keys, *values;
    const uint16_t *key_scales, *value_scales; /* TYPE_Q8_0 only */
    enum tensor_type type;                     /* TYPE_F16, TYPE_F32 or TYPE_Q8_0 */
    uint32_t head_dim;                         /* a multiple of 8 */
};

/*
 * score[j] = sum over d in order of fma(query[d], key[d][j], .) from 0; with a cap: cap * tanh(score / cap).
 * maximum = the largest score; weight[j] = exp(score[j] - maximum) by exp_f32 below; sum = row_sum of the
 * weights (index j - begin); output[d] = fma(weight[j], value[j][d], .) over j in order from 0. Queries may
 * have different ranges; keys outside a query's range do not affect it. `scores` is scratch, [count][256].
 */
typedef void attend_page_function(
    const struct kv_page *page, struct attend_query *queries, size_t count, float cap, float *scores);

/* Attention over one or more pages. Without any key: -INFINITY and 0, and the output is not read. */
struct attend_result {
    float maximum, sum;
    float *output; /* [head_dim] */
};

/* The page of struct kv_page, for writing. */
struct kv_room {
    void *keys, *values;
    uint16_t *key_scales, *value_scales;
    enum tensor_type type;
    uint32_t head_dim;
};

/*
 * wkv7 of one head, or of some of its values, which are independent of each other, over tokens of a run. Rows
 * of tokens are `stride` apart. A state is [head_dim keys][head_dim values]; `before` and `after` point to
 * the first of the values, as do v and out. before and after may be equal; otherwise the contents of `after`
 * are not read.
 */
struct wkv7_head {
    const float *r, *w, *k, *kk, *a; /* [tokens][head_dim] */
    const float *v;                  /* [tokens][values] */
    float *out;                      /* [tokens][values] */
    const float *before;
    float *after;
    size_t tokens, stride, head_dim, values; /* head_dim and values are multiples of 8 */
};

struct cpu_kernels {
    /* "scalar", "neon-dotprod", "neon-i8mm", "avx2", "avx-vnni", "avx512-vnni", "avx512-amx" */
    const char *name;

    /* The shape of matmul_q8: QUAD tokens by one tile, or WIDE_TOKENS tokens by two. Fewer than
     * `least_tokens` tokens behind the full tiles of WIDE_TOKENS are faster one by one. Steps of up to
     * `packed_tokens` tokens are faster with matmul_packed, of up to `packed_large_tokens`, at least QUAD,
     * for formats with blocks of 256; 0: never. Tables with wide tiles unpack `wide_together` before they
     * multiply rows with them. */
    unsigned tile_tokens, weight_tiles, wide_together, least_tokens, packed_tokens, packed_large_tokens;

    /* Rounds token t of a tile of `width` tokens to `terms` terms, at most those of the tile; k is a
     * multiple of 32. */
    void (*round_q8)(const float *x, size_t k, unsigned terms, struct q8_tile q8, size_t width, size_t t);

    /* out[tile * 8 + row] for consecutive tiles and an activation tile of width 1. NULL for types that are
     * not quantised. */
    void (*matvec_q8[TYPE_LIMIT])(
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out);

    /* Unpacks one tile as tile `index` of `out`. NULL for types that are not quantised. */
    void (*unpack_q8[TYPE_LIMIT])(const uint8_t *tile, size_t k, struct unpacked_tiles out, unsigned index);

    /*
     * out[token * stride + row] for the tokens of an activation tile and the rows of unpacked tiles. `group`
     * is 16 or 32; `offsets` says whether the format has them. k may be a part of K: with first = false the
     * results are added to `out`.
     */
    void (*matmul_q8)(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
        bool first, size_t stride, float *out);

    /* Enclose calls of matmul_q8 with one size of groups in a thread; NULL if nothing has to be prepared. */
    void (*matmul_begin)(unsigned group);
    void (*matmul_end)(void);

    /*
     * As matmul_q8 for the first two or four tokens of an activation tile, with packed tiles that are
     * unpacked in registers: out[token * tile_count * 8 + tile * 8 + row]. NULL if packed_tokens is 0.
     */
    void (*matmul_packed[TYPE_LIMIT])(
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, unsigned tokens, float *out);

    /* As matvec_q8 and unpack_q8 for TYPE_F32, TYPE_F16, TYPE_BF16; x is [k] float32, unpacked tiles are
     * [k][8 rows].
     */
    void (*matvec_float[TYPE_LIMIT])(
        const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out);
    void (*unpack_float[TYPE_LIMIT])(const uint8_t *tile, size_t k, float *out);

    /* out[token * 8 + row] for 8 tokens; x is [k][8 tokens]. */
    void (*matmul_float)(const float *tile, size_t k, const float *x, bool first, float *out);

    attend_page_function *attend_page;

    /*
     * Merges the result of a page into the result of the pages to its left. M = the larger maximum (the left
     * one unless the right one is larger), a = exp(left maximum - M), b = exp(right maximum - M); sum =
     * fma(left sum, a, right sum * b); output[d] = fma(left output[d], a, right output[d] * b). If one sum is
     * 0, the result is the other side, bit for bit.
     */
    void (*attend_merge)(struct attend_result from, size_t head_dim, struct attend_result *into);

    /*
     * out[d] = output[d] * (1 / sum); zeros if the sum is 0, for a query that sees no key. May work in place.
     */
    void (*attend_finish)(struct attend_result result, size_t head_dim, float *out);

    /*
     * Writes one position (0 .. 255 of the page) of one head: the key into its column, the value into its
     * row. f16 is rounded to nearest even. q8_0, for each 32 elements (the last group may be shorter): scale
     * = largest |x| * (1 / 127) rounded to f16, byte = x * (1 / scale) rounded to nearest even, at most 127;
     * a group of zeros, or one whose scale would be 0, is zeros; a group with a NaN, an infinity or a scale
     * beyond f16 gets the scale NaN and bytes 0.
     */
    void (*kv_append)(const struct kv_room *room, uint32_t position, const float *key, const float *value);

    /*
     * Row functions. row_sum: 8 partial sums, element i into partial sum i % 8 in order, then ((0+4)+(2+6)) +
     * ((1+5)+(3+7)). exp_f32 etc. are within 2 ulp of the true value over all of float32, exact at 0 (exp(0)
     * = 1), exp(-INFINITY) = 0, NaN to NaN. An element gives the same bits at any index of a row.
     */
    void (*rms_norm)(const float *x, const float *weight, size_t n, float epsilon,
        float *out); /* x * (1/sqrt(sum(x*x)/n + eps)) * w; weight may be NULL */
    void (*glu_silu)(
        const float *gate, const float *up, size_t n, float *out); /* gate / (1 + exp(-gate)) * up */
    void (*glu_gelu)(
        const float *gate, const float *up, size_t n, float *out); /* tanh form of gelu(gate) * up */
    void (*add)(const float *x, size_t n, float *in_out);
    void (*softcap)(float cap, size_t n, float *in_out); /* cap * tanh(x / cap) */
    void (*exp_f32)(size_t n, float *in_out);
    void (*tanh_f32)(size_t n, float *in_out);

    /* Row functions of recurrent models, as op.h defines the ops of the same names; recurrent.h has the order
     * of roundings. `n` is one group or one head. The weights of l2_norm may be NULL. All but wkv7 may work
     * in place. */
    void (*layer_norm)(
        const float *x, const float *weight, const float *bias, size_t n, float epsilon, float *out);
    void (*l2_norm)(const float *x, const float *weight, size_t n, float epsilon, float *out);
    void (*mul)(const float *x, const float *y, size_t n, float *out);
    void (*lerp)(const float *x, const float *y, const float *weight, size_t n, float *out);
    void (*rwkv_key)(const float *k, const float *a, const float *weight, size_t n, float *out);
    void (*rwkv_bonus)(const float *x, const float *r, const float *k, const float *v, const float *weight,
        size_t n, float *out);
    void (*sigmoid)(size_t n, float *in_out);
    void (*relu_squared)(size_t n, float *in_out);
    void (*decay)(size_t n, float *in_out);

    /*
     * For each token in order, value i, over keys j in order: u = fma(S[j][i], kk[j], u) from 0; then S[j][i]
     * = fma(v[i], k[j], fma(-u, kk[j] * a[j], S[j][i] * w[j])); then out[i] = fma(S[j][i], r[j], out[i]) from
     * 0.
     */
    void (*wkv7)(const struct wkv7_head *head);

    /* The index of the largest value, the lowest on ties; NaN is never chosen; n if all are NaN. *out_value
     * is the value, or NaN. */
    size_t (*argmax)(const float *x, size_t n, float *out_value);

    /*
     * Rotates pairs of a head's row: (a, b) becomes (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)). Pair i
     * is elements i and i + pairs (NeoX), or 2i and 2i + 1 (Llama); elements from 2 * pairs on stay
     * unchanged.
     */
    void (*rope_halves)(const float *cosines, const float *sines, size_t pairs, float *in_out);
    void (*rope_neighbours)(const float *cosines, const float *sines, size_t pairs, float *in_out);
};

/* The best table for this processor; NULL if `name` is given and is unknown or needs another processor. */
const struct cpu_kernels *cpu_kernels_find(const char *name);

/* All tables built into this program, best first, ending with the scalar one; `usable` says whether this
 * processor can run it. */
size_t cpu_kernels_count(void);
const struct cpu_kernels *cpu_kernels_at(size_t index, bool *usable);

/* Elements per group (16 or 32) and whether the format has offsets; 0 for types that are not quantised. */
unsigned quant_group(enum tensor_type type, bool *out_offsets);

#endif
