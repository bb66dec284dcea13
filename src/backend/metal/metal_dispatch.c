/* A dispatch of a plan: its pipeline, arguments and buffers. */
#include "backend/metal/metal_executor.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

/* ---- Places ---- */

uint32_t metal_arena_at(const struct compiling *compiling, buffer_id buffer)
{
    return (uint32_t)(scratch_place(compiling->places, buffer) / sizeof(float));
}

uint32_t metal_vector_at(const struct compiling *compiling, buffer_id buffer)
{
    return buffer == NO_BUFFER ? METAL_NO_OPERAND : compiling->executor->vector_offsets[buffer];
}

uint32_t metal_columns(const struct compiling *compiling, buffer_id buffer)
{
    return (uint32_t)compiling->executor->program->buffers[buffer].columns;
}

/* ---- Dispatches ---- */

/* Finds the pipeline of a kernel with these constants, or makes it. */
static enum salvo_status find_pipeline(
    struct executor *executor, const char *kernel, const uint32_t *constants, uint32_t threads, objc_id *out)
{
    enum salvo_status status = SALVO_OK;
    struct metal_pipeline made = {.kernel = kernel,
        .constants = {
            0, 32, 1, [METAL_CONSTANT_ROWS] = 1, [METAL_CONSTANT_SIMDGROUPS] = 1, [METAL_CONSTANT_SUMS] = 1}};
    if (constants)
        memcpy(made.constants, constants, sizeof made.constants);
    for (uint32_t i = 0; i < executor->pipeline_count; i++) {
        const struct metal_pipeline *known = &executor->pipelines[i];
        if (strcmp(known->kernel, kernel) == 0 &&
            memcmp(known->constants, made.constants, sizeof made.constants) == 0) {
            *out = known->handle;
            return SALVO_OK;
        }
    }
    TRY(RESIZE(&executor->pipelines, executor->pipeline_count + 1));
    status = metal_pipeline_open(&executor->device, threads, &made);
    executor->pipelines[executor->pipeline_count] = made;
    executor->pipeline_count += made.handle != NULL;
    *out = made.handle;
cleanup:
    return status;
}

enum salvo_status metal_add_dispatch(struct compiling *compiling, const char *kernel,
    const uint32_t *constants, uint32_t threads, struct metal_dispatch **out)
{
    enum salvo_status status = SALVO_OK;
    struct metal_plan *plan = compiling->plan;
    objc_id pipeline;
    TRY(find_pipeline(compiling->executor, kernel, constants, threads, &pipeline));
    TRY(GROW(&plan->dispatches, plan->dispatch_count, &plan->dispatch_capacity));
    *out = &plan->dispatches[plan->dispatch_count++];
    **out = (struct metal_dispatch){
        .shape = {.pipeline = pipeline, .threads = threads, .groups = 1, .rows_per_group = 1}};
cleanup:
    return status;
}

enum salvo_status metal_set_large(struct compiling *compiling, struct metal_dispatch *dispatch,
    const char *kernel, const uint32_t *constants, uint32_t threads)
{
    dispatch->large = dispatch->shape;
    dispatch->large.threads = threads;
    return find_pipeline(compiling->executor, kernel, constants, threads, &dispatch->large.pipeline);
}

void metal_add_use(struct metal_dispatch *dispatch, struct memory_use use)
{
    assert(dispatch->use_count < MAX_USES);
    dispatch->uses[dispatch->use_count++] = use;
}

void metal_set_arguments(struct metal_dispatch *dispatch, const void *arguments, size_t bytes)
{
    assert(bytes <= sizeof dispatch->arguments);
    memcpy(dispatch->arguments, arguments, bytes);
    dispatch->argument_bytes = (uint32_t)bytes;
}

void metal_bind(struct metal_dispatch *dispatch, const struct metal_buffer *buffer)
{
    assert(dispatch->binding_count < MAX_BINDINGS);
    dispatch->bindings[dispatch->binding_count++] = (struct metal_binding){.buffer = buffer};
}

void metal_bind_step(const struct compiling *compiling, struct metal_dispatch *dispatch)
{
    metal_bind(dispatch, &compiling->executor->ring);
    dispatch->bindings[dispatch->binding_count - 1].entry_bytes = compiling->executor->entry_bytes;
}

void metal_plan_close(struct metal_plan *plan)
{
    memory_free(plan->dispatches);
    memory_free(plan->first_dispatch);
    memory_free(plan->waits);
    *plan = (struct metal_plan){0};
}
