/* A program on a CUDA device: its plans as tables and graphs, weights, state, and the steps in flight.
 * Private to backend/cuda. */
#ifndef CUDA_CUDA_EXECUTOR_H
#define CUDA_CUDA_EXECUTOR_H

#include "backend/backend.h"
#include "backend/common/lowering.h"
#include "backend/common/pace.h"
#include "backend/common/state.h"
#include "backend/common/weights.h"
#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/cuda_driver.h"
#include "backend/cuda/cuda_plan.h"

/* How plans for one token are fitted into shared memory, tried in this order. Tight: inputs of matmuls are
 * processed in pieces, rows of matrices are cut into slices, and attention and sampling use the memory of
 * packed inputs and partial sums. Tightest: chunks of weights are also half as large. */
enum cuda_fit { CUDA_FIT_ROOMY, CUDA_FIT_TIGHT, CUDA_FIT_TIGHTEST };

/* Memory of one kind while it is divided; without an address it only counts bytes. */
struct cuda_region {
    cuda_address base;
    uint64_t used;
};

struct cuda_weight {
    struct cuda_matrix matrix; /* tile rows 0: it is none */
    uint32_t matrix_index;     /* index among the machine's matrices, for embedding lookups */
    cuda_address vector;
};

/* Where the scratch buffers of a plan lie. */
struct cuda_scratch {
    cuda_address arena;
    const size_t *offsets;
    cuda_address spilled;       /* private buffers of the plan that do not fit into shared memory */
    cuda_address packed_inputs; /* rounded rows of many tokens */
    cuda_address tagged_words;  /* single token: values between phases */
};

/* One launch of a plan of many tokens. */
enum cuda_node_kind {
    CUDA_NODE_PLAIN,
    CUDA_NODE_ROWS,
    CUDA_NODE_NORM,
    CUDA_NODE_ROTATE,
    CUDA_NODE_MIX,
    CUDA_NODE_WKV7_INPUTS,
    CUDA_NODE_WKV7_RESULTS,
    CUDA_NODE_GEMM,
    CUDA_NODE_ATTEND,
    CUDA_NODE_WKV7,
    CUDA_NODE_SAMPLE
};

struct cuda_node {
    enum cuda_node_kind kind;
    uint32_t group; /* of the plan */
    struct cuda_launch launch;
    cuda_function function;
    uint32_t row_table; /* rows: which of the plan's */
    uint32_t stage;
    union {
        struct cuda_norm_rows norm;
        struct cuda_rotate rotate;
        struct cuda_mix mix;
        struct cuda_wkv7_inputs inputs;
        struct cuda_wkv7_results results;
        struct cuda_gemm gemm;
        struct cuda_flash flash;
        struct cuda_wkv7_many wkv7;
    };
};

/* The tables of a plan as they go to the device. */
struct cuda_tables {
    uint8_t *row_tables; /* [row_table_count][row_table_bytes], once they are complete; in between
                            [..][CUDA_ROW_TABLE_LIMIT] */
    uint32_t row_table_count, row_table_bytes;
    size_t row_table_capacity;
    uint32_t phase_count;    /* single token */
    uint32_t *stream_starts; /* [phase_count + 1] */
    size_t stream_start_capacity;
    struct cuda_stream *streams;
    uint32_t stream_count;
    size_t stream_capacity;
    struct cuda_packed_input *packed_inputs; /* many tokens */
    uint32_t packed_input_count;
    uint32_t packed_groups; /* groups of rows that have packed inputs */
    size_t packed_input_capacity;
    uint64_t packed_input_memory; /* bytes: two places, each for the packed inputs of one group */
    struct cuda_node *nodes;      /* many tokens */
    uint32_t node_count;
    size_t node_capacity;
    uint32_t *first_phase;                     /* [groups + 1]; many tokens: first node */
    uint32_t most_vector_bytes, most_partials; /* of a phase: vectors and packed inputs; floats */
    uint32_t most_chunk_bytes;
    struct cuda_record *records; /* single token: block after block */
    uint32_t *record_starts;     /* [blocks][phase_count + 1] */
    uint32_t record_count;
    uint64_t tagged_words;                                 /* bytes */
    uint32_t shared_bytes;                                 /* of the decode kernel */
    cuda_address machine, row_tables_at, packed_inputs_at; /* once they are on the device */
    cuda_address memory;                                   /* all of it */
    uint64_t bytes;
};

struct cuda_plan {
    struct plan plan;
    struct cuda_scratch scratch;
    struct cuda_tables tables;
    cuda_graph_exec graph;
    cuda_graph_exec long_graph; /* for long contexts, or NULL */
};

/* A step in flight. Entries and tickets count from 1; a step that repeats may take several entries. */
struct cuda_ticket {
    uint64_t ticket, last_entry;
    uint32_t run_count, token_count;
    bool repeats, samples_only, cancelled, failed;
    const volatile bool *cancel;
};

enum {
    CUDA_STEP_RING_ENTRIES = 8,
    CUDA_MODULES = 24,
    CUDA_FUNCTIONS = 64,
    CUDA_BARRIER_WORDS = 64,
    CUDA_MANY_PLANS = 6,
    CUDA_MOST_SERIAL = 15, /* runs of a step that are computed one after the other */
    CUDA_ALL_RUNS = -1,
};

struct executor {
    const struct program *program;
    struct backend_options options;
    struct cuda_context context;
    const struct cuda_device *device;
    struct arena tables; /* small tables that live as long as the executor */

    cuda_queue queue;
    cuda_module_handle modules[CUDA_MODULES];
    struct {
        const char *name;
        cuda_function function;
    } functions[CUDA_FUNCTIONS];
    uint32_t module_count, function_count;
    cuda_function decode;
    bool programmatic; /* launches may begin before the one before them has ended */
    bool halves; /* kernels for warpgroups: matmuls of many tokens by quantised weights take halves, too */
    uint32_t blocks; /* of the decode kernel's grid */
    bool resident;   /* all blocks run at once, and a token is one launch; if not, a token is a graph with
                        a launch per phase, and no block waits for another */
    enum cuda_fit fit;
    uint32_t flags; /* that every launch of the decode kernel gets */

    struct cuda_plan single; /* one token */
    struct cuda_plan
        many[CUDA_MANY_PLANS]; /* plans for increasing numbers of rows, up to the most of a step */
    uint32_t many_count;
    struct cuda_weight *weights; /* [buffers] */
    uint8_t *weight_uses;        /* [buffers]: enum weight_use */
    struct state_layout state;   /* pages_per_slot is 0 without a KV cache */
    cuda_address
        *kv_addresses; /* [buffers]: pages of [heads][256 positions][head_dim], scales behind each head */
    uint32_t rope_pairs, matrix_count;

    cuda_address weight_memory, state_memory, scratch_memory;
    uint64_t free_before;        /* device memory, when it was opened */
    struct cuda_machine machine; /* the part that the machines of both plans share */
    cuda_address bias;           /* [slots][vocabulary] floats */
    uint64_t *bias_versions;     /* [slots]: the uploaded bias */

    /* Mapped memory. */
    uint8_t *mapped;
    uint64_t mapped_bytes;
    uint8_t *step_ring;
    struct cuda_result *results; /* [ring entries][slots] */
    volatile uint32_t *done, *progress, *cancel, *abort, *error;
    int32_t *host_tokens;
    uint32_t *masks;                   /* [slots][step_mask_words]: allowed ids */
    struct sampling_logprob *logprobs; /* [outputs][1 + MAX_TOP_LOGPROBS] */
    cuda_address mask_address, logprob_address;
    cuda_address resident_masks; /* [RESIDENT_MASKS][step_mask_words], in device memory */
    uint64_t *masked_by;         /* [slots]: the last entry with a run that reads the slot's mask */

    /* Pinned memory for copies. */
    uint8_t *staging;
    size_t staging_bytes;
    float *host_logits; /* [vocabulary], pinned */

    /* Steps. */
    uint64_t entries, finished_entries; /* submitted; complete */
    uint64_t last_ticket;
    struct cuda_ticket tickets[CUDA_STEP_RING_ENTRIES];
    uint64_t ticket_of_entry[CUDA_STEP_RING_ENTRIES];
    int32_t run_of_entry[CUDA_STEP_RING_ENTRIES]; /* the run that is computed now, or CUDA_ALL_RUNS */
    uint32_t most_serial;       /* single tokens that a step computes one after the other, at most; 0: none */
    cuda_address serial_logits; /* [CUDA_MOST_SERIAL][vocabulary] */
    bool last_was_serial;
    struct run_result *run_results; /* [ring entries][slots]: of tickets */
    const struct cuda_plan *last_plan;
    uint32_t failure; /* enum cuda_error: why steps were given up last */
    struct pace pace;

    /* Debug path. */
    struct cuda_plan debug;
    uint8_t *debug_memory;
    bool debug_is_long; /* the step has a long context */

    uint64_t creations_at_load;
    struct backend_counters counters;
};

/* cuda_memory.c: memory that is counted, and errors that name what was asked for and what was free. */
enum salvo_status cuda_memory_new(
    struct executor *executor, const char *what, uint64_t bytes, cuda_address *out);
void cuda_memory_free(struct executor *executor, cuda_address address);
enum salvo_status cuda_host_new(struct executor *executor, const char *what, size_t bytes, void *out_pointer);
void cuda_host_free(struct executor *executor, void *memory);
enum salvo_status cuda_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask);
enum salvo_status cuda_copy_in(struct executor *executor, cuda_address to, const void *from, size_t size);
enum salvo_status cuda_copy_out(
    struct executor *executor, void *to, cuda_address from, size_t size); /* and waits */
enum salvo_status cuda_queue_wait(struct executor *executor);
cuda_address cuda_region_take(struct cuda_region *region, uint64_t bytes);
enum salvo_status cuda_function_find(struct executor *executor, const char *name, cuda_function *out);
enum salvo_status cuda_function_exists(struct executor *executor, const char *name, bool *out);

/* cuda_open.c */
enum salvo_status cuda_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out);
void cuda_executor_close(struct executor *executor);
/* Compiles the plans and checks that they fit the device, and stops before memory is allocated or a weight is
 * read. Tests plan large models with it. */
enum salvo_status cuda_executor_plan(
    const struct program *program, const struct backend_options *options, struct executor **out);

/* cuda_layout.c: places in memory; a region without an address only counts bytes. */
enum salvo_status cuda_check_weights(struct executor *executor); /* also sets how the weights are used */
enum salvo_status cuda_find_states(struct executor *executor);
void cuda_layout_weights(struct executor *executor,
    struct cuda_region *region); /* after the tables have set the shapes of matrices */
void cuda_layout_state(struct executor *executor, struct cuda_region *region);
void cuda_layout_step(struct executor *executor);
void cuda_layout_scratch(struct executor *executor, struct cuda_region *region);
void cuda_layout_mapped(struct executor *executor, struct cuda_region *region, uint8_t *host);

/*
 * cuda_tables.c: a plan's groups become records or, for many tokens, launches. A first pass, while the
 * executor has no addresses yet, computes the shapes of matrices and the sizes of scratch memory.
 */
enum salvo_status cuda_tables_build(struct executor *executor, struct cuda_plan *plan);
void cuda_tables_free(struct cuda_tables *tables);
enum salvo_status cuda_tables_upload(struct executor *executor, struct cuda_plan *plan);

/* cuda_shared.c: shared memory of the decode kernel, in bytes. */
uint32_t cuda_decode_shared(const struct executor *executor); /* all of it */
uint32_t cuda_shared_limit(
    const struct executor *executor); /* for vectors, packed inputs and partial sums of a phase */
uint32_t cuda_partial_limit(const struct executor *executor); /* most for the partial sums of a matmul */
uint32_t cuda_partial_floor(const struct executor *executor); /* least for partial sums */
uint32_t cuda_overlay_floor(
    const struct executor *executor); /* least for packed inputs and partial sums together */
/* Bytes of the partial sums in all; matmuls alternate between the two halves where one half is enough. */
uint32_t cuda_partial_bytes(const struct executor *executor, const struct cuda_tables *tables);
/* Whether attention has memory of its own, and how much. */
bool cuda_attend_has_own_memory(const struct executor *executor);
uint32_t cuda_attention_bytes(const struct executor *executor);
/* Limits of the shape of a matrix. */
struct cuda_limits cuda_matrix_limits(const struct executor *executor);
enum salvo_status cuda_layout_shared(
    const struct executor *executor, const struct cuda_tables *tables, struct cuda_machine *machine);

/* cuda_load.c */
enum salvo_status cuda_load_weights(struct executor *executor);

/* cuda_launch.c */
struct cuda_room cuda_room_of(const struct executor *executor);
enum salvo_status cuda_graphs_open(struct executor *executor);
enum salvo_status cuda_tagged_words_clear(
    struct executor *executor); /* after tokens that were not computed completely */
enum salvo_status cuda_launch_phases(
    struct executor *executor, const struct cuda_plan *plan, uint32_t first, uint32_t end, uint32_t flags);
/* `is_long`: the step has a long context (cuda_step_is_long). */
enum salvo_status cuda_launch_node(
    struct executor *executor, const struct cuda_plan *plan, uint32_t index, bool is_long);
enum salvo_status cuda_launch_plan(struct executor *executor, const struct cuda_plan *plan, bool is_long);

/* The beginning, the sampling and the end of a step alone, with the logits of the plan. */
enum salvo_status cuda_launch_sampling(struct executor *executor, const struct cuda_plan *plan);

/* The plan for steps of so many tokens. */
const struct cuda_plan *cuda_plan_for(const struct executor *executor, uint32_t tokens);

/* cuda_submit.c */
void cuda_pace_open(struct executor *executor);
uint32_t cuda_most_ahead(const struct executor *executor); /* tokens of one launch */
enum salvo_status cuda_step_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket);
enum salvo_status cuda_step_wait(struct executor *executor, uint64_t ticket, struct run_result *results);
enum salvo_status cuda_step_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done);
enum salvo_status cuda_step_check(const struct executor *executor, const struct step *step);
enum salvo_status cuda_step_write(struct executor *executor, const struct step *step);
/* Whether a run reaches FLASH_LONG_CONTEXT in the entry of token number `skip` of the step. */
bool cuda_step_is_long(const struct executor *executor, const struct step *step, uint32_t skip);
enum salvo_status cuda_entries_finish(struct executor *executor, uint64_t entry);
/* Waits for launches outside the ring, and fails if one of them failed. */
enum salvo_status cuda_queue_check(struct executor *executor);

/* cuda_serial.c: finds executor->most_serial, by measurement. */
enum salvo_status cuda_serial_open(struct executor *executor);

/* cuda_state.c */
extern const struct backend_state cuda_state;
enum salvo_status cuda_hidden(struct executor *executor, uint32_t row, uint32_t count, float *out);

/* cuda_profile.c */
enum salvo_status cuda_profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user);

/* cuda_debug.c: struct backend_debug. */
const struct plan *cuda_debug_plan(const struct executor *executor, uint32_t tokens);
enum salvo_status cuda_debug_begin(struct executor *executor, const struct step *step, const size_t *offsets,
    size_t bytes, uint8_t **out_memory);
enum salvo_status cuda_debug_run(struct executor *executor, uint32_t group);
void cuda_debug_end(struct executor *executor);

#endif
