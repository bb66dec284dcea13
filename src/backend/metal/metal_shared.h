/* The structs and numbers that the host and the kernels share. In the kernels' source
 * shaders/start.metal and backend/common/device_sampler.h precede this file. */
#ifndef METAL_SHARED_H
#define METAL_SHARED_H

#ifdef __METAL_VERSION__
#define FUNCTION_CONSTANT(type, name, index) constant type name [[function_constant(index)]];
#define THREADGROUP_MEMORY(type, name)       threadgroup type *name [[threadgroup(0)]]
#else
#include "backend/common/device_sampler.h"
#endif

#define METAL_NO_OPERAND 0xffffffffu

/* Threads of a threadgroup, a multiple of the 32 of a simdgroup. */
#define METAL_ROW_THREADS    128
#define METAL_ATTEND_THREADS 128
#define METAL_SAMPLE_THREADS 256

/* Simdgroups of a matmul's threadgroup, unless another number is faster; most rows of its matrix that a team
 * of threads takes. */
#define METAL_MATMUL_SIMDGROUPS 2
#define METAL_MATMUL_ROWS       4
#define METAL_MATMUL_SUMS       2 /* most partial sums of a row that a thread has */

/* Most rows of x that a threadgroup of a matmul takes; most elements of a head in attention, in wkv7. */
#define METAL_MATMUL_TOKENS 8
#define METAL_ATTEND_DIM    512
#define METAL_WKV7_DIM      64

/* Matmuls by simdgroup matrices: rows and columns of weights and rows of x of a threadgroup. */
#define METAL_TILE_ROWS    64
#define METAL_TILE_COLUMNS 32
#define METAL_TILE_TOKENS  32
#define METAL_TILE_THREADS 128

/* Attention of one token: the most threadgroups that share a head, and the fewest positions of each. */
#define METAL_PARTS          16
#define METAL_PART_POSITIONS 128

/* Positions from which on attention of one token is shared. */
#define METAL_SPLIT_POSITIONS 256

#define METAL_SCOPE_SYSTEM 3 /* of a fence: the device and the host */

#define METAL_PAGE_POSITIONS 256
#define METAL_STOP_IDS       32
#define METAL_VERSIONS \
    4 /* of recurrent state: the committed one, two of the first step in flight, one of the second */

/* enum run_source, enum run_logits, enum row_kind */
#define METAL_SOURCE_LAST  1
#define METAL_LOGITS_LAST  1
#define METAL_ROWS_TOKENS  0
#define METAL_ROWS_RUNS    1
#define METAL_ROWS_OUTPUTS 2

/* enum tensor_type */
#define METAL_F32    0
#define METAL_F16    1
#define METAL_Q4_0   2
#define METAL_Q4_1   3
#define METAL_Q5_0   6
#define METAL_Q5_1   7
#define METAL_Q8_0   8
#define METAL_Q2_K   10
#define METAL_Q3_K   11
#define METAL_Q4_K   12
#define METAL_Q5_K   13
#define METAL_Q6_K   14
#define METAL_IQ4_NL 20
#define METAL_IQ4_XS 23
#define METAL_BF16   30
#define METAL_MXFP4  39

/* enum op_kind, of ops that share a kernel */
#define METAL_RMS_NORM    1
#define METAL_LAYER_NORM  2
#define METAL_L2_NORM     3
#define METAL_GLU         8
#define METAL_ADD         9
#define METAL_MUL         10
#define METAL_LERP        11
#define METAL_RWKV_KEY    13
#define METAL_SELECT_ROWS 16
#define METAL_SOFTCAP     17

/* enum activation */
#define METAL_SILU         1
#define METAL_GELU         2
#define METAL_TANH         3
#define METAL_SIGMOID      4
#define METAL_RELU_SQUARED 5
#define METAL_DECAY        6

/* Function constants. */
#define METAL_CONSTANT_KIND       0 /* type of the weights, or kind of op */
#define METAL_CONSTANT_LANES      1 /* of a row of a matrix */
#define METAL_CONSTANT_TOKENS     2 /* rows of x of a threadgroup */
#define METAL_CONSTANT_ROUNDS     3 /* x is rounded to half precision */
#define METAL_CONSTANT_PARTS      4 /* threadgroups that share a head of attention; 0: one takes it to the end */
#define METAL_CONSTANT_NORMS      5  /* x is normalised on the way */
#define METAL_CONSTANT_GATES      6  /* a second matrix is the gated one */
#define METAL_CONSTANT_ROTATES    7  /* attention rotates query and key and appends key and value */
#define METAL_CONSTANT_ROWS       8  /* of a matrix that a team of LANES threads takes */
#define METAL_CONSTANT_SIMDGROUPS 9  /* of a threadgroup of a matmul */
#define METAL_CONSTANT_CACHE      10 /* type of the KV cache */
#define METAL_CONSTANT_PROJECTS   11 /* attention computes query, key and value from x */
#define METAL_CONSTANT_SUMS       12 /* partial sums of a row that each of LANES threads has */
#define METAL_CONSTANT_DIM        13 /* elements of a head */
#define METAL_CONSTANTS           14

/*
 * A step as the device reads it: this header, a step_run for each slot, then words at the offsets that the
 * header has, counted from its beginning. The device changes it when a step repeats.
 */
struct step_header {
    uint32_t live[3];  /* rows of each kind; 0: all runs have ended */
    uint32_t given[3]; /* the same, as the host submitted them */
    uint32_t rows_at;  /* [tokens] {run, position} */
    uint32_t outputs_at, pages_at, pages_stride, ids_at;
    uint32_t context;
    uint32_t cancelled;    /* set by the host while the step runs */
    uint32_t samples_only; /* 1: its runs choose from logits that are there; nothing is computed */
    uint32_t stop_count;
    int32_t stop_ids[METAL_STOP_IDS];
};

struct step_run {
    uint32_t slot, first, count, first_row, logits, source, limit, stop_mask;
    uint32_t read_version, write_version, next_version;
    uint32_t logits_row; /* that the id is chosen from; LOGITS_ALL: the first */
    uint32_t is_live;    /* 0: it has ended, or its slot is not at its first position */
    uint32_t mask_row;   /* counted from 1; 0: none */
    uint32_t has_bias;
    int32_t
        next_id; /* LOGITS_ALL with log-probabilities, which the host computes: the id after its last row */
    struct device_sampler settings;
    /* Results. */
    uint32_t sampled, ended, failed; /* failed: the position + 1 */
};

struct begin_arguments {
    uint32_t repetition; /* 0: the first token of a step */
};

/* Offsets in the arena and in the vectors are in floats. */
struct row_arguments {
    uint32_t x, y, z, u, to;
    uint32_t weight, bias, weight_is_scratch;
    uint32_t columns, group, row_kind, activation;
    float number;
};

struct embed_arguments {
    uint64_t table; /* bytes into the buffer of weights */
    uint32_t row_bytes, rows, columns, to;
    float scale;
};

struct rope_arguments {
    uint32_t to, columns, heads, head_dim, dimensions, halves;
    uint32_t table; /* offset of the rope's angles, in floats */
};

struct append_arguments {
    uint32_t k, v, heads, head_dim;
    uint32_t head_bytes; /* of one head at one position, elements and scales */
};

struct shift_arguments {
    uint32_t x, to, columns, state, recurrent_elements;
};

struct matmul_arguments {
    uint64_t weights; /* bytes into the buffer of weights */
    uint64_t row_bytes;
    uint32_t rows, columns;
    uint32_t x, to, bias;
    uint32_t row_kind, accumulates, activation;
    uint32_t norm; /* weights of the norm of x */
    float epsilon;
    uint64_t gated; /* bytes into the buffer of the second matrix */
};

/* The matrix of queries, keys or values. */
struct projected_matrix {
    uint64_t weights, row_bytes; /* as in matmul_arguments */
    uint32_t bias;
};

struct attend_arguments {
    uint32_t q, to, heads, kv_heads, head_dim, window, head_bytes;
    float scale, cap;
    /* With METAL_CONSTANT_ROTATES: the new key and value, and the ropes as in rope_arguments. */
    uint32_t k, v, dimensions, halves, query_table, key_table;
    /* With METAL_CONSTANT_PROJECTS: x, its norm as in matmul_arguments, and the three matrices. */
    uint32_t x, columns, norm;
    float epsilon;
    struct projected_matrix projections[3];
};

struct wkv7_arguments {
    uint32_t r, w, k, v, kk, a, to;
    uint32_t heads, state, recurrent_elements;
};

struct sample_arguments {
    uint32_t logits, vocabulary;
};

#endif
