#include "program/op_checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const kind_names[] = {
    [BUFFER_WEIGHT] = "weight",
    [BUFFER_CACHE] = "cache",
    [BUFFER_RECURRENT] = "recurrent state",
    [BUFFER_SCRATCH] = "scratch",
};

static const char *const row_names[ROW_KIND_COUNT] = {
    [ROWS_TOKENS] = "tokens", [ROWS_RUNS] = "runs", [ROWS_OUTPUTS] = "outputs"};

void op_require(struct check check, bool condition, const char *format, ...)
{
    if (condition || check.builder->status != SALVO_OK)
        return;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    builder_refuse(check.builder, SALVO_ERROR_ARGUMENT, "op %u, %s: %s", check.builder->program->op_count,
        op_infos[check.kind].name, message);
}

const struct program_buffer *op_find(
    struct check check, const char *role, buffer_id id, enum buffer_kind kind)
{
    static const struct program_buffer nothing = {.name = ""};
    const struct builder *builder = check.builder;
    if (builder->status != SALVO_OK)
        return &nothing;
    const struct program *program = builder->program;
    op_require(check, id != NO_BUFFER, "%s is missing", role);
    op_require(check, id >= 0 && (uint32_t)id < program->buffer_count,
        "%s is buffer %d, there are %u buffers", role, id, program->buffer_count);
    if (builder->status != SALVO_OK)
        return &nothing;
    const struct program_buffer *buffer = &program->buffers[id];
    op_require(check, buffer->kind == kind, "%s '%s' is %s, it must be %s", role, buffer->name,
        kind_names[buffer->kind], kind_names[kind]);
    return builder->status == SALVO_OK ? buffer : &nothing;
}

const struct program_buffer *op_find_source(struct check check, const char *role, buffer_id id)
{
    const struct program_buffer *buffer = op_find(check, role, id, BUFFER_SCRATCH);
    if (check.builder->status == SALVO_OK)
        op_require(check, builder_has_written(check.builder, id), "%s '%s' is read before any op writes it",
            role, buffer->name);
    return buffer;
}

const struct program_buffer *op_find_target(struct check check, buffer_id id)
{
    return op_find(check, "out", id, BUFFER_SCRATCH);
}

const struct program_buffer *op_find_vector(struct check check, const char *role, buffer_id id)
{
    const struct program_buffer *vector = op_find(check, role, id, BUFFER_WEIGHT);
    op_require(check, vector->rows == 1, "%s '%s' has %" PRIu64 " rows, it must be a vector", role,
        vector->name, vector->rows);
    return vector;
}

void op_require_equal(struct check check, const char *a_what, const struct program_buffer *a,
    uint64_t a_number, const char *b_what, const struct program_buffer *b, uint64_t b_number)
{
    op_require(check, a_number == b_number,
        "'%s' has %" PRIu64 " %s and '%s' has %" PRIu64 " %s, they must be equal", a->name, a_number, a_what,
        b->name, b_number, b_what);
}

void op_require_columns(struct check check, const struct program_buffer *a, const struct program_buffer *b)
{
    op_require_equal(check, "columns", a, a->columns, "columns", b, b->columns);
}

void op_require_rows(struct check check, const struct program_buffer *buffer, enum row_kind rows)
{
    op_require(check, buffer->row_kind == rows, "'%s' has rows of %s, it must have rows of %s", buffer->name,
        row_names[buffer->row_kind], row_names[rows]);
}

void op_require_same_rows(struct check check, const struct program_buffer *a, const struct program_buffer *b)
{
    op_require(check, a->row_kind == b->row_kind, "'%s' has rows of %s and '%s' has rows of %s", a->name,
        row_names[a->row_kind], b->name, row_names[b->row_kind]);
}

void op_require_same_shape(struct check check, const struct program_buffer *a, const struct program_buffer *b)
{
    op_require_columns(check, a, b);
    op_require_same_rows(check, a, b);
}

void op_require_apart(struct check check, const struct program_buffer *buffer, buffer_id out, buffer_id input)
{
    op_require(
        check, out != input, "'%s' is both read and written, this op does not work in place", buffer->name);
}

void op_require_positive(struct check check, const char *what, float value)
{
    op_require(check, isfinite(value) && value > 0, "%s is %g, it must be positive", what, (double)value);
}

void op_require_not_negative(struct check check, const char *what, float value)
{
    op_require(check, isfinite(value) && value >= 0, "%s is %g, it must be 0 or more", what, (double)value);
}

uint32_t op_count_heads(struct check check, const struct program_buffer *buffer, uint32_t head_dim)
{
    op_require(
        check, head_dim > 0 && head_dim % 8 == 0, "head_dim is %u, it must be a multiple of 8", head_dim);
    if (!head_dim)
        return 1;
    op_require(check, buffer->columns % head_dim == 0,
        "'%s' has %" PRIu64 " columns, which is no multiple of the head_dim %u", buffer->name,
        buffer->columns, head_dim);
    return (uint32_t)(buffer->columns / head_dim);
}

void op_add(struct check check, struct op op)
{
    if (check.builder->status == SALVO_OK)
        op_require(check, check.builder->program->logits == NO_BUFFER, "%s",
            check.kind == OP_SAMPLE ? "there is a sample op already" : "sample was the last op");
    op.kind = check.kind;
    builder_add_op(check.builder, &op);
}
