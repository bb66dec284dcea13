#include "engine/scheduler.h"

#include "base/clock.h"
#include "base/memory.h"

enum { DECODE_STEPS = 4 }; /* the default duration of a step, in decode steps */

/* Computes `count` tokens twice and stores the shorter time. */
static enum salvo_status time_chunk(
    struct salvo_session *session, const int32_t *ids, uint32_t count, uint64_t *out_ns)
{
    enum salvo_status status = SALVO_OK;
    *out_ns = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        TRY(salvo_session_rollback(session, 0));
        const uint64_t start = clock_ns();
        TRY(salvo_session_feed(session, ids, count));
        const uint64_t ns = clock_ns() - start;
        *out_ns = ns < *out_ns ? ns : *out_ns;
    }
cleanup:
    return status;
}

/* The largest chunk that, beside a decode step, stays below the target; between two sizes that were measured
 * the time is taken as linear. */
static enum salvo_status find_chunk(
    struct salvo_session *session, const int32_t *ids, uint32_t most, uint64_t latency_ns, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    uint64_t decode, before = 0, now;
    TRY(time_chunk(session, ids, 1, &decode)); /* warms up */
    TRY(time_chunk(session, ids, 1, &decode));
    const uint64_t target = latency_ns ? latency_ns : DECODE_STEPS * decode,
                   room = target > decode ? target - decode : 0;
    *out = most < LEAST_STEP_TOKENS ? most : LEAST_STEP_TOKENS;
    for (uint32_t size = *out, last = 0; size <= most; last = size, before = now, size *= 2) {
        TRY(time_chunk(session, ids, size, &now));
        if (now > room) {
            if (last && now > before)
                *out = last +
                       (uint32_t)((double)(size - last) * (double)(room - before) / (double)(now - before));
            break;
        }
        *out = size;
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
    const uint32_t positions = request_most_positions(engine), most = chunk < positions ? chunk : positions;
    int32_t *ids = NULL;
    TRY(NEW(&ids, most));
    TRY(find_chunk(
        session, ids, most, (uint64_t)scheduler->options.latency_us * 1000, &scheduler->step_tokens));
    TRY(salvo_session_rollback(session, 0));
cleanup:
    memory_free(ids);
    return status;
}
