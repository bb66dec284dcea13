/*
 * A program: the computation of one step of a model, as data. An architecture writes it once through the
 * builder, which checks every buffer and shape; backends compile it without knowing the architecture.
 */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "base/arena.h"
#include "gguf/gguf.h"
#include "program/op_table.h"

enum buffer_kind {
    BUFFER_WEIGHT,    /* [rows][columns] in the file */
    BUFFER_CACHE,     /* per slot: `columns` elements for each position */
    BUFFER_RECURRENT, /* per slot: `columns` elements that each step replaces */
    BUFFER_SCRATCH,   /* [T, R or O rows][columns] within one step */
};

struct program_buffer {
    const char *name;
    enum buffer_kind kind;
    enum tensor_type type;
    enum row_kind row_kind;           /* scratch */
    uint64_t rows;                    /* weight: outputs; 1 for vectors */
    uint64_t columns;                 /* weight: inputs */
    const struct gguf_tensor *tensor; /* weight */
    uint64_t first_row;               /* weight: where its rows begin in the tensor */
};

struct program {
    struct arena arena; /* owns all arrays below */
    const struct gguf *gguf;
    struct program_buffer *buffers;
    struct op *ops;
    struct rope *ropes;
    uint32_t buffer_count, buffer_capacity, op_count, op_capacity, rope_count, rope_capacity;

    buffer_id tokens; /* cache of int32: the ids so far */
    buffer_id logits; /* scratch [O][vocabulary] */
    buffer_id hidden; /* scratch [T][width]: the rows that select_rows takes, before the last norm */
    uint32_t vocabulary, layers;
    uint32_t trained_context; /* 0: unknown */
    uint32_t ignored_tensors; /* tensors of the file that the architecture knows and does not use */
};

void program_close(struct program *program); /* accepts NULL */

/* Lists the buffers of any kind that op number `index` reads or writes, each once, and returns their number.
 * An op that works in place or accumulates reads the buffer that it writes. An op that writes a buffer
 * without reading it writes every live row. */
enum { OP_MAX_BUFFERS = 8 };
uint32_t op_reads(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS]);
uint32_t op_writes(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS]);

bool buffer_is_among(buffer_id buffer, const buffer_id *buffers, uint32_t count);

/* Whether op number `index` reads or writes a buffer. */
bool op_reads_buffer(const struct program *program, uint32_t index, buffer_id buffer);
bool op_writes_buffer(const struct program *program, uint32_t index, buffer_id buffer);

/* Whether op `index` or a later one reads the value that the buffer has before op `index`. The logits are
 * read after the last op. */
bool value_is_read(const struct program *program, buffer_id buffer, uint32_t index);

/* The op that writes a KV cache, which has its number of heads. NULL for other buffers. */
const struct op *op_that_appends(const struct program *program, buffer_id state);

/* One line per buffer and op. */
void program_print(const struct program *program, void (*print)(void *user, const char *text), void *user);

/* Writes "q [T][576] f32 = matmul blk.0.attn_q.weight [576][576] Q4_1, h, rounding q8" to `text`. */
void program_describe_op(const struct program *program, uint32_t index, char *text, size_t size);

/*
 * BUILDING. Every function checks its arguments against the buffers they name. The builder keeps the first
 * mistake, with a message that names the buffer and the numbers; after it every function does nothing, so
 * that an architecture is a plain list of calls. builder_finish reports the mistake.
 */
struct builder {
    struct program *program;
    enum salvo_status status;
    bool round_finely; /* set by an architecture around matmuls that amplify errors: they become `fine` */
};

enum salvo_status builder_open(struct builder *builder, const struct gguf *gguf);

/* Returns the program, or the first mistake. */
enum salvo_status builder_finish(struct builder *builder, struct program **out);

/* Records a mistake that the architecture found itself, such as invalid metadata. */
void builder_refuse(struct builder *builder, enum salvo_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/*
 * A weight of exactly this shape; `rows` 1 and any number of `columns` is a vector. The name is formatted; a
 * weight requested twice is one buffer. Any type that quant/ converts is accepted. Vectors (weights of norms,
 * biases) are float32 to every op: a backend converts other types when it loads them.
 */
buffer_id builder_weight(struct builder *builder, uint64_t rows, uint64_t columns, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* As builder_weight; NO_BUFFER if the file does not have the weight. */
buffer_id builder_optional_weight(
    struct builder *builder, uint64_t rows, uint64_t columns, const char *format, ...) PRINTF_LIKE(4, 5);

/* Rows first .. first+rows-1 of a larger weight: fused matrices of the file are used without a copy. Backends
 * load only weights that ops use: a weight of which only parts are used is not loaded a second time. */
buffer_id builder_weight_part(struct builder *builder, buffer_id whole, uint64_t first, uint64_t rows);

/* A tensor that files of the architecture may have and that the program does not need. */
void builder_ignore_tensor(struct builder *builder, const char *format, ...) PRINTF_LIKE(2, 3);

buffer_id builder_scratch(struct builder *builder, enum row_kind rows, uint64_t columns, const char *name);
buffer_id builder_cache(struct builder *builder, enum tensor_type type, uint64_t columns, const char *format,
    ...) PRINTF_LIKE(4, 5);

/* Float32, zeros before a slot's first position. */
buffer_id builder_recurrent(struct builder *builder, uint64_t columns, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Copies the frequencies. Returns the index that build_rope takes. */
uint32_t builder_rope(
    struct builder *builder, uint32_t dimensions, bool halves, float magnitude, const double *frequencies);

void build_embed(struct builder *builder, buffer_id out, buffer_id table, float scale);
void build_rms_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight,
    float epsilon); /* per group of the weight's columns */
void build_matmul(
    struct builder *builder, buffer_id out, buffer_id weight, buffer_id x, buffer_id bias, bool accumulate);

/* A matmul without `accumulate`, with an activation. */
void build_activated_matmul(struct builder *builder, buffer_id out, buffer_id weight, buffer_id x,
    buffer_id bias, enum activation activation);
void build_rope(struct builder *builder, buffer_id x, uint32_t head_dim, uint32_t rope);
void build_kv_append(struct builder *builder, buffer_id key_state, buffer_id value_state, buffer_id k,
    buffer_id v, uint32_t head_dim);

struct attend_options {
    uint32_t head_dim, window;
    float scale, cap;
};
void build_attend(struct builder *builder, buffer_id out, buffer_id q, buffer_id key_state,
    buffer_id value_state, struct attend_options options);
void build_glu(
    struct builder *builder, buffer_id out, buffer_id gate, buffer_id up, enum activation activation);
void build_add(struct builder *builder, buffer_id out, buffer_id x);
void build_select_rows(struct builder *builder, buffer_id out, buffer_id x);
void build_softcap(struct builder *builder, buffer_id x, float cap);

/* Recurrent models. `weight` and `bias` of norms have the columns of x; the weight of l2_norm is optional. */
void build_layer_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, buffer_id bias,
    uint32_t group, float epsilon);
void build_l2_norm(
    struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, uint32_t group, float epsilon);
void build_token_shift(struct builder *builder, buffer_id out, buffer_id x, buffer_id state);
void build_lerp(struct builder *builder, buffer_id out, buffer_id x, buffer_id y, buffer_id weight);
void build_mul(struct builder *builder, buffer_id out, buffer_id x, buffer_id y);
void build_rwkv_key(struct builder *builder, buffer_id out, buffer_id k, buffer_id a, buffer_id weight);

struct wkv7_inputs {
    buffer_id r, w, k, v, kk, a; /* as in op.h, all [T][heads * head_dim] */
};
void build_wkv7(
    struct builder *builder, buffer_id out, struct wkv7_inputs inputs, buffer_id state, uint32_t head_dim);
void build_rwkv_bonus(struct builder *builder, buffer_id out, buffer_id x, buffer_id r, buffer_id k,
    buffer_id v, buffer_id weight, uint32_t head_dim);

void build_sample(struct builder *builder, buffer_id logits); /* the last op, and there must be one */

#endif
