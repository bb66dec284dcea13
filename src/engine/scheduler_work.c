#include "engine/scheduler.h"

#include "base/memory.h"

#include <salvo/memory.h>
#include <stdio.h>

/* ---- The end of a request ---- */

static void end_cancelled(struct salvo_scheduler *scheduler, struct request *request)
{
    scheduler_end(scheduler, request, SALVO_ERROR_CANCELLED, SALVO_FINISH_CANCELLED, -1, "cancelled");
}

/* Takes the session from a request without runs. */
static void free_session(struct salvo_scheduler *scheduler, struct request *request)
{
    struct salvo_session *session = request->session;
    scheduler_empty_session(session);
    memory_free(session->bias);
    session->bias = NULL;
    session->sampler.bias = NULL;
    request->session = NULL;
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->running[session->slot] = NULL;
    pthread_mutex_unlock(&scheduler->mutex);
    scheduler->releases++;
}

static void release(struct salvo_scheduler *scheduler, struct request *request)
{
    if (request->session)
        free_session(scheduler, request);
    scheduler->holds_queue = false;
    pthread_mutex_lock(&scheduler->mutex);
    request->is_released = true;
    request_free_if_done(scheduler, request);
    pthread_mutex_unlock(&scheduler->mutex);
}

/* ---- Out of memory ---- */

/* The session has the number of tokens that the runs have computed. */
static void resume_starved(struct request *request)
{
    const uint32_t position = salvo_session_position(request->session);
    request->fed = position < request->known ? position : request->known;
}

/* Puts it back to the front of the queue: memory is short, or its reader is slow. */
static void put_back(struct salvo_scheduler *scheduler, struct request *request)
{
    const bool starved = request->goes_back;
    request->goes_back = request->is_starved = false;
    if (request_keep_answer(request) != SALVO_OK) {
        scheduler_end(scheduler, request, SALVO_ERROR_MEMORY, SALVO_FINISH_CANCELLED, -1, NULL);
        release(scheduler, request);
        return;
    }
    free_session(scheduler, request);
    request->fed = 0;
    request->was_put_back = true;
    scheduler->holds_queue |= starved;
    pthread_mutex_lock(&scheduler->mutex);
    request->next = scheduler->first_waiting;
    scheduler->first_waiting = request;
    if (!scheduler->last_waiting)
        scheduler->last_waiting = request;
    waiting_count(scheduler, request);
    pthread_mutex_unlock(&scheduler->mutex);
}

/* ---- Admission ---- */

static struct request *take_cancelled(struct salvo_scheduler *scheduler)
{
    pthread_mutex_lock(&scheduler->mutex);
    struct request *request = waiting_take_cancelled(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
    return request;
}

/* Gives the session of a slot to the next request; NULL: none waits, or there is no memory for it. */
static struct request *admit(struct salvo_scheduler *scheduler, uint32_t slot)
{
    pthread_mutex_lock(&scheduler->mutex);
    struct request *request = waiting_take_next(scheduler, slot);
    if (request) {
        request->session = scheduler->sessions[slot];
        request->slot = slot;
        scheduler->running[slot] = request;
    }
    pthread_mutex_unlock(&scheduler->mutex);
    return request;
}

/* Begins the session with the tokens of the prompt that the prefix cache has. */
static enum salvo_status begin_cached(struct salvo_scheduler *scheduler, struct request *request)
{
    enum salvo_status status = SALVO_OK;
    if (!scheduler->engine->prefix_cache.is_on || !request->uses_cache || request->limit == 0)
        goto cleanup;
    TRY(salvo_session_prefill_cached(request->session, request->ids, request->known, &request->fed));
    if (request->tokens) /* put back: not a part of the prompt alone */
        goto cleanup;
    request->cached_tokens = request->fed;
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.cached_tokens += request->fed;
    pthread_mutex_unlock(&scheduler->mutex);
cleanup:
    return status;
}

static enum salvo_status prepare_session(struct salvo_scheduler *scheduler, struct request *request)
{
    enum salvo_status status = SALVO_OK;
    if (!request->begun_ns)
        request->begun_ns = scheduler_now();
    request->session->sampler = request->sampler;
    for (size_t i = 0; i < request->bias_count; i++)
        TRY(session_set_bias(request->session, request->bias_ids[i], request->biases[i]));
    TRY(begin_cached(scheduler, request));
    scheduler_tell_progress(scheduler, request, request->fed);
    snapshots_want(request->session, request->known);
cleanup:
    return status;
}

static bool admit_all(struct salvo_scheduler *scheduler)
{
    struct request *request;
    bool did_something = false;
    uint32_t running = 0;
    while ((request = take_cancelled(scheduler))) {
        end_cancelled(scheduler, request);
        release(scheduler, request);
        did_something = true;
    }
    for (uint32_t i = 0; i < scheduler->slots; i++)
        running += scheduler->running[i] != NULL;
    if (scheduler->holds_queue && running)
        return did_something;
    scheduler->holds_queue = false;
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        if (scheduler->running[i] || !(request = admit(scheduler, i)))
            continue;
        did_something = true;
        const enum salvo_status status = prepare_session(scheduler, request);
        if (status != SALVO_OK)
            scheduler_end(scheduler, request, status, SALVO_FINISH_CANCELLED, -1, NULL);
    }
    return did_something;
}

/* Reads the cancels and pauses that other threads have set in requests with a session. */
static void read_flags(struct salvo_scheduler *scheduler)
{
    pthread_mutex_lock(&scheduler->mutex);
    if (scheduler->closing)
        waiting_cancel_all(scheduler);
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        struct request *request = scheduler->running[i];
        if (!request)
            continue;
        request->is_cancelled |= scheduler->closing;
        request->room = event_room(scheduler, request);
        request->is_blocked = request->is_paused || request->room <= request->choosing;
        request->must_end = request->is_cancelled;
        request->must_wait = request->is_paused;
    }
    pthread_mutex_unlock(&scheduler->mutex);
}

static bool is_wanted(struct salvo_scheduler *scheduler, uint32_t slot)
{
    pthread_mutex_lock(&scheduler->mutex);
    const bool wanted = waiting_wants(scheduler, slot);
    pthread_mutex_unlock(&scheduler->mutex);
    return wanted;
}

/* Ends, releases and puts back requests, where it is time. */
static bool tidy(struct salvo_scheduler *scheduler)
{
    bool did_something = false;
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        struct request *request = scheduler->running[i];
        if (!request)
            continue;
        if (!request->is_over && request->must_end)
            end_cancelled(scheduler, request);
        else if (!request->is_over && !request->limit && request_feed_end(request) == request->known)
            scheduler_complete(scheduler, request); /* its prompt has been scored */
        if (request->runs)
            continue;
        did_something |= request->is_over || request->goes_back;
        if (request->is_over)
            release(scheduler, request);
        else if (request->goes_back)
            put_back(scheduler, request);
        else if (request->must_wait && is_wanted(scheduler, i)) {
            put_back(scheduler, request);
            did_something = true;
        } else if (request->is_starved)
            resume_starved(request);
    }
    return did_something;
}

/* ---- Steps ---- */

static bool decodes_next(const struct salvo_scheduler *scheduler, const struct request *request)
{
    return request_may_run(scheduler, request) && request_feed_end(request) == request->known &&
           request->fed == request->known && request->tokens + request->choosing < request->limit;
}

/* The number of tokens that a request decodes in a step: at most as many as its answer has left, and as may
 * be unread. */
static uint32_t tokens_of(const struct planned_step *step, const struct request *request)
{
    const uint32_t left = request->limit - request->tokens - request->choosing,
                   room = request->room - request->choosing;
    uint32_t tokens = step->tokens < left ? step->tokens : left;
    tokens = tokens < room ? tokens : room;
    return tokens ? tokens : 1;
}

/* Adds a run of `count` known tokens, 0: one that decodes. */
static void add_run(
    struct salvo_scheduler *scheduler, struct planned_step *step, struct request *request, uint32_t count)
{
    const bool chooses = request->fed + count == request->known;
    const bool holds = request->mask && count == 0 && scheduler->is_asynchronous;
    if (chooses && !holds && !scheduler_fill_mask(scheduler, request))
        return;
    struct planned_run *planned = &step->runs[step->count];
    struct salvo_run *run = &scheduler->runs[step->count++];
    planned->request = request;
    planned->holds = holds;
    planned->is_choice = planned->has_failed = false;
    planned->chooses = !chooses ? 0 : count ? 1 : tokens_of(step, request);
    *run = (struct salvo_run){
        .session = request->session,
        .ids = request->ids + request->fed,
        .count = count,
        .want = holds     ? SALVO_WANT_LATER
                : chooses ? SALVO_WANT_ID
                          : SALVO_WANT_NOTHING,
    };
    if (chooses && !holds)
        scheduler_describe_choice(planned, run);
    step->held += holds;
    request->is_starved = false;
    request->fed += count;
    planned->fed = request->fed;
    request->runs++;
    request->choosing += planned->chooses;
}

static uint32_t prompt_left(const struct salvo_scheduler *scheduler, uint32_t slot)
{
    const struct request *request = scheduler->running[slot];
    const uint32_t end = request_may_run(scheduler, request) ? request_feed_end(request) : 0;
    if (!end || (request->limit == 0 && end == request->known))
        return 0; /* nothing, or no token is to be chosen */
    return end - request->fed;
}

/* Prompts take turns: each gets its share of the room, and the first that gets none is first in the next
 * step. */
static uint32_t add_prompts(
    struct salvo_scheduler *scheduler, struct planned_step *step, uint32_t prompts, uint32_t room)
{
    uint32_t added = 0, last = scheduler->next_prompt_slot;
    for (uint32_t i = 0; i < scheduler->slots && room; i++) {
        const uint32_t slot = (scheduler->next_prompt_slot + i) % scheduler->slots,
                       left = prompt_left(scheduler, slot);
        if (!left || !prompts)
            continue;
        uint32_t share = room / prompts--;
        share = share < scheduler->pace.least ? scheduler->pace.least : share;
        share = share < room ? share : room;
        const struct request *request = scheduler->running[slot];
        share = snapshots_divide(request->session, request->fed, request->fed + left, share);
        add_run(scheduler, step, scheduler->running[slot], share);
        room -= share;
        added += share;
        last = slot + 1;
    }
    scheduler->next_prompt_slot = last < scheduler->slots ? last : 0;
    return added;
}

static uint32_t most_prompt_tokens(struct salvo_scheduler *scheduler, uint32_t decodes, bool has_prompts)
{
    const struct salvo_engine *engine = scheduler->engine;
    const uint32_t batch = engine->options.batch - decodes;
    uint32_t most = engine->backend->chunk ? engine->backend->chunk(engine->executor) : batch;
    if (decodes && has_prompts) /* a decoding request waits for its next token */
        most = prompt_pace_tokens(&scheduler->pace, decodes);
    return most < batch ? most : batch;
}

static bool plan_and_submit(struct salvo_scheduler *scheduler)
{
    struct salvo_engine *engine = scheduler->engine;
    struct planned_step *step =
        &scheduler->steps[(scheduler->oldest_step + scheduler->open_steps) % STEPS_AHEAD];
    step->count = step->held = step->choice_count = 0;
    step->tokens = scheduler_tokens_at_once(scheduler);
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        if (decodes_next(scheduler, scheduler->running[i]) && !scheduler->running[i]->runs)
            scheduler_force(scheduler, scheduler->running[i]);
        if (decodes_next(scheduler, scheduler->running[i]))
            add_run(scheduler, step, scheduler->running[i], 0);
    }
    uint32_t prompts = 0;
    for (uint32_t i = 0; i < scheduler->slots; i++)
        prompts += prompt_left(scheduler, i) > 0;
    step->decodes = step->count;
    step->prompt_tokens =
        add_prompts(scheduler, step, prompts, most_prompt_tokens(scheduler, step->decodes, prompts > 0));
    if (step->count == 0)
        return false;
    step->begun_ns = scheduler_now();
    const enum salvo_status status =
        salvo_engine_submit(engine, scheduler->runs, step->count, sizeof *scheduler->runs, &step->ticket);
    if (status == SALVO_OK)
        scheduler->open_steps++;
    else
        step->held = 0;
    for (uint32_t i = 0; status != SALVO_OK && i < step->count; i++) {
        struct request *request = step->runs[i].request;
        request->runs--;
        request->choosing -= step->runs[i].chooses;
        if (!request->is_over)
            scheduler_end(scheduler, request, status, SALVO_FINISH_CANCELLED, -1, NULL);
    }
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.steps++;
    scheduler->counters.prompt_tokens += step->prompt_tokens;
    pthread_mutex_unlock(&scheduler->mutex);
    return true;
}

/* ---- Results ---- */

static bool ends_answer(
    const struct salvo_scheduler *scheduler, const struct request *request, int32_t id, bool ended)
{
    return ended || (request->ends_at_end && tokenizer_is_end(scheduler->tokenizer, id));
}

static void take_id(struct salvo_scheduler *scheduler, const struct planned_run *run, int32_t id, bool ended)
{
    struct request *request = run->request;
    if (ends_answer(scheduler, request, id, ended)) {
        scheduler_end(scheduler, request, SALVO_OK, SALVO_FINISH_END, id, NULL);
        return;
    }
    struct salvo_event event = {.id = id};
    if (request->has_logprobs) {
        event.logprob = run->logprobs[0];
        event.top_count = request->top_count;
        event.top_ids = run->top_ids;
        event.top_logprobs = run->logprobs + 1;
    }
    scheduler_take_token(scheduler, request, &event);
}

/* `chooses`: ids that the run might choose; none if another run of the step chooses them. */
static void take_result(struct salvo_scheduler *scheduler, struct planned_run *run,
    const struct salvo_run_result *result, uint32_t chooses)
{
    struct request *request = run->request;
    if (!request->is_over && !run->has_failed && result->status == SALVO_OK)
        scheduler_tell_progress(scheduler, request, run->fed);
    request->runs--;
    request->choosing -= chooses;
    if (request->is_over || run->has_failed)
        return;
    run->has_failed = result->status != SALVO_OK;
    if (result->status == SALVO_ERROR_MEMORY)
        scheduler_starve(scheduler, request, result->message);
    else if (result->status == SALVO_OK)
        request->starved_alone = false;
    for (uint32_t i = 0; i < result->id_count && !request->is_over; i++)
        take_id(scheduler, run, run->ids[i], result->ended && i + 1 == result->id_count);
    if (!request->is_over && result->status != SALVO_OK && result->status != SALVO_ERROR_MEMORY)
        scheduler_end(scheduler, request, result->status, SALVO_FINISH_CANCELLED, -1, result->message);
}

/* A step that was submitted behind another began when that one ended. */
static void note_duration(struct salvo_scheduler *scheduler, const struct planned_step *step)
{
    const uint64_t now = scheduler_now(),
                   begin = step->begun_ns > scheduler->ended_ns ? step->begun_ns : scheduler->ended_ns;
    scheduler->ended_ns = now;
    prompt_pace_note(
        &scheduler->pace, step->decodes, step->prompt_tokens, (now > begin ? now - begin : 0) / step->tokens);
    if (!step->decodes)
        return;
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.step_tokens = prompt_pace_limit(&scheduler->pace, step->decodes);
    pthread_mutex_unlock(&scheduler->mutex);
}

static void wait_for_results(struct salvo_scheduler *scheduler, uint64_t ticket, uint32_t count)
{
    const enum salvo_status status =
        salvo_engine_wait(scheduler->engine, ticket, scheduler->results, count, sizeof *scheduler->results);
    for (uint32_t i = 0; status != SALVO_OK && i < count; i++) /* an error that no valid step causes */
        scheduler->results[i] = (struct salvo_run_result){.status = status, .message = salvo_error()};
}

/* Waits for the oldest open step, and for the one that chooses behind it. */
static void collect(struct salvo_scheduler *scheduler)
{
    struct planned_step *step = &scheduler->steps[scheduler->oldest_step];
    scheduler->oldest_step = (scheduler->oldest_step + 1) % STEPS_AHEAD;
    scheduler->open_steps--;
    wait_for_results(scheduler, step->ticket, step->count);
    if (!step->choice_count)
        note_duration(scheduler, step);
    for (uint32_t i = 0; i < step->count; i++)
        take_result(scheduler, &step->runs[i], &scheduler->results[i],
            step->runs[i].holds ? 0 : step->runs[i].chooses);
    if (!step->choice_count)
        return;
    wait_for_results(scheduler, step->choice_ticket, step->choice_count);
    note_duration(scheduler, step);
    for (uint32_t i = 0, choice = 0; i < step->count; i++) {
        if (step->runs[i].is_choice)
            take_result(scheduler, &step->runs[i], &scheduler->results[choice++], step->runs[i].chooses);
    }
}

/* While the last submitted step runs, masks are made for the choices that its runs leave open: these depend
 * on the results of the steps before it. */
static void choose_held(struct salvo_scheduler *scheduler)
{
    if (!scheduler->open_steps)
        return;
    struct planned_step *step =
        &scheduler->steps[(scheduler->oldest_step + scheduler->open_steps - 1) % STEPS_AHEAD];
    if (!step->held)
        return;
    while (scheduler->open_steps > 1)
        collect(scheduler);
    scheduler_choose(scheduler, step);
}

/* ---- The thread ---- */

void scheduler_wake(struct salvo_scheduler *scheduler)
{
    scheduler->changes++;
    pthread_cond_signal(&scheduler->changed);
}

/* Whether all has ended and the thread may end; *out_changes has what was seen before. */
static bool is_done(struct salvo_scheduler *scheduler, uint64_t *out_changes)
{
    pthread_mutex_lock(&scheduler->mutex);
    bool done =
        scheduler->closing && !scheduler->first_waiting && !scheduler->first_call && !scheduler->open_steps;
    for (uint32_t i = 0; i < scheduler->slots; i++)
        done &= !scheduler->running[i];
    *out_changes = scheduler->changes;
    pthread_mutex_unlock(&scheduler->mutex);
    return done;
}

/* The device has failed: all requests end. */
static void fail_rest(struct salvo_scheduler *scheduler)
{
    static const char message[] = "the device has failed";
    struct request *waiting;
    pthread_mutex_lock(&scheduler->mutex);
    waiting_cancel_all(scheduler); /* so that they are taken */
    pthread_mutex_unlock(&scheduler->mutex);
    while ((waiting = take_cancelled(scheduler))) {
        scheduler_end(scheduler, waiting, SALVO_ERROR_DEVICE, SALVO_FINISH_CANCELLED, -1, message);
        release(scheduler, waiting);
    }
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        struct request *request = scheduler->running[i];
        if (request && !request->is_over)
            scheduler_end(scheduler, request, SALVO_ERROR_DEVICE, SALVO_FINISH_CANCELLED, -1, message);
    }
}

/* A call needs an idle device. */
static bool do_calls(struct salvo_scheduler *scheduler)
{
    if (!scheduler_has_calls(scheduler))
        return false;
    while (scheduler->open_steps)
        collect(scheduler);
    read_flags(scheduler);
    (void)tidy(scheduler);
    return scheduler_do_call(scheduler);
}

static bool do_round(struct salvo_scheduler *scheduler)
{
    if (scheduler->is_halted)
        fail_rest(scheduler);
    bool did_something = do_calls(scheduler);
    read_flags(scheduler);
    did_something |= tidy(scheduler);
    if (admit_all(scheduler)) {
        read_flags(scheduler);
        did_something = true;
    }
    did_something |= scheduler_score(scheduler);
    did_something |= scheduler_embed(scheduler);
    const bool submitted = plan_and_submit(scheduler);
    choose_held(scheduler);
    const uint32_t keep_open = submitted && scheduler->is_asynchronous ? STEPS_AHEAD - 1 : 0;
    while (scheduler->open_steps > keep_open) {
        collect(scheduler);
        did_something = true;
        if (!submitted)
            break;
    }
    return did_something || submitted;
}

void *scheduler_work(void *user)
{
    struct salvo_scheduler *scheduler = user;
    uint64_t seen;
    while (!is_done(scheduler, &seen)) {
        if (do_round(scheduler))
            continue;
        pthread_mutex_lock(&scheduler->mutex);
        while (scheduler->changes == seen)
            pthread_cond_wait(&scheduler->changed, &scheduler->mutex);
        pthread_mutex_unlock(&scheduler->mutex);
    }
    return NULL;
}
