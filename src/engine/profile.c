/* Profiles of a step, and the device's idle time. */
#include "engine/session.h"
#include "engine/session_pages.h"

enum salvo_status session_profile(struct salvo_session *session, const int32_t *ids, uint32_t count,
    uint32_t repetitions, salvo_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    if (!engine->backend->profile.time_phases)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "backend '%s' has no profile", engine->backend->name));
    if (count == 0 || count > engine->options.batch || count > engine->options.context - session->computed ||
        repetitions == 0) {
        TRY(fail(SALVO_ERROR_ARGUMENT, "a profile needs tokens, no more than are computed at once and there "
                                       "is room for, and at least one "
                                       "repetition"));
    }
    TRY(session_take_pages(session, session->computed, session->computed + count));
    /* The step writes at the positions of the next tokens, which are written again before they are read. */
    engine->runs[0] = session_run(session, count, 0, LOGITS_LAST);
    const struct step step = {
        .runs = engine->runs,
        .run_count = 1,
        .token_count = count,
        .ids = ids,
    };
    engine->steps++; /* invalidates the logits */
    TRY(engine->backend->profile.time_phases(engine->executor, &step, repetitions, function, user));
cleanup:
    session_trim_pages(session);
    return status;
}

enum salvo_status engine_measure_idle(struct salvo_engine *engine, bool on)
{
    enum salvo_status status = SALVO_OK;
    if (!engine->backend->profile.measure_idle)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "backend '%s' does not measure idle time", engine->backend->name));
    TRY(engine->backend->profile.measure_idle(engine->executor, on));
cleanup:
    return status;
}
