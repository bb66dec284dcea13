/*
 * Tables that the host writes and the device reads, in one header for C and CUDA. Addresses are those of the
 * device. The host writes them when an engine is opened and never again; struct cuda_step has the data that
 * changes with each submission.
 *
 * WEIGHT TILES. Matrices are cut into tiles of 8 rows by 128 columns: each lane of a warp has 32 neighbouring
 * elements of one row, lane = row * 4 + column / 32. A weight tile holds the codes of its lanes in planes of
 * 16, 8 or 4 bytes a lane and then their scales (weight_tiles.h), so that a warp reads it without bank
 * conflicts. A tile row is all tiles of 8 rows. The tiles that one block multiplies are contiguous, in the
 * order in which its warps read them; prefill and embedding lookups find the same tiles by their index. Rows
 * and columns beyond the last are zeros.
 *
 * PHASES of a plan for one token run on all blocks: a phase is a group of the plan, or a part of it. It has
 * no tables of its own; it is a range of the records of each block and of the streams of weights, so that one
 * launch can run a part of the phases.
 *
 * ROW TABLES are interpreted by the device. They describe row ops that no record describes: groups of row
 * ops, ops of a wkv7 group that is not RWKV-7's, and inputs of matmuls other than a norm. A block copies
 * the vectors that it needs into its shared memory (loads), runs the row ops on them, and stores or rounds
 * the results. In a plan for many tokens one block for each row does this.
 *
 * TAGGED WORDS. The phases of a token exchange 32-bit words: a float rounded to 29 bits and the last 3 bits
 * of the token's tag. The 3 bits repeat every six tokens and are never 0, as in memory that was not written.
 * Every phase has memory of its own for its results, so that a word is written once in every token, and a
 * reader polls it until it has the token's tag: no barrier, and no second trip to memory after one. Values
 * that are not written in every token, or need all of their bits, are 64-bit words with the whole tag above
 * the value. Blocks without work in a phase go on to the next. The next token may overwrite words when all
 * blocks have reached the end of this one: a grid barrier follows the logits and each stage of sampling; with
 * greedy sampling each block waits for a word of every other. Where machine.tagged is 0 (the debug path,
 * which launches phases one by one) the arrays are plain floats.
 */
#ifndef CUDA_PLAN_H
#define CUDA_PLAN_H

#ifdef __cplusplus
#include <cstdint>
#else
#include <stdint.h>
#endif

enum {
    CUDA_WARPS = 16, /* compute warps of a block of the decode kernel */
    CUDA_WORKERS = CUDA_WARPS * 32,
    CUDA_FINISHERS = 32,                               /* threads of the finishing warp (finisher.cuh) */
    CUDA_THREADS = CUDA_WORKERS + CUDA_FINISHERS + 32, /* and the copying warp */
    CUDA_FINISHED_ROWS =
        32, /* most rows of a matmul that the finishing warp finishes; of more, the compute warps do */
    CUDA_TILE_ROWS = 8,
    CUDA_TILE_COLUMNS = 128,
    CUDA_PAGE_TABLE_LIMIT = 4096, /* bytes of a page table in shared memory */
    CUDA_MUCH_SHARED = 160000,    /* bytes of shared memory from which on attention has memory of its own */
    CUDA_CHUNKS = 32,             /* weight chunks of a block that can be in flight at once */
    CUDA_CHUNK_BYTES = 24 * 1024, /* chunks are no larger, unless a single pass is */
    CUDA_PASS_BYTES = 32 * 1024,  /* passes are no larger: wide types leave some warps idle */
    CUDA_RECORD_BUFFERS = 4,      /* in shared memory */
    CUDA_PART_SECOND_TERMS =
        CUDA_TILE_COLUMNS + 16, /* a part of the input as int8: first terms, scales, second terms */
    CUDA_PART_BYTES = CUDA_PART_SECOND_TERMS + CUDA_TILE_COLUMNS,
    CUDA_PART_FLOAT_BYTES = 4 * 36 * 4, /* a part of the input as floats */
    CUDA_MIXED_GROUPS = 8,              /* part groups of a matmul whose input is mixed with another */
    CUDA_SHARED_HEAD = 2304,            /* bytes at the beginning of shared memory */
    CUDA_MAX_STOPS = 32,
    CUDA_TOP_LOGPROBS = 20,      /* of a row; MAX_TOP_LOGPROBS, whose header is C */
    CUDA_MOST_HEAD_DIM = 256,    /* of attention of one token: a warp's lanes have eight elements each */
    CUDA_MOST_WKV7_KEYS = 64,    /* of a head that one thread has, for one token (wkv7_one.cuh) */
    CUDA_ROW_TABLE_LIMIT = 8192, /* bytes: one load of 16 bytes for each worker */
    CUDA_NONE = 0x7fffffff,      /* no place, no rope, no table entry */
};

/* Flags of salvo_decode. */
enum {
    CUDA_TAKE_STEP = 1,     /* at the beginning: take the next step out of the step ring */
    CUDA_FINISH_TOKEN = 2,  /* at the end */
    CUDA_PROGRAMMATIC = 4,  /* one phase of a graph: the kernel before it ends with a grid dependency */
    CUDA_RANDOM_DELAYS = 8, /* for tests */
    CUDA_COUNT_TOKEN = 16,  /* add a token to the count that the next launch begins with */
};

/* ---- Matrices ---- */

/*
 * Tile row t (rows 8t .. 8t+7) belongs to owner t / tile_rows_per_block, as its tile row
 * local = t % tile_rows_per_block. Part p (columns 128p ..) is number p % parts_per_pass of part group
 * p / parts_per_pass. Its weight tile has the index
 *
 *    owner * tile_rows_per_block * part_groups * parts_per_pass
 *    + (group * tile_rows_per_block + local) * parts_per_pass + number
 *
 * All owners have memory for tile_rows_per_block tile rows and part_groups * parts_per_pass parts.
 */
struct cuda_matrix {
    uint64_t base;
    uint32_t type; /* enum tensor_type */
    uint32_t rows, columns;
    uint32_t tile_rows, parts; /* that hold anything */
    uint32_t tile_bytes;       /* a multiple of 16 */
    uint32_t tile_rows_per_block, parts_per_pass, part_groups, owners;
    uint32_t tile_rows_per_pass;  /* that the warps of a block work on at once */
    uint32_t parts_reciprocal;    /* 65536 / parts_per_pass, rounded up: warps divide by it */
    uint32_t tile_rows_per_chunk; /* of a part group: copied to shared memory at once */
};

/*
 * The weights of one matmul of a phase, for the copying warp: part group after part group in chunks. Entries
 * of all phases lie one after the other; cuda_machine.record_starts says where each phase begins.
 */
struct cuda_stream {
    uint64_t base, owner_bytes;
    uint32_t group_bytes, chunk_bytes, groups;
    uint32_t first_block, owners; /* owner o is block (first_block + o) % blocks */
    uint32_t padding[3];
};

/* ---- Steps ---- */

struct cuda_sampler {
    float temperature, inverse_temperature, top_p, min_p;
    float repeat, inverse_repeat, presence, frequency;
    uint32_t top_k, last_n;
    uint64_t seed;
    uint64_t bias;     /* [vocabulary] floats, or 0 */
    uint64_t mask;     /* mapped, or resident on the device: a bit for each allowed id; 0: none */
    uint64_t logprobs; /* mapped: [1 + top_count] struct cuda_logprob for its first row of logits, or 0 */
    uint32_t top_count;
    uint32_t row; /* of logits that the id is chosen from; LOGITS_ALL: the first */
};

/* struct sampling_logprob */
struct cuda_logprob {
    int32_t id;
    float logprob;
};

struct cuda_run {
    uint32_t slot, first, count, first_row;
    uint32_t source, logits; /* enum run_source, enum run_logits */
    uint32_t limit;          /* positions */
    uint32_t stop_mask;      /* bit i: cuda_step.stop_ids[i] ends it */
    uint32_t output;         /* index of its first output row */
    int32_t next_id;         /* LOGITS_ALL with log-probabilities: the id after its last row */
    struct cuda_sampler sampler;
};

struct cuda_row {
    uint32_t run, slot, position, padding;
};

/*
 * One entry of the step ring, which the host fills in mapped memory; the first phase copies it to device
 * memory. Behind it lie, each beginning at a multiple of 16 bytes and as large as the capacities need (struct
 * cuda_machine has the offsets): runs, rows, output rows (uint32), ids (int32), page tables (uint32).
 */
struct cuda_step {
    uint32_t run_count, token_count, output_count;
    uint32_t repeat; /* tokens to decode, at least 1 */
    uint32_t stop_count;
    int32_t stop_ids[CUDA_MAX_STOPS];
    uint32_t plan;         /* cuda_machine.plan of the launch that takes it */
    uint32_t sequence;     /* entries before it, modulo 2^32 */
    uint32_t cancelled;    /* many tokens: set by the device where the host wants no more */
    uint32_t began;        /* set by the device: when it took the step, in CUDA_TICK_NS */
    uint32_t samples_only; /* 1: its runs choose from logits that are there; nothing is computed */
    uint32_t padding[2];
};

enum { CUDA_TICK_NS = 1024 };

/* The device's state of a slot. A run from SOURCE_LAST whose slot has ended, or whose first position is not
 * the slot's next one, does nothing: the host queued it before it knew. */
struct cuda_slot {
    uint32_t next;    /* position to compute next */
    uint32_t ended;   /* a stop id was sampled */
    uint32_t version; /* of the recurrent states, 0 or 1: the one that the last step wrote */
    uint32_t padding;
};

/* Mapped memory that the host reads. `done` is written last, with the ticket. */
struct cuda_result {
    uint16_t sampled;
    uint8_t ended, failed; /* failed: 1, or 2 when it was cancelled */
    uint32_t number; /* of a run that failed, its position; else the time of the step, in CUDA_TICK_NS */
};

/* ---- Row ops, on vectors in shared memory. Places count floats. ---- */

/* Loads a vector into shared memory. */
enum cuda_load_kind {
    CUDA_LOAD_ROW,      /* [columns] floats at from + row * columns */
    CUDA_LOAD_SELECTED, /* the same for the token row of this output row */
};

struct cuda_load {
    uint64_t from;
    uint32_t kind, place, columns, padding;
};

struct cuda_store {
    uint64_t to; /* + row * columns */
    uint32_t place, columns;
};

/* Inputs and out are in the order of op.h. A place may be the same for in and out. */
struct cuda_row_op {
    uint32_t kind; /* enum op_kind */
    uint32_t columns, group;
    uint32_t out, in[5];
    uint32_t heads, head_dim;
    uint32_t rope;   /* index of the angles */
    uint32_t halves; /* rope: pairs are (i, i + dimensions / 2) */
    uint32_t dimensions;
    uint32_t matrix; /* embed: which */
    uint32_t activation;
    uint32_t keeps; /* token_shift: this block writes the new state, if the row is the last of its run */
    float value;    /* epsilon, scale or cap */
    uint64_t weight, bias; /* vectors of floats; 0: none */
    uint64_t rows;         /* token_shift: the rows whose predecessors it takes, [T][columns] */
    uint64_t state;        /* token_shift: elements from the beginning of a version; kv_append: keys */
    uint64_t values;       /* kv_append */
};

/* Rounds a vector for matmuls. Rows of many tokens go to memory: cuda_packed_input. */
struct cuda_round {
    uint32_t place, columns;
    uint16_t rounding;     /* enum rounding */
    uint16_t fine;         /* two terms; all inputs have two at the first positions */
    uint32_t packed_input; /* one token: bytes from the beginning of the packed inputs in shared memory
                              (matvec_input.cuh) */
};

/* ---- Main ops ---- */

/* A matmul, of one token (its records are made of it) or of many (an argument of the kernels). */
struct cuda_matmul {
    struct cuda_matrix matrix;
    uint64_t bias, out; /* bias: [rows] floats or 0; out: [T][rows] */
    uint32_t activation, accumulate;
    float cap; /* not 0: a softcap after bias and activation, cap * tanh(result / cap) */
    uint32_t padding;
};

/*
 * Attention of one token. A task is (kv head, some of its heads, split of the positions); the number of
 * splits with work depends on the position alone. With more than one, each stores {maximum, sum,
 * output[head_dim]} of a head at partials, [heads][splits][head_dim + 2] 64-bit tagged words (also where
 * machine.tagged is 0), except for the heads that its own block merges: head h of a task is merged by split h
 * % splits, by lanes as a tree.
 */
struct cuda_attend {
    uint64_t q, k, v; /* [T][...] */
    uint64_t out;     /* [T][heads * head_dim] */
    uint64_t keys, values;
    uint64_t next_keys, next_values; /* of the attention after this one, if it is alike; 0: none */
    uint64_t partials;
    uint32_t heads, kv_heads, head_dim, window;
    uint32_t kv_type;        /* TYPE_F16, TYPE_F32, TYPE_Q8_0 */
    uint32_t rope_q, rope_k; /* CUDA_NONE: not inside */
    uint32_t halves, dimensions;
    uint32_t appends; /* k and v are appended to the cache here */
    uint32_t splits;
    uint32_t tiled; /* by tensor cores (attend_tiles.cuh) */
    float scale, cap;
};

/* Heads of a task, and splits of a head. */
enum { CUDA_LANES_HEADS = 2, CUDA_TILE_HEADS = 4, CUDA_MOST_SPLITS = 64 };

/* One token: a block a head. Loads, row ops before and after, and stores are done on the columns of the head:
 * they have room for head_dim floats, while `columns` counts whole rows. */
struct cuda_wkv7 {
    uint64_t state;                /* elements from the beginning of a version */
    uint32_t places[6], out_place; /* r, w, k, v, kk, a of one head, in shared memory */
    uint32_t heads, head_dim;
};

/*
 * A row table is one piece of memory: this, then its parts. Offsets count bytes from its beginning and are
 * multiples of 16. Row tables of a plan lie `row_table_bytes` apart.
 */
struct cuda_row_table {
    uint32_t rows; /* enum row_kind */
    uint32_t loads_at, load_count;
    uint32_t ops_at, op_count;
    uint32_t after_at, after_count; /* wkv7: row ops after it */
    uint32_t stores_at, store_count;
    uint32_t rounds_at, round_count;
    uint32_t wkv7_at; /* struct cuda_wkv7 */
    uint32_t size;    /* bytes, parts included; at most CUDA_ROW_TABLE_LIMIT */
};

/* ---- Records: the work of each block ---- */

/*
 * RECORDS. Each block has a list of records, one for each share that it has in a phase of one token, with all
 * parameters, so that no block computes its share at run time. A matmul's record describes its input if that
 * is a vector or its norm, optionally mixed with the previous token's input; all other inputs are packed by a
 * record of their own (CUDA_RECORD_PREPARE), which has a row table.
 */
enum cuda_record_kind {
    CUDA_RECORD_SHORT, /* a matmul of which each warp has one part, and the block one chunk of each matrix */
    CUDA_RECORD_SHORT_MIXED, /* its input passes a layer norm */
    CUDA_RECORD_PIECES,      /* a matmul whose input does not fit shared memory as a whole */
    CUDA_RECORD_MATMUL,
    CUDA_RECORD_ATTEND,
    CUDA_RECORD_PREPARE, /* loads, row ops and rounds of the inputs of matmuls */
    CUDA_RECORD_ROWS,
    CUDA_RECORD_EMBED, /* a row of a table, and nothing else */
    CUDA_RECORD_WKV7,
    CUDA_RECORD_WKV7_HEAD, /* the ops around it are the ops of RWKV-7 */
    CUDA_RECORD_SAMPLE,
    CUDA_RECORD_MEET,
};

enum cuda_norm { CUDA_NORM_NONE, CUDA_NORM_RMS, CUDA_NORM_LAYER };

/*
 * The input of a matmul: one vector. Rounded to bytes after an rms norm, it is not multiplied by the norm's
 * factor; the results are.
 */
struct cuda_vector {
    uint64_t from;         /* [columns]; 0: the packed input is there already */
    uint64_t weight, bias; /* of the norm */
    uint64_t lerp;         /* [columns]: how much of the token before; 0: nothing is mixed in */
    uint64_t state;        /* then: recurrent elements from the beginning of a version */
    uint32_t columns, rounding, packed_input, norm;
    float epsilon;
    uint32_t keeps; /* this block writes the new state */
};

/* A block's share of a matrix: as in struct cuda_matrix. */
struct cuda_share {
    uint32_t type, parts, tile_rows, parts_per_pass, part_groups, tile_rows_per_pass, parts_reciprocal;
    uint32_t tile_rows_per_chunk;
};

enum matmul_flags {
    MATMUL_TAGGED = 1,    /* results, and the values to which they are added, are tagged words */
    MATMUL_PLAIN = 2,     /* results are floats: logits */
    MATMUL_ADDS = 4,      /* results are added to `before` */
    MATMUL_GLU = 8,       /* the second share is the up matrix beside the gate */
    MATMUL_DEFERS = 16,   /* results are multiplied by the factor of the input's norm */
    MATMUL_SPECIAL = 32,  /* a bias, an activation or a cap */
    MATMUL_FINISHER = 64, /* the finishing warp finishes it */
};

struct cuda_matmul_record {
    struct cuda_vector vector;
    struct cuda_share shares[2];         /* the second: of the matrix beside a gate */
    uint64_t out, before, bias, up_bias; /* of the block's first row; before: added to the results */
    uint32_t rows, flags;
    uint32_t activation, glu; /* glu: activation of the gate, the first share */
    uint32_t is_wide;         /* its partial sums need more than half of their memory */
    uint32_t up_partials;     /* the offset of the second share's sums, in floats */
    float cap, per_column;    /* per_column: 1 / columns of the input */
    uint32_t up_packed_input,
        up_rounding; /* of the second share; up_packed_input: where the packed inputs are there already */
    uint32_t groups_at_once; /* in pieces: part groups whose input fits a warp's packed input */
    uint32_t padding;
};

/* One head of RWKV-7's wkv7 with the ops around it. Addresses point to the head's first column. */
enum cuda_wkv7_input {
    CUDA_WKV7_R,
    CUDA_WKV7_W,
    CUDA_WKV7_K,
    CUDA_WKV7_A,
    CUDA_WKV7_V,
    CUDA_WKV7_V_FIRST, /* and its share in v; 0: none */
    CUDA_WKV7_V_SHARE,
    CUDA_WKV7_GATE, /* of the result; 0: none */
    CUDA_WKV7_INPUTS,
};
enum { CUDA_WKV7_COLUMNS = CUDA_WORKERS / CUDA_WKV7_INPUTS }; /* of a head: each worker loads one value */

struct cuda_wkv7_record {
    uint64_t in[CUDA_WKV7_INPUTS];
    uint64_t out;
    uint64_t direction, key, bonus; /* weights of the ops that make kk and the key, and of the bonus */
    uint64_t norm, norm_bias;       /* of the norm of the result; 0: none */
    uint64_t state;                 /* elements from the beginning of a version */
    float least_square;             /* of a key that has a direction */
    float epsilon;                  /* of the norm */
};

struct cuda_embed_record {
    struct cuda_matrix table;
    uint64_t out;
    uint32_t owner_reciprocal; /* 2^32 / table.tile_rows_per_block, rounded up */
    float scale;
};

struct cuda_record {
    uint32_t kind, phase;
    uint32_t index; /* matmul: whether its input is fine; wkv7: head; sample: stage; attend: which of the
                       shapes that tasks depend on, from 1 */
    uint32_t wait_distance; /* a record begins when the record this many before it is finished: 1 or 2 */
    union {
        struct cuda_matmul_record matmul;
        struct cuda_attend attend;
        struct cuda_wkv7_record wkv7;
        struct cuda_embed_record embed;
        uint32_t row_table; /* prepare, rows, wkv7: which */
    };
};

/* ---- All of it ---- */

struct cuda_rope {
    uint64_t frequencies; /* [dimensions / 2] doubles */
    uint32_t dimensions;
    float magnitude;
};

/* The argument of every kernel: by address, in device memory. */
struct cuda_machine {
    /* Tables of the plan. */
    uint64_t row_tables, streams, matrices, ropes;
    uint64_t records;       /* struct cuda_record */
    uint64_t record_starts; /* uint32 [blocks][phase_count + 1]; behind it the same of the streams */
    uint32_t phase_count, row_table_bytes, rope_count, rope_pairs;
    uint32_t sample_phase; /* the first that samples */
    uint32_t slots;
    uint32_t tagged; /* values between phases are tagged words, not floats */
    uint32_t plan;   /* most tokens of a step: no two plans of an executor have the same */
    uint32_t context, vocabulary, pages_per_slot, step_ring_entries;

    /* Steps and their results. */
    uint64_t step_ring;   /* mapped: step_ring_entries * step_bytes */
    uint64_t step;        /* the copy in device memory */
    uint64_t sequence;    /* uint32: number of entries taken */
    uint64_t results;     /* mapped: [step_ring_entries][slots] struct cuda_result */
    uint64_t done;        /* mapped: [step_ring_entries] uint32, the ticket */
    uint64_t progress;    /* mapped: [step_ring_entries] uint32: ids sampled so far */
    uint64_t cancel;      /* mapped: uint32, not 0: stop between tokens */
    uint64_t abort;       /* mapped: uint32, not 0: leave every wait at once */
    uint64_t error;       /* mapped: uint32 enum cuda_error */
    uint64_t host_tokens; /* mapped: [slots][context + 1] int32: sampled ids */
    uint32_t step_bytes, runs_at, rows_at, outputs_at, ids_at, pages_at;
    uint32_t outputs;       /* capacity */
    uint32_t time_limit_ms; /* of any one wait */

    /* State. */
    uint64_t slot_states; /* [slots] struct cuda_slot */
    uint64_t tokens;      /* [slots][context + 1] int32 */
    uint64_t recurrent;   /* [slots][2 versions][recurrent_elements] floats, then kept states */
    uint64_t recurrent_elements;
    uint64_t cosines, sines; /* [T][ropes][rope_pairs] floats */

    /* Scratch. */
    uint64_t logits;   /* [O][vocabulary] */
    uint64_t sampling; /* sample.cuh: scratch of its stages */
    uint64_t barrier;  /* uint32 [64], 0 when no kernel runs */
    uint64_t epoch;    /* uint32: tokens that were begun */

    /* Shared memory of the decode kernel, in bytes: CUDA_SHARED_HEAD, records, room for a row table, then
     * these.
     */
    uint32_t angles_at; /* cosines and sines of the token, [2][ropes][rope_pairs] floats */
    uint32_t vectors_at, packed_inputs_at, partials_at, half_of_partials, weight_ring_at, weight_ring_bytes,
        shared_bytes;
    uint32_t
        own_packed_input_bytes; /* of each warp, from packed_inputs_at on, where it takes its own input */
    uint32_t attend_at; /* attend_one.cuh; also the scratch of sampling, where attention has no memory of its
                           own */
    uint32_t attend_own_memory; /* 0: attention uses the memory of packed inputs and partial sums */
    uint32_t page_table_at;     /* the slot's pages; 0: they are too many, and read where the step has them */
};

enum cuda_error {
    CUDA_ERROR_OF_NOTHING,
    CUDA_ERROR_TIME, /* a wait took longer than time_limit_ms */
    CUDA_ERROR_ABORTED,
    CUDA_ERROR_STEP, /* a launch found a step that is not its own */
};

#endif
