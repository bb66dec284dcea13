/* A program on a Vulkan device: recorded plans, weights, state and rings. Private to backend/vulkan. */
#ifndef VULKAN_EXECUTOR_H
#define VULKAN_EXECUTOR_H

#include "backend/backend.h"
#include "backend/common/barriers.h"
#include "backend/common/lowering.h"
#include "backend/common/step_queue.h"
#include "backend/common/steps.h"
#include "backend/common/weights.h"
#include "backend/vulkan/vulkan_memory.h"
#include "backend/vulkan/vulkan_pipelines.h"
#include "backend/vulkan/vulkan_shared.h"

/* Adjacent rows of a matrix: all rows, unless the device cannot bind that many bytes. */
struct weight_slice {
    uint32_t first_row, rows;
    uint32_t buffer;              /* index in the executor's weight_buffers */
    uint64_t offset, bytes;       /* in the buffer; a dispatch binds the whole buffer */
    uint32_t codes, high, scales; /* planes, in words from the buffer's beginning */
    uint32_t range;               /* offset in the vectors, as in struct matrix */
};

struct vulkan_weight {
    struct weight_slice *slices; /* of a matrix; NULL for a vector */
    uint32_t slice_count;
    bool is_imported; /* read from the mapped file, without a copy */
};

enum { MAX_ARGUMENT_BYTES = 128 };

struct dispatch {
    uint32_t pipeline; /* index in the executor's pipelines */
    /* The memory of a binding is a struct vulkan_buffer. Dispatches with equal bindings share a descriptor
     * set. */
    struct memory_use bindings[BIND_COUNT];
    uint32_t groups[3];
    uint32_t argument_bytes;
    uint8_t arguments[MAX_ARGUMENT_BYTES];
    uint32_t group; /* index in the plan */
};

/* A plan as dispatches, and the tables that they read. */
struct vulkan_plan {
    struct plan lowered;
    struct dispatch *dispatches;
    uint32_t dispatch_count;
    size_t dispatch_capacity;
    struct row_op *row_ops;
    uint32_t row_op_count;
    size_t row_op_capacity;
    struct matrix *matrices;
    uint32_t matrix_count;
    size_t matrix_capacity;
    struct vulkan_buffer row_table, matrix_table;
    VkDescriptorPool pool;
    VkDescriptorSet *sets; /* [dispatches]; equal sets are shared */
    VkCommandBuffer commands;
    VkCommandBuffer commands_ahead; /* a single token's commands, TOKENS_AHEAD times */
    VkCommandBuffer sampling;       /* takes a step and samples, without computing anything */
    bool *waits;                    /* [dispatches]: needs a barrier before it */
    uint32_t barriers;
};

/* Idle time: timestamps of the device around each entry of the ring. */
struct vulkan_idle {
    bool is_measured;
    VkQueryPool stamps;                                     /* [entries][begin, end] */
    VkCommandBuffer begin[RING_ENTRIES], end[RING_ENTRIES]; /* commands that write the stamps */
    uint64_t last_ticket, last_end;                         /* the last step evaluated */
};

/* The slot and version of the bias in a row of the bias buffer. */
struct bias_row {
    uint32_t slot;
    const float *bias;
    uint64_t version;
};

struct executor {
    const struct program *program;
    struct backend_options options;
    struct vulkan_device device;
    struct vulkan_pipelines pipelines;
    struct vulkan_transfer transfer;
    VkCommandPool command_pool;
    struct arena tables; /* small tables that live as long as the executor */

    struct vulkan_plan single, batch;
    struct vulkan_weight *weights; /* [buffers] */
    uint32_t *vector_offsets;      /* [buffers], in floats */
    struct state_layout state;
    struct vulkan_buffer *kv_pages; /* [buffers]: a KV cache as pages of [heads][256 positions][head words] */
    struct vulkan_buffer *weight_buffers;
    uint32_t weight_buffer_count, imported_buffers; /* the imported buffers come first */
    uint64_t free_before;                           /* free device memory before loading, in bytes */
    uint32_t *rope_offsets;                         /* [ropes], in floats */

    struct vulkan_buffer arena, vectors, rounded, recurrent, kept_states, tokens, ropes, partials, ring_state,
        sample_scratch, bias;
    struct vulkan_buffer masks;       /* [slots + RESIDENT_MASKS][step_mask_words]: allowed ids */
    uint64_t *masked_by;              /* [slots]: the last ticket with a run that reads the slot's mask */
    struct vulkan_buffer logprobs;    /* [outputs][LOGPROB_WORDS], written by the device */
    struct vulkan_buffer step;        /* the running step */
    struct vulkan_buffer ring;        /* steps written by the host */
    struct vulkan_buffer outcomes;    /* results written by the device */
    struct vulkan_buffer host_tokens; /* the host's copy of the ids of all slots */
    float *logits;                    /* [outputs][vocabulary], copied when the host reads logits */
    struct bias_row *bias_rows;       /* [bias_row_count] */
    uint32_t bias_row_count;
    uint32_t step_words_at, step_entry_words; /* in words */
    uint32_t split_counts_at;                 /* in words in the partials */

    struct step_queue queue;
    VkFence fences[RING_ENTRIES];    /* of the queue's entries, without `timeline` */
    uint64_t begun_ns[RING_ENTRIES]; /* time of submission to an idle device; 0: the device was busy */
    VkSemaphore timeline;            /* counts completed steps by their tickets; NULL: steps have fences */
    struct pace pace;
    uint32_t last_outputs;
    bool logits_are_read;
    const struct vulkan_plan *last_plan;

    /* Debug path. */
    struct vulkan_plan debug;
    struct vulkan_buffer debug_arena;

    struct vulkan_idle idle;
    struct backend_counters counters;
    struct vulkan_usage usage;
    uint64_t objects_at_load; /* buffers and pipelines */
};

enum {
    SPLITS_SHIFT = 5,
    SPLITS = 1 << SPLITS_SHIFT,
    SAMPLE_GROUPS = 8,
    BIAS_ROWS = 64,
    STEPS_IN_FLIGHT = 3,
    TOKENS_AHEAD = 8
};

/* vulkan_open.c */
enum salvo_status vulkan_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out);
void vulkan_executor_close(struct executor *executor);

/* Alignment of slices; no device requires more. */
enum { SLICE_ALIGNMENT = 256 };

/* vulkan_import.c: imports the matrices that need no copy, and clears WEIGHT_MATRIX in their `uses`. */
enum salvo_status vulkan_weights_import(struct executor *executor, uint8_t *uses);

/* vulkan_weights.c */
enum salvo_status vulkan_weights_place(struct executor *executor);
enum salvo_status vulkan_weights_load(struct executor *executor);

/* State of compiling a plan; `places` are in `arena`. */
struct compiling {
    struct executor *executor;
    struct vulkan_plan *plan;
    const struct vulkan_buffer *arena;
    struct scratch_places places;
};

/* vulkan_dispatch.c */

/* Whether take.comp also looks up the embedding of a single token. Not in the debug path, where groups run
 * one by one. */
bool vulkan_fuses_embed(const struct compiling *compiling, const struct op *op);

/* Adds a dispatch; only step, arena and unused bindings are bound. */
enum salvo_status vulkan_add_dispatch(struct compiling *compiling, uint32_t group, uint32_t pipeline,
    const void *arguments, size_t argument_bytes, struct dispatch **out);
void vulkan_bind(
    struct dispatch *dispatch, uint32_t binding, const struct vulkan_buffer *buffer, bool writes);
/* Binds `count` floats of the arena from `first` on, and returns their offset in the binding. */
uint32_t vulkan_bind_floats(const struct compiling *compiling, struct dispatch *dispatch, uint32_t binding,
    uint64_t first, uint64_t count, bool writes);
enum salvo_status vulkan_add_matrix(struct vulkan_plan *plan, struct matrix matrix);
uint32_t vulkan_most_rows(const struct executor *executor, uint32_t rows);
uint32_t vulkan_arena_at(const struct compiling *compiling, buffer_id buffer); /* in floats */
uint32_t vulkan_vector_at(const struct compiling *compiling, buffer_id buffer);
/* The table entry for one slice of a matmul's matrix. */
struct matrix vulkan_matrix(
    const struct compiling *compiling, const struct op *op, const struct weight_slice *slice);
/* Whether gate and up, the first two of `ops`, can be one dispatch: unsliced, of one format, in one buffer.
 */
bool vulkan_gate_fits(const struct executor *executor, const struct op *ops);
/* Whether matmuls of quantised and F16 weights multiply halves, by cooperative matrices. */
bool vulkan_uses_halves(const struct compiling *compiling);

/* vulkan_compile.c */
enum salvo_status vulkan_plan_compile(struct compiling *compiling);
void vulkan_plan_close(struct executor *executor, struct vulkan_plan *plan);

/* vulkan_rows.c, vulkan_matmul.c (batch), vulkan_matvec.c (single token): groups of row ops and matmuls. */
enum salvo_status vulkan_compile_rows(
    struct compiling *compiling, uint32_t group, uint32_t first_op, uint32_t op_count, buffer_id rounded);
enum salvo_status vulkan_compile_matmul(struct compiling *compiling, uint32_t index);
enum salvo_status vulkan_compile_matvec(struct compiling *compiling, uint32_t index);

/* vulkan_attend.c, vulkan_wkv7.c */
enum salvo_status vulkan_compile_attend(struct compiling *compiling, uint32_t index);
enum salvo_status vulkan_compile_wkv7(struct compiling *compiling, uint32_t index);

/* vulkan_project.c: whether a single token's attention executes both ropes and the append itself. */
bool vulkan_fuses_ropes(const struct executor *executor, const struct group *group);
/* Whether the kernel supports this GROUP_PROJECT_ATTEND; the arguments and bindings of its dispatch. */
bool vulkan_supports_projection(const struct executor *executor, const struct group *group);
struct project_token vulkan_project_token(
    const struct compiling *compiling, const struct group *group, struct dispatch *dispatch);

/* vulkan_record.c: descriptor sets; the commands of `count` dispatches, repeated `times` times. */
enum salvo_status vulkan_plan_prepare(struct executor *executor, struct vulkan_plan *plan);
enum salvo_status vulkan_plan_record(struct executor *executor, struct vulkan_plan *plan, uint32_t first,
    uint32_t count, uint32_t times, VkCommandBuffer commands, VkQueryPool stamps);

/* The commands that take a step and sample, of the first and the last dispatch. */
enum salvo_status vulkan_plan_record_sampling(struct executor *executor, struct vulkan_plan *plan);

/* vulkan_step.c: submitting writes a step into the next entry of the ring and returns its ticket. */
enum salvo_status vulkan_steps_open(struct executor *executor);
enum salvo_status vulkan_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket);
enum salvo_status vulkan_wait(struct executor *executor, uint64_t ticket, struct run_result *results);
enum salvo_status vulkan_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done);
enum salvo_status vulkan_step_begin(
    struct executor *executor, const struct step *step, struct pending_step **out);
const float *vulkan_logits(struct executor *executor, uint32_t row);
enum salvo_status vulkan_hidden(struct executor *executor, uint32_t row, uint32_t count, float *out);
enum salvo_status vulkan_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask);
const struct sampling_logprob *vulkan_logprobs(struct executor *executor, uint32_t row);
const int32_t *vulkan_tokens(struct executor *executor, uint32_t slot);
uint64_t vulkan_objects(const struct executor *executor); /* buffers and pipelines made so far */

/* vulkan_chunk.c */
void vulkan_chunk_open(struct executor *executor);
void vulkan_chunk_begin(struct executor *executor, const struct pending_step *pending);
void vulkan_chunk_note(struct executor *executor, const struct pending_step *pending); /* a complete step */
uint32_t vulkan_chunk(const struct executor *executor);
/* The maximum number of single tokens in one submission. */
uint32_t vulkan_tokens_per_submission(const struct executor *executor);
uint32_t vulkan_cancel_mask(const struct executor *executor); /* struct step_header */

/* vulkan_state.c */
extern const struct backend_state vulkan_state;
enum salvo_status vulkan_states_open(struct executor *executor);
uint32_t vulkan_head_words(const struct executor *executor, buffer_id cache); /* of a head at a position */

/* vulkan_idle.c */
enum salvo_status vulkan_idle_measure(struct executor *executor, bool on);
void vulkan_idle_note(struct executor *executor, const struct pending_step *pending); /* a complete step */
void vulkan_idle_close(struct executor *executor);

/* vulkan_profile.c */
enum salvo_status vulkan_profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user);

/* vulkan_debug.c: struct backend_debug. */
const struct plan *vulkan_debug_plan(const struct executor *executor, uint32_t tokens);
enum salvo_status vulkan_debug_begin(struct executor *executor, const struct step *step,
    const size_t *offsets, size_t bytes, uint8_t **out_memory);
enum salvo_status vulkan_debug_run(struct executor *executor, uint32_t group);
void vulkan_debug_end(struct executor *executor);

#endif
