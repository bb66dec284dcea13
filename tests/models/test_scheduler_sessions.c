/* The scheduler: which request has which session, functions that borrow one, readers that are slow, and the
 * end after the device has failed. */
#include "busy_device.h"
#include "cmocka_test.h"
#include "scheduler_fixture.h"

#include <pthread.h>
#include <salvo/memory.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 20, TOKENS = 12 };

struct record {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct salvo_scheduler *scheduler;
    int32_t ids[MOST_TOKENS];
    uint32_t count;
    uint32_t pause_at;   /* tokens after which it pauses; 0: never */
    struct record *next; /* submitted with the first event */
    struct salvo_event end;
    bool has_ended;
    struct salvo_request request;
    uint64_t handle;
};

static const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;

static void submit(struct record *record)
{
    ASSERT_OK(salvo_scheduler_submit(record->scheduler, &record->request, &record->handle));
}

static void note(void *user, const struct salvo_event *event)
{
    struct record *record = user;
    if (record->next)
        submit(record->next);
    record->next = NULL;
    pthread_mutex_lock(&record->mutex);
    if (event->kind == SALVO_EVENT_TOKEN)
        record->ids[record->count++] = event->id;
    if (event->kind == SALVO_EVENT_TOKEN && record->count == record->pause_at)
        salvo_scheduler_pause(record->scheduler, event->request);
    if (event->kind == SALVO_EVENT_END) {
        record->end = *event;
        record->has_ended = true;
    }
    pthread_cond_broadcast(&record->changed);
    pthread_mutex_unlock(&record->mutex);
}

static void record_open(struct record *record, struct salvo_scheduler *scheduler, const int32_t *ids)
{
    *record = (struct record){.scheduler = scheduler, .request = SALVO_REQUEST_INIT};
    pthread_mutex_init(&record->mutex, NULL);
    pthread_cond_init(&record->changed, NULL);
    record->request.ids = ids;
    record->request.count = PROMPT;
    record->request.sampler = &greedy;
    record->request.max_tokens = TOKENS;
    record->request.ignore_end = 1;
    record->request.event = note;
    record->request.user = record;
}

static void wait_for(struct record *record, uint32_t tokens)
{
    pthread_mutex_lock(&record->mutex);
    while (!record->has_ended && record->count < tokens)
        pthread_cond_wait(&record->changed, &record->mutex);
    pthread_mutex_unlock(&record->mutex);
}

static void run(struct record *record)
{
    submit(record);
    wait_for(record, UINT32_MAX);
}

static struct salvo_scheduler *open_scheduler(const struct fixture *fixture, bool halts)
{
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_scheduler *scheduler;
    options.halts = halts;
    ASSERT_OK(salvo_scheduler_open(fixture->engine, &options, &scheduler));
    return scheduler;
}

static void requests_choose_sessions(void **state)
{
    (void)state;
    struct fixture fixture = scheduler_open_engine(scheduler_model_path(0), false, CONTEXT, 0);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, false);
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
    struct record record, other;
    uint64_t handles[SESSIONS + 1];
    for (uint32_t i = 0; i < SESSIONS; i++) {
        record_open(&record, scheduler, ids);
        record.request.session = i + 1;
        run(&record);
        assert_int_equal(SALVO_OK, record.end.status);
        assert_int_equal(i, record.end.session);
    }
    record_open(&record, scheduler, ids);
    record.request.session = SESSIONS + 1;
    assert_int_equal(
        SALVO_ERROR_ARGUMENT, salvo_scheduler_submit(scheduler, &record.request, &record.handle));

    /* Two requests for the same session run one after the other. */
    record_open(&record, scheduler, ids);
    record_open(&other, scheduler, ids);
    record.request.session = other.request.session = 2;
    record.next = &other;
    run(&record);
    wait_for(&other, UINT32_MAX);
    assert_int_equal(1, other.end.session);
    assert_true(other.end.end_seconds > 0);
    assert_memory_equal(record.ids, other.ids, sizeof record.ids);
    salvo_scheduler_sessions(scheduler, 0, SESSIONS + 1, handles);
    assert_int_equal(0, handles[SESSIONS]);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

/* A reader that is slow does not keep others from a session, and its answer stays the same. */
static void slow_readers_give_up_their_sessions(void **state)
{
    (void)state;
    for (size_t model = 0; model < SCHEDULER_MODELS; model++) {
        for (int is_busy = 0; is_busy < 2; is_busy++) {
            struct fixture fixture =
                scheduler_open_engine(scheduler_model_path(model), is_busy, CONTEXT, SALVO_KV_MEMORY_MOST);
            struct salvo_scheduler *scheduler = open_scheduler(&fixture, false);
            int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
            struct record alone, slow[SESSIONS], other;
            record_open(&alone, scheduler, ids);
            run(&alone);
            for (uint32_t i = 0; i < SESSIONS; i++) {
                record_open(&slow[i], scheduler, ids);
                slow[i].pause_at = 2 + i;
                submit(&slow[i]);
            }
            for (uint32_t i = 0; i < SESSIONS; i++)
                wait_for(&slow[i], slow[i].pause_at);
            record_open(&other, scheduler, ids);
            run(&other); /* every session has a request that pauses */
            assert_memory_equal(alone.ids, other.ids, sizeof other.ids);
            assert_int_equal(SESSIONS, scheduler_counters_now(scheduler).paused);
            assert_int_equal(0, scheduler_counters_now(scheduler).waiting);
            for (uint32_t i = 0; i < SESSIONS; i++) {
                assert_false(slow[i].has_ended);
                salvo_scheduler_resume(scheduler, slow[i].handle);
            }
            for (uint32_t i = 0; i < SESSIONS; i++) {
                wait_for(&slow[i], UINT32_MAX);
                assert_int_equal(SALVO_OK, slow[i].end.status);
                assert_memory_equal(alone.ids, slow[i].ids, sizeof alone.ids);
            }
            salvo_scheduler_close(scheduler);
            free(ids);
            fixture_close(&fixture);
        }
    }
}

struct call {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const int32_t *ids;
    struct salvo_engine *engine;
    uint32_t cached;
    bool forgets, was_called, had_session;
};

static void borrow(void *user, struct salvo_session *session)
{
    struct call *call = user;
    pthread_mutex_lock(&call->mutex);
    call->had_session = session != NULL;
    if (session && call->forgets) {
        ASSERT_OK(salvo_engine_forget(call->engine, call->ids, PROMPT));
    } else if (session) {
        assert_int_equal(0, salvo_session_position(session));
        ASSERT_OK(salvo_session_prefill_cached(session, call->ids, PROMPT, &call->cached));
        ASSERT_OK(salvo_session_feed(session, call->ids + call->cached, PROMPT - call->cached));
    }
    call->was_called = true;
    pthread_cond_broadcast(&call->changed);
    pthread_mutex_unlock(&call->mutex);
}

static void do_call(struct salvo_scheduler *scheduler, struct call *call)
{
    call->was_called = false;
    ASSERT_OK(salvo_scheduler_call(scheduler, borrow, call));
    pthread_mutex_lock(&call->mutex);
    while (!call->was_called)
        pthread_cond_wait(&call->changed, &call->mutex);
    pthread_mutex_unlock(&call->mutex);
}

static void functions_borrow_a_session(void **state)
{
    (void)state;
    for (size_t model = 0; model < SCHEDULER_MODELS; model++) {
        struct fixture fixture =
            scheduler_open_engine(scheduler_model_path(model), true, CONTEXT, SALVO_KV_MEMORY_MOST);
        struct salvo_scheduler *scheduler = open_scheduler(&fixture, false);
        int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
        struct call call = {.ids = ids, .engine = fixture.engine};
        struct record before, record;
        pthread_mutex_init(&call.mutex, NULL);
        pthread_cond_init(&call.changed, NULL);
        record_open(&before, scheduler, ids);
        before.request.no_cache = 1;
        submit(&before); /* the call comes while it runs, or after it */
        do_call(scheduler, &call);
        assert_true(call.had_session);
        wait_for(&before, UINT32_MAX);
        /* The prefix cache has the tokens of the call, until they are forgotten. */
        for (int forgotten = 0; forgotten < 2; forgotten++) {
            if (forgotten) {
                call.forgets = true;
                do_call(scheduler, &call);
            }
            record_open(&record, scheduler, ids);
            run(&record);
            assert_memory_equal(before.ids, record.ids, sizeof record.ids);
            assert_int_equal(forgotten ? 0 : PROMPT - 1, record.end.cached_tokens);
        }
        salvo_scheduler_close(scheduler);
        free(ids);
        fixture_close(&fixture);
    }
}

static enum busy_fate lose_at_25(void *user, uint32_t position)
{
    (void)user;
    return position == PROMPT + 5 ? BUSY_LOST_BEFORE : BUSY_GOES_ON;
}

/* Requests in flight and in the queue end; events tell which had not begun. */
static void a_failed_device_halts_the_scheduler(void **state)
{
    (void)state;
    struct fixture fixture = scheduler_open_engine(scheduler_model_path(0), true, CONTEXT, 0);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, true);
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
    struct record first, waiting;
    struct call call = {.ids = ids, .engine = fixture.engine};
    pthread_mutex_init(&call.mutex, NULL);
    pthread_cond_init(&call.changed, NULL);
    busy_device_set_hook(fixture.engine, lose_at_25, NULL);
    record_open(&first, scheduler, ids);
    record_open(&waiting, scheduler, ids);
    first.request.session = waiting.request.session = 1;
    first.next = &waiting;
    run(&first);
    wait_for(&waiting, UINT32_MAX);
    assert_int_equal(SALVO_ERROR_DEVICE, first.end.status);
    assert_int_equal(0, first.end.session);
    assert_true(first.count > 0 && first.count < TOKENS);
    assert_int_equal(SALVO_ERROR_DEVICE, waiting.end.status);
    assert_int_equal(UINT32_MAX, waiting.end.session);
    assert_int_equal(0, waiting.count);
    record_open(&first, scheduler, ids);
    assert_int_equal(SALVO_ERROR_DEVICE, salvo_scheduler_submit(scheduler, &first.request, &first.handle));
    do_call(scheduler, &call);
    assert_false(call.had_session);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_choose_sessions),
        cmocka_unit_test(slow_readers_give_up_their_sessions),
        cmocka_unit_test(functions_borrow_a_session),
        cmocka_unit_test(a_failed_device_halts_the_scheduler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
