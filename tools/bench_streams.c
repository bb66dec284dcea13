#include "bench_streams.h"

#include "measure.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct stream_state {
    pthread_mutex_t mutex; /* of the numbers below */
    pthread_cond_t changed;
    uint32_t open;    /* requests that have not ended, and one more while others may be submitted */
    bool is_stopping; /* all are cancelled */
    bool has_failed;  /* the message of the first failure */
    bool is_together; /* streams wait for each other */
    uint32_t begun;   /* streams with a token */
    bool has_arrived;
    char *message;
    size_t size;
};

static bool open_stream(
    struct streams *streams, struct stream *stream, const int32_t *ids, uint32_t prompt, uint32_t tokens)
{
    *stream = (struct stream){.all = streams, .ids = ids, .prompt = prompt, .tokens = tokens};
    stream->times = calloc(tokens, sizeof *stream->times);
    return stream->times;
}

bool streams_open(struct streams *streams, struct salvo_scheduler *scheduler, uint32_t count,
    const int32_t *ids, uint32_t prompt, uint32_t tokens)
{
    *streams = (struct streams){.scheduler = scheduler, .count = count};
    streams->items = calloc(count, sizeof *streams->items);
    for (uint32_t i = 0; i < count && streams->items; i++) {
        if (!open_stream(streams, &streams->items[i], ids + i, prompt, tokens))
            return false;
    }
    return streams->items;
}

bool streams_set_arriving(struct streams *streams, const int32_t *ids, uint32_t prompt, uint32_t rest)
{
    streams->rest = rest;
    return open_stream(streams, &streams->arriving, ids, prompt, 1);
}

void streams_close(struct streams *streams)
{
    for (uint32_t i = 0; streams->items && i < streams->count; i++)
        free(streams->items[i].times);
    free(streams->items);
    free(streams->arriving.times);
    *streams = (struct streams){0};
}

/* ---- Under the mutex ---- */

/* Ends all streams, also the waiting ones. */
static void stop_all(struct streams *streams)
{
    streams->state->is_stopping = true;
    for (uint32_t i = 0; i < streams->count; i++)
        salvo_scheduler_cancel(streams->scheduler, streams->items[i].handle);
    salvo_scheduler_cancel(streams->scheduler, streams->arriving.handle);
}

static void fail_all(struct streams *streams, const char *message)
{
    struct stream_state *state = streams->state;
    if (!state->has_failed)
        snprintf(state->message, state->size, "%s", message);
    state->has_failed = true;
    stop_all(streams);
}

static void resume_all(struct streams *streams)
{
    for (uint32_t i = 0; i < streams->count; i++) {
        streams->items[i].together = streams->items[i].count;
        salvo_scheduler_resume(streams->scheduler, streams->items[i].handle);
    }
}

static void on_event(void *user, const struct salvo_event *event);

static void submit_stream(struct stream *stream)
{
    struct stream_state *state = stream->all->state;
    const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;
    struct salvo_request request = SALVO_REQUEST_INIT;
    request.ids = stream->ids;
    request.count = stream->prompt;
    request.sampler = &greedy;
    request.ignore_end = 1;
    request.max_tokens = stream->tokens;
    request.no_cache = 1;
    request.event = on_event;
    request.user = stream;
    stream->count = stream->together = 0;
    if (salvo_scheduler_submit(stream->all->scheduler, &request, &stream->handle) == SALVO_OK)
        state->open++;
    else
        fail_all(stream->all, salvo_error());
}

/* The first token of one of the streams that decode together. */
static void gather(struct stream *stream)
{
    struct streams *streams = stream->all;
    if (++streams->state->begun == streams->count)
        resume_all(streams);
    else
        salvo_scheduler_pause(streams->scheduler, stream->handle);
}

static void take_token(struct stream *stream)
{
    struct streams *streams = stream->all;
    struct stream_state *state = streams->state;
    stream->times[stream->count++] = seconds_now();
    if (!state->is_together || stream == &streams->arriving)
        return;
    if (stream->count == 1)
        gather(stream);
    if (streams->arriving.prompt && !state->has_arrived && state->begun == streams->count &&
        stream == streams->items && stream->count >= stream->together + streams->rest) {
        state->has_arrived = true;
        streams->arriving.submitted = seconds_now();
        submit_stream(&streams->arriving);
    }
}

static void close_one(struct stream_state *state)
{
    state->open--;
    pthread_cond_signal(&state->changed);
}

/* ---- Events ---- */

static void on_event(void *user, const struct salvo_event *event)
{
    struct stream *stream = user;
    struct streams *streams = stream->all;
    struct stream_state *state = streams->state;
    pthread_mutex_lock(&state->mutex);
    if (event->kind == SALVO_EVENT_TOKEN && stream->count < stream->tokens && !state->is_stopping) {
        take_token(stream);
    } else if (event->kind == SALVO_EVENT_END) {
        if (event->status != SALVO_OK && !state->is_stopping)
            fail_all(streams, event->message);
        else if (stream == &streams->arriving)
            stop_all(streams);
        close_one(state);
    }
    pthread_mutex_unlock(&state->mutex);
}

/* Called at the end of a request of one token: requests submitted here are in the queue before the next
 * step begins. */
static void on_start(void *user, const struct salvo_event *event)
{
    struct streams *streams = user;
    struct stream_state *state = streams->state;
    if (event->kind != SALVO_EVENT_END)
        return;
    pthread_mutex_lock(&state->mutex);
    if (event->status != SALVO_OK)
        fail_all(streams, event->message);
    for (uint32_t i = 0; i < streams->count && !state->has_failed; i++) {
        streams->items[i].submitted = seconds_now();
        submit_stream(&streams->items[i]);
    }
    close_one(state);
    pthread_mutex_unlock(&state->mutex);
}

/* ---- The caller ---- */

/* Begins a run with one open request. */
static void begin_run(struct streams *streams, struct stream_state *state, char *message, size_t size)
{
    *state = (struct stream_state){.open = 1, .size = size};
    state->message = message;
    streams->state = state;
    streams->arriving.handle = 0;
    for (uint32_t i = 0; i < streams->count; i++)
        streams->items[i].handle = 0;
    pthread_mutex_init(&state->mutex, NULL);
    pthread_cond_init(&state->changed, NULL);
}

/* With the mutex, which it unlocks. */
static bool end_run(struct streams *streams)
{
    struct stream_state *state = streams->state;
    while (state->open)
        pthread_cond_wait(&state->changed, &state->mutex);
    pthread_mutex_unlock(&state->mutex);
    pthread_mutex_destroy(&state->mutex);
    pthread_cond_destroy(&state->changed);
    streams->state = NULL;
    return !state->has_failed;
}

bool streams_run_together(struct streams *streams, char *message, size_t size)
{
    struct stream_state state;
    struct salvo_request request = SALVO_REQUEST_INIT;
    uint64_t handle;
    begin_run(streams, &state, message, size);
    state.is_together = true;
    request.ids = streams->items->ids;
    request.count = request.max_tokens = request.ignore_end = request.no_cache = 1;
    request.event = on_start;
    request.user = streams;
    const enum salvo_status status = salvo_scheduler_submit(streams->scheduler, &request, &handle);
    pthread_mutex_lock(&state.mutex);
    if (status != SALVO_OK) {
        fail_all(streams, salvo_error());
        close_one(&state);
    }
    return end_run(streams);
}

static void sleep_until(double time)
{
    struct timespec left;
    for (double seconds; (seconds = time - seconds_now()) > 0;) {
        left.tv_sec = (time_t)seconds;
        left.tv_nsec = (long)(1e9 * (seconds - (double)left.tv_sec));
        (void)nanosleep(&left, NULL);
    }
}

bool streams_run_arriving(
    struct streams *streams, double per_second, uint64_t seed, char *message, size_t size)
{
    struct stream_state state;
    begin_run(streams, &state, message, size);
    double time = seconds_now();
    pthread_mutex_lock(&state.mutex);
    for (uint32_t i = 0; i < streams->count && !state.is_stopping; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        const double share = (double)(seed >> 11) * 0x1p-53; /* below 1 */
        time += -log1p(-share) / per_second;
        pthread_mutex_unlock(&state.mutex);
        sleep_until(time);
        pthread_mutex_lock(&state.mutex);
        streams->items[i].submitted = time;
        submit_stream(&streams->items[i]);
    }
    close_one(&state);
    return end_run(streams);
}
