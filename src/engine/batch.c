#include "engine/batch.h"

#include "base/memory.h"
#include "engine/batch_complete.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static_assert((int)MAX_STOP_IDS == (int)SALVO_STOP_IDS, "the public limit is that of a step");
static_assert((int)MAX_TOP_LOGPROBS == (int)SALVO_TOP_LOGPROBS, "the public limit is that of a step");

enum salvo_status batch_open(struct salvo_engine *engine)
{
    enum salvo_status status = SALVO_OK;
    struct batch *batch = &engine->batch;
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++) {
        TRY(NEW(&batch->steps[i].runs, engine->options.slots));
        TRY(NEW(&batch->steps[i].handles, engine->options.slots));
    }
    TRY(NEW(&batch->runs, engine->options.slots));
cleanup:
    return status;
}

void batch_close(struct salvo_engine *engine)
{
    struct batch *batch = &engine->batch;
    for (; batch->completed < batch->last_ticket; batch->completed++) {
        const struct batch_step *step = &batch->steps[(batch->completed + 1) % SALVO_OPEN_STEPS];
        if (step->in_flight)
            (void)engine->backend->wait(engine->executor, step->device_ticket, engine->results);
    }
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++) {
        memory_free(batch->steps[i].runs);
        memory_free(batch->steps[i].handles);
    }
    memory_free(batch->runs);
}

/* ---- Recurrent state that a run without effect has changed ---- */

static enum salvo_status restore_stale(struct salvo_session *session)
{
    if (!session->batch.is_stale)
        return SALVO_OK;
    session->batch.is_stale = false;
    session->engine->batch.stale_count--;
    const uint32_t computed = session->computed++; /* so that the state is restored */
    return snapshots_go_back(session, computed);
}

/* ---- Completing ---- */

enum salvo_status batch_settle(struct salvo_engine *engine)
{
    enum salvo_status status = SALVO_OK;
    batch_complete(engine);
    engine->batch.held_step = 0; /* sessions may change without a step */
    for (uint32_t slot = 0; engine->batch.stale_count && slot < engine->options.slots; slot++)
        TRY(restore_stale(&engine->sessions[slot]));
cleanup:
    return status;
}

/* ---- Planning ---- */

/* `number` counts from 1 since engine->batch.checks was raised. */
static enum salvo_status check_session(
    const struct salvo_engine *engine, struct salvo_session *session, size_t number)
{
    if (!session)
        return fail(SALVO_ERROR_ARGUMENT, "session %zu is NULL", number);
    if (session->engine != engine)
        return fail(SALVO_ERROR_ARGUMENT, "sessions of different engines cannot share a step");
    if (session->batch.checked == engine->batch.checks)
        return fail(SALVO_ERROR_ARGUMENT, "session %zu was given twice", number);
    session->batch.checked = engine->batch.checks;
    return SALVO_OK;
}

enum salvo_status batch_check_sessions(
    struct salvo_engine *engine, struct salvo_session *const *sessions, size_t count)
{
    enum salvo_status status = SALVO_OK;
    engine->batch.checks++;
    for (size_t i = 0; i < count; i++)
        TRY(check_session(engine, sessions[i], i + 1));
cleanup:
    return status;
}

/* Parts of a run that not every backend has. */
static enum salvo_status check_extras(
    const struct salvo_engine *engine, const struct salvo_run *run, size_t number)
{
    if (run->logprobs && !engine->backend->logprobs)
        return fail(SALVO_ERROR_UNSUPPORTED, "run %zu: backend %s does not compute log-probabilities", number,
            engine->backend->name);
    if (run->top_count > MAX_TOP_LOGPROBS)
        return fail(SALVO_ERROR_ARGUMENT, "run %zu: the %u most likely ids; at most %d are possible", number,
            run->top_count, MAX_TOP_LOGPROBS);
    if (run->top_count && (!run->logprobs || !run->top_ids))
        return fail(SALVO_ERROR_ARGUMENT, "run %zu: the lists for the %u most likely ids are NULL", number,
            run->top_count);
    if (run->mask_number && !masks_find(&engine->masks, run->mask_number))
        return fail(SALVO_ERROR_ARGUMENT, "run %zu: mask %u is not resident", number, run->mask_number);
    if (run->mask_number && run->mask)
        return fail(SALVO_ERROR_ARGUMENT, "run %zu has a mask, and names the resident mask %u as well",
            number, run->mask_number);
    return SALVO_OK;
}

/* `repeats`: a run of the step has several tokens. */
static enum salvo_status check_tokens(const struct salvo_run *run, size_t number, bool repeats)
{
    if (repeats && run->count)
        return fail(SALVO_ERROR_ARGUMENT,
            "run %zu has ids in a step with runs of several tokens, where every run must decode", number);
    if (repeats && (run->logits || run->logprobs || run->hidden)) {
        return fail(SALVO_ERROR_ARGUMENT,
            "run %zu has logits, log-probabilities or hidden rows in a step with runs of several tokens",
            number);
    }
    if (run->tokens > SALVO_RUN_TOKENS)
        return fail(SALVO_ERROR_ARGUMENT, "run %zu: %u tokens; at most %d are possible", number, run->tokens,
            SALVO_RUN_TOKENS);
    if (run->tokens > 1 && !run->chosen_ids)
        return fail(SALVO_ERROR_ARGUMENT, "run %zu of %u tokens: the list for their ids is NULL", number,
            run->tokens);
    return SALVO_OK;
}

static enum salvo_status check_want(const struct salvo_run *run, size_t number)
{
    const bool has_choice =
        run->logits || run->logprobs || run->mask || run->mask_number || run->stop_id_count;
    if (run->want > SALVO_WANT_LATER)
        return fail(
            SALVO_ERROR_ARGUMENT, "run %zu: `want` is %u; this value is not known", number, run->want);
    if (run->want == SALVO_WANT_NOTHING && (run->count == 0 || has_choice)) {
        return fail(SALVO_ERROR_ARGUMENT,
            "run %zu wants nothing: it must have ids, and none of logits, log-probabilities, mask and stop "
            "ids",
            number);
    }
    if (run->want == SALVO_WANT_LATER && (run->count > 1 || has_choice || run->hidden || run->tokens > 1)) {
        return fail(SALVO_ERROR_ARGUMENT,
            "run %zu leaves the choice to the next: it must have one token, and none of logits, "
            "log-probabilities, mask, stop ids and hidden rows",
            number);
    }
    return SALVO_OK;
}

static enum salvo_status check_run(
    const struct salvo_engine *engine, const struct salvo_run *run, size_t number, uint32_t *rows)
{
    enum salvo_status status = SALVO_OK;
    TRY(check_session(engine, run->session, number));
    TRY(check_want(run, number));
    TRY(check_extras(engine, run, number));
    if (run->handle & batch_cancelled_bit)
        TRY(fail(
            SALVO_ERROR_ARGUMENT, "run %zu: a handle of %" PRIu64 " is above 2^63 - 1", number, run->handle));
    if (run->count && !run->ids)
        TRY(fail(SALVO_ERROR_ARGUMENT, "run %zu: the list of %zu tokens is NULL", number, run->count));
    if (run->stop_id_count > MAX_STOP_IDS)
        TRY(fail(SALVO_ERROR_ARGUMENT, "run %zu has %u stop ids; at most %d are possible", number,
            run->stop_id_count, MAX_STOP_IDS));
    if (run->stop_id_count && !run->stop_ids)
        TRY(fail(
            SALVO_ERROR_ARGUMENT, "run %zu: the list of %u stop ids is NULL", number, run->stop_id_count));
    const size_t count = run->count ? run->count : 1;
    if (count > engine->options.batch - *rows) {
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "run %zu: its %zu tokens and the %u before them exceed the engine's batch of %u", number, count,
            *rows, engine->options.batch));
    }
    *rows += (uint32_t)count;
cleanup:
    return status;
}

static enum salvo_status check_runs(struct salvo_engine *engine, const struct salvo_run *runs, size_t count)
{
    enum salvo_status status = SALVO_OK;
    uint32_t rows = 0;
    bool repeats = false;
    engine->batch.checks++;
    if (count == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a step needs at least one run"));
    for (size_t i = 0; i < count; i++)
        repeats |= runs[i].tokens > 1;
    for (size_t i = 0; i < count; i++) {
        TRY(check_run(engine, &runs[i], i + 1, &rows));
        TRY(check_tokens(&runs[i], i + 1, repeats));
    }
cleanup:
    return status;
}

/* The session has no run in flight: all its tokens are known. Computes, in separate steps, the tokens that
 * are not in the device's state, so that the run has exactly the given tokens, or one to decode. */
static enum salvo_status plan_at_rest(const struct salvo_run *given, struct batch_run *run)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_session *session = run->session;
    bool needs_last = false;
    const bool is_current = session->computed == session->position && !session->batch.is_stale &&
                            (!run->decodes || session->pending >= 0) &&
                            !snapshots_are_due(session, session->computed) &&
                            !session_must_copy_page(session, session->computed);
    if (!is_current) /* states are saved and restored while the device is idle */
        batch_complete(session->engine);
    TRY(restore_stale(session));
    if (!run->decodes)
        TRY(session_stage(session, session->position, given->ids, given->count));
    else
        TRY(session_check_next(session, &needs_last));
    TRY(needs_last ? session_prepare_last(session) : session_catch_up(session));
    if (run->decodes && !needs_last)
        session->tokens[session->position] = session->pending;
    TRY(snapshots_take_if_due(session));
    run->source = SOURCE_IDS;
    run->first = session->computed;
    run->count = run->decodes ? 1 : (uint32_t)given->count;
cleanup:
    return status;
}

/* Behind a run in flight, whose chosen id is not known yet. */
static enum salvo_status plan_behind(const struct salvo_run *given, struct batch_run *run)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_session *session = run->session;
    const uint32_t context = session->engine->options.context, planned = session->batch.planned;
    if (!run->decodes) {
        TRY(session_stage(session, planned, given->ids, given->count));
    } else if (planned == context) {
        TRY(fail(SALVO_ERROR_CONTEXT, "the context of %" PRIu32 " tokens is full", context));
    }
    run->source = run->decodes ? SOURCE_LAST : SOURCE_IDS;
    run->first = planned;
    run->count = run->decodes ? 1 : (uint32_t)given->count;
cleanup:
    return status;
}

/* The run chooses from logits that the last step has left. */
static void plan_choice(struct batch_run *run)
{
    run->source = SOURCE_LAST;
    run->first = run->session->batch.held_end - 1;
    run->count = run->tokens = 1;
}

/* Takes pages for all tokens of the run, or for one of them where there are not enough. */
static enum salvo_status take_pages(const struct salvo_run *given, struct batch_run *run)
{
    struct salvo_session *session = run->session;
    const uint32_t room = session->engine->options.context - run->first;
    run->tokens = given->tokens > 1 ? given->tokens : 1;
    run->tokens = run->decodes && run->tokens > room ? room : run->tokens;
    enum salvo_status status =
        session_take_pages(session, run->first, run->first + run->count + run->tokens - 1);
    if (status == SALVO_ERROR_MEMORY && run->tokens > 1) {
        run->tokens = 1;
        status = session_take_pages(session, run->first, run->first + run->count);
    }
    return status;
}

/* Decides what the run computes. A count of 0: nothing, because the session has ended. */
static enum salvo_status plan_run(const struct salvo_run *given, struct batch_run *run)
{
    struct salvo_session *session = run->session;
    struct batch_session *state = &session->batch;
    /* A prompt begins at the session's end, which must be known, and where the backend reports the id that an
     * earlier run chooses. Behind a run that chooses no id, a run that decodes chooses one. */
    while (state->flying && !run->only_chooses &&
           ((!run->decodes && (state->may_end_early || state->chooses)) ||
               (run->decodes && !state->chooses) || snapshots_are_due(session, state->planned)))
        batch_complete_next(session->engine);
    if (!state->flying)
        state->may_stop = state->may_end_early = false;
    if (!run->follows) {
        state->failed = state->refused = SALVO_OK;
        state->stopped = false;
    }
    if (state->failed != SALVO_OK || state->refused != SALVO_OK)
        return batch_not_computed(state->failed != SALVO_OK ? state->failed : state->refused);
    if (run->decodes && state->stopped && !state->flying)
        return SALVO_OK;
    enum salvo_status status = SALVO_OK;
    if (run->only_chooses)
        plan_choice(run);
    else
        status = state->flying ? plan_behind(given, run) : plan_at_rest(given, run);
    if (status == SALVO_OK && !run->only_chooses)
        status = take_pages(given, run);
    state->is_planned = status == SALVO_OK;
    return status;
}

/* ---- Submitting ---- */

/* The bits of the run's stop ids in the list of the step, to which new ones are added while there is room.
 * The engine finds the others itself when the run is complete. */
static uint32_t mask_stop_ids(const struct batch_run *run, int32_t *stop_ids, uint32_t *stop_count)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < run->stop_count; i++) {
        uint32_t place = 0;
        while (place < *stop_count && stop_ids[place] != run->stop_ids[i])
            place++;
        if (place == MAX_STOP_IDS)
            continue;
        stop_ids[place] = run->stop_ids[i];
        *stop_count += place == *stop_count;
        mask |= UINT32_C(1) << place;
    }
    return mask;
}

static uint32_t most_in_flight(const struct salvo_engine *engine)
{
    const uint32_t most = engine->backend->info(engine->executor).in_flight;
    return most ? most : 1;
}

/* Hands the live runs over to the device, if there are any. */
static enum salvo_status submit(struct salvo_engine *engine, struct batch_step *step)
{
    int32_t stop_ids[MAX_STOP_IDS];
    struct step device_step = {.runs = engine->runs, .ids = engine->ids, .stop_ids = stop_ids};
    uint32_t outputs = 0;
    for (uint32_t i = 0; i < step->run_count; i++) {
        struct batch_run *run = &step->runs[i];
        if (!run->count)
            continue;
        struct run *device_run = &engine->runs[device_step.run_count++];
        *device_run = session_run(run->session, run->count, device_step.token_count,
            run->samples ? LOGITS_LAST
            : run->holds ? LOGITS_ALL
                         : LOGITS_NONE);
        device_run->first = run->first;
        device_run->source = run->source;
        device_run->sampler.mask = run->mask;
        device_run->sampler.mask_number = run->mask_number;
        device_run->has_logprobs = run->logprobs != NULL;
        device_run->top_count = run->top_count;
        device_run->stop_mask = mask_stop_ids(run, stop_ids, &device_step.stop_count);
        device_run->limit = run->first + run->count + run->tokens - 1;
        device_step.repeat = device_step.repeat > run->tokens ? device_step.repeat : run->tokens;
        memcpy(engine->ids + device_step.token_count, run->session->tokens + run->first,
            run->count * sizeof *engine->ids);
        run->first_row = device_step.token_count;
        device_step.keeps_hidden |= run->hidden != NULL;
        run->logits_row = run->only_chooses ? run->session->batch.held_row : outputs;
        device_run->logits_row = run->logits_row;
        device_step.samples_only |= run->only_chooses;
        outputs += run->samples || run->holds;
        device_step.token_count += run->count;
    }
    if (device_step.run_count == 0)
        return SALVO_OK;
    const uint64_t allocations = memory_count();
    engine->waits += engine->batch.completed + 1 == step->ticket;
    step->step = ++engine->steps;
    const enum salvo_status status =
        engine->backend->submit(engine->executor, &device_step, &step->device_ticket);
    step->in_flight = status == SALVO_OK;
    step->repeats = device_step.repeat > 1;
    engine->allocations += memory_count() - allocations;
    return status;
}

static void begin_run(
    const struct salvo_run *given, bool only_chooses, struct batch_step *step, uint32_t index)
{
    struct batch_run *run = &step->runs[index];
    *run = (struct batch_run){
        .session = given->session,
        .decodes = given->count == 0,
        .samples = given->want == SALVO_WANT_ID,
        .holds = given->want == SALVO_WANT_LATER,
        .only_chooses = only_chooses,
        .follows = given->session->batch.open > 0,
        .mask =
            given->mask_number ? masks_find(&given->session->engine->masks, given->mask_number) : given->mask,
        .mask_number = given->mask_number,
        .logits = given->logits,
        .logprobs = given->logprobs,
        .top_ids = given->top_ids,
        .top_count = given->top_count,
        .hidden = given->hidden,
        .chosen_ids = given->chosen_ids,
        .stop_count = given->stop_id_count,
        .result = {.id = -1, .message = ""},
    };
    if (run->stop_count)
        memcpy(run->stop_ids, given->stop_ids, run->stop_count * sizeof *run->stop_ids);
    given->session->batch.open++;
    const enum salvo_status status = plan_run(given, run);
    if (status != SALVO_OK) {
        run->count = 0;
        given->session->batch.refused = status;
        batch_record_failure(run, status);
    }
    __atomic_store_n(&step->handles[index], run->count ? given->handle : 0, __ATOMIC_SEQ_CST);
    run->result.position = given->session->position;
}

/* The run is in flight from now on. */
static void take_off(const struct batch_run *run)
{
    struct batch_session *state = &run->session->batch;
    struct salvo_engine *engine = run->session->engine;
    if (run->holds) {
        engine->batch.held_step = state->held_step = engine->steps;
        state->held_row = run->logits_row;
        state->held_end = run->first + run->count;
    }
    state->flying++;
    state->is_planned = false;
    state->planned = run->first + run->count + run->tokens - 1;
    state->chooses = run->samples;
    state->may_end_early =
        (run->decodes && (state->may_end_early || state->may_stop)) || (run->tokens > 1 && run->stop_count);
    state->may_stop = run->stop_count || (run->decodes && state->may_stop);
}

/* The device has not taken the step. Earlier runs of the session go on. */
static void refuse_run(struct batch_step *step, uint32_t index, enum salvo_status status)
{
    struct batch_run *run = &step->runs[index];
    __atomic_store_n(&step->handles[index], 0, __ATOMIC_SEQ_CST);
    batch_mark_stale(run->session); /* it may have begun */
    run->count = 0;
    run->session->batch.refused = status;
    run->session->batch.is_planned = false;
    if (!run->session->batch.flying)
        session_trim_pages(run->session);
    batch_record_failure(run, status);
}

/* Whether the last step has left logits for each of the runs, which need nothing else. */
static bool can_choose_only(const struct salvo_engine *engine, const struct salvo_run *runs, size_t count)
{
    const struct batch *batch = &engine->batch;
    for (size_t i = 0; i < count; i++) {
        const struct batch_session *state = &runs[i].session->batch;
        const uint32_t end = state->flying ? state->planned : runs[i].session->position;
        if (runs[i].count || runs[i].want != SALVO_WANT_ID || runs[i].tokens > 1 || runs[i].hidden ||
            !batch->held_step || batch->held_step != engine->steps || state->held_step != batch->held_step ||
            state->held_end != end)
            return false;
    }
    return true;
}

enum salvo_status batch_submit(
    struct salvo_engine *engine, const struct salvo_run *runs, size_t count, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    struct batch *batch = &engine->batch;
    struct batch_step *step = &batch->steps[(batch->last_ticket + 1) % SALVO_OPEN_STEPS];
    *out_ticket = 0;
    if (step->ticket) {
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "the results of step %" PRIu64 " have not been waited for: at most %d steps can be open",
            step->ticket, SALVO_OPEN_STEPS));
    }
    TRY(check_runs(engine, runs, count));
    for (uint64_t ticket = batch->last_ticket; ticket > batch->completed; ticket--) {
        if (batch->steps[ticket % SALVO_OPEN_STEPS].wants_rows)
            batch_complete_to(engine, ticket);
    }
    while (batch->last_ticket - batch->completed >= most_in_flight(engine))
        batch_complete_next(engine);
    const bool only_chooses = can_choose_only(engine, runs, count);
    step->run_count = (uint32_t)count;
    step->wants_rows = step->in_flight = false;
    for (uint32_t i = 0; i < count; i++) {
        begin_run(&runs[i], only_chooses, step, i);
        step->wants_rows |= runs[i].logits || runs[i].logprobs || runs[i].hidden;
    }
    *out_ticket = step->ticket = ++batch->last_ticket;
    const enum salvo_status submitted = submit(engine, step);
    for (uint32_t i = 0; i < count; i++) {
        if (submitted == SALVO_OK && step->runs[i].count)
            take_off(&step->runs[i]);
        else if (step->runs[i].count)
            refuse_run(step, i, submitted);
    }
    if (most_in_flight(engine) == 1)
        batch_complete_to(engine, step->ticket);
cleanup:
    return status;
}

/* ---- Results ---- */

enum salvo_status batch_wait(
    struct salvo_engine *engine, uint64_t ticket, size_t count, const struct batch_step **out)
{
    const struct batch_step *step = &engine->batch.steps[ticket % SALVO_OPEN_STEPS];
    *out = NULL;
    if (ticket == 0 || step->ticket != ticket)
        return fail(SALVO_ERROR_ARGUMENT, "step %" PRIu64 " is not open", ticket);
    if (count != step->run_count)
        return fail(SALVO_ERROR_ARGUMENT, "step %" PRIu64 " has %" PRIu32 " runs, not %zu", ticket,
            step->run_count, count);
    batch_complete_to(engine, ticket);
    *out = step;
    return SALVO_OK;
}

void batch_release(struct salvo_engine *engine, uint64_t ticket)
{
    struct batch_step *step = &engine->batch.steps[ticket % SALVO_OPEN_STEPS];
    for (uint32_t i = 0; i < step->run_count; i++) {
        if (step->runs[i].session)
            step->runs[i].session->batch.open--;
    }
    step->ticket = 0;
}

void batch_forget(struct salvo_session *session)
{
    struct batch *batch = &session->engine->batch;
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++) {
        for (uint32_t j = 0; batch->steps[i].ticket && j < batch->steps[i].run_count; j++) {
            if (batch->steps[i].runs[j].session == session)
                batch->steps[i].runs[j].session = NULL;
        }
    }
    batch->stale_count -= session->batch.is_stale;
    session->batch = (struct batch_session){0};
}

/* If the handle was replaced meanwhile, it belongs to another run: nothing happens. */
void batch_cancel(struct salvo_engine *engine, uint64_t handle)
{
    for (size_t i = 0; handle && i < SALVO_OPEN_STEPS; i++) {
        for (uint32_t j = 0; j < engine->options.slots; j++) {
            uint64_t expected = handle;
            (void)__atomic_compare_exchange_n(&engine->batch.steps[i].handles[j], &expected,
                handle | batch_cancelled_bit, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        }
    }
}
