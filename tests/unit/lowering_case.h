/* Programs of a few ops, lowered; their groups as text. */
#ifndef TESTS_LOWERING_CASE_H
#define TESTS_LOWERING_CASE_H

#include "backend/common/lowering.h"
#include "gguf_model.h"

enum { WIDTH = 32, HEAD = 8, VOCABULARY = 40, BUFFERS = 6 };

extern const uint32_t one_token[ROW_KIND_COUNT], many_tokens[ROW_KIND_COUNT];

/* x is written before each case begins, and read after it. */
struct parts {
    struct builder builder;
    buffer_id table, square, floats, halves, norm, narrow_matrix;
    buffer_id x, b[BUFFERS], narrow, r, o, logits;
    buffer_id keys, values, other_keys, other_values, shift, wkv;
    uint32_t rope;
};

typedef void make_ops(struct parts *p);

/* Ops between x (-1) and the buffers b[0] to b[BUFFERS - 1]. */
void multiply(struct parts *p, int out, buffer_id weight, int in);
void finely(struct parts *p, int out, int in); /* a matmul that rounds finely */
void normalise(struct parts *p, int out, int in);
void add_to_x(struct parts *p, int in);

void make_file(struct gguf_model *file);

/* The program of a case, lowered. `tables` holds the plan's memory. */
struct program *lower_case(make_ops *make, const struct gguf *gguf, const struct lowering_options *options,
    struct arena *tables, struct plan *plan);

/*
 * Lowers and compares the plan as text, one item per group: kind[ops that run inside | the others]. A row
 * group ends with ">buffer:rounding" when it rounds the input of the matmuls behind it; a single token's
 * matmuls end with ";" and the inputs that are rounded to bytes. "+fine" marks fine rounding, "glu!" a glu
 * that its matmuls apply.
 */
void check_lowering(make_ops *make, const struct lowering_options *options, const char *expected);

/* Without fused groups. */
void check_groups(make_ops *make, const uint32_t *capacity, uint32_t max_rounded, const char *expected);
/* The same for many tokens, whose matmuls have up to `max_inputs` different inputs in a group. */
void check_batch_groups(make_ops *make, uint32_t max_inputs, const char *expected);

#endif
