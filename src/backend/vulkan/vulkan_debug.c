/* The debug path: compiles the plan of a step again, with scratch buffers that are mapped and share no
 * memory, and runs its dispatches group by group. */
#include "backend/vulkan/vulkan_executor.h"

const struct plan *vulkan_debug_plan(const struct executor *executor, uint32_t tokens)
{
    return tokens == 1 ? &executor->single.lowered : &executor->batch.lowered;
}

void vulkan_debug_end(struct executor *executor)
{
    vulkan_plan_close(executor, &executor->debug);
    vulkan_buffer_close(&executor->device, &executor->debug_arena);
}

/* Runs dispatches first .. first + count - 1 and waits for them. */
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

enum salvo_status vulkan_debug_begin(struct executor *executor, const struct step *step,
    const size_t *offsets, size_t bytes, uint8_t **out_memory)
{
    enum salvo_status status = SALVO_OK;
    struct pending_step *pending;
    vulkan_debug_end(executor);
    TRY(step_queue_complete_all(&executor->queue));
    executor->debug.lowered = *vulkan_debug_plan(executor, step->token_count);
    const struct scratch_places places = {&executor->debug.lowered, offsets, bytes};
    TRY(vulkan_buffer_open(
        &executor->device, scratch_bytes(places), PLACE_TO_HOST, "debugging", &executor->debug_arena));
    *out_memory = executor->debug_arena.mapped;
    struct compiling compiling = {executor, &executor->debug, &executor->debug_arena, places};
    TRY(vulkan_plan_compile(&compiling));
    TRY(vulkan_pipelines_make(&executor->pipelines)); /* pipelines that neither plan of the engine uses */
    TRY(vulkan_step_begin(executor, step, &pending));
    TRY(run_dispatches(executor, 0, 1)); /* takes the step */
    step_queue_run_last(&executor->queue);
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
        TRY(step_queue_commit_last(&executor->queue));
    TRY(gguf_check(executor->program->gguf));
cleanup:
    return status;
}
