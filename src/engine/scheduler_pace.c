#include "engine/scheduler.h"

#include "base/memory.h"

/* Computes `count` tokens twice and stores the shorter time. */
static enum salvo_status time_chunk(
    struct salvo_session *session, const int32_t *ids, uint32_t count, double *out_ns)
{
    enum salvo_status status = SALVO_OK;
    for (int i = 0; i < 2; i++) {
        TRY(salvo_session_rollback(session, 0));
        const uint64_t start = scheduler_now();
        TRY(salvo_session_feed(session, ids, count));
        const double ns = (double)(scheduler_now() - start);
        *out_ns = i && *out_ns < ns ? *out_ns : ns;
    }
cleanup:
    return status;
}

enum salvo_status scheduler_measure(struct salvo_scheduler *scheduler)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = scheduler->engine;
    struct salvo_session *session = scheduler->sessions[0];
    const uint32_t chunk =
        engine->backend->chunk ? engine->backend->chunk(engine->executor) : engine->options.batch;
    const uint32_t positions = request_most_positions(engine), most = chunk < positions ? chunk : positions,
                   measured = most < MEASURED_TOKENS ? most : MEASURED_TOKENS;
    int32_t *ids = NULL;
    double decode_ns, chunk_ns;
    TRY(NEW(&ids, measured));
    TRY(time_chunk(session, ids, 1, &decode_ns)); /* warms up */
    TRY(time_chunk(session, ids, 1, &decode_ns));
    TRY(time_chunk(session, ids, measured, &chunk_ns));
    TRY(salvo_session_rollback(session, 0));
    prompt_pace_open(&scheduler->pace, (double)scheduler->options.latency_us * 1000, LEAST_STEP_TOKENS, most,
        decode_ns, chunk_ns / measured);
    scheduler->counters.step_tokens = prompt_pace_limit(&scheduler->pace, 1);
cleanup:
    memory_free(ids);
    return status;
}
