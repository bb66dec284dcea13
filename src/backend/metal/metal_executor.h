/* A program on a Metal device: plans as dispatches, weights, state and the ring of steps. Private to
 * backend/metal. */
#ifndef METAL_EXECUTOR_H
#define METAL_EXECUTOR_H

#include "backend/backend.h"
#include "backend/common/barriers.h"
#include "backend/common/lowering.h"
#include "backend/common/step_queue.h"
#include "backend/common/steps.h"
#include "backend/common/weights.h"
#include "backend/metal/metal_device.h"

enum {
    STEPS_IN_FLIGHT = 2,
    RING_ENTRIES = STEPS_IN_FLIGHT + 1, /* the last step's results stay while others are in flight */
    TOKENS_AHEAD = 8,
    MAX_REPEAT = 64,
    MAX_BINDINGS = 10,
    MAX_USES = OP_MAX_BUFFERS + OP_MAX_BUFFERS + 2,
    MAX_ARGUMENT_BYTES = 160,
};

/* The place of a matrix in a buffer over the mapped file. */
struct metal_weight {
    uint32_t window; /* index in the executor's windows */
    uint64_t offset; /* in bytes */
};

struct metal_binding {
    const struct metal_buffer *buffer;
    uint64_t entry_bytes; /* the part of each entry of the ring; 0: the whole buffer */
};

/* How a dispatch runs. */
struct metal_shape {
    objc_id pipeline;
    uint32_t groups;         /* threadgroups for each of the live rows; 0: it is left out */
    uint32_t rows_per_group; /* rows that a threadgroup takes; 0: one threadgroup for all */
    uint32_t threads, threadgroup_bytes;
};

struct metal_dispatch {
    struct metal_shape shape, large;       /* large: from a number of live rows or of positions on */
    uint32_t large_rows, large_positions;  /* 0: not by this number */
    uint8_t arguments[MAX_ARGUMENT_BYTES]; /* index 0; the bindings follow */
    uint32_t argument_bytes;
    struct metal_binding bindings[MAX_BINDINGS];
    uint32_t binding_count;
    enum row_kind rows;
    struct memory_use uses[MAX_USES]; /* without reads of weights */
    uint32_t use_count;
    bool begins; /* takes the step */
};

struct metal_plan {
    struct plan lowered;
    struct metal_dispatch *dispatches;
    uint32_t dispatch_count;
    size_t dispatch_capacity;
    uint32_t *first_dispatch; /* [groups + 1] */
    bool *waits;              /* [dispatches]: needs a barrier before it */
    uint32_t barriers;        /* of one token */
};

/* The commands of a submitted step. */
struct metal_step {
    struct pending_step *pending;
    uint32_t live[ROW_KIND_COUNT];
    const struct metal_plan *plan;
    objc_id commands[MAX_REPEAT]; /* referenced until the entry is used again */
    uint32_t command_count;
};

/* The bias that a slot's row of the bias buffer has. */
struct metal_bias {
    const float *bias;
    uint64_t version;
};

/* A matmul of a single token as its kernel sees it, and the shape that it runs with. */
struct matmul_kind {
    uint32_t type, columns, rounds, norms, gates;
};
struct matmul_shape {
    uint32_t rows,  /* of the matrix that a team of threads takes */
        simdgroups, /* of a threadgroup */
        sums;       /* of each row that a thread has; the more, the fewer threads are a team */
};
struct matmul_choice {
    struct matmul_kind kind;
    struct matmul_shape shape;
};

struct executor {
    const struct program *program;
    struct backend_options options;
    struct metal_device device;
    struct arena tables;
    struct metal_plan single, batch, debug;
    struct metal_pipeline *pipelines;
    uint32_t pipeline_count;
    struct matmul_choice *choices;
    uint32_t choice_count;

    struct metal_weight *weights; /* [buffers] */
    uint32_t *vector_offsets;     /* [buffers], in floats */
    struct metal_buffer *windows; /* over the mapped file */
    uint32_t window_count;
    struct state_layout state;
    struct metal_buffer *kv_pages; /* [buffers] */
    uint32_t *rope_offsets;        /* [ropes], in floats */
    struct metal_buffer arena, debug_arena, vectors, recurrent, kept_states, ropes, tokens, next, changed,
        biases, attend_parts;
    struct metal_buffer host_ids;    /* the host's copy of the ids of all slots */
    struct metal_buffer ring, masks; /* a part for each entry */
    uint64_t entry_bytes;

    struct metal_bias *slot_biases; /* [slots] */
    struct step_queue queue;
    struct metal_step steps[RING_ENTRIES]; /* of the queue's entries */
    struct pace pace;
    const struct metal_step *last; /* whose logits the arena has */
    struct sampling_logprob logprobs[1 + MAX_TOP_LOGPROBS];
    struct backend_counters counters;
    uint64_t objects_at_load;
};

/* metal_open.c */
enum salvo_status metal_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out);
void metal_executor_close(struct executor *executor);

/* metal_weights.c: places the weights, before any is read; then reads the vectors. */
enum salvo_status metal_weights_place(struct executor *executor);
enum salvo_status metal_weights_load(struct executor *executor);

/* State of compiling a plan; `places` are in `arena`. */
struct compiling {
    struct executor *executor;
    struct metal_plan *plan;
    const struct metal_buffer *arena;
    struct scratch_places places;
};

/* metal_compile.c */
enum salvo_status metal_plan_compile(struct compiling *compiling);

/* metal_dispatch.c */
void metal_plan_close(struct metal_plan *plan);
/* Adds a dispatch for an op; `constants` may be NULL. Then its bindings, in the order of the kernel. */
enum salvo_status metal_add_dispatch(struct compiling *compiling, const char *kernel,
    const uint32_t *constants, uint32_t threads, struct metal_dispatch **out);
/* The pipeline and the threads of its large shape; rows that a threadgroup takes are as in its shape. */
enum salvo_status metal_set_large(struct compiling *compiling, struct metal_dispatch *dispatch,
    const char *kernel, const uint32_t *constants, uint32_t threads);
void metal_add_use(struct metal_dispatch *dispatch, struct memory_use use);
void metal_set_arguments(struct metal_dispatch *dispatch, const void *arguments, size_t bytes);
void metal_bind(struct metal_dispatch *dispatch, const struct metal_buffer *buffer);
void metal_bind_step(const struct compiling *compiling, struct metal_dispatch *dispatch);
uint32_t metal_arena_at(const struct compiling *compiling, buffer_id buffer); /* in floats */
uint32_t metal_vector_at(const struct compiling *compiling, buffer_id buffer);
uint32_t metal_columns(const struct compiling *compiling, buffer_id buffer);

/* Ops that a matmul or the attention of a single token includes; members are NULL where absent. */
struct group_fusion {
    const struct op *norm;  /* the RMS norm of its input */
    const struct op *gated; /* a second matmul with the same input; the op after it is the glu of both */
    const struct op *ropes; /* ropes of query and key before attention, which the append follows */
    const struct op *projections; /* the matmuls of query, key and value, which the norm precedes */
};
struct group_fusion metal_matmul_fusion(const struct compiling *compiling, const struct group *group);
struct group_fusion metal_attend_fusion(const struct compiling *compiling, const struct group *group);

struct group_fusion metal_projection_fusion(const struct compiling *compiling, const struct group *group);

/* metal_attend.c: whether attention may compute this query, key and value itself. */
bool metal_takes_projection(const struct executor *executor, const struct group *group);
/* Whether attention of a single token is shared by threadgroups from a position on. */
bool metal_splits(const struct compiling *compiling, const struct op *attend);

/* metal_matmul.c: threads that share a row of so many columns unless the other number is faster, and the
 * partial sums that each has. */
uint32_t metal_lanes_for(uint32_t columns);
uint32_t metal_sums_for(uint32_t columns);

/* metal_rows.c, metal_choose.c, metal_attend.c: the dispatch of an op. */
enum salvo_status metal_compile_row_op(struct compiling *compiling, const struct op *op);
enum salvo_status metal_compile_matmul(
    struct compiling *compiling, const struct op *op, const struct group_fusion *fusion);
enum salvo_status metal_compile_append(struct compiling *compiling, const struct op *op);
enum salvo_status metal_compile_attend(
    struct compiling *compiling, const struct op *op, const struct group_fusion *fusion);
enum salvo_status metal_compile_wkv7(struct compiling *compiling, const struct op *op);
enum salvo_status metal_compile_sample(struct compiling *compiling, const struct op *op);

/* metal_matmul.c: the dispatch of a matmul with this shape. */
enum salvo_status metal_add_matmul(struct compiling *compiling, const struct op *op,
    const struct group_fusion *fusion, struct matmul_shape shape);

/* metal_encode.c: the dispatches of `tokens` tokens of a step as one command buffer, committed. The last one
 * of a step signals its end. */
enum salvo_status metal_encode_step(
    struct executor *executor, struct metal_step *step, uint32_t first_token, uint32_t tokens, bool is_last);
/* Dispatches first .. first + count - 1 of a plan, for the debug path. */
enum salvo_status metal_encode_some(
    struct executor *executor, struct metal_step *step, uint32_t first, uint32_t count);

/* metal_step.c */
enum salvo_status metal_steps_open(struct executor *executor);
enum salvo_status metal_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket);
enum salvo_status metal_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask);
enum salvo_status metal_wait(struct executor *executor, uint64_t ticket, struct run_result *results);
enum salvo_status metal_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done);
enum salvo_status metal_step_begin(
    struct executor *executor, const struct step *step, struct metal_step **out);
void metal_release_commands(struct metal_step *step);
/* Waits for the command buffers themselves, which may be parts of a step, and releases them. */
enum salvo_status metal_wait_for_commands(struct executor *executor, struct metal_step *step);
/* The ids of a slot as the host sees them. */
int32_t *metal_host_ids(const struct executor *executor, uint32_t slot);
struct step_header *metal_ring_entry(const struct executor *executor, uint64_t ticket);

/* metal_state.c */
extern const struct backend_state metal_state;
enum salvo_status metal_states_open(struct executor *executor);
uint32_t metal_head_bytes(const struct executor *executor, buffer_id cache); /* at one position */

/* metal_debug.c: struct backend_debug. */
const struct plan *metal_debug_plan(const struct executor *executor, uint32_t tokens);
enum salvo_status metal_debug_begin(struct executor *executor, const struct step *step, const size_t *offsets,
    size_t bytes, uint8_t **out_memory);
enum salvo_status metal_debug_run(struct executor *executor, uint32_t group);
void metal_debug_end(struct executor *executor);

#endif
