/* Checks of an op's arguments, for the build_ functions. The first failed check stops the builder. */
#ifndef PROGRAM_OP_CHECKS_H
#define PROGRAM_OP_CHECKS_H

#include "program/builder.h"

#include <inttypes.h>

/* The inputs of an op that is being built; the rest is NO_BUFFER. */
#define INPUTS(...) PAD_INPUTS(__VA_ARGS__, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER, NO_BUFFER)
#define PAD_INPUTS(a, b, c, d, e, f, ...) \
    {                                     \
        a, b, c, d, e, f                  \
    }

/* Checks inputs, out and states against op_table.c, and sets op.rows. False after a mistake: only after true
 * do the buffers exist. */
bool op_check(struct builder *builder, struct op *op);

/* Checks the parameters and adds the op. `sample` ends a program. */
void op_append(struct builder *builder, const struct op *op);

/* op_check, then op_append. */
void op_add(struct builder *builder, struct op op);

/* Checks of the build_ functions, between op_check and op_append. */
void op_require(struct builder *builder, const struct op *op, bool condition, const char *format, ...)
    PRINTF_LIKE(4, 5);
void op_require_equal(struct builder *builder, const struct op *op, const char *a_what, buffer_id a,
    uint64_t a_number, const char *b_what, buffer_id b, uint64_t b_number);
void op_require_columns(struct builder *builder, const struct op *op, buffer_id a, buffer_id b);
void op_require_state(struct builder *builder, const struct op *op, int state, uint64_t columns);

/* The number of heads in a row of the buffer; 1 after a mistake. */
uint32_t op_count_heads(struct builder *builder, const struct op *op, buffer_id id, uint32_t head_dim);

#endif
