/*
 * Plans of many tokens: the arguments of their kernels, and the launch of each. C and CUDA include this.
 *
 * A plan is a chain of launches, all with grids sized by capacity; kernels read the number of rows from the
 * device's copy of the step. Structs are passed by value, so that a kernel knows its work without a load from
 * memory; `machine`, `row table` and `packed inputs` are addresses of the device.
 *
 * salvo_begin(machine): takes the next step from the step ring, copies the host's ids to where embed reads
 * them.
 *
 * salvo_angles(machine): cosines and sines of every row.
 *
 * salvo_rows(machine, row table, packed inputs), salvo_few_rows: loads, row ops, stores and rounds of a
 * struct cuda_row_table, one block a row. `packed input` of a struct cuda_round is an index into packed
 * inputs, an array of struct cuda_packed_input.
 *
 * salvo_norm(machine, struct cuda_norm_rows): rows to a packed input, perhaps through an rms norm, without
 * tables: most groups of rows do no more.
 *
 * salvo_rotate(machine, struct cuda_rotate): ropes and kv_append before attention, without tables.
 *
 * salvo_rwkv7_mix(machine, struct cuda_mix): norm, token shift and lerps of RWKV-7, without tables.
 *
 * salvo_rwkv7_inputs(machine, struct cuda_wkv7_inputs), salvo_rwkv7_results(machine, struct
 * cuda_wkv7_results): the ops before and after its recurrence, without tables.
 *
 * salvo_gemm_*(machine, struct cuda_gemm)
 *
 * salvo_flash_*(machine, struct cuda_flash): attention. q has been rotated, and the step's keys and values
 * have been appended before, unless attend.appends: then attention does it.
 *
 * salvo_wkv7_*(machine, struct cuda_wkv7_many): token by token; or _prepare and then _chunks
 *
 * salvo_end(machine): results, versions of recurrent states, done.
 *
 * Every kernel waits for the launch before it itself (griddepcontrol), after it has loaded the data that does
 * not depend on that launch: launches may be connected by programmatic edges or by plain ones. No block ends
 * before it has waited, so the end of a launch is also the end of all launches before it. salvo_begin alone
 * does not let the next launch start early: when that one starts, the step is complete, with the results of
 * all earlier steps, and the launches after it read these before they wait, too.
 */
#ifndef CUDA_BATCH_H
#define CUDA_BATCH_H

#include "backend/cuda/cuda_plan.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GEMM_MATMULS = 4,     /* that one launch can do */
    GEMM_ROWS = 32,       /* rows of a matrix that one block computes */
    GEMM_FEW_TOKENS = 16, /* tokens that one block computes, as `few`, `some` or `many` of the kernels */
    GEMM_SOME_TOKENS = 32,
    GEMM_MANY_TOKENS = 64,
    GEMM_MANY_CAPACITY = 256, /* from here on */
    /* A block divides the columns among at most this many warps: among half of them for quantised weights and
     * GEMM_MANY_TOKENS, so that two blocks share a multiprocessor. For float weights and for a glu, warps
     * work in pairs, each with half of the rows. */
    GEMM_WARPS = 12,
    GEMM_FLOAT_TILE_BYTES = 2 * 128 * CUDA_TILE_ROWS * 4, /* of a warp's rows of a matrix, at most */
    GEMM_UNPACKED_BYTES = 16 * CUDA_TILE_COLUMNS,
    /* Bytes of one token and 128 columns in shared memory. q8: values and scales, 32 bytes more for weights
     * with offsets; f16: 16 bytes more than the values; f32: 36 floats for every 32. */
    GEMM_Q8_TOKEN_BYTES = 128 + 16,
    GEMM_F16_TOKEN_BYTES = 256 + 16,
    GEMM_F32_TOKEN_BYTES = 4 * 36 * 4,
    /* Kernels for warpgroups: rows of a block, with a glu those of both matrices together. Weights and inputs
     * are copied to a ring of stages in shared memory; a cluster of blocks may divide the columns. */
    GEMM_HALVES_ROWS = 128,
    GEMM_HALVES_THREADS = 384,
    GEMM_HALVES_SIZES = 4,       /* blocks of GEMM_FEW_TOKENS tokens, of twice as many, ... */
    GEMM_HALVES_MOST_BLOCKS = 8, /* of a cluster */
    GEMM_HALVES_LEAST_STAGES = 3,
    GEMM_HALVES_MOST_STAGES = 8,
    GEMM_HALVES_BARRIERS = 2 * 8 * GEMM_HALVES_MOST_STAGES, /* bytes */
    GEMM_HALVES_SHARED = 200000,     /* bytes of shared memory that a device needs for them */
    GEMM_THIN_WARPS = 16,            /* of a block that computes GEMM_FEW_TOKENS of halves, at most */
    CUDA_INPUT_CHUNK_BYTES = 8 * 16, /* of inputs for warpgroups: 16 bytes of eight tokens */
    CUDA_INPUT_GROUP_BYTES = 2 * CUDA_TILE_COLUMNS / 16 * CUDA_INPUT_CHUNK_BYTES, /* a part of eight tokens */
    BEGIN_THREADS = 512,
    ANGLES_THREADS = 64,
    ROWS_THREADS = 256,
    FEW_ROWS = 128, /* up to here blocks of rows have many threads: they run at once, on their own */
    FEW_ROWS_THREADS = 512,
    ROTATE_THREADS = 256,
    NORM_THREADS = 256,
    NORM_COLUMNS = 4 * NORM_THREADS * 4, /* of a block: a thread has up to four times four in registers.
                                            Rows that no norm reads whole may have several blocks */
    MIX_LERPS = 6,
    MIX_THREADS = 1024, /* at most: a thread has four columns of a row */
    HEADS_THREADS = 64, /* a thread has four columns; few, so that a row has several blocks */
    END_THREADS = 128,
    FLASH_QUERIES = 16,       /* pairs of token and head that a block works on */
    FLASH_WARPS = 4,          /* warps that divide the keys */
    FLASH_FEW_WARPS = 3,      /* if shared memory has no room for four */
    FLASH_MOST_SPLITS = 8,    /* blocks that divide the keys of the same queries */
    FLASH_WIDE_QUERIES = 128, /* of a block with warpgroups */
    FLASH_WIDE_THREADS = 384,
    FLASH_WIDE_STEP = 128 * 64, /* elements of the keys, and of the values, of a step */
    FLASH_WIDE_SHARED = 2048 + 4 * 2 * 2 * FLASH_WIDE_STEP + FLASH_WIDE_QUERIES * (128 + 4) * 4, /* at most */
    FLASH_KEYS = 32,         /* that a warp takes at once */
    FLASH_APPEND_ROWS = 128, /* up to here ropes and the append are inside attention */
    FLASH_ONE_ROWS = 16,     /* above, runs of one token have a path of their own there */
    FLASH_ANY_KEYS = 32,
    /* Blocks of salvo_flash_append_64 and _128 whose registers a multiprocessor has room for. */
    FLASH_APPEND_BLOCKS_64 = 4,
    FLASH_APPEND_BLOCKS_128 = 2,
    /* From this position on blocks divide the keys, where that gives more blocks. Before it, the cluster
     * takes longer than the keys: measured on an H200. */
    FLASH_LONG_CONTEXT = 384,
    WKV7_WARPS = 2,         /* each has four values of a head */
    WKV7_TOKENS = 16,       /* tokens that are loaded to shared memory at once; tokens of a chunk */
    WKV7_CHUNK_DIM = 64,    /* the head_dim that chunks are for */
    WKV7_CHUNK_VALUES = 16, /* values of a head that one block computes */
    WKV7_CHUNK_THREADS = 2 * WKV7_CHUNK_DIM,
    WKV7_CHUNK_RUNS = 8,   /* that are done at once */
    WKV7_CHUNK_STAGES = 4, /* chunks in shared memory */
    WKV7_CHUNK_BYTES =
        4 * (4 * WKV7_TOKENS * WKV7_CHUNK_DIM + 2 * WKV7_TOKENS * WKV7_TOKENS + WKV7_CHUNK_DIM),
    /* Chunks with their values; removed vectors and results of two chunks, as sums of four warps. */
    WKV7_CHUNKS_SHARED = WKV7_CHUNK_STAGES * (WKV7_CHUNK_BYTES + 4 * WKV7_TOKENS * WKV7_CHUNK_VALUES) +
                         2 * 2 * 4 * 4 * WKV7_TOKENS * WKV7_CHUNK_VALUES,
};

/* Bytes of shared memory of the queries of a block of salvo_flash_append_*: two halves each, and a float. */
#define FLASH_SHARED_QUERIES(head_dim) (FLASH_QUERIES * (head_dim)*2 * 2 + 128)

/*
 * Rounded rows, inputs of matmuls. Columns are the matrix's, rounded up to CUDA_TILE_COLUMNS, with zeros
 * behind the last. ROUNDING_Q8:  values int8, scales float [T][columns / 32], sums float [T][columns / 16]:
 * scale * sum of 16 values ROUNDING_F16: values half ROUNDING_F32: values float
 *
 * Halves lie in pairs, in the order in which products of 16 columns see those of the weights, whose lanes
 * bring 32 neighbours each: pair j of group 32c .. 32c + 31 is, of every 128, pair 4j + c. `grouped`, above
 * 0: for products of warpgroups. Parts of 128 columns come one after the other, each with so many rows; in a
 * part the first 16 bytes of eight rows, then the next 16, and after 256 bytes of each the next eight rows.
 *
 * Rows of two terms are values + seconds / 128; those of one have left nothing in seconds.
 */
struct cuda_packed_input {
    uint64_t values, scales, sums; /* values: [T][stride] */
    uint64_t seconds;              /* ROUNDING_Q8: int8, [T][columns] */
    uint32_t rounding, columns;
    uint32_t stride;  /* as columns; ROUNDING_F32: or fewer, and all beyond count as zeros */
    uint32_t fine;    /* all rows have two terms; otherwise those of the first positions */
    uint32_t grouped; /* ROUNDING_F16: rows of a part, a multiple of 8 */
    uint32_t padding;
};

/* Rows to a packed input, through an rms norm if there is a weight. */
struct cuda_norm_rows {
    uint64_t token_rows; /* struct cuda_row [T]: the tokens of the step */
    uint64_t x, weight;  /* x: [T][columns] */
    uint64_t out;        /* a copy of the rounded rows, [T][columns], or 0 */
    struct cuda_packed_input packed_input;
    uint32_t rows;    /* enum row_kind: tokens or outputs */
    uint32_t columns; /* a multiple of 4 */
    float epsilon;
    uint32_t padding;
};

/* A row mixed with another one, by a weight for each column. */
struct cuda_mix_lerp {
    uint64_t weight, out;            /* out: [T][columns], or 0 */
    struct cuda_packed_input packed; /* values 0: none */
};

/* Rows of tokens mixed with the previous row, through a norm if there is a weight: a layer norm with a bias,
 * else an rms norm. The previous row of a run's first is in the recurrent state, and its last one becomes the
 * new state. Without lerps the norm is all. */
struct cuda_mix {
    uint64_t x, weight, bias; /* x: [T][columns] */
    uint64_t out;             /* the rows after the norm, [T][columns], or 0 */
    uint64_t before;          /* the previous rows after the norm, [T][columns], or 0 */
    uint64_t state;           /* elements from the beginning of a version */
    uint32_t columns;         /* a multiple of 4 */
    uint32_t count;           /* lerps */
    uint32_t blocks;          /* of a row: each has every nth lerp */
    float epsilon;
    struct cuda_mix_lerp lerps[MIX_LERPS];
};

/* Before the recurrence of RWKV-7: kk, the direction of k * direction in each head, the key, and, if it is
 * not v itself, the value. All rows: [T][columns]. A head has 8, 16, 32, 64 or 128 columns. */
struct cuda_wkv7_inputs {
    uint64_t k, a, v, first, share; /* value = v + (first - v) * share; v 0: there is none */
    uint64_t direction_weight, key_weight;
    uint64_t kk, key, value; /* results */
    uint32_t columns, head_dim;
    float epsilon;
    uint32_t padding;
};

/* After it: a layer norm of each head if there is a weight, the bonus, and a product with the gate if there
 * is one. */
struct cuda_wkv7_results {
    uint64_t token_rows;       /* struct cuda_row [T]: the tokens of the step */
    uint64_t y, r, key, value; /* [T][columns] */
    uint64_t gate;             /* or 0 */
    uint64_t weight, bias, bonus_weight;
    uint64_t out;                    /* [T][columns], perhaps y; or 0 */
    struct cuda_packed_input packed; /* values 0: none */
    uint32_t columns, head_dim;
    float epsilon;
    uint32_t padding;
};

/* Queries are rotated in place; keys, rotated, and values go to a cache of halves. Ropes rotate whole heads.
 */
struct cuda_rotate {
    uint64_t q, k, v;      /* [T][heads or kv_heads][head_dim] */
    uint64_t keys, values; /* of the cache */
    uint32_t heads, kv_heads, head_dim;
    uint32_t rope_q, rope_k; /* indices of the angles */
    uint32_t halves;         /* pairs are (i, i + head_dim / 2) */
};

/* Attention, whose result may be rounded at once, if head_dim is a multiple of 32; attend.out is 0 if nothing
 * else reads it. With attend.appends it rotates q and k, whole heads, and appends k and v to a cache of
 * halves. */
struct cuda_flash {
    struct cuda_attend attend;
    struct cuda_packed_input rounded; /* values 0: it is not */
    uint32_t slots;  /* caches of halves: steps of keys and values that a warp has room for */
    uint32_t splits; /* of the keys; above 1: so many blocks, neighbours of x, are a cluster */
    uint32_t ones;   /* with attend.appends: runs of one token have a path of their own */
    uint32_t padding;
};

/* Matmuls of the same rounding, each with its input. With `glu`, an activation, there are two of the same
 * input, shape and type, and out = glu(first) * second goes to the out of the first. A matmul with a multiple
 * of CUDA_TILE_COLUMNS rows may round its result at once: to bytes, or with grouped inputs to halves; its out
 * is 0 if nothing else reads it. Only
 * inputs in F32, or in F16 that are not grouped, may differ in their number of columns. */
struct cuda_gemm {
    uint64_t token_rows; /* struct cuda_row [T]: the tokens of the step */
    struct cuda_packed_input inputs[GEMM_MATMULS];
    struct cuda_packed_input rounded; /* of the first one's out; values 0: not rounded */
    struct cuda_matmul matmuls[GEMM_MATMULS];
    uint32_t count;
    uint32_t glu;    /* ACTIVATION_NONE: no glu */
    uint32_t rows;   /* enum row_kind: tokens or outputs */
    uint32_t splits; /* above 1: so many blocks, neighbours of x, are a cluster and divide the columns */
    uint32_t stages; /* of their rings */
    uint32_t padding;
};

/* The recurrence, with everything in memory. */
struct cuda_wkv7_many {
    uint64_t in[6], out; /* r, w, k, v, kk, a: [T][heads * head_dim] */
    uint64_t state;      /* elements from the beginning of a version */
    uint64_t chunks;     /* salvo_wkv7_prepare and _chunks: [chunks][heads] of WKV7_CHUNK_BYTES */
    uint32_t heads, head_dim;
};

/* Properties of a device. */
struct cuda_room {
    uint32_t shared_bytes; /* that a block can have */
    uint32_t multiprocessors;
    bool warpgroups; /* there are kernels for them */
};

struct cuda_launch {
    const char *kernel;
    uint32_t grid_x, grid_y, threads, shared_bytes;
};

/* Bytes of a packed input, and the packed input that begins at `base`, a multiple of 256. Packed inputs of
 * one plan may share memory as long as no two live at once. Halves are not grouped. */
size_t cuda_packed_input_bytes(uint32_t rounding, uint32_t columns, uint32_t capacity);
struct cuda_packed_input cuda_packed_input_at(
    uint32_t rounding, uint32_t columns, uint32_t capacity, uint64_t base);

/* `capacity` is that of the kind of rows, `slots` the most runs of a step; `places` floats of shared memory
 * for the vectors of a row. */
struct cuda_launch cuda_begin_launch(void);
struct cuda_launch cuda_angles_launch(uint32_t capacity);
struct cuda_launch cuda_rows_launch(uint32_t capacity, uint32_t table_size, uint32_t places);
struct cuda_launch cuda_norm_launch(uint32_t capacity, uint32_t columns);
struct cuda_launch cuda_rotate_launch(uint32_t capacity);
/* Sets mix->blocks. */
struct cuda_launch cuda_mix_launch(struct cuda_mix *mix, uint32_t capacity);
/* Whether the kernels take such heads. */
bool cuda_has_head_rows(uint32_t head_dim);
struct cuda_launch cuda_wkv7_inputs_launch(const struct cuda_wkv7_inputs *inputs, uint32_t capacity);
struct cuda_launch cuda_wkv7_results_launch(const struct cuda_wkv7_results *results, uint32_t capacity);
/* Sets gemm->splits and gemm->stages. */
struct cuda_launch cuda_gemm_launch(struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room);
/* The two that it chooses from if inputs are grouped. */
struct cuda_launch cuda_gemm_halves_launch(
    struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room);
struct cuda_launch cuda_gemm_thin_launch(
    const struct cuda_gemm *gemm, uint32_t capacity, const struct cuda_room *room);
/* Sets flash->slots and flash->ones, and flash->splits to 1. */
struct cuda_launch cuda_flash_launch(
    struct cuda_flash *flash, uint32_t capacity, uint32_t slots, const struct cuda_room *room);
/* Changes such a launch to one for long contexts, whose blocks divide the keys. False: there is none. */
bool cuda_flash_split(struct cuda_flash *flash, struct cuda_launch *launch, const struct cuda_room *room);
/* Whether there is a kernel with ropes and the append inside. */
bool cuda_flash_can_append(const struct cuda_attend *attend);
struct cuda_launch cuda_wkv7_launch(const struct cuda_wkv7_many *wkv7, uint32_t slots);
/* In chunks: two launches, one after the other, and the bytes that lie between them; 0: it cannot be done so,
 * or is not worth it. */
uint64_t cuda_wkv7_chunk_bytes(const struct cuda_wkv7_many *wkv7, uint32_t capacity, uint32_t slots);
struct cuda_launch cuda_wkv7_prepare_launch(
    const struct cuda_wkv7_many *wkv7, uint32_t capacity, uint32_t slots);
struct cuda_launch cuda_wkv7_chunks_launch(const struct cuda_wkv7_many *wkv7, uint32_t slots);
struct cuda_launch cuda_end_launch(void);
#ifdef __cplusplus
}
#endif

#endif
