/*
 * Tokens of answers: chosen tokens, and forced tokens, which need not be chosen. The request's callback
 * supplies forced tokens; they are computed together, like a part of a prompt.
 */
#include "base/memory.h"
#include "engine/scheduler.h"

enum { MOST_FORCED = 64 };

void scheduler_complete(struct salvo_scheduler *scheduler, struct request *request)
{
    scheduler_end(scheduler, request, SALVO_OK,
        request->length_is_limit ? SALVO_FINISH_LENGTH : SALVO_FINISH_CONTEXT, -1, NULL);
}

void scheduler_tell_progress(struct salvo_scheduler *scheduler, struct request *request, uint32_t computed)
{
    struct salvo_event event = {.kind = SALVO_EVENT_PROGRESS, .id = -1};
    event.computed_tokens = computed < request->prompt_count ? computed : request->prompt_count;
    if (!request->tells_progress || request->tokens || event.computed_tokens < request->reported)
        return;
    pthread_mutex_lock(&scheduler->mutex);
    const uint32_t room = event_room(scheduler, request);
    pthread_mutex_unlock(&scheduler->mutex);
    if (room <= request->choosing) /* the room of tokens that are being chosen */
        return;
    request->reported = event.computed_tokens + 1;
    event_describe(request, &event);
    event_send(scheduler, request, &event);
}

void scheduler_take_token(
    struct salvo_scheduler *scheduler, struct request *request, struct salvo_event *event)
{
    event->kind = SALVO_EVENT_TOKEN;
    event->message = "";
    if (!request->first_ns)
        request->first_ns = scheduler_now();
    request->tokens++;
    request->last_id = event->id;
    event_describe(request, event);
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.tokens++;
    pthread_mutex_unlock(&scheduler->mutex);
    event_send(scheduler, request, event);
    if (request->tokens == request->limit)
        scheduler_complete(scheduler, request);
}

enum salvo_status request_keep_answer(struct request *request)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t known = request->prompt_count + request->tokens;
    if (known == request->known)
        goto cleanup;
    TRY(RESIZE(&request->ids, known));
    for (uint32_t i = request->known; i + 1 < known; i++)
        request->ids[i] = request->session->tokens[i];
    request->ids[known - 1] = request->last_id;
    request->known = known;
cleanup:
    return status;
}

const int32_t *request_answer(const struct request *request)
{
    struct salvo_session *session = request->session;
    if (request->fed < request->known)
        return request->ids + request->prompt_count;
    if (session->position < request->prompt_count + request->tokens)
        session->tokens[session->position] = session->pending; /* there is room */
    return session->tokens + request->prompt_count;
}

/* ---- Forced tokens ---- */

static bool is_stop_id(const struct request *request, int32_t id)
{
    for (uint32_t i = 0; i < request->stop_count; i++) {
        if (request->stop_ids[i] == id)
            return true;
    }
    return false;
}

static uint32_t forced_room(struct salvo_scheduler *scheduler, const struct request *request)
{
    pthread_mutex_lock(&scheduler->mutex);
    uint32_t room = event_room(scheduler, request);
    pthread_mutex_unlock(&scheduler->mutex);
    const uint32_t left = request->limit - request->tokens;
    room = room < left ? room : left;
    return room < MOST_FORCED ? room : MOST_FORCED;
}

/* The ids that follow the answer so far. */
static uint32_t ask_for_ids(
    struct salvo_scheduler *scheduler, struct request *request, int32_t ids[MOST_FORCED])
{
    const size_t count = request->forced(
        request->user, request_answer(request), request->tokens, ids, forced_room(scheduler, request));
    for (uint32_t i = 0; i < count; i++) {
        if (is_stop_id(request, ids[i]) || tokenizer_is_end(scheduler->tokenizer, ids[i]))
            return i;
    }
    return (uint32_t)count;
}

static enum salvo_status append_ids(struct request *request, const int32_t *ids, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(request_keep_answer(request));
    /* A run that is open computes the last token. */
    request->fed = request->runs ? request->known : salvo_session_position(request->session);
    TRY(RESIZE(&request->ids, request->known + count));
    for (uint32_t i = 0; i < count; i++)
        request->ids[request->known++] = ids[i];
cleanup:
    return status;
}

void scheduler_force(struct salvo_scheduler *scheduler, struct request *request)
{
    int32_t ids[MOST_FORCED];
    if (!request->forced || request->has_logprobs || !scheduler->tokenizer)
        return;
    const uint32_t count = ask_for_ids(scheduler, request, ids);
    if (count == 0)
        return;
    const enum salvo_status status = append_ids(request, ids, count);
    if (status != SALVO_OK)
        scheduler_end(scheduler, request, status, SALVO_FINISH_CANCELLED, -1, NULL);
    for (uint32_t i = 0; i < count && !request->is_over; i++)
        scheduler_take_token(scheduler, request, &(struct salvo_event){.id = ids[i]});
}
