/* The debug path: compiles the plan of a step again, with scratch buffers that share no memory, and runs its
 * dispatches group by group. */
#include "backend/metal/metal_executor.h"

const struct plan *metal_debug_plan(const struct executor *executor, uint32_t tokens)
{
    return tokens == 1 ? &executor->single.lowered : &executor->batch.lowered;
}

void metal_debug_end(struct executor *executor)
{
    metal_plan_close(&executor->debug);
    metal_buffer_close(&executor->debug_arena);
}

/* Runs dispatches first .. first + count - 1 and waits for them. */
static enum salvo_status run_dispatches(
    struct executor *executor, struct metal_step *taken, uint32_t first, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    if (count == 0)
        return SALVO_OK;
    TRY(metal_encode_some(executor, taken, first, count));
    TRY(metal_wait_for_commands(executor, taken));
cleanup:
    return status;
}

enum salvo_status metal_debug_begin(struct executor *executor, const struct step *step, const size_t *offsets,
    size_t bytes, uint8_t **out_memory)
{
    enum salvo_status status = SALVO_OK;
    struct metal_step *taken;
    metal_debug_end(executor);
    TRY(step_queue_complete_all(&executor->queue));
    executor->debug.lowered = *metal_debug_plan(executor, step->token_count);
    const struct scratch_places places = {&executor->debug.lowered, offsets, bytes};
    TRY(metal_buffer_open(&executor->device, scratch_bytes(places), "debugging", &executor->debug_arena));
    *out_memory = executor->debug_arena.bytes;
    struct compiling compiling = {
        .executor = executor, .plan = &executor->debug, .arena = &executor->debug_arena, .places = places};
    TRY(metal_plan_compile(&compiling));
    TRY(metal_step_begin(executor, step, &taken));
    taken->plan = &executor->debug;
    TRY(run_dispatches(executor, taken, 0, 1)); /* takes the step */
    step_queue_run_last(&executor->queue);
cleanup:
    if (status != SALVO_OK)
        metal_debug_end(executor);
    return status;
}

enum salvo_status metal_debug_run(struct executor *executor, uint32_t group)
{
    enum salvo_status status = SALVO_OK;
    const struct metal_plan *plan = &executor->debug;
    struct metal_step *taken = &executor->steps[executor->queue.submitted % RING_ENTRIES];
    const uint32_t first = plan->first_dispatch[group];
    TRY(run_dispatches(executor, taken, first, plan->first_dispatch[group + 1] - first));
    if (group + 1 == plan->lowered.group_count) /* the step is complete */
        TRY(step_queue_commit_last(&executor->queue));
    TRY(gguf_check(executor->program->gguf));
cleanup:
    return status;
}
