/* A program on the CPU: its plans, packed weights, KV pages and threads. Private to backend/cpu. */
#ifndef CPU_EXECUTOR_H
#define CPU_EXECUTOR_H

#include "backend/backend.h"
#include "backend/common/lowering.h"
#include "backend/common/state.h"
#include "backend/common/steps.h"
#include "backend/cpu/kernels.h"
#include "base/team.h"
#include "program/sampling.h"

#include <stdatomic.h>

/* A weight as the kernels want it: one of the three. */
struct weight {
    const uint8_t *tiles; /* matrices that are multiplied, packed */
    const float *vector;  /* norms and biases */
    const uint8_t *rows;  /* an embedding that is only looked up, as it is in the file */
    size_t tile_bytes;
};

/* Recurrent states of all slots, in versions. */
struct recurrent_versions {
    uint8_t committed, current; /* what the last step left; what the running step reads */
};

struct recurrent_pool {
    float *memory; /* [slots][versions][elements] */
    size_t bytes;
    struct recurrent_versions *versions; /* [slots] */
};

/* Rounded inputs of a single token that a thread keeps: more would not stay in its nearest cache. */
enum { MAX_PANELS = 4 };

/* What one thread works with. */
struct scratch {
    uint8_t *private_buffers;
    struct q8_panel x[MAX_PANELS]; /* one row each */
    struct weight_panel tiles[2];  /* unpacked; two for a glu */
    float *float_tiles[2];
    float *sums[2];                    /* [tokens][8 rows] */
    float *queries, *outputs, *scores; /* [queries][head_dim], the same, [queries][KV_TILE] */
    struct attend_query *attend;       /* [queries] */
    struct attend_result *results;     /* [queries]: merged so far */
    struct sampling_candidate *candidates;
    float *logits;
};

struct executor {
    const struct program *program;
    const struct cpu_kernels *kernels;
    struct backend_options options;
    enum activation_rounding rounding;
    struct team *team;
    struct plan single, batch; /* T = 1, and the largest T */
    struct weight *weights;    /* [buffers] */
    struct state_layout state;
    uint8_t **kv_pages; /* [buffers]: the pages of a KV cache */
    struct recurrent_pool recurrent;
    struct arena tables; /* weights, states, plans: small things that live as long as the executor */

    uint8_t *weight_memory, *state_memory, *work_memory;
    size_t weight_bytes, state_bytes, work_bytes;
    struct scratch *scratch; /* [threads] */

    int32_t *tokens; /* [slots][context + 1] */
    float *cosines;  /* [T][ropes][largest dimensions / 2] */
    float *sines;
    uint32_t rope_pairs;      /* largest dimensions / 2 */
    uint8_t *arena;           /* scratch buffers of the running step */
    struct q8_panel x;        /* rounded activations of a batch: panels of QUAD tokens, room for two terms */
    float *float_x;           /* the same for float weights: panels of OCTET tokens */
    float *partials;          /* attention of one token: [heads][pages] of {maximum, sum, output[head_dim]} */
    atomic_uint *page_counts; /* [kv heads]: pages done */

    /* The step that runs. */
    const struct plan *plan;
    const struct step *step;
    struct run *runs;       /* [slots]: a copy, so that repetition can move them on */
    struct row_place *rows; /* [T] */
    uint32_t early_end;     /* rows from here on are beyond EARLY_POSITIONS */
    uint32_t *output_rows;  /* [O]: row of each output */
    uint32_t live[ROW_KIND_COUNT];
    uint32_t *tasks;            /* [groups] */
    uint32_t first_group;       /* of those that the team runs now */
    struct run_result *results; /* [slots] */

    /* Debug path. */
    const size_t *debug_offsets; /* [buffers]; NULL: no step is being debugged */
    uint8_t *fast_arena;         /* the arena of other steps */
    size_t debug_bytes;

    uint64_t tickets;
    struct backend_counters counters;
};

/* open.c */
enum salvo_status executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out);
void executor_close(struct executor *executor);

/* run_step.c: taking a step sets plan, runs and results; laying it out sets the live rows. */
enum salvo_status step_check(const struct executor *executor, const struct step *step);
void step_take(struct executor *executor, const struct step *step);
void step_lay_out_rows(struct executor *executor);
void step_run_groups(struct executor *executor, uint32_t first, uint32_t count);
enum salvo_status step_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket);
enum salvo_status step_wait(struct executor *executor, uint64_t ticket, struct run_result *results);

/* load.c: packs every weight; needs the team. */
enum salvo_status load_weights(struct executor *executor);

/* kv_pool.c */
enum salvo_status kv_pool_open(struct executor *executor);
struct kv_room kv_pool_room(
    const struct executor *executor, buffer_id keys, buffer_id values, uint32_t page, uint32_t head);
enum salvo_status kv_pool_move_page(struct executor *executor, buffer_id buffer, uint32_t page,
    uint32_t count, uint8_t *saved, bool restores);

/*
 * recurrent_pool.c. A step begins at what is committed; each token moves on from `before`, NULL at position 0
 * where a state is all zeros, to `after`, unless its run has failed; committing keeps what the runs have come
 * to.
 */
enum salvo_status recurrent_pool_open(struct executor *executor);
void recurrent_pool_begin(struct executor *executor);
const float *recurrent_pool_before(const struct executor *executor, buffer_id state, const struct run *run);
float *recurrent_pool_after(const struct executor *executor, buffer_id state, const struct run *run);
void recurrent_pool_advance(struct executor *executor);
void recurrent_pool_commit(struct executor *executor);
void recurrent_pool_copy_out(const struct executor *executor, uint32_t slot, uint8_t *out);
void recurrent_pool_copy_in(struct executor *executor, uint32_t slot, const uint8_t *data);

/*
 * run_rows.c: terms to which a row is rounded for matmuls that take bytes (struct q8_panel): two for fine
 * ones, and at the first positions of a sequence, because nothing dilutes what goes wrong there: a recurrent
 * state has seen nothing else, and norms divide by next to nothing. It depends on the row's position alone,
 * not on what runs beside it.
 */
unsigned row_terms(const struct executor *executor, bool fine, enum row_kind rows, uint32_t row);

/* The panel of the QUAD rows from `row` on, with terms for all of them, from element `k` of `columns` on. */
struct q8_panel quad_panel(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns, size_t k);

/* The panel of one row behind the panels of several tokens. */
struct q8_panel row_panel(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns);

/* How many of the live rows are in panels of several tokens. Each row behind them has a panel of its own. */
uint32_t panel_rows(uint32_t live, enum rounding rounding);

/* scratch.c: row `row` of a scratch buffer, in the arena or in the memory of the thread. */
float *row_of(const struct executor *executor, buffer_id buffer, uint32_t row, uint32_t thread);

/* run_*.c: how many tasks a group has in this step, and one of them. */
uint32_t rows_tasks(const struct executor *executor, const struct group *group);
void rows_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);
void rows_run_op(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

uint32_t matmul_tasks(const struct executor *executor, const struct group *group);
void matmul_enter(struct executor *executor, const struct group *group, uint32_t thread);
void matmul_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

/* Columns of a row, whole groups and heads. */
struct column_range {
    size_t first, count;
};
void recurrent_run_op(
    struct executor *executor, const struct op *op, uint32_t row, struct column_range range, uint32_t thread);
void recurrent_shift_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

/* Keeps a shift's row for the next step if it is the last of its run; one thread does it for each row. */
void recurrent_keep_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

uint32_t wkv7_tasks(const struct executor *executor, const struct group *group);
void wkv7_work(struct executor *executor, const struct group *group, uint32_t task);

/* Elements of K that are unpacked at a time, so that a tile stays in the first-level cache. */
enum { K_PART = 2048 };

/* Queries that attention of many tokens works on at once: as many whole tokens as fit, or one token whose KV
 * head has more queries. Scratch has room for either (open.c). */
enum { ATTEND_QUERIES = 48 };
uint32_t attend_tasks(struct executor *executor, const struct group *group);
void attend_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

/* After a cancel: pages that were done while others were left out do not count for the next step. */
void attend_forget_pages(struct executor *executor);

void sample_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

#endif
