#include "engine/scheduler.h"

#include <stdio.h>

static double seconds_since(const struct request *request, uint64_t ns)
{
    return ns ? (double)(ns - request->submitted_ns) * 1e-9 : 0;
}

void event_describe(const struct request *request, struct salvo_event *event)
{
    event->prompt_tokens = request->prompt_count;
    event->cached_tokens = request->cached_tokens;
    event->tokens = request->tokens;
    event->queue_seconds = seconds_since(request, request->begun_ns);
    event->first_seconds = seconds_since(request, request->first_ns);
    event->end_seconds = seconds_since(request, scheduler_now());
    event->session = request->slot;
}

void scheduler_end(struct salvo_scheduler *scheduler, struct request *request, enum salvo_status status,
    enum salvo_finish finish, int32_t id, const char *message)
{
    if (status != SALVO_OK)
        snprintf(request->message, sizeof request->message, "%s", message ? message : salvo_error());
    struct salvo_event event = {
        .kind = SALVO_EVENT_END,
        .id = id,
        .finish = finish,
        .status = status,
        .message = request->message,
        .embedding = status == SALVO_OK ? request->embedding : NULL,
        .width = request->pool.width,
    };
    event_describe(request, &event);
    pthread_mutex_lock(&scheduler->mutex);
    request->is_over = true;
    scheduler->changes++; /* its session is to be released */
    scheduler->is_halted |= status == SALVO_ERROR_DEVICE && scheduler->options.halts;
    scheduler->counters.finished += status == SALVO_OK;
    scheduler->counters.cancelled += status == SALVO_ERROR_CANCELLED;
    scheduler->counters.failed += status != SALVO_OK && status != SALVO_ERROR_CANCELLED;
    pthread_mutex_unlock(&scheduler->mutex);
    event_send(scheduler, request, &event);
}

struct census {
    struct request *youngest; /* of requests that have a session and continue */
    uint32_t going_on, ended; /* requests that have a session */
};

static struct census count_requests(const struct salvo_scheduler *scheduler)
{
    struct census census = {0};
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        struct request *request = scheduler->running[i];
        if (!request)
            continue;
        census.going_on += !request->is_over;
        census.ended += request->is_over;
        if (!request->is_over && (!census.youngest || request->handle > census.youngest->handle))
            census.youngest = request;
    }
    return census;
}

/*
 * The youngest request is put back, computed again later, and this one tries again. The oldest is never put
 * back, so that it ends at some time. A request without others tries once more, because memory may have been
 * given back since its run was planned; then it fails.
 */
void scheduler_starve(struct salvo_scheduler *scheduler, struct request *request, const char *message)
{
    const struct census census = count_requests(scheduler);
    const bool is_alone = census.going_on == 1 && census.ended == 0;
    if (request->is_starved)
        return; /* after the first run that found no memory */
    if (is_alone && request->starved_alone) {
        scheduler_end(scheduler, request, SALVO_ERROR_MEMORY, SALVO_FINISH_CANCELLED, -1, message);
        return;
    }
    request->is_starved = true;
    request->starved_alone = is_alone;
    request->starved_at = scheduler->releases - is_alone;
    if (census.going_on > 1)
        census.youngest->goes_back = true;
}

bool request_may_run(const struct salvo_scheduler *scheduler, const struct request *request)
{
    return request && !request->is_over && !request->is_blocked && !request->goes_back &&
           !(request->is_starved && (request->runs || request->starved_at == scheduler->releases));
}
