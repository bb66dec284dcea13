/*
 * The shape of a single token's matmuls: how many threads are the team that shares a row of the matrix, how
 * many rows a team takes, and how many simdgroups a threadgroup has. Which shape is the fastest depends on
 * the device, so some are timed for each kind of matmul while the engine is opened. Results do not depend on
 * it: the sum of a row has one order.
 */
#include "backend/metal/metal_executor.h"

#include "base/memory.h"

#include <string.h>

/* With the usual number of threads in a team. The fastest one is timed with the other number, too. */
static const struct matmul_shape candidates[] = {{1, METAL_MATMUL_SIMDGROUPS, 0},
    {2, METAL_MATMUL_SIMDGROUPS, 0}, {METAL_MATMUL_ROWS, METAL_MATMUL_SIMDGROUPS, 0}, {2, 4, 0}};

struct timed_shape {
    struct matmul_shape shape;
    double seconds;
};

enum { MOST_TIMED_ROWS = 4096 }; /* enough to occupy a device */

/* Writes a step of one row of each kind, which `begin` would have taken. */
static struct metal_step *write_trial_step(struct executor *executor, const struct metal_plan *trial)
{
    struct metal_step *step = &executor->steps[0];
    struct step_header *entry = metal_ring_entry(executor, 0);
    *entry = (struct step_header){0};
    for (uint32_t i = 0; i < ROW_KIND_COUNT; i++)
        step->live[i] = entry->live[i] = 1;
    step->plan = trial;
    return step;
}

/* The device's time for the dispatch of a plan. */
static enum salvo_status time_trial(struct executor *executor, const struct metal_plan *trial, double *out)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_counters before = executor->counters;
    struct metal_step *step = write_trial_step(executor, trial);
    TRY(metal_encode_some(executor, step, 0, trial->dispatch_count));
    objc_wait_until_completed(step->commands[0]);
    *out = objc_end_time(step->commands[0]) - objc_start_time(step->commands[0]);
    TRY(metal_wait_for_commands(executor, step));
cleanup:
    step->plan = NULL;
    executor->counters = before;
    return status;
}

/* Compiles the matmul alone, with one shape, and times it. The shape is kept if it is the fastest so far. */
static enum salvo_status try_shape(const struct compiling *compiling, const struct op *op,
    const struct group_fusion *fusion, struct matmul_shape shape, struct timed_shape *in_out)
{
    enum salvo_status status = SALVO_OK;
    double seconds = 0;
    struct metal_plan trial = {.lowered = compiling->plan->lowered};
    struct compiling alone = *compiling;
    alone.plan = &trial;
    TRY(metal_add_matmul(&alone, op, fusion, shape));
    TRY(NEW(&trial.waits, trial.dispatch_count));
    struct metal_shape *timed = &trial.dispatches[0].shape;
    const uint32_t rows = shape.rows * shape.simdgroups * shape.sums; /* of a threadgroup, at least */
    if (timed->groups > MOST_TIMED_ROWS / rows)
        timed->groups = MOST_TIMED_ROWS / rows;
    TRY(time_trial(compiling->executor, &trial, &seconds));
    if (in_out->shape.sums == 0 || seconds < in_out->seconds)
        *in_out = (struct timed_shape){shape, seconds};
cleanup:
    metal_plan_close(&trial);
    return status;
}

static enum salvo_status choose_shape(struct compiling *compiling, const struct op *op,
    const struct group_fusion *fusion, struct matmul_kind kind, struct matmul_shape *out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    struct matmul_shape shape;
    struct timed_shape best = {0};
    for (uint32_t i = 0; i < executor->choice_count; i++) {
        if (memcmp(&executor->choices[i].kind, &kind, sizeof kind) == 0) {
            *out = executor->choices[i].shape;
            return SALVO_OK;
        }
    }
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        shape = candidates[i];
        shape.sums = metal_sums_for(kind.columns);
        TRY(try_shape(compiling, op, fusion, shape, &best));
    }
    shape = best.shape;
    shape.sums = METAL_MATMUL_SUMS + 1 - shape.sums;
    TRY(try_shape(compiling, op, fusion, shape, &best));
    TRY(RESIZE(&executor->choices, executor->choice_count + 1));
    executor->choices[executor->choice_count++] = (struct matmul_choice){kind, best.shape};
    *out = best.shape;
cleanup:
    return status;
}

enum salvo_status metal_compile_matmul(
    struct compiling *compiling, const struct op *op, const struct group_fusion *fusion)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer *weight = &compiling->executor->program->buffers[op->inputs[0]];
    const struct matmul_kind kind = {weight->type, (uint32_t)weight->columns,
        op->matmul.rounding == ROUNDING_F16, fusion->norm != NULL, fusion->gated != NULL};
    struct matmul_shape shape = candidates[0];
    shape.sums = metal_sums_for(kind.columns);
    if (compiling->plan->lowered.capacity[op->rows] == 1)
        TRY(choose_shape(compiling, op, fusion, kind, &shape));
    TRY(metal_add_matmul(compiling, op, fusion, shape));
cleanup:
    return status;
}
