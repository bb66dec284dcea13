/*
 * Data that the host and the shaders share: the step, the tables of a plan, the arguments of each dispatch. C
 * and GLSL both include this file. Every member has four bytes, so that both use the same layout.
 */
#ifndef VULKAN_SHARED_H
#define VULKAN_SHARED_H

#include "backend/common/device_sampler.h"

#ifdef GLSL
#define UINT                     uint
#define INT                      int
#define FLOAT                    float
#define STRUCT(name)             name
#define SHARED_ENUM(name, value) const uint name = value;
#else
#include <stdint.h>
#define UINT                     uint32_t
#define INT                      int32_t
#define FLOAT                    float
#define STRUCT(name)             struct name
#define SHARED_ENUM(name, value) enum { name = (value) };
#endif

/* ---- Bindings: one descriptor set layout serves all shaders ---- */

SHARED_ENUM(BIND_STEP, 0)    /* step_header and step_runs */
SHARED_ENUM(BIND_WORDS, 1)   /* rows, output rows, pages */
SHARED_ENUM(BIND_ARENA, 2)   /* scratch of the step */
SHARED_ENUM(BIND_WEIGHTS, 3) /* packed matrices */
SHARED_ENUM(BIND_VECTORS, 4) /* norms and biases */
SHARED_ENUM(BIND_TABLE, 5)   /* row ops or matrices of a group */
SHARED_ENUM(BIND_ROUNDED, 6) /* int8 or f16 activations; single token: the input row */
SHARED_ENUM(BIND_KEYS, 7)
SHARED_ENUM(BIND_MASKS, 7) /* sample: allowed ids, a row for each slot, then the resident ones */
SHARED_ENUM(BIND_VALUES, 8)
SHARED_ENUM(BIND_LOGPROBS, 8) /* sample: log-probabilities for the host, a row for each output */
SHARED_ENUM(BIND_RECURRENT, 9)
SHARED_ENUM(BIND_TOKENS, 10)         /* ids of all slots */
SHARED_ENUM(BIND_ROPES, 11)          /* cosines and sines */
SHARED_ENUM(BIND_PARTIALS, 12)       /* partial results: of attention splits, of argmax blocks */
SHARED_ENUM(BIND_RING_STATE, 13)     /* the device's position in the ring */
SHARED_ENUM(BIND_RING, 14)           /* take: steps from the host; sample: results for the host */
SHARED_ENUM(BIND_HOST_TOKENS, 15)    /* the host's copy of the ids */
SHARED_ENUM(BIND_SAMPLE_SCRATCH, 16) /* sample: logits with bias and penalties, counts */
SHARED_ENUM(BIND_STEP_WORDS, 16)     /* take: the running step as words */
SHARED_ENUM(BIND_BIAS, 17)
SHARED_ENUM(BIND_COUNT, 18)

/* ---- A step ---- */

SHARED_ENUM(RING_ENTRIES, 4)
SHARED_ENUM(STEP_STOP_IDS, 32)
SHARED_ENUM(ROW_WORDS, 2)          /* of a row: run, position */
SHARED_ENUM(RECURRENT_VERSIONS, 4) /* the committed version, and one for each step in flight */

struct step_header {
    UINT tokens, runs, outputs;              /* rows in use */
    UINT outputs_at, pages_at, pages_stride; /* offsets in BIND_WORDS */
    UINT repeat;                             /* number of tokens to sample, at least 1 */
    UINT context, slots;
    UINT stop_count;
    UINT entry;        /* entry in the ring of results */
    UINT cancelled;    /* set by the host in the ring: no more repetitions */
    UINT cancel_mask;  /* the device reads `cancelled` when (repetitions left & cancel_mask) == 0 */
    UINT samples_only; /* 1: its runs choose from logits that are there; nothing is computed */
    INT stop_ids[STEP_STOP_IDS];
};

struct step_run {
    UINT slot, first, count, first_row;
    UINT logits; /* enum run_logits */
    UINT limit;
    UINT read_version, write_version, next_version; /* of recurrent state; next: of the next repetition */
    UINT has_bias;                                  /* the row of BIND_BIAS, counted from 1; 0: none */
    STRUCT(device_sampler) settings;
    UINT source;     /* enum run_source */
    UINT stop_mask;  /* bit i: stop_ids[i] of the header ends it */
    UINT has_mask;   /* the row of BIND_MASKS with a bit for each allowed id, counted from 1; 0: none */
    UINT logprobs;   /* 0, or 1 + the number of most likely ids */
    UINT logits_row; /* that the id is chosen from; LOGITS_ALL: the first */
    INT next_id;     /* LOGITS_ALL with log-probabilities: the id after its last row */
};

/* The structs as words, as they are copied, and the members that take.comp reads. */
SHARED_ENUM(HEADER_WORDS, 46)
SHARED_ENUM(TOKENS_WORD, 0)
SHARED_ENUM(RUNS_WORD, 1)
SHARED_ENUM(OUTPUTS_WORD, 2)
SHARED_ENUM(REPEAT_WORD, 6)
SHARED_ENUM(ENTRY_WORD, 10)
SHARED_ENUM(CANCELLED_WORD, 11)
SHARED_ENUM(CANCEL_MASK_WORD, 12)
SHARED_ENUM(SAMPLES_ONLY_WORD, 13)
SHARED_ENUM(RUN_WORDS, 31)
SHARED_ENUM(RUN_SLOT, 0)
SHARED_ENUM(RUN_FIRST, 1)
SHARED_ENUM(RUN_COUNT, 2)
SHARED_ENUM(RUN_FIRST_ROW, 3)
SHARED_ENUM(RUN_LOGITS, 4)
SHARED_ENUM(RUN_LIMIT, 5)
SHARED_ENUM(RUN_READ_VERSION, 6)
SHARED_ENUM(RUN_WRITE_VERSION, 7)
SHARED_ENUM(RUN_NEXT_VERSION, 8)
SHARED_ENUM(RUN_SOURCE, 25)

struct run_outcome {
    UINT sampled, ended;
    UINT failed; /* 0, or 1 + the position after which no id could be chosen */
};

struct ring_state {
    UINT taken;   /* steps taken from the ring */
    UINT left;    /* repetitions left */
    UINT stopped; /* 1: all runs have ended, so the remaining repetitions do nothing */
    UINT spare;
};

/* ---- Row ops ---- */

/* Kinds of row ops: enum op_kind, and two that convert a row for the matmuls that follow: to int8; to f16,
 * followed by the power of two that the row was multiplied by. */
SHARED_ENUM(ROW_ROUND, 64)
SHARED_ENUM(ROW_HALVES, 65)
SHARED_ENUM(ROW_HALVES_WORDS, 4) /* words that follow a row of halves */

#define NO_OPERAND 0xffffffffu /* an operand that is absent */

struct row_op {
    UINT kind;
    UINT columns;
    UINT group;   /* norms: columns of a group; rope: head_dim */
    UINT groups;  /* groups in a row */
    UINT to;      /* offset in floats in the arena; the rows are `columns` floats apart */
    UINT x, y, z; /* inputs, likewise */
    UINT u;
    UINT weight, bias; /* offsets in the vectors */
    UINT weight_is_scratch;
    FLOAT number; /* epsilon, cap or scale */
    UINT activation;
    UINT type;                     /* embed: type of the table; kv_append: type of the cache */
    UINT codes, high, scales;      /* embed: planes of the table, in words */
    UINT first_row, row_count;     /* embed: the table's rows in this dispatch */
    UINT head_words;               /* kv_append: words of one head at one position */
    UINT rope, dimensions, halves; /* rope: offset of its table in floats, number of rotated columns */
    UINT state;                    /* token_shift: offset in floats */
};

struct take_arguments {
    UINT entry_words;          /* words of one ring entry */
    UINT words_at;             /* offset of the rows in an entry */
    UINT outputs_at, pages_at; /* offsets of output rows and pages */
    UINT pages_stride;         /* pages of a run */
    UINT context, slots;
};

/* Follows take_arguments if take.comp also embeds a single token's id. */
struct embed_token {
    UINT to; /* in floats in the arena */
    UINT rows, columns, type;
    UINT codes, high, scales; /* planes in words */
    FLOAT scale;
};

struct rows_arguments {
    UINT first_op, op_count;
    UINT row_kind;           /* enum row_kind */
    UINT recurrent_elements; /* of one version of a slot's recurrent state */
};

/* ---- Matrices ---- */

SHARED_ENUM(MATRIX_ACCUMULATE, 1)

/* Rows and tokens of one invocation of matmul_direct.comp. */
SHARED_ENUM(DIRECT_ROWS, 4)
SHARED_ENUM(DIRECT_TOKENS, 4)

struct matrix {
    UINT first_group; /* first workgroup of this matrix */
    UINT rows, columns, type;
    UINT codes, high, scales; /* planes in words */
    UINT x;                   /* offset in floats in the arena, or index among the rounded rows */
    UINT to, to_columns;
    UINT bias; /* in the vectors, or NO_OPERAND */
    UINT flags;
    UINT activation;
    UINT to_first; /* column of the output for its first row */
    UINT range;    /* offset in the vectors: the power of two that the weights are multiplied by as halves */
    UINT lerp, rows_per_group; /* single token only */
};

struct matmul_arguments {
    UINT first_matrix, matrix_count;
    UINT row_kind;
    UINT glu; /* enum activation, 0 for none; matrix 1 is then `up` */
    UINT glu_to;
};

/* All matrices of a matvec have the same number of columns. Up to three of one format and input are push
 * constants; otherwise the matrices are in the table. */
SHARED_ENUM(MATVEC_MATRICES, 3)
SHARED_ENUM(MATVEC_ENTRIES, 12)
SHARED_ENUM(MATVEC_WORDS, 23)
SHARED_ENUM(MATVEC_MATRIX_WORDS, 7)
SHARED_ENUM(MATVEC_ACCUMULATES, 256) /* flag in `kind`, beside the activation */
SHARED_ENUM(MATVEC_ROW_KIND, 15)     /* mask in `flags`: enum row_kind; above it the rows of a workgroup */
SHARED_ENUM(MATVEC_STORES_ROW, 16)   /* flag in `flags`: store the row as the state of the token shift */

/* Flags of a specialised pipeline. The constant also has the lanes (<< 8), the lanes for float types (<< 12)
 * and the activation (<< 16). */
SHARED_ENUM(MATVEC_GLU, 1)         /* two matrices, the second is `up` */
SHARED_ENUM(MATVEC_TABLE, 2)       /* matrices of different formats or inputs, or more than three */
SHARED_ENUM(MATVEC_NORM, 4)        /* a norm before the matmul */
SHARED_ENUM(MATVEC_LAYER_NORM, 8)  /* the norm is a layer norm */
SHARED_ENUM(MATVEC_LERP, 16)       /* a lerp with the previous row */
SHARED_ENUM(MATVEC_LOOPS, 32)      /* a workgroup has more rows than it computes at once */
SHARED_ENUM(MATVEC_ONE_MATRIX, 64) /* one matrix only */
SHARED_ENUM(MATVEC_ANY, 255)       /* the activation differs between matrices */

struct matvec_matrix {
    UINT rows;
    UINT codes, high, scales; /* planes in words */
    UINT to;                  /* offset in floats in the output binding */
    UINT bias;                /* in the vectors, or NO_OPERAND */
    UINT kind;
};

struct matvec_arguments {
    UINT flags;
    UINT x;               /* offset in the input binding */
    UINT norm, norm_bias; /* offsets in the vectors; NO_OPERAND: no norm, or an RMS norm */
    FLOAT epsilon;
    UINT shift, lerp; /* offset of the previous row in floats, or NO_OPERAND; offset of the lerp's weight */
    UINT recurrent_elements;
    UINT first_matrix; /* index in the table */
    /* The first workgroup of each matrix after the first (for three matrices: two words), then struct
     * matvec_matrix of each. */
    UINT words[MATVEC_WORDS];
};

/* ---- Attention, recurrence, sampling ---- */

/* Specialisation of attend_one.comp: heads, lanes that share a position (<< 4), invocations within reach of
 * shuffles (<< 8), positions of a team at once (<< 12); with a fused projection also: */
SHARED_ENUM(ATTEND_PIECE, 16) /* blocks of a piece of a row, as a power of two (<< 16) */
SHARED_ENUM(ATTEND_AHEAD, 20) /* pieces loaded ahead (<< 20) */

struct attend_arguments {
    UINT to;                            /* in floats */
    UINT kv_heads, group_heads, window; /* group_heads: heads per kv head */
    FLOAT scale, cap;
    UINT head_words; /* words of one head at one position */
    /* Single token only. */
    UINT splits_shift; /* there are 2^splits_shift splits */
    UINT least;        /* smallest number of positions of a split */
    UINT rope_q, rope_k, dimensions, halves;
    UINT pages_at, pages; /* offset in BIND_WORDS; maximum number of pages of a run */
    UINT counts_at;       /* offset in the partials: completed splits of each workgroup's heads */
};

/* Follows attend_arguments: offsets of the query and, for a single token, of its key and value. */
struct attend_token {
    UINT q, k, v; /* in floats */
    UINT rotated; /* 1: the shader executes rope and append */
};

/* Follows attend_arguments if the shader computes query, key and value itself: the input row, its norm and
 * three matrices. */
struct project_token {
    UINT x;    /* in floats */
    UINT norm; /* offset in the vectors */
    FLOAT epsilon;
    UINT types;                        /* types of the matrices, a byte each */
    UINT codes[3], high[3], scales[3]; /* planes in words */
    UINT bias[3];                      /* in the vectors, or NO_OPERAND */
};

struct wkv7_arguments {
    UINT r, w, k, v, kk, a, to;
    UINT heads, head_dim, columns, state, recurrent_elements;
};

/* wkv7 of a single token, fused with the ops around it; NO_OPERAND marks an absent op. */
struct wkv7_one_arguments {
    UINT r, w, k, v, a, to;                 /* in floats */
    UINT value_mix, first_value;            /* value = v + (first_value - v) * value_mix */
    UINT k_k, k_a;                          /* offsets in the vectors, like all weights */
    UINT norm_weight, norm_bias, r_k, gate; /* gate: offset in floats */
    FLOAT kk_epsilon, norm_epsilon;
    UINT state, recurrent_elements;
};

SHARED_ENUM(ARGMAX_BLOCKS, 64)

/* A row of BIND_LOGPROBS: {id, logarithm} of the chosen id and of the most likely ones. */
SHARED_ENUM(TOP_LOGPROBS, 20)
SHARED_ENUM(LOGPROB_WORDS, 42)

struct sample_arguments {
    UINT logits, vocabulary;
    UINT is_single; /* one token: row, run and output 0 */
};

#endif
