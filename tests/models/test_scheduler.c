/*
 * The scheduler: random requests at random moments, with cancels and pauses, each of which must get exactly
 * the tokens that it gets alone. The scheduler's clock is a fake one, so that steps seem to take any time.
 * `test_scheduler SCHEDULES REQUESTS TEST` runs more of them, of the tests whose names fit the pattern TEST;
 * SALVO_SCHEDULES=1000 does so in ctest.
 */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine/scheduler.h"
#include "scheduler_fixture.h"
#include "test_random.h"
#include "unit/text_data.h"

#include <float.h>
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
    LONG_CONTEXT = 560, /* of worlds with little memory: more than two pages */
    PAGES = 4,
    KINDS = 24, /* different requests */
    TOP = 3,
};

static uint32_t schedules = LONG_RUN(30), requests = 10; /* of each model on each device */

static uint64_t random_state;
static uint32_t forced_tokens; /* by all requests */

static uint32_t pick(uint32_t below)
{
    return test_random(&random_state, below);
}

/* ---- The clock ---- */

/* A clock that stands still, advances a little, or jumps by seconds. Called by any thread. */
static uint64_t fake_now(void)
{
    static uint64_t now = 1, calls;
    const uint64_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) * UINT64_C(0x9e3779b97f4a7c15);
    const unsigned shift = (unsigned)(call >> 60) * 2;
    return __atomic_add_fetch(
        &now, shift < 6 ? 0 : (call >> 20) & ((UINT64_C(1) << shift) - 1), __ATOMIC_RELAXED);
}

/* ---- Requests alone ---- */

/* A request, and its results when it runs alone. */
struct kind {
    int32_t *prompt;
    uint32_t prompt_count, max_tokens;
    struct salvo_sampler sampler;
    int32_t bias_id;
    float bias;
    bool has_stop, has_mask, has_logprobs, has_forced, scores;
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
    double sum = DBL_MIN, most = -INFINITY; /* not 0: its logarithm is taken */
    for (uint32_t i = 0; i < vocabulary; i++)
        most = logits[i] > most ? logits[i] : most;
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
    kind->has_mask = index % 5 == 2;
    kind->has_logprobs = !world->is_busy && index % 4 == 1;
    kind->has_forced = kind->has_mask && !kind->has_logprobs && index % 4;
    run_alone(alone, kind);
}

static struct world open_world(size_t model, bool is_busy, bool is_tight)
{
    struct world world = {.path = scheduler_model_path(model),
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
    const size_t kv_memory = is_tight ? PAGES * scheduler_page_bytes(&alone) : 0;
    fixture_close(&alone);
    world.fixture = scheduler_open_engine(world.path, is_busy, world.context, kv_memory);
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
    bool wants_progress;
    uint32_t progress; /* 1 + the tokens of the last event of progress; 0: there was none */
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
    case SALVO_EVENT_PROGRESS:
        assert_true(actor->wants_progress && !actor->got);
        assert_int_equal(kind->prompt_count, event->prompt_tokens);
        assert_true(event->computed_tokens <= kind->prompt_count);
        if (actor->progress)
            assert_true(event->computed_tokens >= actor->progress);
        else
            assert_true(theatre->polls || event->computed_tokens == event->cached_tokens);
        actor->progress = event->computed_tokens + 1;
        break;
    case SALVO_EVENT_TOKEN:
        if (actor->wants_progress && !theatre->polls && !kind->scores)
            assert_int_equal(kind->prompt_count + 1, actor->progress);
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

/* At every third place, some of the tokens that the request gets alone need not be chosen. */
static size_t force_ids(void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    const struct kind *kind = ((const struct actor *)user)->kind;
    size_t forced = 0;
    assert_true(count <= kind->id_count);
    assert_memory_equal(kind->ids, tokens, count * sizeof *tokens);
    while (count % 3 == 1 && forced < capacity && forced < 5 && count + forced < kind->id_count) {
        ids[forced] = kind->ids[count + forced];
        forced++;
    }
    __atomic_add_fetch(&forced_tokens, (uint32_t)forced, __ATOMIC_RELAXED);
    return forced;
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
    request.forced = kind->has_forced ? force_ids : NULL;
    request.event = on_event;
    request.user = actor;
    request.progress = actor->wants_progress = theatre->submitted % 2;
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

static void assert_nothing_is_left(const struct theatre *theatre)
{
    const struct salvo_scheduler_counters counters = scheduler_counters_now(theatre->scheduler);
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
    struct salvo_memory memory = SALVO_MEMORY_INIT; /* the engine has all its pages and sessions again */
    ASSERT_OK(salvo_engine_memory(world.fixture.engine, &memory));
    assert_int_equal(0, memory.used_pages);
    assert_int_equal(memory.cached_states, memory.used_states);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct salvo_session *session;
        ASSERT_OK(salvo_session_open(world.fixture.engine, &session));
    }
    close_world(&world);
}

static void requests_in_company_equal_requests_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCHEDULER_MODELS; i++)
        run_schedules(i, false, false);
}

static void a_device_that_works_by_itself_gives_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCHEDULER_MODELS; i++)
        run_schedules(i, true, false);
}

/* Without free pages, requests are preempted and computed again; prompts begin with tokens that others
 * have computed. */
static void little_memory_and_a_cache_give_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCHEDULER_MODELS; i++) {
        run_schedules(i, false, true);
        run_schedules(i, true, true);
    }
    if (test_data_folder()) /* other models have no vocabulary */
        assert_true(forced_tokens > 0);
}

int main(int argc, char **argv)
{
    const char *more = getenv("SALVO_SCHEDULES");
    if (more)
        schedules = (uint32_t)strtoul(more, NULL, 10);
    if (argc > 1)
        schedules = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        requests = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    scheduler_now = fake_now;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_in_company_equal_requests_alone),
        cmocka_unit_test(a_device_that_works_by_itself_gives_the_same),
        cmocka_unit_test(little_memory_and_a_cache_give_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
