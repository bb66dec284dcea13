/*
 * The debug path: a step whose groups are launched one by one. Scratch lies in mapped memory, where no two
 * buffers overlap, so that the host can read and change it; the tables are built again with these addresses.
 */
#include "backend/cuda/cuda_executor.h"

const struct plan *cuda_debug_plan(const struct executor *executor, uint32_t tokens)
{
    return &cuda_plan_for(executor, tokens)->plan;
}

static void free_debug(struct executor *executor)
{
    cuda_memory_free(executor, executor->debug.tables.memory);
    cuda_tables_free(&executor->debug.tables);
    cuda_host_free(executor, executor->debug_memory);
    executor->debug_memory = NULL;
}

void cuda_debug_end(struct executor *executor)
{
    if (!executor->debug_memory)
        return;
    (void)executor->context.driver->context_push(executor->context.handle);
    (void)executor->context.driver->stream_wait(executor->queue);
    free_debug(executor);
    cuda_context_leave(&executor->context);
}

static enum salvo_status begin(
    struct executor *executor, const struct step *step, const size_t *offsets, size_t bytes)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_plan *plan = cuda_plan_for(executor, step->token_count);
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(cuda_host_new(executor, "the debug path", bytes, &executor->debug_memory));
    executor->debug = (struct cuda_plan){.plan = plan->plan, .scratch = plan->scratch};
    executor->debug.scratch.offsets = offsets;
    executor->debug_is_long = cuda_step_is_long(executor, step, 0);
    TRY(CUDA_CALL(
        &executor->context, host_address, (&executor->debug.scratch.arena, executor->debug_memory, 0)));
    TRY(cuda_tables_build(executor, &executor->debug));
    TRY(cuda_tables_upload(executor, &executor->debug));
    TRY(cuda_step_write(executor, step));
cleanup:
    if (status != SALVO_OK)
        free_debug(executor);
    return status;
}

enum salvo_status cuda_debug_begin(struct executor *executor, const struct step *step, const size_t *offsets,
    size_t bytes, uint8_t **out_memory)
{
    enum salvo_status status = SALVO_OK;
    cuda_debug_end(executor);
    TRY(cuda_step_check(executor, step));
    TRY(cuda_context_enter(&executor->context));
    status = begin(executor, step, offsets, bytes);
    *out_memory = executor->debug_memory;
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

/* Phases one by one: a launch for each needs no barrier. Each launch counts as a token; there are no tagged
 * words. */
static enum salvo_status run_phases(struct executor *executor, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK, forgotten;
    const uint32_t count = executor->debug.tables.phase_count;
    for (uint32_t i = first; i < end; i++)
        TRY(cuda_launch_phases(executor, &executor->debug, i, i + 1,
            CUDA_COUNT_TOKEN | (i == 0 ? CUDA_TAKE_STEP : 0) | (i + 1 == count ? CUDA_FINISH_TOKEN : 0)));
cleanup:
    forgotten = cuda_tagged_words_clear(executor);
    return status == SALVO_OK ? forgotten : status;
}

static enum salvo_status run_nodes(struct executor *executor, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t i = first; i < end; i++)
        TRY(cuda_launch_node(executor, &executor->debug, i, executor->debug_is_long));
cleanup:
    return status;
}

static enum salvo_status run(struct executor *executor, uint32_t group)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_tables *tables = &executor->debug.tables;
    const bool is_last = group + 1 == executor->debug.plan.group_count;
    if (executor->debug.plan.capacity[ROWS_TOKENS] == 1) {
        TRY(run_phases(executor, tables->first_phase[group], tables->first_phase[group + 1]));
    } else {
        TRY(run_nodes(executor, group ? tables->first_phase[group] : 0,
            is_last ? tables->node_count : tables->first_phase[group + 1]));
    }
    TRY(cuda_queue_check(executor));
    if (is_last) /* the device has counted it */
        executor->finished_entries = ++executor->entries;
cleanup:
    return status;
}

enum salvo_status cuda_debug_run(struct executor *executor, uint32_t group)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_context_enter(&executor->context));
    status = run(executor, group);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}
