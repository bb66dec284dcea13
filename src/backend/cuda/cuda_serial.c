/*
 * Steps of a few tokens, each of another run, can be computed in two ways: together by the plan for many
 * tokens, or one after the other by the kernel for a single token. Both are timed when the engine is opened.
 */
#include "backend/cuda/cuda_executor.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

enum { TIMED_RUNS = 2, WARM_UPS = 2, REPETITIONS = 5 };

/* The least time of a step in which `count` slots begin. */
static enum salvo_status time_step(struct executor *executor, uint32_t count, uint64_t *out_ns)
{
    enum salvo_status status = SALVO_OK;
    static const int32_t ids[TIMED_RUNS] = {0};
    static const uint32_t pages[TIMED_RUNS] = {0, 1};
    struct run runs[TIMED_RUNS];
    struct run_result results[TIMED_RUNS];
    const struct step step = {.runs = runs, .run_count = count, .token_count = count, .ids = ids};
    for (uint32_t i = 0; i < count; i++) {
        runs[i] = (struct run){.slot = i,
            .count = 1,
            .first_row = i,
            .source = SOURCE_IDS,
            .logits = LOGITS_LAST,
            .pages = &pages[i],
            .sampler = {.top_p = 1, .repeat_penalty = 1},
            .limit = executor->options.context};
    }
    *out_ns = UINT64_MAX;
    for (int i = 0; i < WARM_UPS + REPETITIONS; i++) {
        uint64_t ticket;
        const uint64_t began = clock_ns();
        TRY(cuda_step_submit(executor, &step, &ticket));
        TRY(cuda_step_wait(executor, ticket, results));
        const uint64_t spent = clock_ns() - began;
        *out_ns = i >= WARM_UPS && spent < *out_ns ? spent : *out_ns;
    }
cleanup:
    return status;
}

static enum salvo_status measure(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    uint64_t alone, together, serial;
    TRY(time_step(executor, 1, &alone));
    TRY(time_step(executor, TIMED_RUNS, &together));
    executor->most_serial = TIMED_RUNS;
    TRY(time_step(executor, TIMED_RUNS, &serial));
    /* Together, a few more tokens take no more time. */
    const uint64_t each = serial > alone ? (serial - alone) / (TIMED_RUNS - 1) : alone,
                   count = together <= serial ? 0 : 1 + (together - alone) / (each ? each : 1);
    executor->most_serial = count > CUDA_MOST_SERIAL ? CUDA_MOST_SERIAL : (uint32_t)count;
cleanup:
    return status;
}

enum salvo_status cuda_serial_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_options *options = &executor->options;
    const char *given = getenv("SALVO_CUDA_SERIAL"); /* for tests */
    if (!executor->resident || options->slots < TIMED_RUNS || options->batch < TIMED_RUNS ||
        options->context < TIMED_RUNS ||
        (executor->state.pages_per_slot && executor->state.pages < TIMED_RUNS))
        return SALVO_OK;
    TRY(cuda_memory_new(executor, "logits",
        (uint64_t)CUDA_MOST_SERIAL * executor->program->vocabulary * sizeof(float),
        &executor->serial_logits));
    if (given) {
        const unsigned long count = strtoul(given, NULL, 10);
        executor->most_serial = count > CUDA_MOST_SERIAL ? CUDA_MOST_SERIAL : (uint32_t)count;
        return SALVO_OK;
    }
    const struct pace pace = executor->pace;
    TRY(measure(executor));
    executor->pace = pace;
    executor->counters = (struct backend_counters){0};
    log_line(SALVO_LOG_INFO, "cuda device %u (%s): up to %u sessions decode one after the other",
        executor->context.number, executor->context.name, executor->most_serial ? executor->most_serial : 1);
cleanup:
    return status;
}
