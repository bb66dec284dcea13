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

/* A weight in the layout of its kernels, one of three. */
struct weight {
    const uint8_t *tiles; /* a packed matrix for matmuls */
    const float *vector;  /* norms and biases */
    const uint8_t *rows;  /* an embedding table that is only looked up: the rows in the file */
    size_t tile_bytes;
};

/* Recurrent states of all slots, in versions. */
struct recurrent_versions {
    uint8_t committed, current; /* written by the last step; read by the running step */
};

struct recurrent_pool {
    float *memory; /* [slots][versions][elements], then [kept states][elements] */
    size_t bytes, kept_bytes;
    struct recurrent_versions *versions; /* [slots] */
};

/* Rounded inputs of a single token that a thread stores; more would not fit into its L1 cache. */
enum { MAX_Q8_INPUTS = 4 };

/* Scratch memory of one thread. */
struct scratch {
    uint8_t *private_buffers;
    struct q8_tile x[MAX_Q8_INPUTS]; /* one row each */
    struct unpacked_tiles tiles[2];  /* [UNPACKED_ELEMENTS]; two for a glu */
    float *float_tiles[2];
    float *sums[2];                    /* [tokens][rows of the unpacked tiles] */
    float *queries, *outputs, *scores; /* [queries][head_dim], the same, [queries][PAGE_POSITIONS] */
    struct attend_query *attend;       /* [queries] */
    struct attend_result *results;     /* [queries], merged so far */
    struct sampling_candidate *candidates;
    float *logits;
};

struct executor {
    const struct program *program;
    const struct cpu_kernels *kernels;
    struct backend_options options;
    enum activation_rounding rounding;
    struct team *team;
    struct plan single, batch; /* for one token and for the maximum of a step */
    struct weight *weights;    /* [buffers] */
    struct state_layout state;
    uint8_t **kv_pages; /* [buffers]: the pages of a KV cache */
    struct recurrent_pool recurrent;
    struct arena tables; /* small tables that live as long as the executor */

    uint8_t *weight_memory, *state_memory, *work_memory;
    size_t weight_bytes, state_bytes, work_bytes;
    struct scratch *scratch; /* [threads] */

    int32_t *tokens; /* [slots][context + 1] */
    float *cosines;  /* [T][ropes][largest dimensions / 2] */
    float *sines;
    uint32_t rope_pairs;      /* largest dimensions / 2 */
    uint8_t *arena;           /* scratch buffers of the running step */
    struct q8_tile x;         /* rounded activations of a batch: tiles with up to two terms */
    float *float_x;           /* float activations of a batch: tiles of OCTET tokens */
    float *partials;          /* attention of one token: [heads][pages] of {maximum, sum, output[head_dim]} */
    atomic_uint *page_counts; /* [kv heads]: pages done */

    /* The running step. */
    const struct plan *plan;
    const struct step *step;
    struct run *runs;       /* [slots]: those that have not ended, which repetitions advance */
    uint32_t *run_numbers;  /* [slots]: the number of each of them in the step */
    struct row_place *rows; /* [T] */
    uint32_t early_end;     /* first row beyond EARLY_POSITIONS */
    uint32_t *output_rows;  /* [O]: row of each output */
    uint32_t live[ROW_KIND_COUNT];
    uint32_t *tasks;            /* [groups] */
    uint32_t first_group;       /* first group that the team runs now */
    struct run_result *results; /* [slots]; the first `result_count` */
    uint32_t result_count;
    struct sampling_logprob (*logprobs)[1 + MAX_TOP_LOGPROBS]; /* [outputs] */

    /* Debug path. */
    const size_t *debug_offsets; /* [buffers]; NULL: no step is being debugged */
    uint8_t *fast_arena;         /* the arena outside of the debug path */
    size_t debug_bytes;

    uint64_t tickets;
    struct backend_counters counters;
};

/* open.c */
enum salvo_status executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out);
void executor_close(struct executor *executor);

/* run_step.c: step_take sets plan, runs and results; step_lay_out_rows sets the live rows. */
enum salvo_status step_check(const struct executor *executor, const struct step *step);
void step_take(struct executor *executor, const struct step *step);
void step_lay_out_rows(struct executor *executor);
void step_run_groups(struct executor *executor, uint32_t first, uint32_t count);
enum salvo_status step_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket);
enum salvo_status step_wait(struct executor *executor, uint64_t ticket, struct run_result *results);

/* load.c: packs all weights, on the team's threads. */
enum salvo_status load_weights(struct executor *executor);

/* kv_pool.c */
enum salvo_status kv_pool_open(struct executor *executor);
struct kv_room kv_pool_room(
    const struct executor *executor, buffer_id keys, buffer_id values, uint32_t page, uint32_t head);
enum salvo_status kv_pool_copy_page(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from);
enum salvo_status kv_pool_move_page(struct executor *executor, buffer_id buffer, uint32_t page,
    uint32_t count, uint8_t *saved, bool restores);

/*
 * recurrent_pool.c. A step begins with the committed version. Each token reads `before` (NULL at position 0,
 * where the state is zero) and writes `after`; a run that has failed does not advance. A commit keeps the
 * last versions written.
 */
enum salvo_status recurrent_pool_open(struct executor *executor);
void recurrent_pool_begin(struct executor *executor);
const float *recurrent_pool_before(const struct executor *executor, buffer_id state, const struct run *run);
float *recurrent_pool_after(const struct executor *executor, buffer_id state, const struct run *run);
void recurrent_pool_advance(struct executor *executor);
void recurrent_pool_commit(struct executor *executor);
enum salvo_status recurrent_pool_move(
    struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores);
enum salvo_status recurrent_pool_copy(struct executor *executor, uint32_t to, uint32_t from);

/*
 * run_rows.c: the number of int8 terms that a row is rounded to for quantised matmuls (struct q8_tile): two
 * for fine matmuls and at the first positions of a sequence, where rounding errors weigh most: a recurrent
 * state has no earlier content, and norms divide by small numbers. It depends on the row's position alone,
 * not on the other rows of the step.
 */
unsigned row_terms(const struct executor *executor, bool fine, enum row_kind rows, uint32_t row);

/* The tile of the tokens from `row` on, with the most terms that any of them has, from element `k` of
 * `columns` on. */
struct q8_tile tokens_tile(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns, size_t k);

/* The tile of one row behind the tiles of several tokens. */
struct q8_tile row_tile(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns);

/* The number of live rows in tiles of several tokens. Each row behind them has a tile of its own. */
uint32_t tiled_rows(const struct executor *executor, uint32_t live, enum rounding rounding);

/* scratch.c: row `row` of a scratch buffer, in the arena or in the thread's private memory. */
float *row_of(const struct executor *executor, buffer_id buffer, uint32_t row, uint32_t thread);

/* run_*.c: the number of tasks of a group in this step, and the execution of one task. */
uint32_t rows_tasks(const struct executor *executor, const struct group *group);
void rows_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);
void rows_run_op(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

uint32_t matmul_tasks(const struct executor *executor, const struct group *group);
void matmul_enter(struct executor *executor, const struct group *group, uint32_t thread);
void matmul_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

/* A range of columns that contains whole groups and heads. */
struct column_range {
    size_t first, count;
};
void recurrent_run_op(
    struct executor *executor, const struct op *op, uint32_t row, struct column_range range, uint32_t thread);
void recurrent_shift_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

/* Stores the row of a token shift for the next step if it is the last of its run. One thread calls it for
 * each row. */
void recurrent_store_row(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread);

uint32_t wkv7_tasks(const struct executor *executor, const struct group *group);
void wkv7_work(struct executor *executor, const struct group *group, uint32_t task);

/* Elements of K that are unpacked at a time, so that a tile stays in the L1 cache. */
enum { K_PART = 2048 };

/* Weight tiles that are unpacked before rows are multiplied with them, at most, and their elements. With
 * several tiles, rounded activations come from the L2 cache less often and rows are stored in longer pieces.
 * The elements of narrow tiles have a limit of their own.
 */
enum {
    TILES_TOGETHER = 4,
    UNPACKED_ELEMENTS = TILES_TOGETHER * TILE_ROWS * K_PART,
    NARROW_ELEMENTS = UNPACKED_ELEMENTS / 2,
};

/* Queries that attention of many tokens processes at once: as many whole tokens as fit, or one token if its
 * KV head has more queries. Scratch memory has room for either (open.c). */
enum { ATTEND_QUERIES = 48 };
uint32_t attend_tasks(struct executor *executor, const struct group *group);
void attend_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

/* After a cancelled step: resets the counts of completed pages for the next step. */
void attend_reset_pages(struct executor *executor);

void sample_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread);

#endif
