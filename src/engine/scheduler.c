/* The public functions of salvo/scheduler.h. */
#include "engine/scheduler.h"

#include "base/memory.h"
#include "base/thread.h"
#include "engine/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_QUEUE = 256, DEFAULT_UNREAD = 64 };

/* ---- Opening ---- */

static enum salvo_status open_pipe(struct salvo_scheduler *scheduler)
{
    if (pipe(scheduler->pipe) != 0) {
        scheduler->options.poll = 0; /* there is nothing to close */
        return fail(SALVO_ERROR_IO, "no pipe for events: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        (void)fcntl(scheduler->pipe[i], F_SETFD, FD_CLOEXEC);
        (void)fcntl(scheduler->pipe[i], F_SETFL, O_NONBLOCK);
    }
    return SALVO_OK;
}

/* A model without a vocabulary can still run requests that ignore end tokens. */
static void find_end_ids(struct salvo_scheduler *scheduler)
{
    const uint32_t vocabulary = scheduler->engine->program->vocabulary;
    if (model_tokenizer(scheduler->engine->model, &scheduler->tokenizer) != SALVO_OK) {
        scheduler->tokenizer = NULL;
        snprintf(scheduler->no_tokenizer, sizeof scheduler->no_tokenizer, "%s", salvo_error());
        return;
    }
    for (uint32_t id = 0; id < vocabulary && scheduler->end_id_count < SALVO_STOP_IDS; id++) {
        if (tokenizer_is_end(scheduler->tokenizer, (int32_t)id))
            scheduler->end_ids[scheduler->end_id_count++] = (int32_t)id;
    }
}

static enum salvo_status open_memory(struct salvo_scheduler *scheduler)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t slots = scheduler->slots;
    TRY(NEW(&scheduler->running, slots));
    TRY(NEW(&scheduler->sessions, slots));
    TRY(NEW(&scheduler->runs, slots));
    TRY(NEW(&scheduler->results, slots));
    for (size_t i = 0; i < STEPS_AHEAD; i++)
        TRY(NEW(&scheduler->steps[i].runs, slots));
    for (uint32_t i = 0; i < slots; i++) {
        if (salvo_session_open(scheduler->engine, &scheduler->sessions[i]) != SALVO_OK)
            TRY(fail(SALVO_ERROR_ARGUMENT,
                "a scheduler needs all %u sessions of the engine; %u of them are open", slots, slots - i));
    }
cleanup:
    return status;
}

/* Without its thread. */
static void free_scheduler(struct salvo_scheduler *scheduler)
{
    if (!scheduler)
        return;
    events_close(scheduler);
    for (uint32_t i = 0; scheduler->sessions && i < scheduler->slots; i++)
        salvo_session_close(scheduler->sessions[i]);
    for (size_t i = 0; i < STEPS_AHEAD; i++)
        memory_free(scheduler->steps[i].runs);
    memory_free(scheduler->running);
    memory_free(scheduler->sessions);
    memory_free(scheduler->runs);
    memory_free(scheduler->results);
    memory_free(scheduler->hidden_rows);
    pthread_mutex_destroy(&scheduler->mutex);
    pthread_cond_destroy(&scheduler->changed);
    memory_free(scheduler);
}

static enum salvo_status start(struct salvo_scheduler *scheduler)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = scheduler->engine;
    scheduler->is_asynchronous = engine->backend->info(engine->executor).in_flight > 1;
    if (scheduler->options.poll)
        TRY(open_pipe(scheduler));
    find_end_ids(scheduler);
    TRY(open_memory(scheduler));
    TRY(scheduler_measure(scheduler));
    if (!thread_start(&scheduler->thread, scheduler_work, scheduler))
        TRY(fail(SALVO_ERROR_MEMORY, "the thread of the scheduler cannot be started"));
cleanup:
    return status;
}

enum salvo_status salvo_scheduler_open(
    struct salvo_engine *engine, const struct salvo_scheduler_options *given, struct salvo_scheduler **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_scheduler_options options;
    struct salvo_scheduler *scheduler = NULL;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(engine);
    TRY(options_read("salvo_scheduler_options", given, sizeof options, &options));
    TRY(NEW(&scheduler, 1));
    scheduler->engine = engine;
    scheduler->options = options;
    scheduler->options.queue = options.queue ? options.queue : DEFAULT_QUEUE;
    scheduler->options.unread = options.unread ? options.unread : DEFAULT_UNREAD;
    scheduler->slots = engine->options.slots;
    scheduler->pipe[0] = scheduler->pipe[1] = -1;
    scheduler->lock = &scheduler->mutex;
    pthread_mutex_init(&scheduler->mutex, NULL);
    pthread_cond_init(&scheduler->changed, NULL);
    status = start(scheduler);
    if (status != SALVO_OK)
        free_scheduler(scheduler);
    else
        *out = scheduler;
cleanup:
    return status;
}

void salvo_scheduler_close(struct salvo_scheduler *scheduler)
{
    if (!scheduler)
        return;
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->closing = true;
    scheduler_wake(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
    pthread_join(scheduler->thread, NULL);
    free_scheduler(scheduler);
}

/* ---- Requests ---- */

/* Requests that wait for their readers have no place in the queue. */
static bool queue_is_full(const struct salvo_scheduler *scheduler)
{
    return scheduler->counters.waiting - scheduler->waiting_paused >= scheduler->options.queue;
}

static enum salvo_status enqueue(struct salvo_scheduler *scheduler, struct request *request)
{
    if (scheduler->closing)
        return fail(SALVO_ERROR_CANCELLED, "the scheduler is being closed");
    if (scheduler->is_halted)
        return fail(SALVO_ERROR_DEVICE, "the device has failed");
    /* The last events of requests have a place in the queue, too, until they are polled. */
    if (queue_is_full(scheduler) ||
        scheduler->unread_ends >= (uint64_t)scheduler->options.queue + scheduler->slots)
        return fail(SALVO_ERROR_MEMORY, "the queue is full");
    request->handle = ++scheduler->last_handle;
    if (scheduler->last_waiting)
        scheduler->last_waiting->next = request;
    else
        scheduler->first_waiting = request;
    scheduler->last_waiting = request;
    waiting_count(scheduler, request);
    scheduler->counters.submitted++;
    scheduler_wake(scheduler);
    return SALVO_OK;
}

enum salvo_status salvo_scheduler_submit(
    struct salvo_scheduler *scheduler, const struct salvo_request *given, uint64_t *out_handle)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_request copy;
    struct request *request = NULL;
    REQUIRE(out_handle);
    *out_handle = 0;
    REQUIRE(scheduler);
    REQUIRE(given);
    status = options_read("salvo_request", given, sizeof copy, &copy);
    if (status == SALVO_OK)
        status = request_open(scheduler, &copy, &request);
    pthread_mutex_lock(&scheduler->mutex);
    if (status == SALVO_OK)
        status = enqueue(scheduler, request);
    if (status == SALVO_OK)
        *out_handle = request->handle;
    scheduler->counters.refused += status != SALVO_OK;
    pthread_mutex_unlock(&scheduler->mutex);
    if (status != SALVO_OK)
        request_close(request);
    return status;
}

enum salvo_status salvo_scheduler_call(
    struct salvo_scheduler *scheduler, salvo_session_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    struct scheduler_call *call = NULL;
    REQUIRE(scheduler);
    REQUIRE(function);
    TRY(NEW(&call, 1));
    *call = (struct scheduler_call){.function = function, .user = user};
    pthread_mutex_lock(&scheduler->mutex);
    if (scheduler->closing) {
        status = fail(SALVO_ERROR_CANCELLED, "the scheduler is being closed");
    } else {
        if (scheduler->last_call)
            scheduler->last_call->next = call;
        else
            scheduler->first_call = call;
        scheduler->last_call = call;
        scheduler_wake(scheduler);
    }
    pthread_mutex_unlock(&scheduler->mutex);
    if (status != SALVO_OK)
        memory_free(call);
cleanup:
    return status;
}

static struct request *find_request(const struct salvo_scheduler *scheduler, uint64_t handle)
{
    for (struct request *request = scheduler->first_waiting; request; request = request->next) {
        if (request->handle == handle)
            return request;
    }
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        if (scheduler->running[i] && scheduler->running[i]->handle == handle)
            return scheduler->running[i];
    }
    return NULL;
}

enum wish { WISH_CANCEL, WISH_PAUSE, WISH_RESUME };

static void tell(struct salvo_scheduler *scheduler, uint64_t handle, enum wish wish)
{
    if (!scheduler)
        return;
    pthread_mutex_lock(&scheduler->mutex);
    struct request *request = find_request(scheduler, handle);
    const bool is_waiting = request && request->is_waiting;
    if (is_waiting)
        waiting_uncount(scheduler, request);
    if (request && wish == WISH_CANCEL)
        request->is_cancelled = true;
    else if (request)
        request->is_paused = wish == WISH_PAUSE;
    if (is_waiting)
        waiting_count(scheduler, request);
    scheduler_wake(scheduler);
    pthread_mutex_unlock(&scheduler->mutex);
}

void salvo_scheduler_cancel(struct salvo_scheduler *scheduler, uint64_t handle)
{
    tell(scheduler, handle, WISH_CANCEL);
}

void salvo_scheduler_pause(struct salvo_scheduler *scheduler, uint64_t handle)
{
    tell(scheduler, handle, WISH_PAUSE);
}

void salvo_scheduler_resume(struct salvo_scheduler *scheduler, uint64_t handle)
{
    tell(scheduler, handle, WISH_RESUME);
}

/* ---- Polling and counters ---- */

void salvo_scheduler_sessions(
    const struct salvo_scheduler *scheduler, uint32_t first, size_t count, uint64_t *out_handles)
{
    if (!scheduler || !out_handles)
        return;
    pthread_mutex_lock(scheduler->lock);
    for (size_t i = 0; i < count; i++) {
        const struct request *request = i + first < scheduler->slots ? scheduler->running[i + first] : NULL;
        out_handles[i] = request && !request->is_over ? request->handle : 0;
    }
    pthread_mutex_unlock(scheduler->lock);
}

int salvo_scheduler_descriptor(const struct salvo_scheduler *scheduler)
{
    return scheduler ? scheduler->pipe[0] : -1;
}

bool salvo_scheduler_poll(struct salvo_scheduler *scheduler, struct salvo_event *out)
{
    struct salvo_event event = {0};
    /* Before an event is taken, which a wrong size would lose. */
    if (!scheduler || !out || result_write("salvo_event", &event, sizeof event, out) != SALVO_OK)
        return false;
    pthread_mutex_lock(&scheduler->mutex);
    const bool found = event_take(scheduler, &event);
    if (found)
        scheduler_wake(scheduler); /* a request that paused may go on */
    pthread_mutex_unlock(&scheduler->mutex);
    return found && result_write("salvo_event", &event, sizeof event, out) == SALVO_OK;
}

enum salvo_status salvo_scheduler_counters(
    const struct salvo_scheduler *scheduler, struct salvo_scheduler_counters *out)
{
    REQUIRE(scheduler);
    REQUIRE(out);
    pthread_mutex_lock(scheduler->lock);
    struct salvo_scheduler_counters counters = scheduler->counters;
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        const struct request *request = scheduler->running[i];
        counters.running += request && !request->is_over;
        counters.paused += request && !request->is_over && request->is_paused;
    }
    counters.paused += scheduler->waiting_paused;
    counters.waiting -= scheduler->waiting_paused;
    pthread_mutex_unlock(scheduler->lock);
    counters.size = sizeof counters;
    counters.sessions = scheduler->slots;
    return result_write("salvo_scheduler_counters", &counters, sizeof counters, out);
}
