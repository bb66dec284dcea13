/*
 * One phase while it is put together: vectors get places in shared memory as they are needed, those that are
 * not made in the phase are loaded, those that live on are stored.
 */
#ifndef CUDA_CUDA_PHASE_H
#define CUDA_CUDA_PHASE_H

#include "backend/cuda/cuda_executor.h"

enum { MOST_LOADS = 24, MOST_OPS = 28, MOST_STORES = 16, MOST_ROUNDS = 16, MOST_MATMULS = 24 };
enum { MOST_WRITTEN = 24 };

/* The weight of a matmul, which may have but a slice of it. */
struct cuda_multiplied {
    buffer_id buffer;
    struct cuda_matrix matrix;
};

struct phase_builder {
    struct executor *executor;
    struct cuda_plan *plan;
    const struct program *program;
    uint32_t *place_of; /* [buffers]: CUDA_NONE */

    struct cuda_phase phase;
    struct cuda_load loads[MOST_LOADS];
    struct cuda_row_op ops[MOST_OPS], outer[MOST_OPS];
    struct cuda_store stores[MOST_STORES];
    struct cuda_round rounds[MOST_ROUNDS];
    struct cuda_matmul matmuls[MOST_MATMULS];
    struct cuda_multiplied multiplied[MOST_MATMULS];
    struct cuda_attend attend;
    struct cuda_wkv7 wkv7;
    uint64_t places;             /* floats taken */
    uint64_t packed_input_bytes; /* taken */
    uint64_t partials;           /* floats taken */
    uint32_t head_dim;           /* places hold a head alone; 0: whole rows */
    bool overflows;              /* a table is full: the phase has to be divided */
    bool overwrites;             /* the phase's only op writes where its first input is, if it can */

    /* Tagged words (cuda_plan.h): where each buffer was last written, and the writes of this phase. */
    cuda_address *tagged_address; /* [buffers] */
    struct {
        buffer_id buffer;
        cuda_address tagged_words;
    } written[MOST_WRITTEN];
    uint32_t written_count;
    uint64_t tagged_bytes; /* bytes, by this phase and those before it */
};

/* Begins a phase of its own; nothing of the last one is left. */
void phase_begin(struct phase_builder *builder, enum cuda_phase_kind kind, enum row_kind rows);

/* Where a buffer is in this phase: loaded, unless it is there. */
uint32_t phase_input(struct phase_builder *builder, buffer_id buffer);

/* Where a buffer that is written will be. */
uint32_t phase_output(struct phase_builder *builder, buffer_id buffer);

/* Adds a row op, to those after the heavy one when `outer`. */
void phase_add_op(struct phase_builder *builder, const struct op *op, bool outer);

/* Stores what ops first .. end - 1 have written and somebody reads after op `end` - 1. */
void phase_store_outputs(struct phase_builder *builder, uint32_t first, uint32_t end);

/* Which of the rounds is this buffer, rounded so; adds it. */
uint32_t phase_round(struct phase_builder *builder, buffer_id buffer, enum rounding rounding, bool fine);

/*
 * Everything that a matmul phase does before it multiplies. Where a record can describe it, each warp
 * computes its own input, in registers; otherwise the vectors and packed inputs of all inputs are in shared
 * memory at once.
 */
struct cuda_inputs {
    const struct cuda_load *loads;
    const struct cuda_row_op *ops;
    const struct cuda_round *rounds;
    const struct cuda_matmul *matmuls;
    uint32_t load_count, op_count, round_count, matmul_count;
    bool has_glu;
    bool in_pieces; /* matmuls take their inputs in pieces */
};

/* cuda_inputs.c. Whether records can describe all inputs. */
bool cuda_inputs_are_simple(const struct cuda_inputs *inputs);

/* False: another kind of input, which has to be packed by a record of its own. */
bool cuda_describe_vector(
    const struct cuda_inputs *inputs, const struct cuda_round *round, struct cuda_vector *out);

/* The op that leaves its result at `place`; NULL: it was loaded. From where; 0: it was not. */
const struct cuda_row_op *cuda_op_at(const struct cuda_inputs *inputs, uint32_t place);
uint64_t cuda_load_at(const struct cuda_inputs *inputs, uint32_t place);

/* Everything that a wkv7 phase does after its heavy op. */
struct cuda_after {
    const struct cuda_row_op *ops;
    const struct cuda_store *stores;
    uint32_t op_count, store_count;
};

/* cuda_wkv7.c: the record of a first head. False: what stands around it is not RWKV-7's own, and has to be
 * taken from the tables of the phase. */
bool cuda_describe_wkv7(const struct cuda_inputs *inputs, const struct cuda_wkv7 *wkv7,
    const struct cuda_after *after, struct cuda_wkv7_record *out);
/* Of the first head to that of another. */
void cuda_advance_wkv7(struct cuda_wkv7_record *record, uint32_t heads);

/* Whether all that was taken fits tables and shared memory. */
bool phase_fits(const struct phase_builder *builder);

/* Appends the phase to the plan's tables. */
enum salvo_status phase_end(struct phase_builder *builder);

/* Address of a buffer for readers of this phase; and where this phase writes it, which is another place for a
 * single token. */
cuda_address phase_address(const struct phase_builder *builder, buffer_id buffer);
cuda_address phase_writes(struct phase_builder *builder, buffer_id buffer);
/*
 * Whether inputs of matmuls from op `first_op` on are rounded to two terms even where the program asks for
 * one. Of a single token, in programs with attention: instructions are not what such a token waits for. Of
 * many, what follows the last attention, which loses most by rounding.
 */
bool phase_is_finer(const struct phase_builder *builder, uint32_t first_op);

/* So many bytes that nobody else has, for what blocks leave each other. */
cuda_address phase_tagged_words(struct phase_builder *builder, uint64_t bytes);
cuda_address phase_vector(const struct phase_builder *builder, buffer_id weight); /* 0 for NO_BUFFER */

/* Row ops first .. end - 1 as phases of their own, as few as possible. */
enum salvo_status phase_build_rows(struct phase_builder *builder, uint32_t first, uint32_t end);

/* Address of row `row` of a vector of floats or tagged words, or 0 without a vector. */
static inline cuda_address cuda_row_address(cuda_address base, uint64_t row)
{
    return base ? base + row * sizeof(float) : 0;
}

/* cuda_attend.c: attention without ropes or appending to the cache. */
struct cuda_attend cuda_attend_of(struct phase_builder *builder, const struct op *op);

/* cuda_nodes.c: the launches of a plan for many tokens. */
enum salvo_status cuda_nodes_build(struct phase_builder *builder);

#endif
