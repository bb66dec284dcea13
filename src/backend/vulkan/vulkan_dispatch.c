/* Helpers for all kinds of groups: places of buffers, bindings, tables. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

uint32_t vulkan_arena_at(const struct compiling *compiling, buffer_id buffer)
{
    return (uint32_t)(scratch_place(compiling->places, buffer) / sizeof(float));
}

uint32_t vulkan_vector_at(const struct compiling *compiling, buffer_id buffer)
{
    return buffer == NO_BUFFER ? NO_OPERAND : compiling->executor->vector_offsets[buffer];
}

void vulkan_bind(struct dispatch *dispatch, uint32_t binding, const struct vulkan_buffer *buffer, bool writes)
{
    dispatch->bindings[binding] = (struct memory_use){buffer, 0, UINT64_MAX, writes};
}

uint32_t vulkan_bind_floats(const struct compiling *compiling, struct dispatch *dispatch, uint32_t binding,
    uint64_t first, uint64_t count, bool writes)
{
    const uint64_t alignment = compiling->executor->device.physical->limits.minStorageBufferOffsetAlignment;
    const uint64_t begin = first * sizeof(float) / alignment * alignment;
    dispatch->bindings[binding] =
        (struct memory_use){compiling->arena, begin, (first + count) * sizeof(float) - begin, writes};
    return (uint32_t)(first - begin / sizeof(float));
}

/* Rows of a grid. Software devices run workgroups one after the other, so their grids have few rows. */
uint32_t vulkan_most_rows(const struct executor *executor, uint32_t rows)
{
    return executor->device.physical->features.processor && rows > 4 ? 4 : rows;
}

enum salvo_status vulkan_add_dispatch(struct compiling *compiling, uint32_t group, uint32_t pipeline,
    const void *arguments, size_t argument_bytes, struct dispatch **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    struct vulkan_plan *plan = compiling->plan;
    TRY(GROW(&plan->dispatches, plan->dispatch_count, &plan->dispatch_capacity));
    struct dispatch *dispatch = &plan->dispatches[plan->dispatch_count++];
    *dispatch = (struct dispatch){.pipeline = pipeline,
        .groups = {1, 1, 1},
        .argument_bytes = (uint32_t)argument_bytes,
        .group = group};
    assert(argument_bytes <= MAX_ARGUMENT_BYTES);
    memcpy(dispatch->arguments, arguments, argument_bytes);
    /* Shaders declare more bindings than each dispatch uses; unused ones are bound to the arena. */
    for (uint32_t i = 0; i < BIND_COUNT; i++)
        vulkan_bind(dispatch, i, compiling->arena, false);
    const uint64_t words_at = executor->step_words_at * UINT64_C(4);
    dispatch->bindings[BIND_ARENA].writes = true;
    dispatch->bindings[BIND_STEP] = (struct memory_use){&executor->step, 0, words_at, false};
    dispatch->bindings[BIND_WORDS] = (struct memory_use){&executor->step, words_at, UINT64_MAX, false};
    *out = dispatch;
cleanup:
    return status;
}

bool vulkan_fuses_embed(const struct compiling *compiling, const struct op *op)
{
    const struct executor *executor = compiling->executor;
    return op->kind == OP_EMBED && op == executor->program->ops &&
           compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 && compiling->arena == &executor->arena &&
           executor->weights[op->inputs[0]].slice_count == 1;
}

enum salvo_status vulkan_add_matrix(struct vulkan_plan *plan, struct matrix matrix)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&plan->matrices, plan->matrix_count, &plan->matrix_capacity));
    plan->matrices[plan->matrix_count++] = matrix;
cleanup:
    return status;
}

struct matrix vulkan_matrix(
    const struct compiling *compiling, const struct op *op, const struct weight_slice *slice)
{
    const struct program *program = compiling->executor->program;
    return (struct matrix){
        .rows = slice->rows,
        .columns = (uint32_t)program->buffers[op->inputs[0]].columns,
        .type = program->buffers[op->inputs[0]].type,
        .codes = slice->codes,
        .high = slice->high,
        .scales = slice->scales,
        .x = vulkan_arena_at(compiling, op->inputs[1]),
        .to = vulkan_arena_at(compiling, op->out),
        .to_columns = (uint32_t)program->buffers[op->out].columns,
        .bias = vulkan_vector_at(compiling, op->inputs[2]),
        .flags = op->matmul.accumulate ? MATRIX_ACCUMULATE : 0,
        .activation = op->matmul.activation,
        .to_first = slice->first_row,
        .range = slice->range,
    };
}

bool vulkan_uses_halves(const struct compiling *compiling)
{
    return compiling->executor->device.physical->features.coop_matrix &&
           compiling->plan->lowered.capacity[ROWS_TOKENS] > 1;
}

bool vulkan_gate_fits(const struct executor *executor, const struct op *ops)
{
    const struct program_buffer *buffers = executor->program->buffers;
    const struct vulkan_weight *gate = &executor->weights[ops[0].inputs[0]],
                               *up = &executor->weights[ops[1].inputs[0]];
    const bool is_plain =
        ops[0].matmul.activation == ACTIVATION_NONE && ops[1].matmul.activation == ACTIVATION_NONE;
    return gate->slice_count == 1 && up->slice_count == 1 && gate->slices->buffer == up->slices->buffer &&
           ops[0].inputs[1] == ops[1].inputs[1] && is_plain &&
           buffers[ops[0].inputs[0]].type == buffers[ops[1].inputs[0]].type;
}
