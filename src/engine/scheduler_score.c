#include "engine/scheduler.h"

#include "program/sampling.h"

#include <math.h>

static bool is_scored(const struct request *request)
{
    return !request->scores_prompt || request->scored == request->prompt_count;
}

uint32_t request_feed_end(const struct request *request)
{
    if (request->pool.width)
        return 0;
    if (is_scored(request))
        return request->known;
    return request->scored ? request->scored - 1 : 0;
}

bool request_scores_next(const struct request *request)
{
    return !is_scored(request) && request->fed == request_feed_end(request);
}

static void send_score(struct salvo_scheduler *scheduler, struct request *request,
    const struct sampling_logprob *logprobs, uint32_t top_count)
{
    int32_t top_ids[SALVO_TOP_LOGPROBS];
    float top_logprobs[SALVO_TOP_LOGPROBS];
    for (uint32_t i = 0; i < top_count; i++) {
        top_ids[i] = logprobs[1 + i].id;
        top_logprobs[i] = logprobs[1 + i].logprob;
    }
    struct salvo_event event = {
        .kind = SALVO_EVENT_PROMPT,
        .id = request->ids[request->scored++],
        .logprob = logprobs[0].logprob,
        .top_count = top_count,
        .top_ids = top_ids,
        .top_logprobs = top_logprobs,
        .message = "",
    };
    event_send(scheduler, request, &event);
}

struct scorer {
    struct salvo_scheduler *scheduler;
    struct request *request;
};

static void take_score(void *user, const struct sampling_logprob *logprobs)
{
    const struct scorer *scorer = user;
    send_score(scorer->scheduler, scorer->request, logprobs, scorer->request->top_count);
}

/* Token i is scored by the logits after token i - 1. The last token of the prompt is left for the run that
 * chooses the first token of the answer. */
static void score(struct salvo_scheduler *scheduler, struct request *request)
{
    struct scorer scorer = {scheduler, request};
    request->is_starved = false;
    pthread_mutex_lock(&scheduler->mutex);
    uint32_t count = event_room(scheduler, request);
    pthread_mutex_unlock(&scheduler->mutex);
    if (request->scored == 0) {
        const struct sampling_logprob none = {.id = -1, .logprob = NAN};
        send_score(scheduler, request, &none, 0);
        count--;
    }
    const uint32_t left = request->prompt_count - request->scored;
    count = count < left ? count : left;
    const uint32_t most = prompt_pace_limit(&scheduler->pace, 1);
    count = count < most ? count : most;
    if (!count)
        return;
    enum salvo_status status = batch_settle(scheduler->engine);
    if (status == SALVO_OK)
        status = session_score(
            request->session, request->ids + request->fed, count, request->top_count, take_score, &scorer);
    if (status == SALVO_ERROR_MEMORY)
        scheduler_starve(scheduler, request, salvo_error());
    else if (status != SALVO_OK)
        scheduler_end(scheduler, request, status, SALVO_FINISH_CANCELLED, -1, NULL);
    else
        request->starved_alone = false;
    request->fed = salvo_session_position(request->session);
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.steps++;
    scheduler->counters.prompt_tokens += count;
    pthread_mutex_unlock(&scheduler->mutex);
}

bool scheduler_score(struct salvo_scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        const uint32_t slot = (scheduler->next_scoring_slot + i) % scheduler->slots;
        struct request *request = scheduler->running[slot];
        if (!request_may_run(scheduler, request) || !request_scores_next(request))
            continue;
        scheduler->next_scoring_slot = slot + 1;
        score(scheduler, request);
        return true;
    }
    return false;
}
