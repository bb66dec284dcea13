#include "bench_streams.h"

#include "measure.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct stream_state {
    pthread_mutex_t mutex; /* of `ended` and `is_over` */
    pthread_cond_t changed;
    uint32_t submitted, ended;
    bool is_over; /* all that was submitted has ended, and no more is to come */

    /* By the scheduler's thread alone. */
    uint32_t begun; /* streams with a token */
    bool has_failed;
    char *message;
    size_t size;
};

bool streams_open(struct streams *streams, struct salvo_scheduler *scheduler, uint32_t count,
    const int32_t *ids, uint32_t prompt, uint32_t tokens)
{
    *streams = (struct streams){.scheduler = scheduler, .count = count};
    streams->items = calloc(count, sizeof *streams->items);
    for (uint32_t i = 0; i < count && streams->items; i++) {
        struct stream *stream = &streams->items[i];
        *stream = (struct stream){.all = streams, .ids = ids + i, .prompt = prompt, .tokens = tokens};
        stream->times = calloc(tokens, sizeof *stream->times);
        if (!stream->times)
            return false;
    }
    return streams->items;
}

void streams_close(struct streams *streams)
{
    for (uint32_t i = 0; streams->items && i < streams->count; i++)
        free(streams->items[i].times);
    free(streams->items);
    *streams = (struct streams){0};
}

/* ---- On the scheduler's thread ---- */

/* Keeps the first message and ends all streams: one of them may wait for another. */
static void stop_all(struct streams *streams, const char *message)
{
    struct stream_state *state = streams->state;
    if (state->has_failed)
        return;
    state->has_failed = true;
    snprintf(state->message, state->size, "%s", message);
    for (uint32_t i = 0; i < streams->count; i++)
        salvo_scheduler_cancel(streams->scheduler, streams->items[i].handle);
}

static void resume_all(struct streams *streams)
{
    for (uint32_t i = 0; i < streams->count; i++) {
        streams->items[i].together = streams->items[i].count;
        salvo_scheduler_resume(streams->scheduler, streams->items[i].handle);
    }
}

static void take_token(struct stream *stream)
{
    struct streams *streams = stream->all;
    if (stream->count < stream->tokens)
        stream->times[stream->count++] = seconds_now();
    if (stream->count > 1)
        return;
    if (++streams->state->begun == streams->count)
        resume_all(streams);
    else
        salvo_scheduler_pause(streams->scheduler, stream->handle);
}

static void count_end(struct stream_state *state, uint32_t most)
{
    pthread_mutex_lock(&state->mutex);
    state->is_over = ++state->ended == most;
    pthread_cond_signal(&state->changed);
    pthread_mutex_unlock(&state->mutex);
}

static void on_event(void *user, const struct salvo_event *event)
{
    struct stream *stream = user;
    struct stream_state *state = stream->all->state;
    if (event->kind == SALVO_EVENT_TOKEN) {
        take_token(stream);
    } else if (event->kind == SALVO_EVENT_END) {
        if (event->status != SALVO_OK)
            stop_all(stream->all, event->message);
        count_end(state, state->submitted);
    }
}

static enum salvo_status submit(struct salvo_scheduler *scheduler, const int32_t *ids, uint32_t prompt,
    uint32_t tokens, salvo_event_function event, void *user, uint64_t *out_handle)
{
    const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;
    struct salvo_request request = SALVO_REQUEST_INIT;
    request.ids = ids;
    request.count = prompt;
    request.sampler = &greedy;
    request.ignore_end = 1;
    request.max_tokens = tokens;
    request.no_cache = 1;
    request.event = event;
    request.user = user;
    return salvo_scheduler_submit(scheduler, &request, out_handle);
}

/* The end of a request of one token: what is submitted here is in the queue before the next step begins. */
static void on_start(void *user, const struct salvo_event *event)
{
    struct streams *streams = user;
    struct stream_state *state = streams->state;
    if (event->kind != SALVO_EVENT_END)
        return;
    if (event->status != SALVO_OK)
        stop_all(streams, event->message);
    for (uint32_t i = 0; i < streams->count && !state->has_failed; i++) {
        struct stream *stream = &streams->items[i];
        stream->count = stream->together = 0;
        stream->submitted = seconds_now();
        if (submit(streams->scheduler, stream->ids, stream->prompt, stream->tokens, on_event, stream,
                &stream->handle) == SALVO_OK)
            state->submitted++;
        else
            stop_all(streams, salvo_error());
    }
    if (!state->submitted)
        count_end(state, 1);
}

/* ---- The caller ---- */

bool streams_run_together(struct streams *streams, char *message, size_t size)
{
    struct stream_state state = {.message = message, .size = size};
    uint64_t handle;
    streams->state = &state;
    pthread_mutex_init(&state.mutex, NULL);
    pthread_cond_init(&state.changed, NULL);
    if (submit(streams->scheduler, streams->items->ids, 1, 1, on_start, streams, &handle) == SALVO_OK) {
        pthread_mutex_lock(&state.mutex);
        while (!state.is_over)
            pthread_cond_wait(&state.changed, &state.mutex);
        pthread_mutex_unlock(&state.mutex);
    } else {
        snprintf(message, size, "%s", salvo_error());
        state.has_failed = true;
    }
    pthread_mutex_destroy(&state.mutex);
    pthread_cond_destroy(&state.changed);
    streams->state = NULL;
    return !state.has_failed;
}
