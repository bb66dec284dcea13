/* The scheduler: requests one by one, their ends, refusals, failures and limits. */
#include "base/memory.h"
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine/scheduler.h"
#include "scheduler_fixture.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <salvo/memory.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Single cases ---- */

/* Events of one request, as they came. */
struct record {
    struct salvo_scheduler *scheduler;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int32_t ids[MOST_TOKENS];
    uint32_t count, scored;
    uint32_t progress; /* 1 + the tokens of the last event of progress; 0: there was none */
    struct salvo_event end;
    char message[256];
    bool has_ended;
    struct record *others; /* [other_count]: submitted with the first event */
    uint32_t other_count, refused, masks;
    const struct record *beside; /* another request */
    uint32_t tokens_beside;      /* that it had when this one ended */
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
    else if (event->kind == SALVO_EVENT_PROGRESS) {
        assert_true(event->computed_tokens >= record->progress);
        record->progress = event->computed_tokens + 1;
    } else {
        record->end = *event;
        snprintf(record->message, sizeof record->message, "%s", event->message);
        record->has_ended = true;
        record->tokens_beside = record->beside ? record->beside->count : 0;
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

/* Requests that a callback submits are admitted together: one step for all prompts, one for each further
 * token of all of them. The queue takes as many as it is long. */
static void requests_share_steps(void **state)
{
    (void)state;
    enum { EACH = 8, TOKENS = 10 };
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
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
    const struct salvo_scheduler_counters counters = scheduler_counters_now(scheduler);
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
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
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
    assert_int_equal(sizeof cases / sizeof *cases + 1, scheduler_counters_now(scheduler).refused);
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
    struct fixture fixture =
        scheduler_open_engine(made_model_with_vocabulary("llama-tiny", "Q8_0"), false, CONTEXT, 0);
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

/* The device has been given the last token of the answer before the mask is asked for. */
static bool allow_all_once(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    struct record *record = user;
    const struct salvo_session *session = record->scheduler->sessions[0];
    const uint32_t submitted = session->batch.flying ? session->batch.planned : session->position;
    if (count)
        assert_int_equal(record->request.count + count, submitted);
    assert_int_equal(record->masks++, count);
    assert_memory_equal(record->ids, tokens, count * sizeof *tokens);
    memset(mask, 0xff, words * sizeof *mask);
    return true;
}

static bool count_masks(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    struct record *record = user;
    record->masks++;
    assert_memory_equal(record->ids, tokens, count * sizeof *tokens);
    memset(mask, 0xff, words * sizeof *mask);
    return true;
}

/* Tokens 2 to 5 and from 7 on are copied from the other request, as many as fit. */
static size_t force_others(void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    const struct record *record = user;
    size_t forced = 0;
    assert_memory_equal(record->ids, tokens, count * sizeof *tokens);
    for (size_t i = count; forced < capacity && i < MOST_TOKENS && ((i >= 2 && i < 6) || i >= 7); i++)
        ids[forced++] = record->beside->ids[i];
    return forced;
}

/* Tokens 2 to 5 alone. */
static size_t force_a_few(void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    return count < 6 ? force_others(user, tokens, count, ids, capacity < 6 - count ? capacity : 6 - count)
                     : 0;
}

/* Token 2, and behind it one that ends an answer. */
static size_t force_an_end(void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    const struct record *record = user;
    (void)tokens;
    if (count != 2 || capacity < 2)
        return 0;
    ids[0] = record->beside->ids[2];
    ids[1] = 0;
    while (!tokenizer_is_end(record->scheduler->tokenizer, ids[1]))
        ids[1]++;
    return 2;
}

static uint64_t steps_of(const struct salvo_scheduler *scheduler)
{
    struct salvo_scheduler_counters counters = SALVO_SCHEDULER_COUNTERS_INIT;
    assert_int_equal(SALVO_OK, salvo_scheduler_counters(scheduler, &counters));
    return counters.steps;
}

/* Forced tokens that the model would choose anyway: the answer is the same, in fewer steps. */
static void forced_tokens_save_steps(void **state)
{
    (void)state;
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        struct fixture fixture =
            scheduler_open_engine(made_model_with_vocabulary("llama-tiny", "Q8_0"), asynchronous, CONTEXT, 0);
        struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
        int32_t *ids = some_ids(10, fixture.vocabulary, 3);
        struct record free_record, record;
        record_open(&free_record, scheduler, ids, 10, 12);
        free_record.request.mask = count_masks;
        run_request(&free_record);
        const uint64_t free_steps = steps_of(scheduler);
        assert_int_equal(12, free_record.masks);
        record_open(&record, scheduler, ids, 10, 12);
        record.request.mask = count_masks;
        record.request.forced = force_others;
        record.beside = &free_record;
        run_request(&record);
        assert_int_equal(SALVO_FINISH_LENGTH, record.end.finish);
        assert_int_equal(12, record.count);
        assert_memory_equal(free_record.ids, record.ids, 12 * sizeof *record.ids);
        assert_int_equal(3, record.masks); /* tokens 0, 1 and 6 */
        assert_true((steps_of(scheduler) - free_steps) * 2 < free_steps);

        /* The model chooses the tokens behind the forced ones, and no token that ends the answer is forced.
         */
        static const salvo_forced_function others[] = {force_a_few, force_an_end};
        for (int i = 0; i < 2; i++) {
            record_open(&record, scheduler, ids, 10, 12);
            record.request.mask = count_masks;
            record.request.forced = others[i];
            record.beside = &free_record;
            run_request(&record);
            assert_int_equal(12, record.count);
            assert_memory_equal(free_record.ids, record.ids, 12 * sizeof *record.ids);
            assert_int_equal(i ? 11 : 8, record.masks);
        }
        salvo_scheduler_close(scheduler);
        free(ids);
        fixture_close(&fixture);
    }
}

/* A device that works by itself computes each token while the mask of the next is made. */
static void masks_follow_the_answer(void **state)
{
    (void)state;
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), true, CONTEXT, 0);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
    int32_t *ids = some_ids(10, fixture.vocabulary, 3);
    struct record record;
    record_open(&record, scheduler, ids, 10, 9);
    record.request.mask = allow_all_once;
    run_request(&record);
    assert_int_equal(SALVO_FINISH_LENGTH, record.end.finish);
    assert_int_equal(9, record.masks);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

static uint64_t clock_step_ns, clock_now_ns;

static uint64_t even_clock(void)
{
    return __atomic_add_fetch(&clock_now_ns, clock_step_ns, __ATOMIC_RELAXED);
}

/* A step has several tokens where each takes little time, and one where each takes long. */
static void quick_devices_decode_several_tokens_at_once(void **state)
{
    (void)state;
    enum { EACH = 8, MOST_AT_ONCE = 4 };
    uint64_t (*const real)(void) = scheduler_now;
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), true, CONTEXT, 0);
    int32_t *ids = some_ids(EACH, fixture.vocabulary, 3), first_ids[MOST_TOKENS];
    scheduler_now = even_clock;
    static const uint64_t clocks[] = {1000, 200000, 5000000}; /* four tokens of the second in 2 ms */
    for (int i = 0; i < 3; i++) {
        struct record record;
        const bool is_slow = i == 2;
        clock_step_ns = clocks[i];
        struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
        record_open(&record, scheduler, ids, EACH, MOST_TOKENS);
        run_request(&record);
        assert_int_equal(MOST_TOKENS, record.count);
        const uint64_t steps = scheduler_counters_now(scheduler).steps;
        if (i)
            assert_memory_equal(first_ids, record.ids, sizeof first_ids);
        memcpy(first_ids, record.ids, sizeof first_ids);
        assert_int_equal(
            is_slow ? MOST_TOKENS : 1 + (MOST_TOKENS - 1 + MOST_AT_ONCE - 1) / MOST_AT_ONCE, steps);
        record_open(&record, scheduler, ids, EACH, MOST_TOKENS); /* a step has one token of it */
        record.request.logprobs = 1;
        run_request(&record);
        assert_int_equal(MOST_TOKENS, record.count);
        assert_memory_equal(first_ids, record.ids, sizeof first_ids);
        salvo_scheduler_close(scheduler);
    }
    scheduler_now = real;
    free(ids);
    fixture_close(&fixture);
}

/* While a request decodes, steps have room for a small part of prompts, and the short one does not wait for
 * the long one. */
static void prompts_take_turns(void **state)
{
    (void)state;
    enum { LONG = 120, SHORT = 20, LEAST = 4 };
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_scheduler *scheduler;
    struct record first, others[2];
    int32_t *ids = some_ids(LONG, fixture.vocabulary, 3);
    options.latency_us = 1;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
    assert_int_equal(LEAST, scheduler_counters_now(scheduler).step_tokens);
    record_open(&first, scheduler, ids, 1, MOST_TOKENS);
    record_open(&others[0], scheduler, ids, LONG, 1);
    record_open(&others[1], scheduler, ids, SHORT, 1);
    first.others = others;
    first.other_count = 2;
    others[0].beside = others[1].beside = &first;
    run_request(&first);
    for (int i = 0; i < 2; i++)
        wait_for(&others[i]);
    assert_true(others[1].tokens_beside < others[0].tokens_beside);
    assert_true(others[0].tokens_beside >= (LONG + SHORT) / LEAST && others[0].tokens_beside < MOST_TOKENS);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

/* Two requests need two pages each, of three: the second one has to wait. */
static void the_oldest_request_is_never_put_back(void **state)
{
    (void)state;
    enum { PROMPT = PAGE - 10, BYTES_OF_PAGE = 1 << 16 };
    struct fixture fixture =
        scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, 2 * PAGE, 3 * BYTES_OF_PAGE);
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture.engine, &memory));
    assert_int_equal(3, memory.pages);
    struct salvo_scheduler *scheduler = open_scheduler(&fixture, 0);
    int32_t *ids = some_ids(PROMPT + 1, fixture.vocabulary, 3);
    struct record starter, records[2];
    record_open(&starter, scheduler, ids, 1, 1); /* the others are admitted together when it has ended */
    for (int i = 0; i < 2; i++) {
        record_open(&records[i], scheduler, ids + i, PROMPT, MOST_TOKENS);
        records[i].beside = &records[1 - i];
    }
    starter.others = records;
    starter.other_count = 2;
    run_request(&starter);
    for (int i = 0; i < 2; i++) {
        wait_for(&records[i]);
        assert_int_equal(SALVO_FINISH_LENGTH, records[i].end.finish);
    }
    assert_true(records[0].tokens_beside < MOST_TOKENS);
    assert_int_equal(MOST_TOKENS, records[1].tokens_beside);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

/* The first request needs another page while the prompt of the second one is computed, which has the last
 * pages: it is put back, and its prompt is computed again. */
static void progress_never_goes_back(void **state)
{
    (void)state;
    enum { FIRST = PAGE - 10, SECOND = 2 * PAGE - 2, BYTES_OF_PAGE = 1 << 16 };
    struct fixture fixture =
        scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, 2 * PAGE, 3 * BYTES_OF_PAGE);
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_scheduler *scheduler;
    struct record first, second;
    int32_t *ids = some_ids(SECOND, fixture.vocabulary, 3);
    options.latency_us = 1000000; /* a step has a large part of the prompt */
    ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
    record_open(&first, scheduler, ids, FIRST, MOST_TOKENS);
    record_open(&second, scheduler, ids, SECOND, 1);
    second.request.progress = 1;
    first.others = &second;
    first.other_count = 1;
    run_request(&first);
    wait_for(&second);
    assert_int_equal(SALVO_FINISH_LENGTH, first.end.finish);
    assert_int_equal(SALVO_FINISH_LENGTH, second.end.finish);
    assert_true(scheduler_counters_now(scheduler).prompt_tokens > FIRST + SECOND);
    assert_int_equal(SECOND + 1, second.progress);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

static enum busy_fate lose_at_20(void *user, uint32_t position)
{
    (void)user;
    return position == 20 ? BUSY_LOST_AFTER : BUSY_GOES_ON;
}

/* Requests in flight fail; the scheduler continues with the next ones. */
static void a_device_that_fails_fails_what_is_in_flight(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCHEDULER_MODELS; i++) {
        struct fixture fixture =
            scheduler_open_engine(made_model(i ? "rwkv7-tiny" : "llama-tiny", "Q8_0"), true, CONTEXT, 0);
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

/* A request whose events are not read computes at most `unread` tokens, for any value of `unread`. */
static void unread_events_are_bounded(void **state)
{
    (void)state;
    enum { PROMPT = 15, TOKENS = 20 };
    static const uint32_t limits[] = {2, PROMPT + TOKENS, UINT32_MAX};
    struct fixture fixture = scheduler_open_engine(made_model("rwkv7-tiny", "Q8_0"), true, CONTEXT, 0);
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
        struct salvo_event event = {.size = sizeof event}, wrong = {.size = sizeof wrong.size - 1};
        struct salvo_scheduler *scheduler;
        struct record record;
        uint64_t handle;
        uint32_t taken = 0, scored = 0;
        options.poll = 1;
        options.unread = limits[i];
        options.queue = i ? UINT32_MAX : 0;
        ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
        record_open(&record, scheduler, ids, PROMPT, TOKENS);
        record.request.prompt_logprobs = 1;
        ASSERT_OK(salvo_scheduler_submit(scheduler, &record.request, &handle));
        do {
            struct pollfd descriptor = {salvo_scheduler_descriptor(scheduler), POLLIN, 0};
            assert_int_equal(1, poll(&descriptor, 1, -1));
            assert_true(scheduler_counters_now(scheduler).tokens <= (uint64_t)taken + limits[i]);
            assert_false(salvo_scheduler_poll(scheduler, &wrong)); /* which takes none */
            assert_true(salvo_scheduler_poll(scheduler, &event));
            if (event.kind == SALVO_EVENT_PROMPT)
                assert_int_equal(ids[scored++], event.id);
            taken += event.kind == SALVO_EVENT_TOKEN;
        } while (event.kind != SALVO_EVENT_END);
        assert_int_equal(PROMPT, scored);
        assert_int_equal(TOKENS, taken);
        salvo_scheduler_close(scheduler);
    }
    free(ids);
    fixture_close(&fixture);
}

/* The steps that are measured at the beginning fit into the KV memory, however long they may take. */
static void a_context_beyond_the_memory(void **state)
{
    (void)state;
    enum { LONG = 4 * PAGE };
    struct salvo_engine_options engine_options = SALVO_ENGINE_OPTIONS_INIT;
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    struct salvo_scheduler *scheduler;
    struct record record;
    engine_options.backend = "cpu";
    engine_options.threads = 1;
    engine_options.context = engine_options.batch = LONG;
    engine_options.kv_memory = 1 << 16;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"), engine_options);
    ASSERT_OK(salvo_engine_memory(fixture.engine, &memory));
    assert_true(memory.pages * PAGE < LONG);
    salvo_session_close(fixture.session);
    options.latency_us = UINT32_MAX;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
    const uint32_t most = memory.pages * PAGE;
    int32_t *ids = some_ids(most, fixture.vocabulary, 3);
    record_open(&record, scheduler, ids, most - 2, 0);
    run_request(&record);
    assert_int_equal(SALVO_FINISH_CONTEXT, record.end.finish);
    assert_int_equal(2, record.count);
    record_open(&record, scheduler, ids, most, 0);
    assert_refused(&record, SALVO_ERROR_CONTEXT, "does not fit into the KV memory");
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture.session = NULL;
    fixture_close(&fixture);
}

/* A step of all sessions may be longer than the context of the session that is measured. */
static void a_context_shorter_than_a_step(void **state)
{
    (void)state;
    enum { SHORT = 16 };
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    struct salvo_scheduler *scheduler;
    options.backend = "cpu";
    options.threads = 1;
    options.sessions = 4;
    options.context = SHORT;
    options.batch = 4 * SHORT;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"), options);
    salvo_session_close(fixture.session);
    ASSERT_OK(salvo_scheduler_open(fixture.engine, NULL, &scheduler));
    salvo_scheduler_close(scheduler);
    fixture.session = NULL;
    fixture_close(&fixture);
}

/* Each last event has a place that a queue of any length leaves. */
static void a_queue_of_any_length(void **state)
{
    (void)state;
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    struct salvo_event event = {.size = sizeof event};
    struct salvo_scheduler *scheduler;
    struct record record;
    uint64_t handle;
    uint32_t ends = 0;
    int32_t *ids = some_ids(3, fixture.vocabulary, 3);
    options.poll = 1;
    options.queue = UINT32_MAX;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, &options, &scheduler));
    record_open(&record, scheduler, ids, 3, 1);
    for (int i = 0; i < 2 * SESSIONS; i++) {
        ASSERT_OK(salvo_scheduler_submit(scheduler, &record.request, &handle));
        while (scheduler_counters_now(scheduler).finished == (uint64_t)i) /* its last event is not polled */
            sched_yield();
    }
    while (ends < 2 * SESSIONS) {
        struct pollfd descriptor = {salvo_scheduler_descriptor(scheduler), POLLIN, 0};
        assert_int_equal(1, poll(&descriptor, 1, -1));
        assert_true(salvo_scheduler_poll(scheduler, &event));
        ends += event.kind == SALVO_EVENT_END;
    }
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

/* Each allocation fails once. */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_share_steps),
        cmocka_unit_test(what_can_never_run_is_refused),
        cmocka_unit_test(answers_end_for_many_reasons),
        cmocka_unit_test(masks_follow_the_answer),
        cmocka_unit_test(forced_tokens_save_steps),
        cmocka_unit_test(quick_devices_decode_several_tokens_at_once),
        cmocka_unit_test(prompts_take_turns),
        cmocka_unit_test(the_oldest_request_is_never_put_back),
        cmocka_unit_test(progress_never_goes_back),
        cmocka_unit_test(a_device_that_fails_fails_what_is_in_flight),
        cmocka_unit_test(unread_events_are_bounded),
        cmocka_unit_test(a_context_beyond_the_memory),
        cmocka_unit_test(a_context_shorter_than_a_step),
        cmocka_unit_test(a_queue_of_any_length),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
