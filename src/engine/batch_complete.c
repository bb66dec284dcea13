#include "engine/batch_complete.h"

#include "engine/engine.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum salvo_status batch_no_id_at(uint32_t position)
{
    return fail(SALVO_ERROR_NUMERIC,
        "no token can be chosen at position %" PRIu32 ": every logit is NaN or -infinity", position);
}

void batch_record_failure(struct batch_run *run, enum salvo_status status)
{
    run->result.status = status;
    snprintf(run->message, sizeof run->message, "%s", salvo_error());
    run->result.message = run->message;
}

void batch_mark_stale(struct salvo_session *session)
{
    if (!session->engine->has_recurrent_state || session->batch.is_stale)
        return;
    session->batch.is_stale = true;
    session->engine->batch.stale_count++;
}

static bool is_stop_id(const struct batch_run *run, int32_t id)
{
    for (uint32_t i = 0; i < run->stop_count; i++) {
        if (run->stop_ids[i] == id)
            return true;
    }
    return false;
}

static enum salvo_status copy_logits(const struct salvo_engine *engine, const struct batch_run *run)
{
    if (!run->logits)
        return SALVO_OK;
    const float *logits = engine->backend->logits(engine->executor, run->logits_row);
    if (!logits)
        return SALVO_ERROR_DEVICE; /* the backend has set the message */
    memcpy(run->logits, logits, engine->program->vocabulary * sizeof *logits);
    return SALVO_OK;
}

static enum salvo_status copy_hidden(const struct salvo_engine *engine, const struct batch_run *run)
{
    if (!run->hidden)
        return SALVO_OK;
    const enum salvo_status status =
        engine->backend->hidden(engine->executor, run->first_row, run->count, run->hidden);
    const size_t width = engine->last_norm.width;
    for (uint32_t i = 0; status == SALVO_OK && i < run->count; i++)
        last_norm_apply(&engine->last_norm, run->hidden + i * width);
    return status;
}

static void copy_logprobs(const struct salvo_engine *engine, const struct batch_run *run)
{
    if (!run->logprobs)
        return;
    const struct sampling_logprob *from = engine->backend->logprobs(engine->executor, run->logits_row);
    for (uint32_t i = 0; i <= run->top_count; i++) {
        run->logprobs[i] = from[i].logprob;
        if (i)
            run->top_ids[i - 1] = from[i].id;
    }
}

/* The ids that the device has chosen for a run, from that after its first `count` positions on. */
static const int32_t *ids_of(const struct batch_run *run)
{
    const struct salvo_engine *engine = run->session->engine;
    return engine->backend->tokens(engine->executor, run->session->slot) + run->first + run->count;
}

/* The number of ids up to the first stop id; the device may not know all stop ids. */
static uint32_t count_ids(const struct batch_run *run, const struct run_result *left, bool *out_stops)
{
    *out_stops = false;
    for (uint32_t i = 0; i < left->sampled; i++) {
        *out_stops = is_stop_id(run, ids_of(run)[i]);
        if (*out_stops)
            return i + 1;
    }
    return left->sampled;
}

/* Appends the tokens of a run to its session, and the `count` ids chosen after them to the result. */
static void accept_results(const struct batch_step *step, struct batch_run *run, uint32_t count, bool stops)
{
    struct salvo_session *session = run->session;
    const int32_t *ids = ids_of(run);
    const uint32_t end = run->first + run->count + (count ? count - 1 : 0);
    if (run->source == SOURCE_LAST && !run->only_chooses)
        session->tokens[run->first] = session->pending;
    for (uint32_t i = 0; i + 1 < count; i++)
        session->tokens[run->first + run->count + i] = ids[i];
    if (run->chosen_ids && count)
        memcpy(run->chosen_ids, ids, count * sizeof *ids);
    run->result.tokens = end - session->position;
    session->position = session->computed = end;
    session->pending = count ? ids[count - 1] : -1;
    session->logits_step = count && !step->repeats ? step->step : 0;
    session->logits_row = run->logits_row;
    session->batch.stopped = stops;
    run->result.id = session->pending;
    run->result.id_count = count;
    run->result.ended = stops;
    if (!run->only_chooses)
        session_publish_full_pages(session, run->first);
}

/* Whether the device or, where it does not know all stop ids, the engine ends the session before this run. */
static bool does_nothing(const struct batch_run *run, const struct run_result *left)
{
    return (run->decodes && run->follows && run->session->batch.stopped) ||
           (run->samples && left->sampled == 0);
}

enum salvo_status batch_not_computed(enum salvo_status status)
{
    return fail(status, "not computed: an earlier run of the session failed or was cancelled");
}

static enum salvo_status no_id(const struct batch_run *run, uint32_t position)
{
    if (!run->mask)
        return batch_no_id_at(position);
    return fail(SALVO_ERROR_NUMERIC,
        "no token can be chosen at position %" PRIu32 ": the mask allows none whose logit is a number",
        position);
}

/* Accepts the results of a run, whose step ended with `status`, or marks the session as failed or stale. */
static void finish_run(
    struct batch_step *step, uint32_t index, enum salvo_status status, const struct run_result *left)
{
    struct batch_run *run = &step->runs[index];
    struct salvo_session *session = run->session;
    const bool cancelled =
        __atomic_exchange_n(&step->handles[index], 0, __ATOMIC_SEQ_CST) & batch_cancelled_bit;
    bool stops;
    const uint32_t ids = count_ids(run, left, &stops);
    session->batch.flying--;
    if (status == SALVO_OK && session->batch.failed != SALVO_OK)
        status = batch_not_computed(session->batch.failed);
    else if (status == SALVO_OK && left->failed && !stops)
        status = no_id(run, left->failed_position);
    else if (status == SALVO_OK && cancelled)
        status = fail(SALVO_ERROR_CANCELLED, "cancelled after %" PRIu32 " tokens", session->position);
    if (status != SALVO_OK) {
        if (left->failed && ids && session->batch.failed == SALVO_OK && !does_nothing(run, left))
            accept_results(step, run, ids, false); /* the tokens before the failure */
        else if (!left->failed && !run->only_chooses)
            batch_mark_stale(session);
        session->batch.failed = status;
        batch_record_failure(run, status);
    } else if (does_nothing(run, left)) {
        if ((left->sampled && !run->only_chooses) || run->holds)
            batch_mark_stale(session);
    } else {
        accept_results(step, run, ids, stops);
        if (ids < left->sampled || left->failed)
            batch_mark_stale(session); /* the device has continued behind a stop id */
        copy_logprobs(session->engine, run);
        if (copy_logits(session->engine, run) != SALVO_OK || copy_hidden(session->engine, run) != SALVO_OK)
            batch_record_failure(run, SALVO_ERROR_DEVICE);
    }
    if (!session->batch.flying && !session->batch.is_planned)
        session_trim_pages(session);
    run->result.position = session->position;
}

/* Completes the oldest step in flight. */
void batch_complete_next(struct salvo_engine *engine)
{
    struct batch *batch = &engine->batch;
    struct batch_step *step = &batch->steps[++batch->completed % SALVO_OPEN_STEPS];
    const struct run_result *left = engine->results;
    if (!step->in_flight)
        return;
    step->in_flight = false;
    enum salvo_status status = engine->backend->wait(engine->executor, step->device_ticket, engine->results);
    if (status != SALVO_OK)
        memset(engine->results, 0, engine->options.slots * sizeof *engine->results);
    for (uint32_t i = 0; i < step->run_count; i++) {
        if (step->runs[i].count)
            finish_run(step, i, status, left++);
    }
}

void batch_complete_to(struct salvo_engine *engine, uint64_t ticket)
{
    while (engine->batch.completed < ticket)
        batch_complete_next(engine);
}

void batch_complete(struct salvo_engine *engine)
{
    batch_complete_to(engine, engine->batch.last_ticket);
}
