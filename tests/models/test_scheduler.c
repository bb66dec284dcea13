/*
 * The scheduler: random requests at random moments, with cancels and pauses, each of which must get exactly
 * the tokens that it gets alone. `test_scheduler SCHEDULES REQUESTS` runs more of them.
 */
#include "base/memory.h"
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "unit/text_data.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <salvo/memory.h>
#include <salvo/scheduler.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SESSIONS = 3,
    CONTEXT = 160,
    LONG_CONTEXT = 560, /* of worlds with little memory: more than two pages */
    PAGE = 256,
    PAGES = 4,
    BATCH = 40,
    KINDS = 24, /* different requests */
    MOST_TOKENS = 40,
    TOP = 3,
};

static uint32_t schedules = 60, requests = 10; /* of each model on each device */

static uint64_t random_state;

static uint32_t pick(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

/* ---- Requests alone ---- */

/* A request, and what it gives when it runs alone. */
struct kind {
    int32_t *prompt;
    uint32_t prompt_count, max_tokens;
    struct salvo_sampler sampler;
    int32_t bias_id;
    float bias;
    bool has_stop, has_mask, has_logprobs, scores;
    int32_t stop_id;
    int32_t ids[MOST_TOKENS];
    float logprobs[MOST_TOKENS][1 + TOP];
    int32_t top_ids[MOST_TOKENS][TOP];
    uint32_t id_count, finish;
    float *scores_alone; /* [prompt_count], with `scores` */
};

struct world {
    const char *path;
    struct fixture fixture;
    struct kind kinds[KINDS];
    bool is_busy;
    bool is_tight; /* prompts and answers of more than a page, fewer pages than the sessions need, a cache */
    uint32_t context;
};

/* Every third id, which ones depends on the answer so far. */
static bool fill_mask(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    uint32_t start = (uint32_t)count % 3;
    (void)user;
    for (size_t i = 0; i < count; i++)
        start += (uint32_t)tokens[i];
    memset(mask, 0, words * sizeof *mask);
    for (uint32_t id = start % 3; id < words * 32; id += 3)
        mask[id / 32] |= UINT32_C(1) << id % 32;
    return true;
}

static double logprob_of(const float *logits, uint32_t vocabulary, int32_t id)
{
    double sum = 0, most = -INFINITY;
    for (uint32_t i = 0; i < vocabulary; i++)
        most = fmax(most, logits[i]);
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += exp(logits[i] - most);
    return logits[id] - most - log(sum);
}

static void run_alone(const struct fixture *alone, struct kind *kind)
{
    uint32_t mask[4096] = {0};
    const size_t words = (alone->vocabulary + 31) / 32;
    const uint32_t room = salvo_engine_info(alone->engine)->context - kind->prompt_count,
                   limit = kind->max_tokens && kind->max_tokens < room ? kind->max_tokens : room;
    assert_true(words <= sizeof mask / sizeof *mask && limit <= MOST_TOKENS);
    struct salvo_session *session = alone->session;
    ASSERT_OK(salvo_session_rollback(session, 0));
    ASSERT_OK(salvo_session_set_sampler(session, &kind->sampler));
    ASSERT_OK(salvo_session_set_bias(session, kind->bias_id, kind->bias));
    kind->finish = kind->max_tokens && kind->max_tokens <= room ? SALVO_FINISH_LENGTH : SALVO_FINISH_CONTEXT;
    struct salvo_run run = {.session = session, .ids = kind->prompt, .count = kind->prompt_count};
    for (kind->id_count = 0; kind->id_count < limit; run.count = 0) {
        const uint32_t i = kind->id_count;
        struct salvo_run_result result;
        uint64_t step;
        if (kind->has_mask) {
            (void)fill_mask(NULL, kind->ids, i, mask, words);
            run.mask = mask;
        }
        run.logprobs = kind->logprobs[i];
        run.top_ids = kind->top_ids[i];
        run.top_count = TOP;
        ASSERT_OK(salvo_engine_submit(alone->engine, &run, 1, sizeof run, &step));
        ASSERT_OK(salvo_engine_wait(alone->engine, step, &result, 1, sizeof result));
        assert_int_equal(SALVO_OK, result.status);
        if (kind->has_stop && i == limit / 2)
            kind->stop_id = result.id;
        kind->ids[kind->id_count++] = result.id;
    }
    for (uint32_t i = 0; kind->has_stop && i < kind->id_count; i++) {
        if (kind->ids[i] == kind->stop_id) {
            kind->id_count = i;
            kind->finish = SALVO_FINISH_END;
        }
    }
    ASSERT_OK(salvo_session_set_bias(session, kind->bias_id, 0));
    if (!kind->scores)
        return;
    ASSERT_OK(salvo_session_rollback(session, 0));
    float *logits = logits_at_once(alone, kind->prompt, kind->prompt_count);
    kind->scores_alone = calloc(kind->prompt_count, sizeof *kind->scores_alone);
    assert_non_null(kind->scores_alone);
    for (uint32_t i = 1; i < kind->prompt_count; i++)
        kind->scores_alone[i] = (float)logprob_of(
            logits + (size_t)(i - 1) * alone->vocabulary, alone->vocabulary, kind->prompt[i]);
    free(logits);
}

static void make_kind(
    const struct world *world, const struct fixture *alone, uint32_t index, struct kind *kind)
{
    *kind = (struct kind){.sampler = SALVO_SAMPLER_INIT};
    kind->prompt_count = 1 + pick(index % 4 == 2 ? 100 : 12);
    if (world->is_tight)
        kind->prompt_count = index % 4 == 0 ? 490 + pick(30) : 230 + pick(40);
    kind->max_tokens = index % 8 == 3 ? 0 : 1 + pick(world->is_tight ? MOST_TOKENS : 20);
    if (!kind->max_tokens)
        kind->prompt_count = world->context - 1 - pick(20);
    /* With little memory, prompts begin alike. */
    kind->prompt = some_ids(kind->prompt_count, alone->vocabulary, 1 + pick(world->is_tight ? 2 : 1000));
    kind->sampler.temperature = index % 5 == 0 ? 0 : 0.9f;
    kind->sampler.repeat_penalty = 1.1f;
    kind->sampler.repeat_last_n = index % 2 ? 16 : 0;
    kind->sampler.seed = pick(1000);
    kind->bias_id = (int32_t)pick(alone->vocabulary);
    kind->bias = index % 3 == 0 ? 4.0f : 0;
    kind->has_stop = index % 3 == 1;
    kind->scores = index % 6 == 4;
    kind->has_mask = !world->is_busy && index % 5 == 2;
    kind->has_logprobs = !world->is_busy && index % 4 == 1;
    run_alone(alone, kind);
}

static const struct {
    const char *folder, *file, *shape;
} models[] = {{"stories260k", "stories260K-f32.gguf", "llama-tiny"},
    {"rwkv7-tiny", "tiny-rwkv7-834k-f32.gguf", "rwkv7-tiny"}};

static const char *model_path(size_t index)
{
    static char path[4096];
    const char *data = test_data_folder();
    if (!data)
        return made_model(models[index].shape, "Q8_0");
    snprintf(path, sizeof path, "%s/%s/%s", data, models[index].folder, models[index].file);
    return path;
}

static struct fixture open_engine_with(const char *path, bool is_busy, uint32_t context, size_t kv_memory)
{
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = context;
    options.batch = BATCH;
    options.sessions = SESSIONS;
    options.kv_memory = kv_memory;
    options.prefix_cache = kv_memory != 0;
    struct fixture fixture = fixture_open(path, options);
    if (is_busy)
        busy_device_install(fixture.engine);
    salvo_session_close(fixture.session);
    fixture.session = NULL;
    return fixture;
}

static struct fixture open_engine(const char *path, bool is_busy)
{
    return open_engine_with(path, is_busy, CONTEXT, 0);
}

/* Those by which the state of two pages is larger than that of one; 1 for a model without KV caches. */
static size_t page_bytes(const struct fixture *fixture)
{
    int32_t *ids = some_ids(2 * PAGE, fixture->vocabulary, 1);
    size_t sizes[2];
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_eval(fixture->session, ids + i * PAGE, PAGE, NULL, NULL));
        sizes[i] = salvo_session_state_size(fixture->session);
    }
    free(ids);
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture->engine, &memory));
    return memory.pages ? sizes[1] - sizes[0] - PAGE * sizeof(int32_t) : 1;
}

static struct world open_world(size_t model, bool is_busy, bool is_tight)
{
    struct world world = {.path = model_path(model),
        .is_busy = is_busy,
        .is_tight = is_tight,
        .context = is_tight ? LONG_CONTEXT : CONTEXT};
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = options.batch = world.context;
    struct fixture alone = fixture_open(world.path, options);
    random_state = model + 1;
    for (uint32_t i = 0; i < KINDS; i++)
        make_kind(&world, &alone, i, &world.kinds[i]);
    const size_t kv_memory = is_tight ? PAGES * page_bytes(&alone) : 0;
    fixture_close(&alone);
    world.fixture = open_engine_with(world.path, is_busy, world.context, kv_memory);
    return world;
}

static void close_world(struct world *world)
{
    for (uint32_t i = 0; i < KINDS; i++) {
        free(world->kinds[i].prompt);
        free(world->kinds[i].scores_alone);
    }
    fixture_close(&world->fixture);
}

/* ---- Requests in a schedule ---- */

/* A request, and what came of it. */
struct actor {
    struct theatre *theatre;
    const struct kind *kind;
    uint64_t handle;
    uint32_t got, scored;
    bool is_cancelled, is_paused, has_ended;
};

struct theatre {
    struct world *world;
    struct salvo_scheduler *scheduler;
    pthread_mutex_t mutex; /* of all below, with callbacks */
    pthread_cond_t changed;
    struct actor *actors;
    uint32_t submitted, ended, cancelled;
    bool polls, chains; /* chains: the end of a request submits the next one */
    bool any_error;     /* requests may fail with SALVO_ERROR_DEVICE */
    uint32_t failed;
};

static bool submit_next(struct theatre *theatre, uint32_t most);

/* Checks an event against the request alone. Under the mutex. */
static void take_event(struct actor *actor, const struct salvo_event *event)
{
    const struct kind *kind = actor->kind;
    struct theatre *theatre = actor->theatre;
    assert_false(actor->has_ended);
    if (actor->handle) /* else submit has not returned yet */
        assert_int_equal(actor->handle, event->request);
    switch (event->kind) {
    case SALVO_EVENT_PROMPT:
        assert_true(kind->scores && actor->scored < kind->prompt_count && !actor->got);
        assert_int_equal(kind->prompt[actor->scored], event->id);
        if (actor->scored)
            assert_true(fabsf(event->logprob - kind->scores_alone[actor->scored]) < 1e-4f);
        else
            assert_true(isnan(event->logprob));
        actor->scored++;
        break;
    case SALVO_EVENT_TOKEN:
        assert_true(actor->got < kind->id_count);
        assert_int_equal(kind->scores ? kind->prompt_count : 0, actor->scored);
        assert_int_equal(kind->ids[actor->got], event->id);
        if (kind->has_logprobs) {
            assert_int_equal(TOP, event->top_count);
            assert_memory_equal(&kind->logprobs[actor->got][0], &event->logprob, sizeof(float));
            assert_memory_equal(&kind->logprobs[actor->got][1], event->top_logprobs, TOP * sizeof(float));
            assert_memory_equal(kind->top_ids[actor->got], event->top_ids, TOP * sizeof(int32_t));
        }
        actor->got++;
        break;
    default:
        assert_int_equal(SALVO_EVENT_END, event->kind);
        assert_int_equal(actor->got, event->tokens);
        assert_int_equal(kind->prompt_count, event->prompt_tokens);
        actor->has_ended = true;
        theatre->ended++;
        theatre->cancelled += event->status == SALVO_ERROR_CANCELLED;
        if (event->status == SALVO_OK) {
            assert_int_equal(kind->id_count, actor->got);
            assert_int_equal(kind->finish, event->finish);
            assert_int_equal(kind->finish == SALVO_FINISH_END ? kind->stop_id : -1, event->id);
            assert_string_equal("", event->message);
        } else if (theatre->any_error && event->status == SALVO_ERROR_DEVICE) {
            theatre->failed++;
        } else {
            assert_int_equal(SALVO_ERROR_CANCELLED, event->status);
            assert_true(actor->is_cancelled);
        }
    }
}

static void on_event(void *user, const struct salvo_event *event)
{
    struct actor *actor = user;
    struct theatre *theatre = actor->theatre;
    pthread_mutex_lock(&theatre->mutex);
    take_event(actor, event);
    if (event->kind == SALVO_EVENT_END && theatre->chains)
        (void)submit_next(theatre, requests);
    pthread_cond_signal(&theatre->changed);
    pthread_mutex_unlock(&theatre->mutex);
}

/* Under the mutex. False: the queue is full, or all are submitted. */
static bool submit_next(struct theatre *theatre, uint32_t most)
{
    if (theatre->submitted == most)
        return false;
    struct actor *actor = &theatre->actors[theatre->submitted];
    actor->theatre = theatre;
    const struct kind *kind = actor->kind;
    struct salvo_request request = SALVO_REQUEST_INIT;
    request.ids = kind->prompt;
    request.count = kind->prompt_count;
    request.sampler = &kind->sampler;
    request.bias_ids = &kind->bias_id;
    request.biases = &kind->bias;
    request.bias_count = kind->bias != 0;
    request.stop_ids = &kind->stop_id;
    request.stop_id_count = kind->has_stop;
    request.ignore_end = 1;
    request.max_tokens = kind->max_tokens;
    request.logprobs = kind->has_logprobs;
    request.prompt_logprobs = kind->scores;
    request.top_count = kind->has_logprobs ? TOP : 0;
    request.mask = kind->has_mask ? fill_mask : NULL;
    request.event = on_event;
    request.user = actor;
    theatre->submitted++; /* before its first event */
    if (salvo_scheduler_submit(theatre->scheduler, &request, &actor->handle) != SALVO_OK) {
        assert_string_equal("the queue is full", salvo_error());
        theatre->submitted--;
        return false;
    }
    return true;
}

/* Takes at most `most` events. */
static void poll_events(struct theatre *theatre, uint32_t most)
{
    struct salvo_event event = {.size = sizeof event};
    while (most-- && salvo_scheduler_poll(theatre->scheduler, &event)) {
        pthread_mutex_lock(&theatre->mutex);
        take_event(event.user, &event);
        pthread_mutex_unlock(&theatre->mutex);
    }
}

/* Something at random: a request, a cancel, a pause, its end, events, or nothing. */
static void happen(struct theatre *theatre)
{
    const uint32_t what = pick(10);
    pthread_mutex_lock(&theatre->mutex);
    if (what < 3)
        (void)submit_next(theatre, requests);
    struct actor *actor = theatre->submitted ? &theatre->actors[pick(theatre->submitted)] : NULL;
    if (actor && what == 3) {
        actor->is_cancelled |= !actor->has_ended;
        salvo_scheduler_cancel(theatre->scheduler, actor->handle);
    } else if (actor && (what == 4 || what == 5)) {
        actor->is_paused = !actor->is_paused;
        if (actor->is_paused)
            salvo_scheduler_pause(theatre->scheduler, actor->handle);
        else
            salvo_scheduler_resume(theatre->scheduler, actor->handle);
    }
    pthread_mutex_unlock(&theatre->mutex);
    if (theatre->polls && what > 5)
        poll_events(theatre, 1 + pick(8));
    for (uint32_t i = pick(20); i; i--)
        sched_yield();
}

static void wait_for_end(struct theatre *theatre)
{
    for (uint32_t i = 0; i < theatre->submitted; i++)
        salvo_scheduler_resume(theatre->scheduler, theatre->actors[i].handle);
    pthread_mutex_lock(&theatre->mutex);
    while (theatre->ended < requests && theatre->polls) {
        pthread_mutex_unlock(&theatre->mutex);
        struct pollfd descriptor = {salvo_scheduler_descriptor(theatre->scheduler), POLLIN, 0};
        assert_int_equal(1, poll(&descriptor, 1, -1));
        poll_events(theatre, 1);
        pthread_mutex_lock(&theatre->mutex);
    }
    while (theatre->ended < requests)
        pthread_cond_wait(&theatre->changed, &theatre->mutex);
    pthread_mutex_unlock(&theatre->mutex);
}

static struct salvo_scheduler_counters counters_now(const struct salvo_scheduler *scheduler)
{
    struct salvo_scheduler_counters counters = SALVO_SCHEDULER_COUNTERS_INIT;
    ASSERT_OK(salvo_scheduler_counters(scheduler, &counters));
    return counters;
}

static void assert_nothing_is_left(const struct theatre *theatre)
{
    const struct salvo_scheduler_counters counters = counters_now(theatre->scheduler);
    struct salvo_event event = {.size = sizeof event};
    assert_int_equal(requests, counters.submitted);
    assert_int_equal(requests, counters.finished + counters.cancelled + counters.failed);
    assert_int_equal(theatre->cancelled, counters.cancelled);
    assert_int_equal(theatre->failed, counters.failed);
    assert_int_equal(0, counters.waiting);
    assert_int_equal(0, counters.running);
    assert_int_equal(0, counters.paused);
    assert_int_equal(SESSIONS, counters.sessions);
    assert_false(salvo_scheduler_poll(theatre->scheduler, &event));
}

static struct theatre open_theatre(struct world *world, struct salvo_scheduler_options options)
{
    struct theatre theatre = {.world = world, .polls = options.poll};
    pthread_mutex_init(&theatre.mutex, NULL);
    pthread_cond_init(&theatre.changed, NULL);
    theatre.actors = calloc(requests, sizeof *theatre.actors);
    assert_non_null(theatre.actors);
    options.size = sizeof options;
    ASSERT_OK(salvo_scheduler_open(world->fixture.engine, &options, &theatre.scheduler));
    for (uint32_t i = 0; i < requests; i++)
        theatre.actors[i].kind = &world->kinds[pick(KINDS)];
    return theatre;
}

static void close_theatre(struct theatre *theatre)
{
    salvo_scheduler_close(theatre->scheduler);
    pthread_mutex_destroy(&theatre->mutex);
    pthread_cond_destroy(&theatre->changed);
    free(theatre->actors);
}

static void run_schedule(struct world *world, uint64_t seed)
{
    random_state = seed;
    struct theatre theatre =
        open_theatre(world, (struct salvo_scheduler_options){.queue = pick(2) ? 0 : 1 + pick(4),
                                .latency_us = pick(3) ? 0 : 1 + pick(3000),
                                .poll = pick(2),
                                .unread = pick(2) ? 0 : 1 + pick(3)});
    theatre.chains = !theatre.polls && pick(2);
    for (;;) {
        pthread_mutex_lock(&theatre.mutex);
        const bool all = theatre.submitted == requests;
        pthread_mutex_unlock(&theatre.mutex);
        if (all)
            break;
        happen(&theatre);
    }
    for (uint32_t i = pick(30); i; i--)
        happen(&theatre);
    if (pick(8)) {
        wait_for_end(&theatre);
        assert_nothing_is_left(&theatre);
    } else { /* closed in the middle: every request is cancelled */
        pthread_mutex_lock(&theatre.mutex);
        for (uint32_t i = 0; i < requests; i++)
            theatre.actors[i].is_cancelled = true;
        pthread_mutex_unlock(&theatre.mutex);
    }
    close_theatre(&theatre);
}

static void run_schedules(size_t model, bool is_busy, bool is_tight)
{
    struct world world = open_world(model, is_busy, is_tight);
    const uint64_t count = is_tight ? (schedules + 9) / 10 : schedules; /* which are longer */
    for (uint64_t seed = 1; seed <= count; seed++)
        run_schedule(&world, seed);
    for (uint32_t i = 0; i < SESSIONS; i++) { /* the engine has all its sessions again */
        struct salvo_session *session;
        ASSERT_OK(salvo_session_open(world.fixture.engine, &session));
    }
    close_world(&world);
}

static void requests_in_company_equal_requests_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        run_schedules(i, false, false);
}

static void a_device_that_works_by_itself_gives_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        run_schedules(i, true, false);
}

/* Out of pages, requests are put back and computed again; prompts begin with what others have computed. */
static void little_memory_and_a_cache_give_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        run_schedules(i, false, true);
        run_schedules(i, true, true);
    }
}

/* ---- Single cases ---- */

/* Events of one request, as they came. */
struct record {
    struct salvo_scheduler *scheduler;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t ids[MOST_TOKENS];
    uint32_t count, scored;
    struct salvo_event end;
    char message[256];
    bool has_ended;
    struct record *others; /* [other_count]: submitted with the first event */
    uint32_t other_count, refused;
    struct salvo_request request;
};

static void record_event(void *user, const struct salvo_event *event)
{
    struct record *record = user;
    for (uint32_t i = 0; i < record->other_count; i++) {
        uint64_t handle;
        if (salvo_scheduler_submit(record->scheduler, &record->others[i].request, &handle) != SALVO_OK) {
            assert_string_equal("the queue is full", salvo_error());
            record->refused++;
        }
    }
    record->other_count = 0;
    pthread_mutex_lock(&record->mutex);
    if (event->kind == SALVO_EVENT_TOKEN)
        record->ids[record->count++] = event->id;
    else if (event->kind == SALVO_EVENT_PROMPT)
        record->scored++;
    else {
        record->end = *event;
        snprintf(record->message, sizeof record->message, "%s", event->message);
        record->has_ended = true;
    }
    pthread_cond_signal(&record->changed);
    pthread_mutex_unlock(&record->mutex);
}

static const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;

static void record_open(struct record *record, struct salvo_scheduler *scheduler, const int32_t *ids,
    size_t count, uint32_t max_tokens)
{
    *record = (struct record){.scheduler = scheduler, .request = SALVO_REQUEST_INIT};
    pthread_mutex_init(&record->mutex, NULL);
    pthread_cond_init(&record->changed, NULL);
    record->request.ids = ids;
    record->request.count = count;
    record->request.sampler = &greedy;
    record->request.max_tokens = max_tokens;
    record->request.ignore_end = 1;
    record->request.event = record_event;
    record->request.user = record;
}

static void wait_for(struct record *record)
{
    pthread_mutex_lock(&record->mutex);
    while (!record->has_ended)
        pthread_cond_wait(&record->changed, &record->mutex);
    pthread_mutex_unlock(&record->mutex);
}

static void run_request(struct record *record)
{
    uint64_t handle;
    ASSERT_OK(salvo_scheduler_submit(record->scheduler, &record->request, &handle));
    wait_for(record);
}

static struct salvo_scheduler *open_scheduler(const struct fixture *fixture, uint32_t queue)
{
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_scheduler *scheduler;
    options.queue = queue;
    ASSERT_OK(salvo_scheduler_open(fixture->engine, &options, &scheduler));
    return scheduler;
}

/* What a callback submits is admitted together: one step for all prompts, one for each further token of all
 * of them. The queue takes as many as it is long. */
static void requests_share_steps(void **state)
{
    (void)state;
    enum { EACH = 8, TOKENS = 10 };
    struct fixture fixture = open_engine(made_model("llama-tiny", "Q8_0"), false);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, SESSIONS);
    int32_t *ids = some_ids(EACH, fixture.vocabulary, 3);
    struct record first, others[SESSIONS + 2];
    record_open(&first, scheduler, ids, EACH, 1);
    for (int i = 0; i < SESSIONS + 2; i++)
        record_open(&others[i], scheduler, ids, EACH, TOKENS);
    first.others = others;
    first.other_count = SESSIONS + 2;
    run_request(&first);
    assert_int_equal(SALVO_FINISH_LENGTH, first.end.finish);
    assert_int_equal(2, first.refused);
    for (int i = 0; i < SESSIONS; i++)
        wait_for(&others[i]);
    for (int i = 0; i < SESSIONS; i++) {
        assert_int_equal(TOKENS, others[i].count);
        assert_memory_equal(others[0].ids, others[i].ids, TOKENS * sizeof(int32_t));
    }
    const struct salvo_scheduler_counters counters = counters_now(scheduler);
    assert_int_equal(1 + TOKENS, counters.steps);
    assert_int_equal((1 + SESSIONS) * EACH, counters.prompt_tokens);
    assert_int_equal(1 + SESSIONS * TOKENS, counters.tokens);
    assert_int_equal(2, counters.refused);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

static void assert_refused(struct record *record, enum salvo_status status, const char *part)
{
    uint64_t handle = 7;
    assert_int_equal(status, salvo_scheduler_submit(record->scheduler, &record->request, &handle));
    assert_int_equal(0, handle);
    if (!strstr(salvo_error(), part))
        fail_msg("'%s' does not say '%s'", salvo_error(), part);
}

static void what_can_never_run_is_refused(void **state)
{
    (void)state;
    struct fixture fixture = open_engine(made_model("llama-tiny", "Q8_0"), false);
    struct salvo_scheduler *scheduler, *second;
    struct salvo_session *session;
    int32_t *ids = some_ids(CONTEXT + 1, fixture.vocabulary, 3);
    const int32_t outside = (int32_t)fixture.vocabulary;
    const float nan = NAN;
    struct record record;
    ASSERT_OK(salvo_session_open(fixture.engine, &session));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_scheduler_open(fixture.engine, NULL, &second));
    assert_non_null(strstr(salvo_error(), "needs all 3 sessions"));
    salvo_session_close(session);
    scheduler = open_scheduler(&fixture, 0);
    const struct salvo_sampler hot = {.size = sizeof hot, .temperature = -1};
    const struct {
        struct salvo_request request;
        enum salvo_status status;
        const char *part;
    } cases[] = {
        {{.count = 0}, SALVO_ERROR_ARGUMENT, "no tokens"},
        {{.count = 1}, SALVO_ERROR_ARGUMENT, "list of 1 tokens of the prompt is NULL"},
        {{.ids = &outside, .count = 1}, SALVO_ERROR_ARGUMENT, "outside the vocabulary"},
        {{.ids = ids, .count = CONTEXT}, SALVO_ERROR_CONTEXT, "160 tokens and one of the answer"},
        {{.ids = ids, .count = CONTEXT + 1, .max_tokens = UINT32_MAX}, SALVO_ERROR_CONTEXT,
            "161 tokens does not fit into the context of 160"},
        {{.ids = ids, .count = 1, .sampler = &hot}, SALVO_ERROR_ARGUMENT, "temperature -1"},
        {{.ids = ids, .count = 1, .bias_ids = &outside, .bias_count = 1}, SALVO_ERROR_ARGUMENT,
            "tokens with a bias"},
        {{.ids = ids, .count = 1, .bias_ids = ids, .biases = &nan, .bias_count = 1}, SALVO_ERROR_ARGUMENT,
            "cannot be nan"},
        {{.ids = ids, .count = 1, .stop_ids = ids, .stop_id_count = 33}, SALVO_ERROR_ARGUMENT, "33 stop ids"},
        {{.ids = ids, .count = 1, .top_count = 21}, SALVO_ERROR_ARGUMENT, "the 21 most likely"},
        {{.ids = ids, .count = 1, .ignore_end = 0}, SALVO_ERROR_UNSUPPORTED, "ignore_end must be 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        record_open(&record, scheduler, NULL, 0, 0);
        record.request = cases[i].request;
        record.request.size = sizeof record.request;
        record.request.ignore_end = i + 1 < sizeof cases / sizeof *cases;
        record.request.event = record_event;
        assert_refused(&record, cases[i].status, cases[i].part);
    }
    record_open(&record, scheduler, ids, 1, 1);
    record.request.event = NULL;
    assert_refused(&record, SALVO_ERROR_ARGUMENT, "function for events");
    assert_int_equal(sizeof cases / sizeof *cases + 1, counters_now(scheduler).refused);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

static bool end_at_third(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    const struct record *record = user;
    assert_memory_equal(record->ids, tokens, count * sizeof *tokens);
    memset(mask, 0xff, words * sizeof *mask);
    return count < 3;
}

static bool allow_none(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    (void)user;
    (void)tokens;
    memset(mask, count ? 0 : 0xff, words * sizeof *mask);
    return true;
}

static void answers_end_for_many_reasons(void **state)
{
    (void)state;
    struct fixture fixture = open_engine(made_model_with_vocabulary("llama-tiny", "Q8_0"), false);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
    int32_t *ids = some_ids(10, fixture.vocabulary, 3);
    struct record record;
    record_open(&record, scheduler, ids, 10, 9);
    record.request.mask = end_at_third;
    run_request(&record);
    assert_int_equal(SALVO_FINISH_CALLBACK, record.end.finish);
    assert_int_equal(3, record.count);
    record_open(&record, scheduler, ids, 10, 9);
    record.request.mask = allow_none;
    run_request(&record);
    assert_int_equal(SALVO_ERROR_NUMERIC, record.end.status);
    assert_non_null(strstr(record.message, "the mask allows none"));
    assert_int_equal(1, record.count);
    record_open(&record, scheduler, ids, 10, UINT32_MAX);
    record.request.prompt_logprobs = 1;
    run_request(&record);
    assert_int_equal(SALVO_OK, record.end.status);
    assert_int_equal(10, record.scored);
    assert_int_equal(0, record.count);

    /* The end token of the vocabulary, which a bias makes the only choice. */
    int32_t *ends, end;
    size_t end_count;
    const float high = 1e6f;
    ASSERT_OK(salvo_tokenize(fixture.model, "", 0, SALVO_TOKENIZE_EOS, &ends, &end_count));
    assert_int_equal(1, end_count);
    end = ends[0];
    salvo_free(ends);
    for (uint32_t ignore = 0; ignore < 2; ignore++) {
        record_open(&record, scheduler, ids, 10, 4);
        record.request.bias_ids = &end;
        record.request.biases = &high;
        record.request.bias_count = 1;
        record.request.ignore_end = ignore;
        run_request(&record);
        assert_int_equal(ignore ? SALVO_FINISH_LENGTH : SALVO_FINISH_END, record.end.finish);
        assert_int_equal(ignore ? -1 : end, record.end.id);
        assert_int_equal(ignore ? 4 : 0, record.count);
    }
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

static enum busy_fate lose_at_20(void *user, uint32_t position)
{
    (void)user;
    return position == 20 ? BUSY_LOST_AFTER : BUSY_GOES_ON;
}

/* Requests in flight fail; the scheduler goes on with the next ones. */
static void a_device_that_fails_fails_what_is_in_flight(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture fixture = open_engine(made_model(models[i].shape, "Q8_0"), true);
        struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
        int32_t *ids = some_ids(15, fixture.vocabulary, 3);
        struct record record, after;
        busy_device_set_hook(fixture.engine, lose_at_20, NULL);
        for (int again = 0; again < 2; again++) {
            record_open(&record, scheduler, ids, 15, 10);
            run_request(&record);
            assert_int_equal(SALVO_ERROR_DEVICE, record.end.status);
            assert_true(record.count >= 3 && record.count <= 6);
            record_open(&after, scheduler, ids, 15, 5);
            run_request(&after);
            assert_int_equal(SALVO_OK, after.end.status);
            assert_memory_equal(after.ids, record.ids, (record.count < 5 ? record.count : 5) * sizeof *ids);
        }
        salvo_scheduler_close(scheduler);
        free(ids);
        fixture_close(&fixture);
    }
}

/* A request whose events nobody reads computes no more than may be unread. */
static void unread_events_are_bounded(void **state)
{
    (void)state;
    enum { UNREAD = 2, TOKENS = 20 };
    struct fixture fixture = open_engine(made_model("rwkv7-tiny", "Q8_0"), true);
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_event event = {.size = sizeof event};
    struct salvo_scheduler *scheduler;
    struct record record;
    uint64_t handle;
    uint32_t taken = 0;
    int32_t *ids = some_ids(15, fixture.vocabulary, 3);
    options.poll = 1;
    options.unread = UNREAD;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
    record_open(&record, scheduler, ids, 15, TOKENS);
    ASSERT_OK(salvo_scheduler_submit(scheduler, &record.request, &handle));
    do {
        struct pollfd descriptor = {salvo_scheduler_descriptor(scheduler), POLLIN, 0};
        assert_int_equal(1, poll(&descriptor, 1, -1));
        assert_true(counters_now(scheduler).tokens <= taken + UNREAD);
        assert_true(salvo_scheduler_poll(scheduler, &event));
        taken += event.kind == SALVO_EVENT_TOKEN;
    } while (event.kind != SALVO_EVENT_END);
    assert_int_equal(TOKENS, taken);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

/* Each allocation fails once. */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct fixture fixture = open_engine(made_model("llama-tiny", "Q8_0"), false);
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_scheduler *scheduler = NULL;
    struct record record;
    uint64_t handle = 0;
    int32_t *ids = some_ids(15, fixture.vocabulary, 3);
    const float bias = 1;
    options.poll = 1;
    for (uint64_t nth = 1; !scheduler; nth++) {
        memory_fail_at(nth);
        const enum salvo_status status = salvo_scheduler_open(fixture.engine, &options, &scheduler);
        memory_fail_at(0);
        assert_true(status == SALVO_OK || (status == SALVO_ERROR_MEMORY && !scheduler));
    }
    record_open(&record, scheduler, ids, 15, 5);
    record.request.bias_ids = ids;
    record.request.biases = &bias;
    record.request.bias_count = 1;
    record.request.mask = allow_none;
    for (uint64_t nth = 1; !handle; nth++) {
        memory_fail_at(nth);
        const enum salvo_status status = salvo_scheduler_submit(scheduler, &record.request, &handle);
        memory_fail_at(0);
        assert_true(status == SALVO_OK || (status == SALVO_ERROR_MEMORY && !handle));
    }
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        schedules = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        requests = (uint32_t)strtoul(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_in_company_equal_requests_alone),
        cmocka_unit_test(a_device_that_works_by_itself_gives_the_same),
        cmocka_unit_test(little_memory_and_a_cache_give_the_same),
        cmocka_unit_test(requests_share_steps),
        cmocka_unit_test(what_can_never_run_is_refused),
        cmocka_unit_test(answers_end_for_many_reasons),
        cmocka_unit_test(a_device_that_fails_fails_what_is_in_flight),
        cmocka_unit_test(unread_events_are_bounded),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
