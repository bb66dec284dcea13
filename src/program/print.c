/* A program as text. */
#include "program/program.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* A line that is being written; text beyond `size` is cut. */
struct line {
    char *text;
    size_t size, used;
};

static void put(struct line *line, const char *format, ...) PRINTF_LIKE(2, 3);
static void put(struct line *line, const char *format, ...)
{
    if (line->used + 1 >= line->size)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line->text + line->used, line->size - line->used, format, arguments);
    va_end(arguments);
    if (length > 0)
        line->used += (size_t)length;
    if (line->used >= line->size)
        line->used = line->size - 1;
}

static char row_letter(enum row_kind rows)
{
    return "TRO"[rows];
}

static const char *type_name(enum tensor_type type)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return info ? info->name : "unknown";
}

/* "q [T][576] f32", "blk.0.attn_q.weight [576][576] Q4_1", "kv.0.k [positions][192] F16" */
static void put_buffer(struct line *line, const struct program *program, buffer_id id)
{
    const struct program_buffer *buffer = &program->buffers[id];
    put(line, "%s ", buffer->name);
    switch (buffer->kind) {
    case BUFFER_WEIGHT:
        if (buffer->rows > 1)
            put(line, "[%" PRIu64 "]", buffer->rows);
        put(line, "[%" PRIu64 "] %s", buffer->columns, type_name(buffer->type));
        break;
    case BUFFER_CACHE:
        put(line, "[positions][%" PRIu64 "] %s", buffer->columns, type_name(buffer->type));
        break;
    case BUFFER_RECURRENT:
        put(line, "[%" PRIu64 "] %s", buffer->columns, type_name(buffer->type));
        break;
    case BUFFER_SCRATCH:
        put(line, "[%c][%" PRIu64 "] f32", row_letter(buffer->row_kind), buffer->columns);
        break;
    }
}

/* A weight is printed with its shape, since most are used once; other buffers by name alone. */
static void put_input(struct line *line, const struct program *program, const char *separator, buffer_id id)
{
    if (id == NO_BUFFER)
        return;
    put(line, "%s", separator);
    if (program->buffers[id].kind == BUFFER_WEIGHT)
        put_buffer(line, program, id);
    else
        put(line, "%s", program->buffers[id].name);
}

static void put_target(struct line *line, const struct program *program, const struct op *op)
{
    const struct op_info *info = &op_infos[op->kind];
    if (info->out == OUT_NONE) {
        for (size_t i = 0; i < OP_MAX_STATES && info->states[i].name; i++)
            put_input(line, program, i ? ", " : "", op->states[i]);
    } else if (info->out == OUT_TOKENS) {
        put(line, "%s", program->buffers[op->out].name);
    } else {
        put_buffer(line, program, op->out);
    }
    put(line, op_adds(op) ? " += " : " = ");
}

static void put_parameter(
    struct line *line, const struct program *program, const struct op *op, const struct parameter *parameter)
{
    static const char *const activations[ACTIVATION_COUNT] = {[ACTIVATION_NONE] = "none",
        [ACTIVATION_SILU] = "silu",
        [ACTIVATION_GELU] = "gelu",
        [ACTIVATION_TANH] = "tanh",
        [ACTIVATION_SIGMOID] = "sigmoid",
        [ACTIVATION_RELU_SQUARED] = "relu squared",
        [ACTIVATION_DECAY] = "decay"};
    const void *member = (const char *)op + parameter->offset;
    const char *name = "";
    double value = 0;
    switch (parameter->kind) {
    case PARAMETER_POSITIVE:
    case PARAMETER_NOT_NEGATIVE:
        value = (double)*(const float *)member;
        break;
    case PARAMETER_GROUP:
    case PARAMETER_NUMBER:
        value = *(const uint32_t *)member;
        break;
    case PARAMETER_ROUNDING:
        name = rounding_name(*(const enum rounding *)member);
        break;
    case PARAMETER_ACTIVATION:
        value = *(const enum activation *)member;
        name = activations[*(const enum activation *)member];
        break;
    case PARAMETER_FLAG:
        value = *(const bool *)member;
        break;
    }
    if ((parameter->hidden == HIDDEN_AT_ZERO && value == 0) ||
        (parameter->hidden == HIDDEN_AT_ONE && value == 1) ||
        (parameter->kind == PARAMETER_GROUP && value == (double)program->buffers[op->out].columns))
        return;
    put(line, "%s%s", parameter->is_joined ? " " : ", ", parameter->name);
    if (*name)
        put(line, " %s", name);
    else if (parameter->kind == PARAMETER_GROUP || parameter->kind == PARAMETER_NUMBER)
        put(line, " %.0f", value);
    else if (parameter->kind != PARAMETER_FLAG)
        put(line, " %g", value);
}

/* Parameters and the states that the op reads: ", heads 9 of 64, scale 0.125". */
static void put_parameters(struct line *line, const struct program *program, const struct op *op)
{
    const struct op_info *info = &op_infos[op->kind];
    for (size_t i = 0; i < OP_MAX_STATES && info->out != OUT_NONE && info->states[i].name; i++)
        put_input(line, program, ", ", op->states[i]);
    for (size_t i = 0; i < OP_MAX_PARAMETERS && info->parameters[i].name; i++)
        put_parameter(line, program, op, &info->parameters[i]);
}

void program_describe_op(const struct program *program, uint32_t index, char *text, size_t size)
{
    const struct op *op = &program->ops[index];
    struct line line = {text, size, 0};
    if (size)
        text[0] = 0;
    put_target(&line, program, op);
    put(&line, "%s", op_infos[op->kind].name);
    const char *separator = " ";
    for (size_t i = 0; i < OP_MAX_INPUTS; i++) {
        put_input(&line, program, separator, op->inputs[i]);
        separator = ", ";
    }
    put_parameters(&line, program, op);
}

static void put_rope(struct line *line, const struct program *program, uint32_t index)
{
    const struct rope *rope = &program->ropes[index];
    put(line, "rope %" PRIu32 ": %" PRIu32 " columns in pairs (%s), frequencies %.6g to %.6g", index,
        rope->dimensions, rope->halves ? "i, i + half" : "2i, 2i + 1", rope->frequencies[0],
        rope->frequencies[rope->dimensions / 2 - 1]);
    if (rope->magnitude != 1)
        put(line, ", magnitude %g", (double)rope->magnitude);
}

void program_print(const struct program *program, void (*print)(void *user, const char *text), void *user)
{
    static const char *const kinds[] = {[BUFFER_WEIGHT] = "weight",
        [BUFFER_CACHE] = "cache",
        [BUFFER_RECURRENT] = "recurrent state",
        [BUFFER_SCRATCH] = "scratch"};
    char text[512];

    struct line title = {text, sizeof text, 0};
    put(&title,
        "program of %" PRIu32 " ops: %" PRIu32 " layers, vocabulary %" PRIu32 ", trained context %" PRIu32,
        program->op_count, program->layers, program->vocabulary, program->trained_context);
    print(user, text);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct line line = {text, sizeof text, 0};
        put(&line, "%s ", kinds[program->buffers[i].kind]);
        put_buffer(&line, program, (buffer_id)i);
        print(user, text);
    }
    for (uint32_t i = 0; i < program->rope_count; i++) {
        struct line line = {text, sizeof text, 0};
        put_rope(&line, program, i);
        print(user, text);
    }
    for (uint32_t i = 0; i < program->op_count; i++) {
        char description[448];
        program_describe_op(program, i, description, sizeof description);
        struct line line = {text, sizeof text, 0};
        put(&line, "%4" PRIu32 " %s", i, description);
        print(user, text);
    }
}
