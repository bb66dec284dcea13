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

/* Whether the next step can do more for a request than decode a token: a prompt is to be computed or scored,
 * or the next mask or the log-probabilities are to be computed after each token. */
static bool needs_each_token(const struct request *request)
{
    return request->fed < request->known || request_feed_end(request) != request->known ||
           request->pool.width || request->mask || request->has_logprobs;
}

uint32_t scheduler_tokens_at_once(struct salvo_scheduler *scheduler)
{
    const double most_ns = 2e6; /* until the first of the ids is known */
    uint32_t decodes = 0;
    pthread_mutex_lock(&scheduler->mutex);
    bool is_free = scheduler->is_asynchronous && !scheduler->first_waiting && !scheduler->first_call;
    pthread_mutex_unlock(&scheduler->mutex);
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        const struct request *request = scheduler->running[i];
        decodes += request && !request->is_over;
        is_free &= !request || request->is_over || !needs_each_token(request);
    }
    const double rest = prompt_pace_rest(&scheduler->pace, decodes ? decodes : 1);
    return is_free && rest > 0 && rest * MOST_DECODES <= most_ns ? MOST_DECODES : 1;
}

enum salvo_status scheduler_measure(struct salvo_scheduler *scheduler)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = scheduler->engine;
    struct salvo_session *session = scheduler->sessions[0];
    const uint32_t chunk =
        engine->backend->chunk ? engine->backend->chunk(engine->executor) : engine->options.batch;
    const uint32_t context = engine->options.context, most = chunk < context ? chunk : context,
                   measured = most < MEASURED_TOKENS ? most : MEASURED_TOKENS,
                   few = measured < LEAST_TOKENS_GPU ? measured : LEAST_TOKENS_GPU;
    int32_t *ids = NULL;
    double decode_ns, few_ns, chunk_ns;
    TRY(NEW(&ids, measured));
    TRY(time_chunk(session, ids, 1, &decode_ns)); /* warms up */
    TRY(time_chunk(session, ids, 1, &decode_ns));
    TRY(time_chunk(session, ids, few, &few_ns));
    TRY(time_chunk(session, ids, measured, &chunk_ns));
    TRY(salvo_session_rollback(session, 0));
    /* A token costs what it adds to a few; all of a step, if there are no more. */
    const double added_ns = measured > few && chunk_ns > few_ns ? (chunk_ns - few_ns) / (measured - few)
                                                                : chunk_ns / measured,
                 least_ns = few_ns - few * added_ns;
    prompt_pace_open(&scheduler->pace, (double)scheduler->options.latency_us * 1000,
        scheduler->is_asynchronous ? LEAST_TOKENS_GPU : LEAST_TOKENS, most, decode_ns,
        scheduler->is_asynchronous && least_ns > 0 ? least_ns : 0, added_ns);
    scheduler->counters.step_tokens = prompt_pace_limit(&scheduler->pace, 1);
cleanup:
    memory_free(ids);
    return status;
}
