/*
 * What an op's arguments must satisfy, for the files that build ops. Every check refuses at most once and
 * leaves the builder stopped, so that those functions read as lists of what must hold; a buffer that could
 * not be found is stood in for by an empty one.
 */
#ifndef PROGRAM_OP_CHECKS_H
#define PROGRAM_OP_CHECKS_H

#include "program/builder.h"

#include <inttypes.h>

/* The op that is being built. */
struct check {
    struct builder *builder;
    enum op_kind kind;
};

/* Of an op that is being built: those that there are, NO_BUFFER in the places that are left. */
#define INPUTS(...) PAD_INPUTS(__VA_ARGS__, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER)
#define PAD_INPUTS(a, b, c, d, e, f, ...) \
    {                                     \
        a, b, c, d, e, f                  \
    }

void op_require(struct check check, bool condition, const char *format, ...) PRINTF_LIKE(3, 4);

/* A buffer of a certain kind; `role` says what it is to the op. */
const struct program_buffer *op_find(
    struct check check, const char *role, buffer_id id, enum buffer_kind kind);

/* Scratch that the op reads, so something must be in it. */
const struct program_buffer *op_find_source(struct check check, const char *role, buffer_id id);

/* Scratch that the op writes. */
const struct program_buffer *op_find_target(struct check check, buffer_id id);

/* A weight of one row. */
const struct program_buffer *op_find_vector(struct check check, const char *role, buffer_id id);

void op_require_equal(struct check check, const char *a_what, const struct program_buffer *a,
    uint64_t a_number, const char *b_what, const struct program_buffer *b, uint64_t b_number);
void op_require_columns(struct check check, const struct program_buffer *a, const struct program_buffer *b);
void op_require_rows(struct check check, const struct program_buffer *buffer, enum row_kind rows);
void op_require_same_rows(struct check check, const struct program_buffer *a, const struct program_buffer *b);
void op_require_same_shape(
    struct check check, const struct program_buffer *a, const struct program_buffer *b);
void op_require_apart(
    struct check check, const struct program_buffer *buffer, buffer_id out, buffer_id input);
void op_require_positive(struct check check, const char *what, float value);
void op_require_not_negative(struct check check, const char *what, float value);

/* How many heads a row has. */
uint32_t op_count_heads(struct check check, const struct program_buffer *buffer, uint32_t head_dim);

/* Adds the op. The last check: `sample` ends a program. */
void op_add(struct check check, struct op op);

#endif
