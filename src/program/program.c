/* What a finished program answers about itself. */
#include "program/program.h"

#include "base/memory.h"

const struct op_info op_infos[OP_KIND_COUNT] = {
    [OP_EMBED] = {"embed", 0},
    [OP_RMS_NORM] = {"rms_norm", 1e-5f},
    [OP_LAYER_NORM] = {"layer_norm", 1e-5f},
    [OP_L2_NORM] = {"l2_norm", 1e-5f},
    [OP_MATMUL] = {"matmul", 2e-3f},
    [OP_ROPE] = {"rope", 1e-5f},
    [OP_KV_APPEND] = {"kv_append", 1.0f / 127},
    [OP_ATTEND] = {"attend", 1e-4f},
    [OP_GLU] = {"glu", 1e-5f},
    [OP_ADD] = {"add", 1e-6f},
    [OP_MUL] = {"mul", 1e-6f},
    [OP_LERP] = {"lerp", 1e-6f},
    [OP_TOKEN_SHIFT] = {"token_shift", 0},
    [OP_RWKV_KEY] = {"rwkv_key", 1e-6f},
    [OP_WKV7] = {"wkv7", 1e-4f},
    [OP_RWKV_BONUS] = {"rwkv_bonus", 1e-5f},
    [OP_SELECT_ROWS] = {"select_rows", 0},
    [OP_SOFTCAP] = {"softcap", 1e-5f},
    [OP_SAMPLE] = {"sample", 0},
};

void program_close(struct program *program)
{
    if (!program)
        return;
    arena_free(&program->arena);
    memory_free(program);
}

float op_tolerance(const struct program *program, uint32_t index)
{
    const struct op *op = &program->ops[index];
    if (op->kind == OP_MATMUL && op->matmul.rounding == ROUNDING_F16)
        return 5e-4f; /* the step of a half is 1e-3 of it: a number may be rounded the other way */
    if (op->kind == OP_MATMUL && op->matmul.rounding != ROUNDING_Q8)
        return 1e-4f;
    return op_infos[op->kind].tolerance;
}

buffer_id op_recurrent_state(const struct op *op)
{
    return op->kind == OP_TOKEN_SHIFT ? op->token_shift.state
           : op->kind == OP_WKV7      ? op->wkv7.state
                                      : NO_BUFFER;
}

/* Adds to a list of buffers unless it is there. */
static void list(buffer_id buffer, buffer_id buffers[OP_MAX_BUFFERS], uint32_t *count)
{
    if (buffer == NO_BUFFER)
        return;
    for (uint32_t i = 0; i < *count; i++) {
        if (buffers[i] == buffer)
            return;
    }
    buffers[(*count)++] = buffer;
}

uint32_t op_reads(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS])
{
    const struct op *op = &program->ops[index];
    uint32_t count = 0;
    for (size_t i = 0; i < OP_MAX_INPUTS; i++)
        list(op->inputs[i], out, &count);
    list(op_recurrent_state(op), out, &count);
    if (op->kind == OP_ATTEND) {
        list(op->attend.key_state, out, &count);
        list(op->attend.value_state, out, &count);
    }
    if (op->kind == OP_ADD || (op->kind == OP_MATMUL && op->matmul.accumulate))
        list(op->out, out, &count);
    return count;
}

uint32_t op_writes(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS])
{
    const struct op *op = &program->ops[index];
    uint32_t count = 0;
    list(op->out, out, &count);
    list(op_recurrent_state(op), out, &count);
    if (op->kind == OP_KV_APPEND) {
        list(op->kv_append.key_state, out, &count);
        list(op->kv_append.value_state, out, &count);
    }
    return count;
}

static bool is_among(buffer_id buffer, const buffer_id *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i] == buffer)
            return true;
    }
    return false;
}

bool op_reads_buffer(const struct program *program, uint32_t index, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    const uint32_t count = op_reads(program, index, buffers);
    return is_among(buffer, buffers, count);
}

bool op_writes_buffer(const struct program *program, uint32_t index, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    const uint32_t count = op_writes(program, index, buffers);
    return is_among(buffer, buffers, count);
}

bool value_is_read(const struct program *program, buffer_id buffer, uint32_t index)
{
    for (uint32_t i = index; i < program->op_count; i++) {
        if (op_reads_buffer(program, i, buffer))
            return true;
        if (op_writes_buffer(program, i, buffer))
            return false;
    }
    return buffer == program->logits;
}

const struct op *op_that_appends(const struct program *program, buffer_id state)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_KV_APPEND &&
            (op->kv_append.key_state == state || op->kv_append.value_state == state))
            return op;
    }
    return NULL;
}
