/* Sessions: their tokens, and the steps that compute them. */
#include "engine/session.h"
#include "arch/arch.h"
#include "base/memory.h"
#include "engine/batch_complete.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

/* ---- Opening and settings ---- */

enum salvo_status session_open(struct salvo_engine *engine, struct salvo_session **out)
{
    *out = NULL;
    for (uint32_t slot = 0; slot < engine->options.slots; slot++) {
        struct salvo_session *session = &engine->sessions[slot];
        if (session->is_open)
            continue;
        session->is_open = true;
        session->position = session->computed = 0;
        session->pending = -1;
        session->known = 0;
        snapshots_forget(session);
        session->logits_step = 0;
        (void)session_take_cancel(session);
        memory_free(session->bias);
        session->bias = NULL;
        const struct salvo_sampler sampler = model_sampler(engine->model);
        enum salvo_status status = session_set_sampler(session, &sampler);
        if (status == SALVO_OK)
            *out = session;
        return status;
    }
    return fail(SALVO_ERROR_ARGUMENT, "all %u sessions of the engine are open", engine->options.slots);
}

/* 32 bits, short enough to type again. */
static enum salvo_status random_seed(uint64_t *out)
{
    uint32_t seed;
    if (getentropy(&seed, sizeof seed) != 0)
        return fail(SALVO_ERROR_IO, "no random seed: %s", strerror(errno));
    *out = seed;
    return SALVO_OK;
}

enum salvo_status session_set_sampler(struct salvo_session *session, const struct salvo_sampler *sampler)
{
    enum salvo_status status = SALVO_OK;
    uint64_t seed = sampler->seed;
    /* Zero switches these off, like 1. */
    const float top_p = sampler->top_p == 0 ? 1 : sampler->top_p,
                repeat_penalty = sampler->repeat_penalty == 0 ? 1 : sampler->repeat_penalty;
    const struct {
        const char *name;
        float value, lowest, highest;
    } ranges[] = {
        {"temperature", sampler->temperature, 0, FLT_MAX},
        {"top-p", top_p, 0, 1},
        {"min-p", sampler->min_p, 0, 1},
        {"repeat penalty", repeat_penalty, 1e-6f, 1e6f},
        {"presence penalty", sampler->presence_penalty, -1e6f, 1e6f},
        {"frequency penalty", sampler->frequency_penalty, -1e6f, 1e6f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        float value = ranges[i].value;
        if (!(value >= ranges[i].lowest && value <= ranges[i].highest))
            TRY(fail(SALVO_ERROR_ARGUMENT, "%s %g is invalid: it must be between %g and %g", ranges[i].name,
                (double)value, (double)ranges[i].lowest, (double)ranges[i].highest));
    }
    if (seed == SALVO_SEED_RANDOM)
        TRY(random_seed(&seed));
    session->sampler = (struct sampler_settings){
        .temperature = sampler->temperature,
        .top_k = sampler->top_k,
        .top_p = top_p,
        .min_p = sampler->min_p,
        .repeat_penalty = repeat_penalty,
        .presence_penalty = sampler->presence_penalty,
        .frequency_penalty = sampler->frequency_penalty,
        .repeat_last_n = sampler->repeat_last_n,
        .seed = seed,
        .bias = session->bias,
        .bias_version = session->sampler.bias_version,
    };
cleanup:
    return status;
}

struct salvo_sampler session_get_sampler(const struct salvo_session *session)
{
    const struct sampler_settings *settings = &session->sampler;
    return (struct salvo_sampler){
        .size = sizeof(struct salvo_sampler),
        .seed = settings->seed,
        .temperature = settings->temperature,
        .top_k = settings->top_k,
        .top_p = settings->top_p,
        .min_p = settings->min_p,
        .repeat_penalty = settings->repeat_penalty,
        .presence_penalty = settings->presence_penalty,
        .frequency_penalty = settings->frequency_penalty,
        .repeat_last_n = settings->repeat_last_n,
    };
}

static enum salvo_status check_id(const struct salvo_session *session, int32_t id)
{
    uint32_t vocabulary = session->engine->program->vocabulary;
    if (id < 0 || (uint32_t)id >= vocabulary)
        return fail(SALVO_ERROR_ARGUMENT, "token id %" PRId32 " is outside the vocabulary of %" PRIu32, id,
            vocabulary);
    return SALVO_OK;
}

enum salvo_status session_set_bias(struct salvo_session *session, int32_t id, float bias)
{
    enum salvo_status status = SALVO_OK;
    TRY(check_id(session, id));
    if (isnan(bias) || bias == INFINITY)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the bias of token %" PRId32 " cannot be %g", id, (double)bias));
    if (!session->bias)
        TRY(NEW(&session->bias, session->engine->program->vocabulary));
    session->bias[id] = bias;
    session->sampler.bias = session->bias;
    session->sampler.bias_version = ++session->engine->bias_versions;
cleanup:
    return status;
}

/* With any interleaving of threads, `stop` is set in the end if `cancelled` is. */
void session_stop_device(struct salvo_session *session, bool stop)
{
    __atomic_store_n(&session->stop, stop, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&session->cancelled, __ATOMIC_SEQ_CST))
        __atomic_store_n(&session->stop, true, __ATOMIC_SEQ_CST);
}

void session_cancel(struct salvo_session *session)
{
    __atomic_store_n(&session->cancelled, true, __ATOMIC_SEQ_CST);
    __atomic_store_n(&session->stop, true, __ATOMIC_SEQ_CST);
}

bool session_take_cancel(struct salvo_session *session)
{
    bool was_cancelled = __atomic_exchange_n(&session->cancelled, false, __ATOMIC_SEQ_CST);
    session_stop_device(session, false);
    return was_cancelled;
}

/* ---- Steps ---- */

enum salvo_status session_cancelled(struct salvo_session *session)
{
    (void)session_take_cancel(session);
    return fail(SALVO_ERROR_CANCELLED, "cancelled after %" PRIu32 " tokens", session->position);
}

enum salvo_status session_check_cancel(struct salvo_session *session)
{
    return __atomic_load_n(&session->cancelled, __ATOMIC_RELAXED) ? session_cancelled(session) : SALVO_OK;
}

struct run session_run(
    const struct salvo_session *session, uint32_t count, uint32_t first_row, enum run_logits logits)
{
    return (struct run){
        .slot = session->slot,
        .first = session->computed,
        .count = count,
        .first_row = first_row,
        .source = SOURCE_IDS,
        .logits = logits,
        .pages = session->pages,
        .sampler = session->sampler,
        .limit = session->engine->options.context,
    };
}

/* Takes the result of run number `index` of the last step over into the session, unless the run has no id. */
static enum salvo_status accept_result(struct salvo_session *session, uint32_t index, uint32_t logits_row)
{
    struct salvo_engine *engine = session->engine;
    const struct run *run = &engine->runs[index];
    const struct run_result *result = &engine->results[index];
    if (result->failed)
        return batch_no_id_at(result->failed_position);
    session->computed = run->first + run->count;
    if (session->position < session->computed)
        session->position = session->computed;
    session->pending = -1;
    if (run->logits == LOGITS_LAST) {
        assert(result->sampled == 1);
        session->pending = engine->backend->tokens(engine->executor, session->slot)[session->computed];
        session->logits_step = engine->steps;
        session->logits_row = logits_row;
    }
    session_publish_full_pages(session, run->first);
    return SALVO_OK;
}

/* Submits `step` and waits. The results are then in engine->results. */
static enum salvo_status run_step(struct salvo_engine *engine, const struct step *step)
{
    uint64_t ticket, allocations = memory_count();
    batch_complete(engine); /* steps that a callback has submitted */
    engine->waits++;
    engine->steps++; /* invalidates the logits of earlier steps */
    enum salvo_status status = engine->backend->submit(engine->executor, step, &ticket);
    if (status == SALVO_OK)
        status = engine->backend->wait(engine->executor, ticket, engine->results);
    engine->allocations += memory_count() - allocations;
    return status;
}

/* One submission for one session: a run of its tokens, from `computed` on. */
static enum salvo_status submit_run(struct salvo_session *session, const struct run *run)
{
    struct salvo_engine *engine = session->engine;
    const uint32_t count = run->count;
    engine->runs[0] = *run;
    const struct step step = {
        .runs = engine->runs,
        .run_count = 1,
        .token_count = count,
        .ids = session->tokens + session->computed,
        .cancel = &session->stop,
    };
    enum salvo_status status = session_check_cancel(session);
    if (status == SALVO_OK)
        status = snapshots_take_if_due(session);
    if (status == SALVO_OK)
        status = session_take_pages(session, session->computed, session->computed + count);
    if (status == SALVO_OK)
        status = run_step(engine, &step);
    if (status == SALVO_OK)
        status = accept_result(session, 0, 0);
    session_trim_pages(session); /* if no result was accepted */
    return status == SALVO_ERROR_CANCELLED ? session_cancelled(session) : status;
}

static enum salvo_status run_tokens(struct salvo_session *session, uint32_t count, enum run_logits logits)
{
    const struct run run = session_run(session, count, 0, logits);
    return submit_run(session, &run);
}

enum salvo_status session_stage(struct salvo_session *session, uint32_t at, const int32_t *ids, size_t count)
{
    uint32_t context = session->engine->options.context;
    if (count > context - at) {
        return fail(SALVO_ERROR_CONTEXT,
            "%zu tokens do not fit: the context of %" PRIu32 " holds %" PRIu32 " already", count, context,
            at);
    }
    if (count && !ids)
        return fail(SALVO_ERROR_ARGUMENT, "the list of %zu tokens is NULL", count);
    for (size_t i = 0; i < count; i++) {
        enum salvo_status status = check_id(session, ids[i]);
        if (status != SALVO_OK)
            return status;
    }
    if (count)
        memmove(session->tokens + at, ids, count * sizeof *ids);
    return SALVO_OK;
}

/* Tokens of the next submission. Where states are kept at the ends of pages, it ends there. */
static uint32_t most_at_once(const struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    const uint32_t most =
        engine->backend->chunk ? engine->backend->chunk(engine->executor) : engine->options.batch;
    const uint32_t page = PAGE_POSITIONS - session->computed % PAGE_POSITIONS;
    return session_keeps_states(session) && page < most ? page : most;
}

enum salvo_status session_feed(struct salvo_session *session, const int32_t *ids, size_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(session_check_cancel(session));
    TRY(session_stage(session, session->position, ids, count));
    const uint32_t end = session->position + (uint32_t)count;
    if (count > 1)
        snapshots_want(session, end);
    while (count && session->computed < end) {
        const uint32_t left = end - session->computed, batch = most_at_once(session);
        const uint32_t chunk = count > 1      ? snapshots_divide(session, session->computed, end, batch)
                               : left < batch ? left
                                              : batch;
        TRY(run_tokens(session, chunk, chunk == left ? LOGITS_LAST : LOGITS_NONE));
    }
cleanup:
    return status;
}

enum salvo_status session_eval(
    struct salvo_session *session, const int32_t *ids, size_t count, salvo_logits_function row, void *user)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    TRY(session_check_cancel(session));
    TRY(session_stage(session, session->position, ids, count));
    uint32_t asked = session->position, end = asked + (uint32_t)count;
    while (count && session->computed < end) {
        uint32_t first = session->computed, left = end - first, rows = most_at_once(session);
        if (row && engine->options.outputs < rows)
            rows = engine->options.outputs;
        TRY(run_tokens(session, left < rows ? left : rows, row ? LOGITS_ALL : LOGITS_NONE));
        const uint64_t step = engine->steps;
        for (uint32_t position = first; row && position < session->computed; position++) {
            if (position < asked)
                continue; /* a sampled token, computed before the tokens of this call */
            if (engine->steps != step)
                TRY(fail(
                    SALVO_ERROR_ARGUMENT, "the callback of eval has used the engine: its logits are lost"));
            const float *logits = engine->backend->logits(engine->executor, position - first);
            TRY(logits ? SALVO_OK : SALVO_ERROR_DEVICE); /* the backend has set the error */
            if (!row(user, position, logits))
                goto cleanup;
        }
    }
cleanup:
    return status;
}

/* ---- The next token ---- */

enum salvo_status session_check_next(const struct salvo_session *session, bool *out_needs_step)
{
    uint32_t context = session->engine->options.context;
    *out_needs_step = false;
    if (session->position == 0)
        return fail(SALVO_ERROR_ARGUMENT, "there is nothing to continue: no token was fed");
    if (session->position == context)
        return fail(SALVO_ERROR_CONTEXT, "the context of %" PRIu32 " tokens is full", context);
    *out_needs_step = session->pending < 0;
    return SALVO_OK;
}

static enum salvo_status compute_to(struct salvo_session *session, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    while (session->computed < end) {
        uint32_t left = end - session->computed, batch = most_at_once(session);
        TRY(run_tokens(session, left < batch ? left : batch, LOGITS_NONE));
    }
cleanup:
    return status;
}

enum salvo_status session_score(struct salvo_session *session, const int32_t *ids, size_t count,
    uint32_t top_count, session_score_function score, void *user)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = session->engine;
    const uint32_t begin = session->position, end = begin + (uint32_t)count;
    TRY(session_check_cancel(session));
    TRY(session_stage(session, begin, ids, count));
    TRY(compute_to(session, begin));
    while (session->computed < end) {
        const uint32_t left = end - session->computed, most = most_at_once(session);
        uint32_t rows = most < engine->options.outputs ? most : engine->options.outputs;
        rows = rows < left ? rows : left;
        struct run run = session_run(session, rows, 0, LOGITS_ALL);
        run.has_logprobs = true;
        run.top_count = top_count;
        run.next_id = ids[session->computed + rows - begin];
        TRY(submit_run(session, &run));
        for (uint32_t i = 0; i < rows; i++) {
            const struct sampling_logprob *logprobs = engine->backend->logprobs(engine->executor, i);
            TRY(logprobs ? SALVO_OK : SALVO_ERROR_DEVICE); /* the backend has set the error */
            score(user, logprobs);
        }
    }
cleanup:
    return status;
}

/* After a rollback or an evaluation the id sampled after the last token is lost: the last token runs again,
 * with the same bits, as do the tokens since the restored snapshot. */
enum salvo_status session_prepare_last(struct salvo_session *session)
{
    const uint32_t last = session->position - 1;
    const enum salvo_status status = snapshots_go_back(session, last);
    return status == SALVO_OK ? compute_to(session, last) : status;
}

enum salvo_status session_catch_up(struct salvo_session *session)
{
    const int32_t pending = session->pending;
    const enum salvo_status status = compute_to(session, session->position);
    session->pending = pending;
    return status;
}

/* Ensures that an id is pending. */
static enum salvo_status sample(struct salvo_session *session)
{
    enum salvo_status status = SALVO_OK;
    bool needs_step;
    TRY(session_check_cancel(session));
    TRY(session_check_next(session, &needs_step));
    if (needs_step) {
        TRY(session_prepare_last(session));
        TRY(run_tokens(session, 1, LOGITS_LAST));
    }
cleanup:
    return status;
}

int32_t session_take(struct salvo_session *session)
{
    int32_t id = session->pending;
    session->tokens[session->position++] = id;
    session->pending = session->position < session->known ? session->tokens[session->position] : -1;
    return id;
}

enum salvo_status session_next(struct salvo_session *session, int32_t *out_id)
{
    enum salvo_status status = sample(session);
    *out_id = status == SALVO_OK ? session_take(session) : -1;
    return status;
}

const float *session_logits(const struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    if (session->pending < 0 || session->logits_step == 0 || session->logits_step != engine->steps ||
        engine->ahead.session)
        return NULL;
    return engine->backend->logits(engine->executor, session->logits_row);
}
