/* Queries about a finished program. */
#include "program/program.h"

#include "base/memory.h"

void program_close(struct program *program)
{
    if (!program)
        return;
    arena_free(&program->arena);
    memory_free(program);
}

bool buffer_is_among(buffer_id buffer, const buffer_id *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i] == buffer)
            return true;
    }
    return false;
}

/* Adds a buffer to a list unless the list has it. */
static void list(buffer_id buffer, buffer_id buffers[OP_MAX_BUFFERS], uint32_t *count)
{
    if (buffer != NO_BUFFER && !buffer_is_among(buffer, buffers, *count))
        buffers[(*count)++] = buffer;
}

uint32_t op_reads(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS])
{
    const struct op *op = &program->ops[index];
    uint32_t count = 0;
    for (size_t i = 0; i < OP_MAX_INPUTS; i++)
        list(op->inputs[i], out, &count);
    for (size_t i = 0; i < OP_MAX_STATES; i++) {
        const enum state_kind kind = op_infos[op->kind].states[i].kind;
        if (kind == STATE_READ || kind == STATE_REPLACED)
            list(op->states[i], out, &count);
    }
    if (op_adds(op))
        list(op->out, out, &count);
    return count;
}

uint32_t op_writes(const struct program *program, uint32_t index, buffer_id out[OP_MAX_BUFFERS])
{
    const struct op *op = &program->ops[index];
    uint32_t count = 0;
    list(op->out, out, &count);
    for (size_t i = 0; i < OP_MAX_STATES; i++) {
        const enum state_kind kind = op_infos[op->kind].states[i].kind;
        if (kind == STATE_APPENDED || kind == STATE_REPLACED)
            list(op->states[i], out, &count);
    }
    return count;
}

bool op_reads_buffer(const struct program *program, uint32_t index, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    const uint32_t count = op_reads(program, index, buffers);
    return buffer_is_among(buffer, buffers, count);
}

bool op_writes_buffer(const struct program *program, uint32_t index, buffer_id buffer)
{
    buffer_id buffers[OP_MAX_BUFFERS];
    const uint32_t count = op_writes(program, index, buffers);
    return buffer_is_among(buffer, buffers, count);
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
