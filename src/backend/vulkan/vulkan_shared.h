/*
 * What the host and the shaders agree on: the data of a step, the tables of a plan and the arguments of each
 * dispatch. C and GLSL both include this file. Every member is four bytes, so that both lay it out alike.
 */
#ifndef VULKAN_SHARED_H
#define VULKAN_SHARED_H

#ifdef GLSL
#define UINT                     uint
#define INT                      int
#define FLOAT                    float
#define SHARED_ENUM(name, value) const uint name = value;
#else
#include <stdint.h>
#define UINT                     uint32_t
#define INT                      int32_t
#define FLOAT                    float
#define SHARED_ENUM(name, value) enum { name = (value) };
#endif

/* ---- Bindings: one descriptor set layout serves all shaders ---- */

SHARED_ENUM(BIND_STEP, 0)    /* step_header and runs */
SHARED_ENUM(BIND_WORDS, 1)   /* rows, output rows, pages */
SHARED_ENUM(BIND_ARENA, 2)   /* scratch of the step */
SHARED_ENUM(BIND_WEIGHTS, 3) /* packed matrices */
SHARED_ENUM(BIND_VECTORS, 4) /* norms and biases */
SHARED_ENUM(BIND_TABLE, 5)   /* row ops or matrices of a group */
SHARED_ENUM(BIND_ROUNDED, 6) /* activations as bytes or halves; of a single token, the row that comes in */
SHARED_ENUM(BIND_KEYS, 7)
SHARED_ENUM(BIND_VALUES, 8)
SHARED_ENUM(BIND_RECURRENT, 9)
SHARED_ENUM(BIND_TOKENS, 10)   /* ids of all slots */
SHARED_ENUM(BIND_ROPES, 11)    /* cosines and sines */
SHARED_ENUM(BIND_PARTIALS, 12) /* attention: of splits; sampling: of blocks */
SHARED_ENUM(BIND_CONTROL, 13)  /* where the device is among the steps */
SHARED_ENUM(BIND_RING, 14)     /* take: steps from the host; sample: results for the host */
SHARED_ENUM(BIND_MIRROR, 15)   /* the host's copy of the ids */
SHARED_ENUM(BIND_WORK, 16)     /* sampling: logits with bias and penalties, counts */
SHARED_ENUM(BIND_BIAS, 17)
SHARED_ENUM(BIND_COUNT, 18)

/* ---- A step ---- */

SHARED_ENUM(RING_ENTRIES, 4)
SHARED_ENUM(STEP_STOP_IDS, 32)
SHARED_ENUM(ROW_WORDS, 2)          /* of a row: its run, its position */
SHARED_ENUM(RECURRENT_VERSIONS, 4) /* committed, and one for each step that is on its way */

struct step_header {
    UINT tokens, runs, outputs;              /* live rows */
    UINT outputs_at, pages_at, pages_stride; /* in the words */
    UINT repeat;                             /* at least 1 */
    UINT context, slots;
    UINT stop_count;
    UINT entry;       /* of the ring of results */
    UINT cancelled;   /* set in the ring while the step runs: no more repetitions */
    UINT cancel_mask; /* the device looks whether it is where these bits of the repetitions left are 0 */
    INT stop_ids[STEP_STOP_IDS];
};

struct step_run {
    UINT slot, first, count, first_row;
    UINT logits; /* enum run_logits */
    UINT limit;
    UINT before, after, other; /* versions of recurrent state: read, written, and to go on with */
    /* How an id is chosen. */
    UINT plain; /* the largest logit as it is */
    UINT has_bias;
    FLOAT temperature, inverse_temperature;
    UINT top_k; /* 0: off */
    UINT top_p; /* share of 2^32; 0 with top_p_off */
    UINT top_p_off;
    UINT min_p_low, min_p_high; /* lowest weight */
    FLOAT repeat_penalty, inverse_repeat, presence_penalty, frequency_penalty;
    UINT recent; /* how many of the last ids are penalised, at most */
    UINT seed_low, seed_high;
    UINT source;    /* enum run_source */
    UINT stop_mask; /* bit i: stop_ids[i] of the header ends it */
};

/* The same in words, as both are copied; and which of them a step is taken by. */
SHARED_ENUM(HEADER_WORDS, 45)
SHARED_ENUM(TOKENS_WORD, 0)
SHARED_ENUM(RUNS_WORD, 1)
SHARED_ENUM(OUTPUTS_WORD, 2)
SHARED_ENUM(REPEAT_WORD, 6)
SHARED_ENUM(ENTRY_WORD, 10)
SHARED_ENUM(CANCELLED_WORD, 11)
SHARED_ENUM(CANCEL_MASK_WORD, 12)
SHARED_ENUM(RUN_WORDS, 27)
SHARED_ENUM(RUN_SLOT, 0)
SHARED_ENUM(RUN_FIRST, 1)
SHARED_ENUM(RUN_COUNT, 2)
SHARED_ENUM(RUN_FIRST_ROW, 3)
SHARED_ENUM(RUN_LOGITS, 4)
SHARED_ENUM(RUN_LIMIT, 5)
SHARED_ENUM(RUN_BEFORE, 6)
SHARED_ENUM(RUN_AFTER, 7)
SHARED_ENUM(RUN_OTHER, 8)
SHARED_ENUM(RUN_SOURCE, 25)

struct run_outcome {
    UINT sampled, ended;
    UINT failed; /* 1 + the position after which there was no id to choose */
};

struct control {
    UINT taken;   /* steps taken from the ring */
    UINT left;    /* repetitions that follow */
    UINT stopped; /* a run has ended, says who takes a step or chooses an id: what is left does nothing */
    UINT spare;
};

/* ---- Ops that work row by row ---- */

/* The kinds are those of enum op_kind, and two more that round a row for the matmuls that follow: to bytes;
 * to halves, and behind them what one of them is, a power of two. */
SHARED_ENUM(ROW_ROUND, 64)
SHARED_ENUM(ROW_HALVES, 65)
SHARED_ENUM(ROW_HALVES_WORDS, 4) /* so much is behind them */

#define ROW_NOTHING 0xffffffffu /* an operand that is not there */

struct row_op {
    UINT kind;
    UINT columns;
    UINT group;   /* norms: columns of a group; heads: head_dim */
    UINT groups;  /* how many of them a row has */
    UINT to;      /* offsets in floats in the arena; row r is `columns` floats further each */
    UINT x, y, z; /* the same */
    UINT u;
    UINT weight, bias; /* in the vectors */
    UINT weight_is_scratch;
    FLOAT number; /* epsilon, cap or scale */
    UINT activation;
    UINT type;                     /* embed: of the table; kv_append: of the state */
    UINT codes, high, scales;      /* embed: planes of the table, in words */
    UINT first_row, row_count;     /* embed: rows of the table that this dispatch has */
    UINT head_words;               /* kv_append: words of one head at one position */
    UINT rope, dimensions, halves; /* rope: its table in floats; rotated columns */
    UINT state;                    /* token_shift: in floats */
};

struct take_arguments {
    UINT entry_words;          /* of one entry of the ring */
    UINT words_at;             /* where rows begin in it */
    UINT outputs_at, pages_at; /* and output rows and pages */
    UINT pages_stride;         /* pages of a run */
    UINT context, slots;
};

/* What follows them where a single token's id is looked up in a table. */
struct embed_token {
    UINT to; /* in floats in the arena */
    UINT rows, columns, type;
    UINT codes, high, scales; /* planes in words */
    FLOAT scale;
};

struct rows_arguments {
    UINT first_op, op_count;
    UINT row_kind;           /* enum row_kind */
    UINT recurrent_elements; /* of one version of a slot */
};

/* ---- Matrices ---- */

SHARED_ENUM(MATRIX_ACCUMULATE, 1)

/* Of an invocation that multiplies without tiles. */
SHARED_ENUM(DIRECT_ROWS, 4)
SHARED_ENUM(DIRECT_TOKENS, 4)

struct matrix {
    UINT first_group; /* workgroup from which on this matrix is worked on */
    UINT rows, columns, type;
    UINT codes, high, scales; /* planes in words */
    UINT x;                   /* in floats in the arena, or its place among the rounded rows */
    UINT to, to_columns;
    UINT bias; /* in the vectors, or ROW_NOTHING */
    UINT flags;
    UINT activation;
    UINT to_first; /* column of the output where its first row goes */
    UINT range;    /* in the vectors: what its weights are multiplied by as halves, a power of two */
    UINT lerp, rows_per_group; /* of a single token */
};

struct matmul_arguments {
    UINT first_matrix, matrix_count;
    UINT row_kind;
    UINT glu; /* enum activation, 0 for none; matrix 1 is then `up` */
    UINT glu_to;
};

/* A single token's matrices are all of one width. Up to three of one format and input come as arguments, more
 * and others stand in the table. */
SHARED_ENUM(MATVEC_MATRICES, 3)
SHARED_ENUM(MATVEC_ENTRIES, 12)
SHARED_ENUM(MATVEC_WORDS, 23)
SHARED_ENUM(MATVEC_MATRIX_WORDS, 7)
SHARED_ENUM(MATVEC_ACCUMULATES, 256) /* beside the activation in `kind` */
SHARED_ENUM(MATVEC_ROW_KIND, 15)     /* in `flags`: enum row_kind; above it the rows of a workgroup */
SHARED_ENUM(MATVEC_KEEPS, 16)        /* the row becomes the state of the shift */

/* What a pipeline is specialised on, beside lanes (<< 8), those of floats (<< 12) and the activation (<< 16).
 */
SHARED_ENUM(MATVEC_GLU, 1)     /* two matrices, of which the second is `up` */
SHARED_ENUM(MATVEC_TABLE, 2)   /* matrices of several formats and inputs, or many */
SHARED_ENUM(MATVEC_NORM, 4)    /* a norm stands before */
SHARED_ENUM(MATVEC_MEAN, 8)    /* which takes away the mean */
SHARED_ENUM(MATVEC_LERP, 16)   /* a mixture with the row before, too */
SHARED_ENUM(MATVEC_ROUNDS, 32) /* workgroups take more rows than at once */
SHARED_ENUM(MATVEC_ALONE, 64)  /* there is one matrix */
SHARED_ENUM(MATVEC_ANY, 255)   /* activations differ */

struct matvec_matrix {
    UINT rows;
    UINT codes, high, scales; /* planes in words */
    UINT to;                  /* in floats in what is bound for output */
    UINT bias;                /* in the vectors, or ROW_NOTHING */
    UINT kind;
};

struct matvec_arguments {
    UINT flags;
    UINT x;               /* in what is bound for input */
    UINT norm, norm_bias; /* vectors; ROW_NOTHING: no norm, and none but by size */
    FLOAT epsilon;
    UINT shift, lerp; /* state of the row before, in floats, or ROW_NOTHING; weight of the mixture */
    UINT recurrent_elements;
    UINT first_matrix; /* in the table */
    /* The workgroups from which on matrices after the first are worked on; of three matrices two, and then
     * these.
     */
    UINT words[MATVEC_WORDS];
};

/* ---- Attention, recurrence, sampling ---- */

/* What a pipeline of a single token is specialised on, beside heads, lanes that share a position (<< 4),
 * those that shuffles reach (<< 8) and positions of a team (<< 12), where it makes queries itself. */
SHARED_ENUM(ATTEND_PIECE, 16) /* blocks of a piece of a row, as a power of two (<< 16) */
SHARED_ENUM(ATTEND_AHEAD, 20) /* pieces that are asked for at once (<< 20) */

struct attend_arguments {
    UINT to;                            /* in floats */
    UINT kv_heads, group_heads, window; /* group_heads: heads of a kv head */
    FLOAT scale, cap;
    UINT head_words; /* of one head at one position */
    /* A single token. */
    UINT splits_shift; /* 2^this splits */
    UINT least;        /* positions that are not split */
    UINT rope_q, rope_k, dimensions, halves;
    UINT pages_at, pages; /* in the words; how many a run can have */
    UINT counts_at;       /* in the partials: how many splits are done, for each workgroup's heads */
};

/* What follows them: where queries are and, of a single token, its key and value; */
struct attend_token {
    UINT q, k, v; /* in floats */
    UINT rotated; /* rope and append happen here */
};

/* or what all three are made of: a row, its norm and three matrices. */
struct project_token {
    UINT x;    /* in floats */
    UINT norm; /* a vector */
    FLOAT epsilon;
    UINT types;                        /* of the matrices, a byte each */
    UINT codes[3], high[3], scales[3]; /* planes in words */
    UINT bias[3];                      /* in the vectors, or ROW_NOTHING */
};

struct wkv7_arguments {
    UINT r, w, k, v, kk, a, to;
    UINT heads, head_dim, columns, state, recurrent_elements;
};

/* Of a single token, with what stands around it; ROW_NOTHING where something does not. */
struct wkv7_one_arguments {
    UINT r, w, k, v, a, to;                          /* in floats */
    UINT share, first_value;                         /* value = v and some of the first */
    UINT direction_weight, strength_weight;          /* vectors, as all weights */
    UINT norm_weight, norm_bias, bonus_weight, gate; /* gate: in floats */
    FLOAT direction_epsilon, norm_epsilon;
    UINT state, recurrent_elements;
};

SHARED_ENUM(ARGMAX_BLOCKS, 64)

struct sample_arguments {
    UINT logits, vocabulary;
    UINT is_single; /* one token: row, run and output are the first */
};

#endif
