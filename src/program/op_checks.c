#include "program/op_checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const kind_names[] = {
    [BUFFER_WEIGHT] = "a weight",
    [BUFFER_CACHE] = "a cache",
    [BUFFER_RECURRENT] = "recurrent state",
    [BUFFER_SCRATCH] = "scratch",
};

static const char *const row_names[ROW_KIND_COUNT] = {
    [ROWS_TOKENS] = "tokens", [ROWS_RUNS] = "runs", [ROWS_OUTPUTS] = "outputs"};

void op_require(struct builder *builder, const struct op *op, bool condition, const char *format, ...)
{
    if (condition || builder->status != SALVO_OK)
        return;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    builder_refuse(builder, SALVO_ERROR_ARGUMENT, "op %u, %s: %s", builder->program->op_count,
        op_infos[op->kind].name, message);
}

static const struct program_buffer *buffer_at(const struct builder *builder, buffer_id id)
{
    return &builder->program->buffers[id];
}

/* A buffer of a certain kind; NULL after a mistake. */
static const struct program_buffer *find(
    struct builder *builder, const struct op *op, const char *role, buffer_id id, enum buffer_kind kind)
{
    if (builder->status != SALVO_OK)
        return NULL;
    const struct program *program = builder->program;
    op_require(builder, op, id != NO_BUFFER, "%s is missing", role);
    op_require(builder, op, id >= 0 && (uint32_t)id < program->buffer_count,
        "%s is buffer %d, the program has %u buffers", role, id, program->buffer_count);
    if (builder->status != SALVO_OK)
        return NULL;
    const struct program_buffer *buffer = buffer_at(builder, id);
    op_require(builder, op, buffer->kind == kind, "%s '%s' is %s, it must be %s", role, buffer->name,
        kind_names[buffer->kind], kind_names[kind]);
    return builder->status == SALVO_OK ? buffer : NULL;
}

static void require_written(struct builder *builder, const struct op *op, const char *role, buffer_id id)
{
    op_require(builder, op, builder_has_written(builder, id), "%s '%s' is read before any op writes it", role,
        buffer_at(builder, id)->name);
}

void op_require_equal(struct builder *builder, const struct op *op, const char *a_what, buffer_id a,
    uint64_t a_number, const char *b_what, buffer_id b, uint64_t b_number)
{
    op_require(builder, op, a_number == b_number,
        "'%s' has %" PRIu64 " %s and '%s' has %" PRIu64 " %s, they must be equal",
        buffer_at(builder, a)->name, a_number, a_what, buffer_at(builder, b)->name, b_number, b_what);
}

void op_require_columns(struct builder *builder, const struct op *op, buffer_id a, buffer_id b)
{
    op_require_equal(builder, op, "columns", a, buffer_at(builder, a)->columns, "columns", b,
        buffer_at(builder, b)->columns);
}

static void require_rows(
    struct builder *builder, const struct op *op, const struct program_buffer *buffer, enum row_kind rows)
{
    op_require(builder, op, buffer->row_kind == rows, "'%s' has rows of %s, it must have rows of %s",
        buffer->name, row_names[buffer->row_kind], row_names[rows]);
}

/* The operand that gives the op its shape: its first rows; NO_BUFFER for embed. */
static buffer_id first_rows(const struct op *op, const struct operand **out_operand)
{
    const struct op_info *info = &op_infos[op->kind];
    for (size_t i = 0; i < OP_MAX_INPUTS; i++) {
        *out_operand = &info->inputs[i];
        if (info->inputs[i].kind == OPERAND_ROWS)
            return op->inputs[i];
    }
    return NO_BUFFER;
}

/* Rows of an input or the output: the rows that the table asks for, and the shape of the first rows. */
static void check_shape(struct builder *builder, const struct op *op, buffer_id id, unsigned flags)
{
    const enum op_rows rows = op_infos[op->kind].rows;
    const struct operand *first;
    const buffer_id shape = first_rows(op, &first);
    const struct program_buffer *buffer = buffer_at(builder, id);
    if (flags & OPERAND_TOKEN_ROWS || rows == OP_ROWS_TOKENS)
        require_rows(builder, op, buffer, ROWS_TOKENS);
    else if (rows == OP_ROWS_OUTPUTS)
        require_rows(builder, op, buffer, ROWS_OUTPUTS);
    if (shape == NO_BUFFER)
        return;
    if (!(first->flags & OPERAND_OTHER_COLUMNS))
        op_require_columns(builder, op, shape, id);
    const struct program_buffer *other = buffer_at(builder, shape);
    op_require(builder, op, rows != OP_ROWS_ANY || other->row_kind == buffer->row_kind,
        "'%s' has rows of %s and '%s' has rows of %s", other->name, row_names[other->row_kind], buffer->name,
        row_names[buffer->row_kind]);
}

static void check_rows(
    struct builder *builder, const struct op *op, const struct operand *operand, buffer_id id)
{
    const struct program_buffer *buffer = find(builder, op, operand->name, id, BUFFER_SCRATCH);
    if (!buffer)
        return;
    require_written(builder, op, operand->name, id);
    check_shape(builder, op, id, operand->flags);
    op_require(builder, op,
        id != op->out || operand->flags & OPERAND_IN_PLACE || op_infos[op->kind].out == OUT_IN_PLACE,
        "'%s' is both read and written, %s cannot work in place", buffer->name, op_infos[op->kind].name);
}

static void check_vector(
    struct builder *builder, const struct op *op, const struct operand *operand, buffer_id id)
{
    const struct program_buffer *vector = find(builder, op, operand->name, id, BUFFER_WEIGHT);
    if (!vector)
        return;
    const struct operand *first;
    op_require(builder, op, vector->rows == 1, "%s '%s' has %" PRIu64 " rows, it must be a vector",
        operand->name, vector->name, vector->rows);
    if (!(operand->flags & OPERAND_OTHER_COLUMNS))
        op_require_columns(builder, op, id, first_rows(op, &first));
}

static bool is_scratch(const struct builder *builder, buffer_id id)
{
    return builder->status == SALVO_OK && id >= 0 && (uint32_t)id < builder->program->buffer_count &&
           buffer_at(builder, id)->kind == BUFFER_SCRATCH;
}

static void check_input(struct builder *builder, struct op *op, int index)
{
    const struct operand *operand = &op_infos[op->kind].inputs[index];
    const buffer_id id = op->inputs[index];
    if (builder->status != SALVO_OK || (id == NO_BUFFER && operand->flags & OPERAND_OPTIONAL))
        return;
    switch (operand->kind) {
    case OPERAND_ROWS:
        check_rows(builder, op, operand, id);
        break;
    case OPERAND_VECTOR:
        check_vector(builder, op, operand, id);
        break;
    case OPERAND_VECTOR_OR_ROWS:
        (is_scratch(builder, id) ? check_rows : check_vector)(builder, op, operand, id);
        break;
    case OPERAND_MATRIX:
    case OPERAND_TABLE:
        (void)find(builder, op, operand->name, id, BUFFER_WEIGHT);
        break;
    case OPERAND_TOKENS:
        op->inputs[index] = builder->program->tokens;
        break;
    case OPERAND_NONE:
        break;
    }
}

static void check_out(struct builder *builder, struct op *op)
{
    const enum out_kind kind = op_infos[op->kind].out;
    if (builder->status != SALVO_OK)
        return;
    if (kind == OUT_TOKENS)
        op->out = builder->program->tokens;
    if (kind == OUT_IN_PLACE)
        op->out = op->inputs[0];
    if (kind == OUT_NONE)
        op->out = NO_BUFFER;
    if (kind != OUT_WRITTEN && kind != OUT_ADDED && kind != OUT_MATMUL)
        return;
    if (!find(builder, op, "out", op->out, BUFFER_SCRATCH))
        return;
    if (op_adds(op))
        require_written(builder, op, "out", op->out);
    if (builder->status == SALVO_OK)
        check_shape(builder, op, op->out, 0);
}

static void check_state(struct builder *builder, const struct op *op, int index)
{
    const struct state_operand *operand = &op_infos[op->kind].states[index];
    const buffer_id id = op->states[index];
    if (operand->kind == STATE_NONE)
        return;
    const struct program_buffer *state = find(
        builder, op, operand->name, id, operand->kind == STATE_REPLACED ? BUFFER_RECURRENT : BUFFER_CACHE);
    if (!state)
        return;
    op_require(builder, op, id != builder->program->tokens, "the tokens cannot be the %s", operand->name);
    op_require(builder, op, index == 0 || id != op->states[0], "'%s' cannot be both the %s and the %s",
        state->name, op_infos[op->kind].states[0].name, operand->name);
    const bool is_written = builder_has_written(builder, id);
    op_require(builder, op, is_written || operand->kind != STATE_READ,
        "%s '%s' is read before kv_append writes it", operand->name, state->name);
    op_require(builder, op, !is_written || operand->kind == STATE_READ, "'%s' is written twice in a step",
        state->name);
}

void op_require_state(struct builder *builder, const struct op *op, int state, uint64_t columns)
{
    const struct program_buffer *buffer = buffer_at(builder, op->states[state]);
    op_require(builder, op, buffer->columns == columns,
        "%s '%s' has %" PRIu64 " columns, it must have %" PRIu64, op_infos[op->kind].states[state].name,
        buffer->name, buffer->columns, columns);
}

bool op_check(struct builder *builder, struct op *op)
{
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        check_input(builder, op, i);
    check_out(builder, op);
    for (int i = 0; i < OP_MAX_STATES && builder->status == SALVO_OK; i++)
        check_state(builder, op, i);
    if (builder->status != SALVO_OK)
        return false;
    const struct operand *first;
    const buffer_id shape = first_rows(op, &first);
    const enum op_rows rows = op_infos[op->kind].rows;
    op->rows = rows == OP_ROWS_TOKENS    ? ROWS_TOKENS
               : rows == OP_ROWS_OUTPUTS ? ROWS_OUTPUTS
                                         : buffer_at(builder, shape)->row_kind;
    return true;
}

uint32_t op_count_heads(struct builder *builder, const struct op *op, buffer_id id, uint32_t head_dim)
{
    const struct program_buffer *buffer = buffer_at(builder, id);
    op_require(builder, op, head_dim > 0 && head_dim % 8 == 0, "head_dim is %u, it must be a multiple of 8",
        head_dim);
    if (!head_dim)
        return 1;
    op_require(builder, op, buffer->columns % head_dim == 0,
        "'%s' has %" PRIu64 " columns, which is not a multiple of head_dim %u", buffer->name, buffer->columns,
        head_dim);
    const uint32_t heads = (uint32_t)(buffer->columns / head_dim);
    return heads ? heads : 1;
}

static void check_parameter(struct builder *builder, const struct op *op, const struct parameter *parameter)
{
    const void *member = (const char *)op + parameter->offset;
    if (parameter->kind == PARAMETER_POSITIVE) {
        const float value = *(const float *)member;
        op_require(builder, op, isfinite(value) && value > 0, "%s is %g, it must be positive",
            parameter->name, (double)value);
    } else if (parameter->kind == PARAMETER_NOT_NEGATIVE) {
        const float value = *(const float *)member;
        op_require(builder, op, isfinite(value) && value >= 0, "%s is %g, it must be 0 or more",
            parameter->name, (double)value);
    } else if (parameter->kind == PARAMETER_GROUP) {
        const uint32_t group = *(const uint32_t *)member;
        const struct operand *first;
        const struct program_buffer *shape = buffer_at(builder, first_rows(op, &first));
        op_require(builder, op, group > 0 && shape->columns % group == 0,
            "'%s' has %" PRIu64 " columns, which is not a multiple of the group of %u", shape->name,
            shape->columns, group);
    }
}

void op_append(struct builder *builder, const struct op *op)
{
    if (builder->status != SALVO_OK)
        return;
    for (size_t i = 0; i < OP_MAX_PARAMETERS && op_infos[op->kind].parameters[i].name; i++)
        check_parameter(builder, op, &op_infos[op->kind].parameters[i]);
    op_require(builder, op, builder->program->logits == NO_BUFFER, "%s",
        op->kind == OP_SAMPLE ? "the program has a sample op already" : "sample must be the last op");
    builder_add_op(builder, op);
}

void op_add(struct builder *builder, struct op op)
{
    if (op_check(builder, &op))
        op_append(builder, &op);
}
