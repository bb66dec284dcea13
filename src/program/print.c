/* A program as text, to be read beside the lowered plans. */
#include "program/program.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* A line in the making; what does not fit is cut. */
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

/* Of weights, which are met once, also the shape; of the others the name. */
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
    if (op->kind == OP_KV_APPEND) {
        put(line, "%s, %s", program->buffers[op->kv_append.key_state].name,
            program->buffers[op->kv_append.value_state].name);
    } else if (op->kind == OP_SAMPLE) {
        put(line, "%s", program->buffers[op->out].name);
    } else {
        put_buffer(line, program, op->out);
    }
    bool adds = op->kind == OP_ADD || (op->kind == OP_MATMUL && op->matmul.accumulate);
    put(line, adds ? " += " : " = ");
}

/* What is not a buffer: ", heads 9 of 64, scale 0.125". */
static void put_options(struct line *line, const struct program *program, const struct op *op)
{
    static const char *const activations[ACTIVATION_COUNT] = {[ACTIVATION_NONE] = "none",
        [ACTIVATION_SILU] = "silu",
        [ACTIVATION_GELU] = "gelu",
        [ACTIVATION_TANH] = "tanh",
        [ACTIVATION_SIGMOID] = "sigmoid",
        [ACTIVATION_RELU_SQUARED] = "relu squared",
        [ACTIVATION_DECAY] = "decay"};
    switch (op->kind) {
    case OP_EMBED:
        if (op->embed.scale != 1)
            put(line, ", scale %g", (double)op->embed.scale);
        break;
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_L2_NORM:
        if (op->rms_norm.group != program->buffers[op->out].columns)
            put(line, ", per %" PRIu32, op->rms_norm.group);
        put(line, ", epsilon %g", (double)op->rms_norm.epsilon);
        break;
    case OP_MATMUL:
        put(line, ", rounding %s%s",
            op->matmul.rounding == ROUNDING_Q8    ? "q8"
            : op->matmul.rounding == ROUNDING_F16 ? "f16"
                                                  : "f32",
            op->matmul.fine ? ", fine" : "");
        if (op->matmul.activation != ACTIVATION_NONE)
            put(line, ", activation %s", activations[op->matmul.activation]);
        break;
    case OP_ROPE:
        put(line, ", heads %" PRIu32 " of %" PRIu32 ", rope %" PRIu32, op->rope.heads, op->rope.head_dim,
            op->rope.rope);
        break;
    case OP_KV_APPEND:
        put(line, ", heads %" PRIu32 " of %" PRIu32, op->kv_append.kv_heads, op->kv_append.head_dim);
        break;
    case OP_ATTEND:
        put_input(line, program, ", ", op->attend.key_state);
        put_input(line, program, ", ", op->attend.value_state);
        put(line, ", heads %" PRIu32 " of %" PRIu32 " on %" PRIu32 ", scale %g", op->attend.heads,
            op->attend.head_dim, op->attend.kv_heads, (double)op->attend.scale);
        if (op->attend.cap > 0)
            put(line, ", cap %g", (double)op->attend.cap);
        if (op->attend.window)
            put(line, ", window %" PRIu32, op->attend.window);
        break;
    case OP_GLU:
        put(line, ", activation %s", activations[op->glu.activation]);
        break;
    case OP_SOFTCAP:
        put(line, ", cap %g", (double)op->softcap.cap);
        break;
    case OP_TOKEN_SHIFT:
        put_input(line, program, ", ", op->token_shift.state);
        break;
    case OP_WKV7:
        put_input(line, program, ", ", op->wkv7.state);
        put(line, ", heads %" PRIu32 " of %" PRIu32, op->wkv7.heads, op->wkv7.head_dim);
        break;
    case OP_RWKV_BONUS:
        put(line, ", per %" PRIu32, op->rwkv_bonus.head_dim);
        break;
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_RWKV_KEY:
    case OP_SELECT_ROWS:
    case OP_SAMPLE:
    case OP_KIND_COUNT:
        break;
    }
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
    put_options(&line, program, op);
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
        [BUFFER_CACHE] = "state",
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
