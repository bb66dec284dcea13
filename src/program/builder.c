/* The builder: buffers and ropes. build_ops.c adds the ops. */
#include "program/builder.h"

#include "base/memory.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Far beyond any model, and small enough that numbers of heads fit 32 bits. */
static const uint64_t largest_dimension = INT32_MAX;

enum salvo_status builder_open(struct builder *builder, const struct gguf *gguf)
{
    *builder = (struct builder){0};
    builder->status = NEW(&builder->program, 1);
    if (builder->status != SALVO_OK)
        return builder->status;
    builder->program->gguf = gguf;
    builder->program->logits = NO_BUFFER;
    builder->program->hidden = NO_BUFFER;
    builder->program->tokens = builder_cache(builder, TYPE_I32, 1, "tokens");
    if (builder->status != SALVO_OK) {
        program_close(builder->program);
        builder->program = NULL;
    }
    return builder->status;
}

enum salvo_status builder_finish(struct builder *builder, struct program **out)
{
    *out = NULL;
    if (builder->status == SALVO_OK && builder->program->logits == NO_BUFFER)
        builder_refuse(builder, SALVO_ERROR_ARGUMENT, "the program has no sample op");
    if (builder->status == SALVO_OK)
        *out = builder->program;
    else
        program_close(builder->program);
    builder->program = NULL;
    return builder->status;
}

void builder_keep(struct builder *builder, enum salvo_status status)
{
    if (builder->status == SALVO_OK)
        builder->status = status;
}

void builder_refuse(struct builder *builder, enum salvo_status status, const char *format, ...)
{
    if (builder->status != SALVO_OK)
        return;
    char message[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    builder->status = fail(status, "%s: %s", gguf_path(builder->program->gguf), message);
}

/* Makes room for one more element in an array of the arena. The capacity doubles, so that abandoned copies
 * take less memory than the array. `in_out_array` points to a pointer to elements. */
static bool make_room(
    struct builder *builder, void *in_out_array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (builder->status != SALVO_OK)
        return false;
    if (count < *capacity)
        return true;
    if (count > (uint32_t)INT32_MAX / 2) {
        builder_refuse(builder, SALVO_ERROR_UNSUPPORTED, "the program has too many buffers or ops");
        return false;
    }
    void *old, *grown;
    uint32_t larger = count ? count * 2 : 64;
    memcpy(&old, in_out_array, sizeof old);
    builder_keep(builder, arena_new(&builder->program->arena, &grown, larger, size));
    if (!grown)
        return false;
    if (count)
        memcpy(grown, old, count * size);
    memcpy(in_out_array, &grown, sizeof grown);
    *capacity = larger;
    return true;
}

void builder_add_op(struct builder *builder, const struct op *op)
{
    struct program *program = builder->program;
    if (builder->status == SALVO_OK &&
        make_room(builder, &program->ops, program->op_count, &program->op_capacity, sizeof *op))
        program->ops[program->op_count++] = *op;
}

/* Searches from the end: most inputs were written a few ops before. */
bool builder_has_written(const struct builder *builder, buffer_id buffer)
{
    buffer_id written[OP_MAX_BUFFERS];
    for (uint32_t op = builder->program->op_count; op-- > 0;) {
        uint32_t count = op_writes(builder->program, op, written);
        for (uint32_t i = 0; i < count; i++) {
            if (written[i] == buffer)
                return true;
        }
    }
    return false;
}

/* In the program's arena; NULL after a mistake. */
static char *format_name(struct builder *builder, const char *format, va_list arguments) PRINTF_LIKE(2, 0);
static char *format_name(struct builder *builder, const char *format, va_list arguments)
{
    char text[128], *name = NULL;
    if (builder->status != SALVO_OK)
        return NULL;
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length <= 0 || (size_t)length >= sizeof text) {
        builder_refuse(builder, SALVO_ERROR_ARGUMENT, "a buffer's name has %d bytes, it must have 1 to %zu",
            length, sizeof text - 1);
    } else {
        builder_keep(builder, arena_copy_bytes(&builder->program->arena, text, (size_t)length, &name));
    }
    return name;
}

/* A formatted name. */
static char *make_name(struct builder *builder, const char *format, ...) PRINTF_LIKE(2, 3);
static char *make_name(struct builder *builder, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *name = format_name(builder, format, arguments);
    va_end(arguments);
    return name;
}

static buffer_id add_buffer(struct builder *builder, struct program_buffer buffer)
{
    struct program *program = builder->program;
    if (builder->status != SALVO_OK || !make_room(builder, &program->buffers, program->buffer_count,
                                           &program->buffer_capacity, sizeof buffer))
        return NO_BUFFER;
    program->buffers[program->buffer_count] = buffer;
    return (buffer_id)program->buffer_count++;
}

static void check_dimension(struct builder *builder, const char *name, const char *what, uint64_t value)
{
    if (value < 1 || value > largest_dimension) {
        builder_refuse(builder, SALVO_ERROR_ARGUMENT,
            "buffer '%s' has %" PRIu64 " %s, it must have 1 to %" PRIu64, name, value, what,
            largest_dimension);
    }
}

/* "576 x 49152", fastest first, as `salvo info` shows shapes. */
static void describe_shape(const struct gguf_tensor *tensor, char text[96])
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < tensor->dimensions; i++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%" PRIu64, i ? " x " : "", tensor->shape[i]);
}

static void check_tensor(struct builder *builder, const struct program_buffer *weight)
{
    const struct gguf_tensor *tensor = weight->tensor;
    /* Converters write some stacks of vectors as columns x 1 x 1 x rows, which has the same layout in
     * memory. */
    bool is_stack = tensor->shape[1] == 1 && tensor->shape[2] * tensor->shape[3] == weight->rows;
    bool is_matrix = tensor->shape[1] == weight->rows && tensor->shape[2] == 1 && tensor->shape[3] == 1;
    if (tensor->shape[0] != weight->columns || !(is_stack || is_matrix)) {
        char actual[96], wanted[96];
        describe_shape(tensor, actual);
        describe_shape(&(struct gguf_tensor){.dimensions = weight->rows == 1 ? 1 : 2,
                           .shape = {weight->columns, weight->rows}},
            wanted);
        builder_refuse(builder, SALVO_ERROR_FORMAT, "tensor '%s' has the shape %s, it must be %s",
            weight->name, actual, wanted);
        return;
    }
    enum salvo_status status = quant_check(tensor->type);
    if (status != SALVO_OK)
        builder_keep(builder,
            fail_within(status, "%s: tensor '%s': ", gguf_path(builder->program->gguf), weight->name));
}

/* The buffer of the same weight, if the program has one. */
static buffer_id find_weight(const struct program *program, const struct program_buffer *weight)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if (buffer->kind == BUFFER_WEIGHT && buffer->tensor == weight->tensor &&
            buffer->first_row == weight->first_row && buffer->rows == weight->rows)
            return (buffer_id)i;
    }
    return NO_BUFFER;
}

static buffer_id add_weight(
    struct builder *builder, const char *name, uint64_t rows, uint64_t columns, bool optional)
{
    if (builder->status != SALVO_OK)
        return NO_BUFFER;
    struct program_buffer weight = {.name = name, .kind = BUFFER_WEIGHT, .rows = rows, .columns = columns};
    check_dimension(builder, name, "rows", rows);
    check_dimension(builder, name, "columns", columns);
    weight.tensor = gguf_find_tensor(builder->program->gguf, name);
    if (!weight.tensor) {
        if (!optional)
            builder_refuse(builder, SALVO_ERROR_FORMAT, "tensor '%s' is missing", name);
        return NO_BUFFER;
    }
    check_tensor(builder, &weight);
    if (builder->status != SALVO_OK)
        return NO_BUFFER;
    weight.type = (enum tensor_type)weight.tensor->type;
    buffer_id known = find_weight(builder->program, &weight);
    return known != NO_BUFFER ? known : add_buffer(builder, weight);
}

buffer_id builder_weight(struct builder *builder, uint64_t rows, uint64_t columns, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = format_name(builder, format, arguments);
    va_end(arguments);
    return add_weight(builder, name, rows, columns, false);
}

buffer_id builder_optional_weight(
    struct builder *builder, uint64_t rows, uint64_t columns, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = format_name(builder, format, arguments);
    va_end(arguments);
    return add_weight(builder, name, rows, columns, true);
}

void builder_ignore_tensor(struct builder *builder, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = format_name(builder, format, arguments);
    va_end(arguments);
    if (builder->status == SALVO_OK && gguf_find_tensor(builder->program->gguf, name))
        builder->program->ignored_tensors++;
}

buffer_id builder_weight_part(struct builder *builder, buffer_id whole, uint64_t first, uint64_t rows)
{
    if (builder->status != SALVO_OK)
        return NO_BUFFER;
    const struct program *program = builder->program;
    if (whole < 0 || (uint32_t)whole >= program->buffer_count) {
        builder_refuse(builder, SALVO_ERROR_ARGUMENT,
            "a part of buffer %d was requested, the program has %u buffers", whole, program->buffer_count);
        return NO_BUFFER;
    }
    struct program_buffer part = program->buffers[whole];
    if (part.kind != BUFFER_WEIGHT) {
        builder_refuse(
            builder, SALVO_ERROR_ARGUMENT, "buffer '%s' is not a weight, it has no parts", part.name);
        return NO_BUFFER;
    }
    if (rows < 1 || first >= part.rows || rows > part.rows - first) {
        builder_refuse(builder, SALVO_ERROR_ARGUMENT,
            "%" PRIu64 " rows from row %" PRIu64 " of '%s' were requested, it has %" PRIu64, rows, first,
            part.name, part.rows);
        return NO_BUFFER;
    }
    part.first_row += first;
    part.rows = rows;
    buffer_id known = find_weight(program, &part);
    if (known != NO_BUFFER)
        return known;
    part.name = make_name(builder, "%.*s[%" PRIu64 ":%" PRIu64 "]", (int)part.tensor->name.size,
        part.tensor->name.data, part.first_row, part.first_row + rows);
    return add_buffer(builder, part);
}

/* Names identify scratch and states in `salvo info --program` and `salvo verify`. */
static void check_name_is_new(struct builder *builder, const char *name)
{
    if (builder->status != SALVO_OK)
        return;
    const struct program *program = builder->program;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (program->buffers[i].kind != BUFFER_WEIGHT && !strcmp(program->buffers[i].name, name)) {
            builder_refuse(builder, SALVO_ERROR_ARGUMENT, "two buffers are named '%s'", name);
            return;
        }
    }
}

static buffer_id add_named_buffer(struct builder *builder, const char *name, struct program_buffer buffer)
{
    check_name_is_new(builder, name);
    check_dimension(builder, name, "columns", buffer.columns);
    buffer.name = name;
    buffer.rows = 1;
    return add_buffer(builder, buffer);
}

buffer_id builder_scratch(
    struct builder *builder, enum row_kind rows, uint64_t columns, const char *given_name)
{
    const char *name = make_name(builder, "%s", given_name);
    if ((unsigned)rows >= ROW_KIND_COUNT)
        builder_refuse(builder, SALVO_ERROR_ARGUMENT, "buffer '%s' has row kind %d, it must be 0 to %d", name,
            (int)rows, ROW_KIND_COUNT - 1);
    return add_named_buffer(builder, name,
        (struct program_buffer){
            .kind = BUFFER_SCRATCH, .type = TYPE_F32, .row_kind = rows, .columns = columns});
}

buffer_id builder_cache(
    struct builder *builder, enum tensor_type type, uint64_t columns, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = format_name(builder, format, arguments);
    va_end(arguments);
    return add_named_buffer(
        builder, name, (struct program_buffer){.kind = BUFFER_CACHE, .type = type, .columns = columns});
}

buffer_id builder_recurrent(struct builder *builder, uint64_t columns, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = format_name(builder, format, arguments);
    va_end(arguments);
    return add_named_buffer(builder, name,
        (struct program_buffer){.kind = BUFFER_RECURRENT, .type = TYPE_F32, .columns = columns});
}

static void check_rope(struct builder *builder, const struct rope *rope)
{
    if (rope->dimensions < 2 || rope->dimensions % 2)
        builder_refuse(builder, SALVO_ERROR_ARGUMENT,
            "a rope rotates %u columns, the number must be even and at least 2", rope->dimensions);
    if (!isfinite(rope->magnitude) || rope->magnitude <= 0)
        builder_refuse(builder, SALVO_ERROR_ARGUMENT, "a rope has the magnitude %g, it must be positive",
            (double)rope->magnitude);
    for (uint32_t i = 0; i < rope->dimensions / 2; i++) {
        if (!isfinite(rope->frequencies[i]))
            builder_refuse(builder, SALVO_ERROR_ARGUMENT, "a rope has the frequency %g for pair %u of %u",
                rope->frequencies[i], i, rope->dimensions / 2);
    }
}

uint32_t builder_rope(
    struct builder *builder, uint32_t dimensions, bool halves, float magnitude, const double *frequencies)
{
    struct program *program = builder->program;
    if (builder->status != SALVO_OK)
        return 0;
    struct rope rope = {dimensions, halves, magnitude, NULL};
    builder_keep(builder, ARENA_NEW(&program->arena, &rope.frequencies, dimensions / 2));
    if (builder->status != SALVO_OK)
        return 0;
    if (dimensions >= 2)
        memcpy(rope.frequencies, frequencies, dimensions / 2 * sizeof *frequencies);
    check_rope(builder, &rope);
    if (!make_room(builder, &program->ropes, program->rope_count, &program->rope_capacity, sizeof rope))
        return 0;
    program->ropes[program->rope_count] = rope;
    return program->rope_count++;
}
