/*
 * The operations of a program: what each computes. op_table.c lists operands, rows, in-place rules and
 * tolerances. Backends may fuse ops, reorder memory and choose kernels; results agree with this file within
 * the tolerance.
 *
 * ROWS. An op runs over the T tokens, the R runs or the O output rows of a step (enum row_kind). Rows beyond
 * the live count of a step are neither read nor written, so an op over zero rows does nothing. Rows are
 * independent of each other, except through state in `attend` and in recurrent ops, which process each run in
 * token order.
 *
 * NaN. A NaN in an input row makes the outputs that depend on it NaN; it never makes another row NaN and
 * never stops a step. `sample` defines what it does with NaN.
 *
 * TOLERANCE. For each output row, largest |a - b| against tolerance * (largest |reference| in the row), where
 * both sides got the same inputs and the same rounding of activations. Where an op adds to the row, the
 * largest element before the addition counts too: product and old value may cancel, and the error of the
 * product stays. Tolerance 0 is exact.
 */
#ifndef PROGRAM_OP_H
#define PROGRAM_OP_H

#include "base/tensor_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An index into a program's buffers. */
typedef int32_t buffer_id;
enum { NO_BUFFER = -1 };

enum op_kind {
    /* out[t] = scale * row tokens[t] of the table, dequantised. */
    OP_EMBED,

    /*
     * For each group of `group` columns (all columns, or one head):
     *   out = x * (1 / sqrt(sum(x * x) / group + epsilon)) * weight.   weight: [group] float32.
     */
    OP_RMS_NORM,

    /*
     * For each group of `group` columns (all columns: a layer norm; one head: a group norm), with mean and
     * variance over the group:
     *   out = (x - mean) * (1 / sqrt(variance + epsilon)) * weight + bias.   weight, bias: one element for
     * each column of the row.
     */
    OP_LAYER_NORM,

    /*
     * For each group of columns, out = y / max(sqrt(sum(y * y)), epsilon), y = x * weight (y = x without a
     * weight). weight: one element for each column of the row.
     */
    OP_L2_NORM,

    /*
     * out[r][n] = activation(sum over k of weight[n][k] * x[r][k] + bias[n]); `accumulate` adds the result to
     * out[r][n]. x is rounded first, by `rounding`; with `fine`, and at the first positions of a sequence,
     * backends that can round finer than Q8 do so (struct backend). On the CPU the sum is one chain over k
     * (float formats) or over groups of 16 or 32 (quantised formats), defined in backend/cpu/kernels.h;
     * threads split n and r, never k. Other backends may split k.
     */
    OP_MATMUL,

    /*
     * Rotates the first `rope.dimensions` columns of every head of x, in place, by the angles position *
     * frequency[i]: pairs (i, i + dimensions/2) when `halves`, else (2i, 2i+1). The frequencies belong to the
     * program (struct rope).
     */
    OP_ROPE,

    /*
     * Writes row t of k and v to position p of its slot, rounded to the type of the cache. Other positions
     * and slots stay unchanged.
     */
    OP_KV_APPEND,

    /*
     * out[t][head] = sum over positions j of softmax(score)[j] * v[j][kv head], score[j] = scale * q . k[j],
     * optionally capped: cap * tanh(score / cap), over p - window < j <= p (window 0: all j <= p), where p is
     * the row's position. Head h reads KV head h / (heads / kv_heads). Keys and values are read from the
     * cache only, after rounding. Pages of 256 absolute positions are summed one by one and merged left to
     * right, so that a row's bits do not depend on the other rows of the step.
     */
    OP_ATTEND,

    /* out = activation(gate) * up. */
    OP_GLU,

    /* out = out + x. */
    OP_ADD,

    /* out = x * y. */
    OP_MUL,

    /* out = x + (y - x) * weight. weight: a vector of the file for all rows, or scratch of the shape of x. */
    OP_LERP,

    /*
     * out[t] = the row before x[t] in its run. The recurrent state of the slot is the row before a run's
     * first row (zeros when the run begins at position 0); the run's last row of x becomes the new state.
     */
    OP_TOKEN_SHIFT,

    /* out = k * (1 + (a - 1) * weight): RWKV-7's key, scaled by its in-context learning rate a. */
    OP_RWKV_KEY,

    /*
     * For each head and run, in token order. The recurrent state S is [heads][head_dim keys j][head_dim
     * values i]: values, which are independent of each other, are contiguous. For each token, with sums over
     * j in order:
     *
     * - u[i] = sum of S[j][i] * kk[j]
     *
     * - S[j][i] = S[j][i] * w[j] - u[i] * (kk[j] * a[j]) + v[i] * k[j]
     *
     * - y[i] = sum of S[j][i] * r[j]
     *
     * In matrices: S = S diag(w) - (S kk)(kk a)^T + v k^T, y = S r. A run that begins at position 0 starts
     * from zeros. On the CPU sums are one chain of fma over j, and time is never blocked, so that a row's
     * bits do not depend on the number of tokens of the step.
     */
    OP_WKV7,

    /* For each head: out = x + sum over the head of (r * k * weight) * v. */
    OP_RWKV_BONUS,

    /* out[o] = x[row of output o]: keeps the rows that get logits. */
    OP_SELECT_ROWS,

    /* x = cap * tanh(x / cap), in place. */
    OP_SOFTCAP,

    /*
     * Chooses the next id from each output row's logits by the settings of its run, as sampling.h defines it
     * (temperature 0: the largest logit), and writes it to position p + 1 of the slot's tokens and to the
     * results. From the same logits, settings and seed every backend picks the same id. A row of NaN alone
     * gives no id, and its run fails.
     */
    OP_SAMPLE,

    OP_KIND_COUNT
};

enum row_kind { ROWS_TOKENS, ROWS_RUNS, ROWS_OUTPUTS, ROW_KIND_COUNT };

/* SiLU and GELU gate a glu, the others belong to matmul. */
enum activation {
    ACTIVATION_NONE,
    ACTIVATION_SILU,
    ACTIVATION_GELU,
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID,
    ACTIVATION_RELU_SQUARED, /* max(u, 0)^2 */
    ACTIVATION_DECAY,        /* exp(-exp(-0.5) * sigmoid(u)): between 0.545 and 1 */
    ACTIVATION_COUNT
};

/* How matmul rounds its activations: the builder chooses it by the weight's type, every backend applies it.
 */
enum rounding {
    ROUNDING_F32, /* no rounding */
    ROUNDING_F16, /* to half precision; finite values beyond its range to its largest */
    ROUNDING_Q8,  /* to int8 with a float32 scale per 32 */
};

/* The angles of a rotary embedding: frequency[i] radians per position for pair i; cos and sin are multiplied
 * by `magnitude` (YaRN). */
struct rope {
    uint32_t dimensions; /* rotated columns of a head, even */
    bool halves;         /* pairs are (i, i + dimensions/2) rather than (2i, 2i+1) */
    float magnitude;
    double *frequencies; /* [dimensions / 2] */
};

enum { OP_MAX_INPUTS = 6, OP_MAX_STATES = 2 };

/* Positions at which a backend may round all activations as finely as the inputs of `fine` matmuls. */
enum { EARLY_POSITIONS = 4 };

struct op {
    enum op_kind kind;
    enum row_kind rows;
    buffer_id out; /* NO_BUFFER for kv_append, which writes its states; `sample` writes the tokens */
    buffer_id inputs[OP_MAX_INPUTS]; /* as op_table.c names them; NO_BUFFER where absent */
    union {
        buffer_id states[OP_MAX_STATES]; /* the first members of each op that has states */
        struct {
            float scale;
        } embed;
        struct {
            uint32_t group;
            float epsilon;
        } rms_norm, layer_norm, l2_norm;
        struct {
            bool accumulate;
            enum rounding rounding;
            bool fine; /* ROUNDING_Q8: a backend may use integers with a 128 times smaller step */
            enum activation activation;
        } matmul;
        struct {
            uint32_t heads, head_dim, rope; /* rope: index into the program's ropes */
        } rope;
        struct {
            buffer_id key_state, value_state;
            uint32_t kv_heads, head_dim;
        } kv_append;
        struct {
            buffer_id key_state, value_state;
            uint32_t heads, kv_heads, head_dim, window;
            float scale, cap; /* cap 0: none */
        } attend;
        struct {
            enum activation activation;
        } glu;
        struct {
            float cap;
        } softcap;
        struct {
            buffer_id state;
        } token_shift;
        struct {
            buffer_id state;
            uint32_t heads, head_dim;
        } wkv7;
        struct {
            uint32_t head_dim;
        } rwkv_bonus;
    };
};

#endif
