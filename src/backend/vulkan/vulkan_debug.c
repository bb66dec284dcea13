/* The debug path: the plan of a step once more, on scratch that does not share memory and that the host sees,
 * run group by group. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"
#include "program/placement.h"

#include <string.h>

static const struct plan *plan_of(const struct executor *executor, const struct step *step)
{
    return step->token_count == 1 ? &executor->single.lowered : &executor->batch.lowered;
}

uint32_t vulkan_group_count(const struct executor *executor, const struct step *step)
{
    return plan_of(executor, step)->group_count;
}

void vulkan_debug_end(struct executor *executor)
{
    if (!executor->debug_offsets)
        return;
    vulkan_plan_close(executor, &executor->debug);
    vulkan_buffer_close(&executor->device, &executor->debug_arena);
    memory_free(executor->debug_offsets);
    executor->debug_offsets = NULL;
}

/* Dispatches first .. first + count - 1, until they are done. */
static enum salvo_status run_dispatches(struct executor *executor, uint32_t first, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    if (count == 0)
        return SALVO_OK;
    TRY(vulkan_plan_record(
        executor, &executor->debug, first, count, 1, executor->debug.commands, VK_NULL_HANDLE));
    TRY(vulkan_submit_and_wait(&executor->device, executor->debug.commands, executor->transfer.fence));
cleanup:
    return status;
}

enum salvo_status vulkan_debug_begin(struct executor *executor, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    struct pending_step *pending;
    size_t bytes;
    vulkan_debug_end(executor);
    TRY(vulkan_wait_for_all(executor));
    TRY(NEW(&executor->debug_offsets, program->buffer_count));
    executor->debug.lowered = *plan_of(executor, step);
    const struct plan *plan = &executor->debug.lowered;
    TRY(placement_compute(
        program, plan->capacity, plan->group_of_op, false, executor->debug_offsets, &bytes));
    bytes = (bytes + 255) / 256 * 256;
    TRY(vulkan_buffer_open(
        &executor->device, bytes + plan->private_bytes, PLACE_TO_HOST, "debugging", &executor->debug_arena));
    struct compiling compiling = {
        executor, &executor->debug, &executor->debug_arena, executor->debug_offsets, bytes};
    TRY(vulkan_plan_compile(&compiling));
    TRY(vulkan_pipelines_make(&executor->pipelines)); /* those that neither plan of the engine has */
    TRY(vulkan_step_begin(executor, step, &pending));
    TRY(run_dispatches(executor, 0, 1));       /* takes the step */
    executor->completed = executor->submitted; /* nobody is to wait for it */
cleanup:
    if (status != SALVO_OK)
        vulkan_debug_end(executor);
    return status;
}

enum salvo_status vulkan_debug_run(struct executor *executor, uint32_t group)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_plan *plan = &executor->debug;
    uint32_t first = 1, count = 0;
    while (first < plan->dispatch_count && plan->dispatches[first].group < group)
        first++;
    while (first + count < plan->dispatch_count && plan->dispatches[first + count].group == group)
        count++;
    TRY(run_dispatches(executor, first, count));
    if (group + 1 == plan->lowered.group_count) /* the step is complete */
        TRY(vulkan_step_commit(executor, &executor->pending[executor->submitted % RING_ENTRIES]));
    TRY(gguf_check(executor->program->gguf));
cleanup:
    return status;
}

void vulkan_debug_group(
    const struct executor *executor, uint32_t group, uint32_t *out_first_op, uint32_t *out_op_count)
{
    *out_first_op = executor->debug.lowered.groups[group].first_op;
    *out_op_count = executor->debug.lowered.groups[group].op_count;
}

float *vulkan_debug_buffer(struct executor *executor, buffer_id buffer)
{
    if (executor->debug.lowered.is_private[buffer])
        return NULL;
    return (float *)(void *)((uint8_t *)executor->debug_arena.mapped + executor->debug_offsets[buffer]);
}
