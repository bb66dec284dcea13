/*
 * One phase while it is built from a group: vectors get places in shared memory as they are needed; vectors
 * that the phase does not compute are loaded, and results that later phases read are stored. For one token
 * the phase becomes records (cuda_records.c), for many tokens its row table becomes a launch (cuda_nodes.c).
 */
#ifndef CUDA_CUDA_PHASE_H
#define CUDA_CUDA_PHASE_H

#include "backend/common/fusion.h"
#include "backend/cuda/cuda_executor.h"

enum { MOST_LOADS = 24, MOST_OPS = 28, MOST_STORES = 16, MOST_WRITTEN = 24 };
enum { MOST_ROUNDS = 16, MOST_MATMULS = 24 };

/* A matmul and its place in a phase, or a slice of one: some owners of its matrix. */
struct placed_matmul {
    struct cuda_matmul matmul;
    cuda_address before;  /* [rows], added to the result; 0: nothing */
    uint32_t round;       /* its input, one of the phase's rounds */
    uint32_t first_block; /* owner o is block (first_block + o) % blocks */
    bool is_fine;         /* the input has two terms */
    bool is_plain;        /* out is floats: logits */
    buffer_id weight;
    struct cuda_matrix whole; /* the matrix without slices */
};

struct block_record {
    uint32_t block;
    struct cuda_record record;
};

struct phase_builder {
    struct executor *executor;
    struct cuda_plan *plan;
    const struct program *program;
    uint32_t *place_of; /* [buffers]: CUDA_NONE */

    struct cuda_row_table table;
    struct cuda_load loads[MOST_LOADS];
    struct cuda_row_op ops[MOST_OPS], after[MOST_OPS];
    struct cuda_store stores[MOST_STORES];
    struct cuda_round rounds[MOST_ROUNDS];
    buffer_id rounded[MOST_ROUNDS]; /* the buffer of each round */
    uint32_t packed_readers_end; /* many tokens: ops before this one read rounded buffers as packed inputs */
    struct cuda_wkv7 wkv7;       /* heads 0: the phase has none */
    struct placed_matmul matmuls[MOST_MATMULS];
    uint32_t matmul_count;
    uint32_t glu;                /* activation of the gate, the first of two matmuls, which has the glu's out;
                                    ACTIVATION_NONE: no glu */
    uint32_t groups_at_once;     /* part groups of an input that are packed at once; 0: whole inputs */
    struct matmul_inputs inputs; /* matmul: the ops inside the phase before them */
    bool inputs_known;           /* no other ops are inside */
    bool simple;                 /* matmul: records hold the inputs */
    struct cuda_vector vectors[MOST_ROUNDS]; /* matmul: the input of each round */
    uint64_t places;                         /* floats taken */
    uint64_t packed_input_bytes;             /* taken */
    uint64_t partials;                       /* floats taken */
    uint32_t head_dim;                       /* places hold a head alone; 0: whole rows */
    bool overflows;                          /* a table is full: the phase has to be divided */
    bool overwrites; /* the phase's only op writes where its first input is, if it can */

    /* Tagged words (cuda_plan.h): where each buffer was last written, and the writes of this phase. */
    cuda_address *tagged_address; /* [buffers] */
    struct {
        buffer_id buffer;
        cuda_address tagged_words;
    } written[MOST_WRITTEN];
    uint32_t written_count;
    uint64_t tagged_bytes; /* bytes, by this phase and those before it */

    struct block_record *records; /* one token: of all phases so far, phase after phase */
    uint32_t record_count;
    size_t record_capacity;
};

/*
 * cuda_addresses.c. The address of a buffer for readers of this phase; and where this phase writes it, which
 * is another address for a single token.
 */
cuda_address phase_address(const struct phase_builder *builder, buffer_id buffer);
cuda_address phase_writes(struct phase_builder *builder, buffer_id buffer);
/* Whether matmuls of many tokens read these rows where they are: F32, and not padded. */
bool phase_is_read_in_place(const struct phase_builder *builder, enum rounding rounding, buffer_id rows);
/*
 * Whether inputs of matmuls from op `first_op` on are rounded to two terms even where the program asks for
 * one. For a single token, in programs with attention: such a token does not wait for instructions. For many
 * tokens, after the last attention, where rounding costs the most accuracy.
 */
bool phase_is_finer(const struct phase_builder *builder, uint32_t first_op);

/* Memory of tagged words that no other phase uses. */
cuda_address phase_tagged_words(struct phase_builder *builder, uint64_t bytes);
/* A vector of weights; 0 for NO_BUFFER. */
cuda_address phase_vector(const struct phase_builder *builder, buffer_id weight);

/* Begins a new phase; nothing of the last one is left. */
void phase_begin(struct phase_builder *builder, enum row_kind rows);

/* Where a buffer is in this phase: loaded, unless it is there. */
uint32_t phase_input(struct phase_builder *builder, buffer_id buffer);

/* The place of a buffer that this phase writes. */
uint32_t phase_output(struct phase_builder *builder, buffer_id buffer);

/* Adds a row op, to those after the main op when `after`. */
void phase_add_op(struct phase_builder *builder, const struct op *op, bool after);

/* Stores the results of ops first .. end - 1 that are read after op `end` - 1, other than as packed inputs.
 */
void phase_store_outputs(struct phase_builder *builder, uint32_t first, uint32_t end);

/* The index of the round with this buffer and rounding, which is added if missing. */
uint32_t phase_round(struct phase_builder *builder, buffer_id buffer, enum rounding rounding, bool fine);

/*
 * cuda_inputs.c. Describes the inputs of a matmul phase, one for each round, from the group's ops. True: a
 * record can hold them, and each warp computes its own input, in registers; otherwise the vectors and packed
 * inputs of all inputs are in shared memory at once.
 */
bool cuda_describe_inputs(const struct phase_builder *builder, struct cuda_vector vectors[MOST_ROUNDS]);

/* cuda_wkv7.c: the record of the first head. False: the ops around the wkv7 are not those of RWKV-7. */
bool cuda_describe_wkv7(
    const struct phase_builder *builder, const struct group *group, struct cuda_wkv7_record *out);
/* From the record of the first head to that of another. */
void cuda_advance_wkv7(struct cuda_wkv7_record *record, uint32_t heads);

/* Whether the phase fits into tables and shared memory. */
bool phase_fits(const struct phase_builder *builder);

/* Begins a phase of row ops from `first` on: as many of first .. end - 1 as fit, up to *out_end - 1. */
enum salvo_status phase_begin_rows(
    struct phase_builder *builder, uint32_t first, uint32_t end, uint32_t *out_end);

/* One token: the places of packed inputs, and the inputs as records have them. */
void phase_place_inputs(struct phase_builder *builder);

/* Appends the phase's row table to those of the plan. */
enum salvo_status phase_add_table(struct phase_builder *builder, uint32_t *out_index);

/* One token: the phase is complete, and the next one may read its results. */
enum salvo_status phase_end(struct phase_builder *builder);

/* cuda_records.c: records of all blocks. Row ops first .. end - 1 as phases of their own, as few as possible;
 * the other functions for the phase that was begun, which the caller ends. */
enum salvo_status cuda_records_rows(struct phase_builder *builder, uint32_t first, uint32_t end);
enum salvo_status cuda_records_matmuls(struct phase_builder *builder);
enum salvo_status cuda_records_attend(struct phase_builder *builder, const struct cuda_attend *attend);
/* Without `head`, the row table describes the ops of a head. */
enum salvo_status cuda_records_wkv7(struct phase_builder *builder, const struct cuda_wkv7_record *head);
enum salvo_status cuda_records_sample(struct phase_builder *builder, uint32_t stage);
/* All blocks meet after phase number `phase`, a stage of sampling or, with 0, any other. */
enum salvo_status cuda_records_meet(struct phase_builder *builder, uint32_t phase, uint32_t stage);
/* Once all phases are built: the plan's records, block after block. */
enum salvo_status cuda_records_finish(struct phase_builder *builder);

/* Address of row `row` of a vector of floats or tagged words, or 0 without a vector. */
static inline cuda_address cuda_row_address(cuda_address base, uint64_t row)
{
    return base ? base + row * sizeof(float) : 0;
}

/* cuda_attend.c: attention without ropes or appending to the cache. */
struct cuda_attend cuda_attend_of(struct phase_builder *builder, const struct op *op);

/* cuda_matmul.c: a matmul of the group; and all of a group's matmuls for one token, as phases. */
struct cuda_matmul cuda_matmul_of(const struct phase_builder *builder, const struct group *group,
    const struct op *op, const struct cuda_matrix *matrix, cuda_address out);
enum salvo_status cuda_matmuls_build(struct phase_builder *builder, const struct group *group);

/*
 * cuda_rwkv7.c: arguments of the kernels for row ops of RWKV-7 in plans of many tokens, from the ops between
 * `first` and `end`. False: these are other ops, and a row table describes them.
 */
struct packed_rows {
    const buffer_id *rows; /* [count]: the rows that are rounded behind the ops */
    const struct cuda_packed_input *inputs;
    uint32_t count;
    uint32_t readers_end; /* ops before this one read them as packed inputs */
};
/* The norm may belong to the group before. */
bool cuda_find_mix(const struct phase_builder *builder, uint32_t first, uint32_t end,
    const struct packed_rows *packed, struct cuda_mix *out);
bool cuda_find_wkv7_inputs(
    const struct phase_builder *builder, uint32_t first, uint32_t end, struct cuda_wkv7_inputs *out);
bool cuda_find_wkv7_results(const struct phase_builder *builder, uint32_t first, uint32_t end,
    const struct packed_rows *packed, struct cuda_wkv7_results *out);

/* cuda_nodes.c: the launches of a plan for many tokens. */
enum salvo_status cuda_nodes_build(struct phase_builder *builder);

#endif
