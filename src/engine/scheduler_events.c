#include "engine/scheduler.h"

#include "base/memory.h"

#include <string.h>
#include <unistd.h>

uint32_t event_room(const struct salvo_scheduler *scheduler, const struct request *request)
{
    if (!scheduler->options.poll)
        return UINT32_MAX;
    return request->unread < scheduler->options.unread ? scheduler->options.unread - request->unread : 0;
}

/* The descriptor is readable while events wait: one byte for all of them. */
static void raise_flag(const struct salvo_scheduler *scheduler)
{
    const char byte = 0;
    ssize_t written = write(scheduler->pipe[1], &byte, 1); /* an empty pipe always has room */
    (void)written;
}

static void lower_flag(const struct salvo_scheduler *scheduler)
{
    char byte;
    ssize_t taken = read(scheduler->pipe[0], &byte, 1);
    (void)taken;
}

static struct event_node *free_node(struct request *request, const struct salvo_event *event)
{
    if (event->kind == SALVO_EVENT_END)
        return &request->end_node;
    const uint32_t index = request->next_node;
    struct event_node *node = &request->nodes[index];
    request->next_node = (index + 1) % request->node_count;
    node->event = *event;
    if (event->top_count) {
        int32_t *ids = request->top_ids + (size_t)index * request->top_count;
        float *logprobs = request->top_logprobs + (size_t)index * request->top_count;
        memcpy(ids, event->top_ids, event->top_count * sizeof *ids);
        memcpy(logprobs, event->top_logprobs, event->top_count * sizeof *logprobs);
        node->event.top_ids = ids;
        node->event.top_logprobs = logprobs;
    }
    return node;
}

static void store(struct salvo_scheduler *scheduler, struct request *request, const struct salvo_event *event)
{
    pthread_mutex_lock(&scheduler->mutex);
    struct event_node *node = free_node(request, event);
    if (node == &request->end_node) {
        node->event = *event;
        scheduler->unread_ends++;
    } else {
        request->unread++;
    }
    node->request = request;
    node->next = NULL;
    if (scheduler->last_event)
        scheduler->last_event->next = node;
    else
        scheduler->first_event = node;
    scheduler->last_event = node;
    if (scheduler->first_event == node)
        raise_flag(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
}

void event_send(struct salvo_scheduler *scheduler, struct request *request, struct salvo_event *event)
{
    event->size = sizeof *event;
    event->request = request->handle;
    event->user = request->user;
    if (scheduler->options.poll)
        store(scheduler, request, event);
    else
        request->event(request->user, event);
}

void request_free_if_done(struct salvo_scheduler *scheduler, struct request *request)
{
    if (request->is_released && request->is_over && (request->is_read || !scheduler->options.poll))
        request_close(request);
}

/* The caller no longer uses the event that was polled last. */
static void forget_polled(struct salvo_scheduler *scheduler)
{
    struct event_node *node = scheduler->polled;
    scheduler->polled = NULL;
    if (!node || node != &node->request->end_node)
        return;
    node->request->is_read = true;
    request_free_if_done(scheduler, node->request);
}

bool event_take(struct salvo_scheduler *scheduler, struct salvo_event *out)
{
    forget_polled(scheduler);
    struct event_node *node = scheduler->first_event;
    if (!node)
        return false;
    scheduler->first_event = node->next;
    if (!node->next) {
        scheduler->last_event = NULL;
        lower_flag(scheduler);
    }
    if (node == &node->request->end_node)
        scheduler->unread_ends--;
    else
        node->request->unread--;
    scheduler->polled = node;
    *out = node->event;
    return true;
}

void events_close(struct salvo_scheduler *scheduler)
{
    struct salvo_event event;
    while (event_take(scheduler, &event)) {
    }
    if (scheduler->options.poll) {
        close(scheduler->pipe[0]);
        close(scheduler->pipe[1]);
    }
}
