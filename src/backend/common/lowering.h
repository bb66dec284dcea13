/* Lowering: divides the ops of a program into groups, which backends run as one phase each. All backends use
 * the same groups; each has its own kernels for them. */
#ifndef COMMON_LOWERING_H
#define COMMON_LOWERING_H

#include "backend/backend.h"

enum group_kind {
    GROUP_ROWS,   /* row ops, one row after the other */
    GROUP_MATMUL, /* matmuls that run side by side; a feed-forward's gate and up with their glu */
    GROUP_ATTEND, /* attention, for one token, or if options ask for it, with its ropes and kv_append */
    GROUP_PROJECT_ATTEND, /* one token: norm, matmuls of query, key and value, ropes, kv_append, attention */
    GROUP_WKV7,           /* the recurrence, for one token with the ops that stay within a head */
    GROUP_SAMPLE,
};

/* Most rounded inputs of one group of matmuls. */
enum { MAX_ROUNDED = 8 };

/* Neighbouring ops that run as one phase. */
struct group {
    enum group_kind kind;
    enum row_kind rows;
    uint32_t first_op, op_count;
    /* The number of leading ops that run inside its tasks: before matmuls on private buffers, before a wkv7
     * on the columns of its head. */
    uint32_t ops_before;
    uint32_t ops_after; /* wkv7: the number of trailing ops, which run on the columns of its head */
    uint32_t matmuls;   /* matmul: their number */
    bool glu;           /* matmul: the last op is the glu of its two matmuls */
    enum rounding rounding;
    bool fine; /* as in op.h, of any matmul. In a batch all are alike, unless the backend treats them alike;
                  for a single token, all that share an input */
    /* Matmul of a single token: the inputs that are rounded to int8. Matmul of a batch: all inputs, and rows:
     * those of the matmuls that follow, which the rows round. */
    buffer_id rounded_inputs[MAX_ROUNDED];
    uint32_t fine_inputs; /* bit i: input i is for fine matmuls */
    uint32_t rounded_count;
};

/* A program lowered for one capacity. */
struct plan {
    uint32_t capacity[ROW_KIND_COUNT];
    struct group *groups;
    uint32_t group_count;
    uint32_t *group_of_op;
    size_t *offsets;  /* [buffers]: in the arena or, when private, in the memory of the thread or workgroup */
    bool *is_private; /* [buffers] */
    size_t arena_bytes, private_bytes;
};

/* The groups that a backend has kernels for, beyond the groups that every backend runs. */
struct lowering_options {
    uint32_t capacity[ROW_KIND_COUNT]; /* 1 token: lowered as a single token */
    uint32_t max_rounded;              /* inputs of one group of matmuls, at most MAX_ROUNDED */
    uint32_t max_batch_inputs;         /* the same for a batch, at least 1 */
    bool fine_batches;                 /* fine matmuls of a batch join others: its kernels treat them alike */
    bool softcaps_in_matmuls;          /* a softcap of a matmul's result joins its group */
    bool projects_attention;           /* GROUP_PROJECT_ATTEND, for a single token */
    bool appends_in_batches;           /* ropes and kv_append join attention in batches, too */

    /* Whether the kernels take this fused group, within the limits of the device; NULL: every one. */
    bool (*takes)(const struct executor *executor, const struct group *group);
    const struct executor *executor;
};

/* The scratch memory of a plan: `bytes` bytes with the shared buffers at `offsets`, [buffers], then the
 * private buffers. */
struct scratch_places {
    const struct plan *plan;
    const size_t *offsets;
    size_t bytes;
};

/* The places that the lowering chose. */
struct scratch_places plan_places(const struct plan *plan);

/* The place of a buffer, and the size of the scratch memory, in bytes. */
size_t scratch_place(struct scratch_places places, buffer_id buffer);
size_t scratch_bytes(struct scratch_places places);

/* Everything that the plan points at is in `tables`. */
enum salvo_status lower_program(const struct program *program, const struct lowering_options *options,
    struct arena *tables, struct plan *out);

/* The plans for a single token and for a batch, with `lowering` but for its capacities. */
enum salvo_status lower_single_and_batch(const struct program *program, const struct backend_options *options,
    struct lowering_options lowering, struct arena *tables, struct plan *out_single, struct plan *out_batch);

const char *group_kind_name(enum group_kind kind);

/* The ops of a group on one line; the same after its number and kind. Into `text`. */
void lower_describe_ops(
    const struct program *program, const struct plan *plan, uint32_t index, char *text, size_t size);
void lower_describe(
    const struct program *program, const struct plan *plan, uint32_t index, char *text, size_t size);

#endif
