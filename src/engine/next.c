/* salvo_engine_next: one token for each of several sessions, as a batch that is waited for. */
#include "engine/session.h"

enum salvo_status sessions_next(
    struct salvo_session *const *sessions, size_t count, int32_t *out_ids, enum salvo_status *out_statuses)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = sessions[0]->engine;
    const struct batch_step *step = NULL;
    uint64_t ticket = 0;
    uint32_t run_count = 0;
    TRY(batch_check_sessions(engine, sessions, count));
    for (size_t i = 0; i < count; i++) {
        bool needs_step = false;
        out_statuses[i] = session_check_cancel(sessions[i]);
        if (out_statuses[i] == SALVO_OK)
            out_statuses[i] = session_check_next(sessions[i], &needs_step);
        if (needs_step)
            engine->batch.runs[run_count++] = (struct salvo_run){.session = sessions[i]};
    }
    if (run_count) {
        TRY(batch_submit(engine, engine->batch.runs, run_count, &ticket));
        TRY(batch_wait(engine, ticket, run_count, &step));
    }
    for (uint32_t run = 0; run < run_count; run++) {
        if (step->runs[run].result.status == SALVO_ERROR_DEVICE)
            TRY(fail(SALVO_ERROR_DEVICE, "%s", step->runs[run].message));
    }
    for (size_t i = 0, run = 0; i < count; i++) {
        if (step && run < run_count && step->runs[run].session == sessions[i]) {
            const struct salvo_run_result *result = &step->runs[run++].result;
            out_statuses[i] = result->status;
            if (result->status != SALVO_OK)
                (void)fail(result->status, "%s", result->message);
        }
        if (out_statuses[i] == SALVO_OK)
            out_ids[i] = session_take(sessions[i]);
    }
cleanup:
    if (step)
        batch_release(engine, ticket);
    for (size_t i = 0; status != SALVO_OK && i < count; i++)
        out_statuses[i] = status;
    return status;
}
