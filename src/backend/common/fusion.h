/* Groups that only some backends have kernels for (struct lowering_options), and the parts of groups that
 * fused kernels need to know by name. */
#ifndef COMMON_FUSION_H
#define COMMON_FUSION_H

#include "backend/common/lowering.h"

/* The op that names a group's kind: of several matmuls the first. */
const struct op *group_op(const struct program *program, const struct group *group);

/* Joins the groups of a plan that the options ask for. A part of lower_program. */
void fuse_groups(const struct program *program, const struct lowering_options *options, struct plan *plan);

/*
 * The ops before the matmuls of a single token: an RMS or layer norm of the whole row, optionally after
 * select_rows, optionally followed by lerps of the result with the previous row (token_shift and lerps).
 */
struct matmul_inputs {
    const struct op *norm, *shift; /* NULL: there is none */
    const struct op *lerps;        /* [lerp_count], adjacent */
    uint32_t lerp_count;
    buffer_id x;      /* the row in memory; NO_BUFFER: no op precedes the matmuls */
    buffer_id normed; /* the result of the norm, or of select_rows without one */
};

/* False: other ops precede the matmuls. */
bool group_matmul_inputs(const struct program *program, const struct group *group, struct matmul_inputs *out);

/* The lerp that computes this input of a matmul; NULL: none. */
const struct op *matmul_inputs_lerp(const struct matmul_inputs *inputs, buffer_id input);

/* Whether the buffer is a weight of the file, not a row of a step. */
bool is_weight(const struct program *program, buffer_id buffer);

/* A norm over all columns whose weights are vectors of the file. */
bool is_whole_norm(const struct program *program, const struct op *op);

/* The ops of a GROUP_PROJECT_ATTEND. */
struct projection {
    const struct op *norm;
    const struct op *matmuls; /* of query, key, value */
    const struct op *ropes;   /* of query, key */
    const struct op *append, *attend;
};
struct projection group_projection(const struct program *program, const struct group *group);

/* The ops around a single token's wkv7, if they are the ops of RWKV-7 and no other op reads their results. */
struct wkv7_parts {
    const struct op *lerp;                /* mixes the value with the first layer's; NULL: none */
    const struct op *direction, *key;     /* l2_norm and rwkv_key of the same k */
    const struct op *norm, *bonus, *gate; /* on the result, each NULL where absent */
};
bool group_wkv7_parts(const struct program *program, const struct group *group, struct wkv7_parts *out);

#endif
