#include "backend/common/debug.h"

#include "base/memory.h"
#include "program/placement.h"

enum salvo_status debug_step_begin(struct debug_step *debug, const struct backend *backend,
    struct executor *executor, const struct program *program, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    size_t bytes;
    *debug = (struct debug_step){
        .backend = backend, .executor = executor, .plan = backend->debug.plan(executor, step->token_count)};
    TRY(NEW(&debug->offsets, program->buffer_count));
    TRY(placement_compute(
        program, debug->plan->capacity, debug->plan->group_of_op, false, debug->offsets, &bytes));
    TRY(backend->debug.begin(executor, step, debug->offsets, bytes, &debug->memory));
cleanup:
    if (status != SALVO_OK)
        debug_step_end(debug);
    return status;
}

void debug_step_end(struct debug_step *debug)
{
    if (debug->backend)
        debug->backend->debug.end(debug->executor);
    memory_free(debug->offsets);
    *debug = (struct debug_step){0};
}

float *debug_step_buffer(const struct debug_step *debug, buffer_id buffer)
{
    if (debug->plan->is_private[buffer])
        return NULL;
    return (float *)(void *)(debug->memory + debug->offsets[buffer]);
}
