/*
 * Where the time of a token goes. The decode kernel is launched for the first phase, the first two, and so
 * on: what a phase adds is its time, barrier and all, beside what streams in meanwhile as it does in earnest.
 */
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_items.h"

#include <stdio.h>
#include <string.h>

enum { LAUNCHES = 8 };

static uint64_t attend_bytes(const struct cuda_attend *attend, uint32_t position)
{
    const uint64_t element = attend->kv_type == TYPE_F32 ? 4 : attend->kv_type == TYPE_F16 ? 2 : 1;
    uint64_t positions = (uint64_t)position + 1;
    positions = attend->window && positions > attend->window ? attend->window : positions;
    return 2 * positions * attend->kv_heads * attend->head_dim * element;
}

/* Weights and state that a phase reads. */
static uint64_t bytes_of(const struct cuda_tables *tables, uint32_t index, uint32_t position)
{
    const uint8_t *memory = tables->phases + (size_t)index * tables->phase_bytes;
    struct cuda_phase phase;
    uint64_t bytes = 0;
    memcpy(&phase, memory, sizeof phase);
    for (uint32_t i = 0; i < phase.matmul_count; i++) {
        struct cuda_matmul matmul;
        memcpy(&matmul, memory + phase.matmuls_at + i * sizeof matmul, sizeof matmul);
        bytes += cuda_matrix_bytes(&matmul.matrix);
    }
    if (phase.kind == CUDA_PHASE_ATTEND) {
        struct cuda_attend attend;
        memcpy(&attend, memory + phase.heavy_at, sizeof attend);
        bytes += attend_bytes(&attend, position);
    } else if (phase.kind == CUDA_PHASE_WKV7) {
        struct cuda_wkv7 wkv7;
        memcpy(&wkv7, memory + phase.heavy_at, sizeof wkv7);
        bytes += 2 * (uint64_t)wkv7.heads * wkv7.head_dim * wkv7.head_dim * sizeof(float);
    }
    return bytes;
}

/* Seconds of one launch of the first `end` phases: the shortest of some averages. */
static enum salvo_status time_phases(
    struct executor *executor, const cuda_event events[2], uint32_t end, uint32_t repetitions, double *out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    *out = 0;
    for (uint32_t i = 0; i < repetitions; i++) {
        float elapsed;
        TRY(CUDA_CALL(context, event_record, (events[0], executor->queue)));
        for (int j = 0; j < LAUNCHES; j++)
            TRY(cuda_launch_phases(executor, &executor->single, 0, end, CUDA_COUNT_TOKEN));
        TRY(CUDA_CALL(context, event_record, (events[1], executor->queue)));
        TRY(CUDA_CALL(context, event_wait, (events[1])));
        TRY(CUDA_CALL(context, event_elapsed, (&elapsed, events[0], events[1])));
        double seconds = (double)elapsed * 1e-3 / LAUNCHES;
        *out = i == 0 || seconds < *out ? seconds : *out;
    }
cleanup:
    return status;
}

/* What lower_describe says, without the number and the kind before it. */
static const char *operations(const char *text, const char *kind)
{
    text += strspn(text, " 0123456789");
    text += strncmp(text, kind, strlen(kind)) == 0 ? strlen(kind) : 0;
    return text + strspn(text, " ");
}

static enum salvo_status profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    static const char *const kinds[] = {"rows", "matmul", "attend", "wkv7", "sample"};
    const struct cuda_tables *tables = &executor->single.tables;
    const struct plan *plan = &executor->single.plan;
    struct cuda_context *context = &executor->context;
    cuda_event events[2] = {NULL, NULL};
    double before = 0;
    TRY(cuda_entries_finish(executor, executor->entries));
    for (int i = 0; i < 2; i++)
        TRY(CUDA_CALL(context, event_new, (&events[i], 0)));
    TRY(cuda_step_write(executor, step));
    TRY(cuda_launch_phases(executor, &executor->single, 0, 1, CUDA_TAKE_STEP));
    for (uint32_t group = 0; group < plan->group_count; group++) {
        char text[512];
        lower_describe(executor->program, plan, group, text, sizeof text);
        for (uint32_t i = tables->first_phase[group]; i < tables->first_phase[group + 1]; i++) {
            double until;
            TRY(time_phases(executor, events, i + 1, repetitions, &until));
            const char *kind = kinds[plan->groups[group].kind];
            struct salvo_profile_phase phase = {.kind = kind,
                .operations = operations(text, kind),
                .seconds = until > before ? until - before : 0,
                .bytes = bytes_of(tables, i, step->runs[0].first)};
            function(user, &phase);
            before = until > before ? until : before;
        }
    }
cleanup:
    for (int i = 0; i < 2; i++) {
        if (events[i])
            (void)context->driver->event_free(events[i]);
    }
    return status;
}

enum salvo_status cuda_profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_step_check(executor, step));
    TRY(cuda_context_enter(&executor->context));
    status = profile(executor, step, repetitions, function, user);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}
