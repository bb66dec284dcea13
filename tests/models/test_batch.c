/* Batches: every request gets the same ids and logits, by memcmp, as alone, whatever happens around it. */
#include "batch_schedule.h"
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine/engine.h"
#include "mask_checks.h"
#include "repeat_checks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 4, CONTEXT = 512, BATCH = 24 };

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

static struct fixture open_batch(const char *shape)
{
    return fixture_open(
        made_model(shape, "Q8_0"), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                       .backend = "cpu",
                                       .threads = 1,
                                       .context = CONTEXT,
                                       .batch = BATCH,
                                       .sessions = SESSIONS});
}

/* ---- Schedules ---- */

static void run_schedules(const char *shape, bool busy, uint64_t seeds, struct schedule_report *report)
{
    struct fixture fixture = open_batch(shape);
    if (busy)
        busy_device_install(fixture.engine);
    salvo_session_close(fixture.session);
    fixture.session = NULL;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const struct schedule schedule = {.seed = seed,
            .requests = 10,
            .most_prompt = seed % 4 ? 40 : 300, /* the longer ones need several pages and snapshots */
            .most_tokens = 20,
            .batch = BATCH - SESSIONS,
            .compare_logits = true,
            .cancel = true};
        run_schedule(made_model(shape, "Q8_0"), fixture.engine, &schedule, report);
    }
    fixture_close(&fixture);
}

static void requests_in_company_equal_requests_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct schedule_report report = {0};
        run_schedules(shapes[i], false, 4, &report);
        assert_true(report.mixed_steps > 20);
        assert_int_equal(SALVO_OPEN_STEPS, report.most_open);
        assert_true(report.idle_runs > 0);
        assert_true(report.longer_runs > 20);
    }
}

static void a_device_that_works_by_itself_gives_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct schedule_report report = {0};
        run_schedules(shapes[i], true, 4, &report);
        assert_true(report.mixed_steps > 20);
        assert_true(report.idle_runs > 0);
        assert_true(report.cancelled > 0);
        assert_true(report.longer_runs > 20);
    }
}

static void runs_of_several_tokens_end_one_by_one(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct fixture fixture = fixture_open(made_model(shapes[variant / 2], "Q8_0"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                .backend = "cpu",
                .threads = 2,
                .context = REPEAT_CONTEXT,
                .sessions = 5});
        if (variant % 2)
            busy_device_install(fixture.engine);
        check_repeats(&fixture);
        fixture_close(&fixture);
    }
}

struct canceller {
    struct salvo_engine *engine;
    uint64_t *last_handle;
    atomic_bool stop;
};

static void *cancel_again_and_again(void *user)
{
    struct canceller *canceller = user;
    while (!atomic_load(&canceller->stop)) {
        const uint64_t handle = __atomic_load_n(canceller->last_handle, __ATOMIC_RELAXED);
        if (handle % 3 == 0)
            salvo_engine_cancel(canceller->engine, handle);
    }
    return NULL;
}

static void another_thread_may_cancel(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_batch(shapes[i]);
        struct schedule_report report = {0};
        struct canceller canceller = {.engine = fixture.engine, .last_handle = &report.last_handle};
        pthread_t thread;
        salvo_session_close(fixture.session);
        fixture.session = NULL;
        assert_int_equal(0, pthread_create(&thread, NULL, cancel_again_and_again, &canceller));
        const struct schedule schedule = {.seed = 9,
            .requests = 10,
            .most_prompt = 60,
            .most_tokens = 20,
            .batch = BATCH - SESSIONS,
            .compare_logits = true};
        run_schedule(made_model(shapes[i], "Q8_0"), fixture.engine, &schedule, &report);
        atomic_store(&canceller.stop, true);
        assert_int_equal(0, pthread_join(thread, NULL));
        fixture_close(&fixture);
    }
}

/* ---- Single cases ---- */

static struct salvo_run_result submit_one(struct salvo_engine *engine, struct salvo_run run)
{
    struct salvo_run_result result;
    uint64_t step;
    ASSERT_OK(salvo_engine_submit(engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(engine, step, &result, 1, sizeof result));
    return result;
}

static void assert_refused(
    struct salvo_engine *engine, const struct salvo_run *runs, size_t count, const char *part)
{
    uint64_t step = 7;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_submit(engine, runs, count, sizeof *runs, &step));
    assert_int_equal(0, step);
    if (!strstr(salvo_error(), part))
        fail_msg("'%s' does not say '%s'", salvo_error(), part);
}

static void mistakes_in_the_list_have_no_effect(void **state)
{
    (void)state;
    struct fixture fixture = open_batch("llama-tiny"), other = open_batch("llama-tiny");
    struct salvo_session *session = fixture.session, *second;
    int32_t *ids = some_ids(BATCH + 1, fixture.vocabulary, 1);
    float logits[1];
    int32_t chosen[2];
    ASSERT_OK(salvo_session_open(fixture.engine, &second));
    ASSERT_OK(salvo_session_feed(session, ids, 5));
    const struct {
        struct salvo_run runs[2];
        size_t count;
        const char *part;
    } cases[] = {
        {{{0}}, 0, "at least one run"},
        {{{.session = session}, {0}}, 2, "session 2 is NULL"},
        {{{.session = session}, {.session = session}}, 2, "session 2 was given twice"},
        {{{.session = session}, {.session = other.session}}, 2, "different engines"},
        {{{.session = session, .want = 3}}, 1, "`want` is 3"},
        {{{.session = session, .want = SALVO_WANT_NOTHING}}, 1, "wants nothing"},
        {{{.session = session, .ids = ids, .count = 1, .want = SALVO_WANT_NOTHING, .logits = logits}}, 1,
            "wants nothing"},
        {{{.session = session, .count = 1}}, 1, "list of 1 tokens is NULL"},
        {{{.session = session, .stop_id_count = 1}}, 1, "list of 1 stop ids is NULL"},
        {{{.session = session, .stop_ids = ids, .stop_id_count = SALVO_STOP_IDS + 1}}, 1, "33 stop ids"},
        {{{.session = session, .handle = UINT64_C(1) << 63}}, 1, "above 2^63 - 1"},
        {{{.session = session, .ids = ids, .count = BATCH + 1}}, 1, "batch of 24"},
        {{{.session = session, .tokens = SALVO_RUN_TOKENS + 1, .chosen_ids = chosen}}, 1, "33 tokens"},
        {{{.session = session, .tokens = 2}}, 1, "the list for their ids is NULL"},
        {{{.session = session, .ids = ids, .count = 1, .tokens = 2, .chosen_ids = chosen}}, 1, "has ids"},
        {{{.session = session, .tokens = 2, .chosen_ids = chosen},
             {.session = second, .ids = ids, .count = 1}},
            2, "run 2 has ids in a step with runs of several tokens"},
        {{{.session = session, .logits = logits}, {.session = second, .tokens = 2, .chosen_ids = chosen}}, 2,
            "run 1 has logits"},
        {{{.session = session}, {.session = second, .ids = ids, .count = BATCH}}, 2,
            "run 2: its 24 tokens and the 1 before them exceed the engine's batch of 24"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_refused(fixture.engine, cases[i].runs, cases[i].count, cases[i].part);
    assert_int_equal(5, salvo_session_position(session));
    assert_int_equal(0, salvo_session_position(second));
    struct salvo_run_result result = submit_one(fixture.engine, (struct salvo_run){.session = session});
    assert_int_equal(SALVO_OK, result.status);
    assert_int_equal(1, result.tokens);
    free(ids);
    fixture_close(&fixture);
    fixture_close(&other);
}

static void sessions_that_fail_do_not_stop_others(void **state)
{
    (void)state;
    enum { FULL, GOOD, EMPTY, MUTE };
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        struct fixture fixture = open_batch(shapes[shape]);
        struct salvo_session *sessions[SESSIONS] = {fixture.session};
        struct salvo_run runs[SESSIONS] = {{0}};
        struct salvo_run_result results[SESSIONS];
        int32_t *ids = some_ids(CONTEXT, fixture.vocabulary, 2);
        uint64_t step;
        for (int i = 1; i < SESSIONS; i++)
            ASSERT_OK(salvo_session_open(fixture.engine, &sessions[i]));
        for (int i = 0; i < SESSIONS; i++) {
            set_greedy(sessions[i]);
            runs[i].session = sessions[i];
        }
        ASSERT_OK(salvo_session_feed(sessions[GOOD], ids, 10));
        int32_t *expected = continuation(sessions[EMPTY], ids, 10, 3);
        ASSERT_OK(salvo_session_rollback(sessions[EMPTY], 0));
        ASSERT_OK(salvo_session_feed(sessions[FULL], ids, CONTEXT));
        for (int32_t id = 0; id < (int32_t)fixture.vocabulary; id++)
            ASSERT_OK(salvo_session_set_bias(sessions[MUTE], id, -INFINITY));
        runs[MUTE].ids = ids;
        runs[MUTE].count = 10;
        for (int i = 1; i < 3; i++) {
            ASSERT_OK(salvo_engine_submit(fixture.engine, runs, SESSIONS, sizeof *runs, &step));
            ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, SESSIONS, sizeof *results));
            assert_int_equal(SALVO_ERROR_CONTEXT, results[FULL].status);
            assert_non_null(strstr(results[FULL].message, "context of 512 tokens is full"));
            assert_int_equal(SALVO_OK, results[GOOD].status);
            assert_string_equal("", results[GOOD].message);
            assert_int_equal(expected[i], results[GOOD].id);
            assert_int_equal(10 + i, results[GOOD].position);
            assert_int_equal(SALVO_ERROR_ARGUMENT, results[EMPTY].status);
            assert_non_null(strstr(results[EMPTY].message, "no token was fed"));
            assert_int_equal(SALVO_ERROR_NUMERIC, results[MUTE].status);
            assert_non_null(strstr(results[MUTE].message, "position 9"));
            assert_int_equal(0, results[MUTE].position);
        }
        free(expected);
        free(ids);
        fixture_close(&fixture);
    }
}

/* Behind a run that was refused or failed, its session's runs would continue in the wrong place. */
static void runs_behind_a_failed_one_fail(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct fixture fixture = open_batch("llama-tiny");
        int32_t *ids = some_ids(20, fixture.vocabulary, 3), outside = (int32_t)fixture.vocabulary;
        struct salvo_run good = {.session = fixture.session, .ids = ids, .count = 10}, bad = good,
                         decode = good;
        struct salvo_run_result results[4];
        uint64_t steps[4];
        if (busy)
            busy_device_install(fixture.engine);
        good.want = SALVO_WANT_NOTHING;
        bad.ids = &outside;
        bad.count = 1;
        decode.count = 0;
        ASSERT_OK(salvo_engine_submit(fixture.engine, &good, 1, sizeof good, &steps[0]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &bad, 1, sizeof bad, &steps[1]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &good, 1, sizeof good, &steps[2]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &decode, 1, sizeof decode, &steps[3]));
        assert_refused(fixture.engine, &good, 1, "at most 4 steps");
        for (int i = 3; i >= 0; i--)
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[i], &results[i], 1, sizeof *results));
        assert_int_equal(SALVO_OK, results[0].status);
        for (int i = 1; i < 4; i++)
            assert_int_equal(SALVO_ERROR_ARGUMENT, results[i].status);
        assert_non_null(strstr(results[1].message, "outside the vocabulary"));
        assert_non_null(strstr(results[3].message, "an earlier run of the session"));
        assert_int_equal(10, salvo_session_position(fixture.session));
        assert_int_equal(SALVO_OK, submit_one(fixture.engine, decode).status);
        free(ids);
        fixture_close(&fixture);
    }
}

static void a_closed_session_leaves_its_results(void **state)
{
    (void)state;
    struct fixture fixture = open_batch("rwkv7-tiny");
    int32_t *ids = some_ids(20, fixture.vocabulary, 4), outside = (int32_t)fixture.vocabulary;
    struct salvo_run run = {.session = fixture.session, .ids = ids, .count = 10}, bad = run;
    struct salvo_run_result result;
    uint64_t step, bad_step;
    int32_t *expected = continuation(fixture.session, ids, 10, 1);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    busy_device_install(fixture.engine);
    bad.ids = &outside;
    bad.count = 1;
    ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_submit(fixture.engine, &bad, 1, sizeof bad, &bad_step));
    salvo_session_close(fixture.session);
    ASSERT_OK(salvo_session_open(fixture.engine, &fixture.session));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
    assert_int_equal(10, result.position);
    assert_int_equal(0, salvo_session_position(fixture.session));
    assert_int_equal(SALVO_ERROR_ARGUMENT,
        salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result)); /* no longer open */
    /* The failed run of the closed session does not affect the session that has its slot now. */
    run.session = fixture.session;
    result = submit_one(fixture.engine, run);
    assert_int_equal(SALVO_OK, result.status);
    assert_int_equal(expected[0], result.id);
    ASSERT_OK(salvo_engine_wait(fixture.engine, bad_step, &result, 1, sizeof result));
    assert_int_equal(SALVO_ERROR_ARGUMENT, result.status);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* Log-probabilities come from the unmodified logits: penalties and filters of the sampler do not change them.
 */
static void logprobs_are_those_of_the_model(void **state)
{
    (void)state;
    enum { TOP = 5 };
    struct fixture fixture = open_batch("llama-tiny");
    int32_t *ids = some_ids(10, fixture.vocabulary, 6), top_ids[TOP];
    float *logits = calloc(fixture.vocabulary, sizeof *logits), logprobs[1 + TOP];
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    assert_non_null(logits);
    sampler.temperature = 2;
    sampler.repeat_penalty = 1.5f;
    sampler.repeat_last_n = 64;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_set_bias(fixture.session, 3, -INFINITY));
    struct salvo_run run = {.session = fixture.session,
        .ids = ids,
        .count = 10,
        .logits = logits,
        .logprobs = logprobs,
        .top_ids = top_ids,
        .top_count = TOP};
    for (int i = 0; i < 5; i++, run.count = 0) {
        const struct salvo_run_result result = submit_one(fixture.engine, run);
        assert_int_equal(SALVO_OK, result.status);
        double sum = 0;
        for (uint32_t j = 0; j < fixture.vocabulary; j++)
            sum += exp((double)logits[j]);
        for (int j = 0; j <= TOP; j++) {
            const int32_t id = j ? top_ids[j - 1] : result.id;
            assert_true(fabs(logprobs[j] - (logits[id] - log(sum))) < 1e-5);
            assert_true(j < 2 || logprobs[j] <= logprobs[j - 1]);
        }
        assert_true(logprobs[0] <= logprobs[1]);
    }
    run.top_count = SALVO_TOP_LOGPROBS + 1;
    assert_refused(fixture.engine, &run, 1, "the 21 most likely ids; at most 20");
    run.top_count = 1;
    run.top_ids = NULL;
    assert_refused(fixture.engine, &run, 1, "lists for the 1 most likely ids are NULL");
    run = (struct salvo_run){.session = fixture.session, .logprobs = logprobs};
    const struct backend *own = fixture.engine->backend;
    struct backend without = *own;
    without.logprobs = NULL;
    fixture.engine->backend = &without;
    uint64_t step;
    assert_int_equal(
        SALVO_ERROR_UNSUPPORTED, salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    assert_non_null(strstr(salvo_error(), "backend cpu does not compute log-probabilities"));
    fixture.engine->backend = own;
    free(logits);
    free(ids);
    fixture_close(&fixture);
}

/* Each run has its own mask. An empty one fails its run alone. */
static void masks_allow_ids(void **state)
{
    (void)state;
    struct fixture fixture = open_batch("rwkv7-tiny");
    const size_t words = (fixture.vocabulary + 31) / 32;
    uint32_t *one = calloc(words, sizeof *one), *none = calloc(words, sizeof *none);
    int32_t *ids = some_ids(10, fixture.vocabulary, 6);
    struct salvo_run runs[3] = {{.session = fixture.session, .mask = one}, {.mask = none}, {0}};
    struct salvo_run_result results[3];
    uint64_t step;
    assert_true(one && none);
    ASSERT_OK(salvo_session_open(fixture.engine, &runs[1].session));
    ASSERT_OK(salvo_session_open(fixture.engine, &runs[2].session));
    set_greedy(runs[0].session);
    int32_t *expected = continuation(runs[2].session, ids, 10, 4);
    ASSERT_OK(salvo_session_rollback(runs[2].session, 0));
    for (int i = 0; i < 3; i++) {
        runs[i].ids = ids;
        runs[i].count = i == 2 ? 10 : 5;
    }
    for (int i = 0; i < 4; i++) {
        const int32_t allowed = 5 + 33 * i;
        memset(one, 0, words * sizeof *one);
        one[allowed / 32] |= UINT32_C(1) << allowed % 32;
        ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 3, sizeof *runs, &step));
        ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 3, sizeof *results));
        assert_int_equal(SALVO_OK, results[0].status);
        assert_int_equal(allowed, results[0].id);
        assert_int_equal(SALVO_ERROR_NUMERIC, results[1].status);
        assert_non_null(strstr(results[1].message, "the mask allows none"));
        assert_int_equal(0, results[1].position);
        assert_int_equal(expected[i], results[2].id);
        runs[0].count = runs[2].count = 0;
    }
    free(one);
    free(none);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

static void masks_and_logprobs_of_any_vocabulary(void **state)
{
    (void)state;
    const char *const models[] = {made_model("llama-tiny", "Q8_0"), made_model("rwkv7-tiny", "Q8_0"),
        made_model_of("llama-mini", "F32", 3), made_model_of("llama-mini", "F32", 31),
        made_model_of("llama-mini", "F32", 33), made_model_of("llama-mini", "Q8_0", 32001)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture fixture =
            fixture_open(models[i], (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                        .backend = "cpu",
                                        .threads = 1,
                                        .context = 64,
                                        .batch = BATCH,
                                        .sessions = 3});
        check_masks(&fixture);
        fixture_close(&fixture);
    }
}

/* Logits that a run has left belong to its tokens: not to a state of as many others that is loaded meanwhile.
 */
static void a_loaded_state_drops_what_was_to_be_chosen(void **state)
{
    (void)state;
    struct fixture fixture = open_batch("llama-tiny");
    struct salvo_session *session = fixture.session;
    int32_t *ids = some_ids(20, fixture.vocabulary, 5);
    float *expected = calloc(fixture.vocabulary, sizeof *expected),
          *logits = calloc(fixture.vocabulary, sizeof *logits);
    ASSERT_OK(salvo_session_feed(session, ids, 10));
    memcpy(expected, salvo_session_logits(session), fixture.vocabulary * sizeof *expected);
    ASSERT_OK(salvo_session_feed(session, ids + 10, 1));
    const size_t size = salvo_session_state_size(session);
    void *saved = malloc(size);
    assert_true(saved && expected && logits);
    ASSERT_OK(salvo_session_state_save(session, saved, size));
    ASSERT_OK(salvo_session_rollback(session, 0));
    ASSERT_OK(salvo_session_feed(session, ids + 10, 9));
    struct salvo_run run = {.session = session, .want = SALVO_WANT_LATER};
    struct salvo_run_result result;
    uint64_t step;
    ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
    assert_int_equal(10, result.position);
    ASSERT_OK(salvo_session_state_restore(session, saved, size));
    ASSERT_OK(salvo_session_rollback(session, 10));
    run = (struct salvo_run){.session = session, .logits = logits};
    ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
    assert_int_equal(SALVO_OK, result.status);
    assert_int_equal(10, result.position);
    assert_memory_equal(expected, logits, fixture.vocabulary * sizeof *logits);
    free(saved);
    free(expected);
    free(logits);
    free(ids);
    fixture_close(&fixture);
}

/* Callers of an older or newer version have structs of another size. */
static void structs_may_have_another_size(void **state)
{
    (void)state;
    struct fixture fixture = open_batch("llama-tiny");
    int32_t id = 5;
    struct {
        struct salvo_run run;
        uint64_t later;
    } runs[1] = {{{.session = fixture.session, .ids = &id, .count = 1}, 0}};
    struct {
        struct salvo_run_result result;
        uint64_t later;
    } results[1] = {{{0}, 9}};
    uint64_t step;
    ASSERT_OK(salvo_engine_submit(fixture.engine, &runs[0].run, 1, sizeof *runs, &step));
    assert_int_equal(SALVO_ERROR_ARGUMENT,
        salvo_engine_wait(fixture.engine, step, &results[0].result, 2, sizeof *results));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_wait(fixture.engine, step, &results[0].result, 1, 0));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &results[0].result, 1, sizeof *results));
    assert_int_equal(1, results[0].result.tokens);
    assert_int_equal(0, results[0].later);
    runs[0].later = 1;
    assert_int_equal(
        SALVO_ERROR_ARGUMENT, salvo_engine_submit(fixture.engine, &runs[0].run, 1, sizeof *runs, &step));
    fixture_close(&fixture);
}

/* ---- Behind runs in flight ---- */

/* A prompt behind a decode that does nothing, because the run before it chose a stop id, begins where the
 * session has ended. With `hidden` the device does not know that stop id: the list of the step is full. */
static void a_prompt_begins_where_the_session_stopped(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        const bool hidden = variant % 2;
        struct fixture fixture = open_batch(shapes[variant / 2]);
        struct salvo_session *other;
        int32_t *ids = some_ids(10 + BATCH, fixture.vocabulary, 7), *stops = some_ids(40, 1000, 8);
        ASSERT_OK(salvo_session_open(fixture.engine, &other));
        set_greedy(fixture.session);
        int32_t *first = continuation(fixture.session, ids, 10, 2), all[11 + BATCH];
        memcpy(all, ids, 10 * sizeof *all);
        all[10] = first[0];
        memcpy(all + 11, ids + 10, BATCH * sizeof *all);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        int32_t *expected = continuation(fixture.session, all, 11 + BATCH, 2);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 10));
        ASSERT_OK(salvo_session_feed(other, ids, 5));
        for (int32_t i = 0, next = 0; i < SALVO_STOP_IDS; i++, next++) {
            next += next == first[1];
            stops[i] = next;
        }
        busy_device_install(fixture.engine);
        struct salvo_run runs[2] = {{.session = other, .stop_ids = stops, .stop_id_count = SALVO_STOP_IDS},
            {.session = fixture.session, .stop_ids = first + 1, .stop_id_count = 1}},
                         prompt = {.session = fixture.session, .ids = ids + 10, .count = BATCH},
                         decode = {.session = fixture.session};
        struct salvo_run_result results[2], result;
        uint64_t steps[4];
        ASSERT_OK(salvo_engine_submit(
            fixture.engine, hidden ? runs : runs + 1, hidden ? 2 : 1, sizeof *runs, &steps[0]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &decode, 1, sizeof decode, &steps[1]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &prompt, 1, sizeof prompt, &steps[2]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &decode, 1, sizeof decode, &steps[3]));
        ASSERT_OK(salvo_engine_wait(fixture.engine, steps[0], results, hidden ? 2 : 1, sizeof *results));
        assert_int_equal(first[1], results[hidden].id);
        assert_true(results[hidden].ended);
        ASSERT_OK(salvo_engine_wait(fixture.engine, steps[1], &result, 1, sizeof result));
        assert_int_equal(-1, result.id);
        for (uint32_t i = 0; i < 2; i++) {
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[2 + i], &result, 1, sizeof result));
            assert_string_equal("", result.message);
            assert_int_equal(11 + BATCH + i, result.position);
            assert_int_equal(expected[i], result.id);
        }
        assert_memory_equal(all, salvo_session_tokens(fixture.session), sizeof all);
        free(ids);
        free(stops);
        free(first);
        free(expected);
        fixture_close(&fixture);
    }
}

/* A prompt of a whole batch fits, also where the last token of the session was not computed yet. */
static void a_whole_batch_fits_behind_a_token_to_compute(void **state)
{
    (void)state;
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        struct fixture fixture = open_batch(shapes[shape]);
        int32_t *ids = some_ids(10 + BATCH, fixture.vocabulary, 7), all[11 + BATCH], id;
        set_greedy(fixture.session);
        memcpy(all, ids, 10 * sizeof *all);
        memcpy(all + 11, ids + 10, BATCH * sizeof *all);
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 10));
        ASSERT_OK(salvo_session_next(fixture.session, &all[10]));
        const struct salvo_run_result result = submit_one(
            fixture.engine, (struct salvo_run){.session = fixture.session, .ids = ids + 10, .count = BATCH});
        assert_string_equal("", result.message);
        assert_int_equal(BATCH, result.tokens);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        ASSERT_OK(salvo_session_feed(fixture.session, all, 11 + BATCH));
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(id, result.id);
        free(ids);
        fixture_close(&fixture);
    }
}

/* A step that the device does not take fails alone: the runs before it have their results. */
static void a_step_that_is_refused_leaves_earlier_ones(void **state)
{
    (void)state;
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        struct fixture fixture = open_batch(shapes[shape]);
        int32_t *ids = some_ids(20, fixture.vocabulary, 3);
        struct salvo_run prompt = {.session = fixture.session, .ids = ids, .count = 10},
                         decode = {.session = fixture.session};
        struct salvo_run_result result;
        uint64_t steps[3], none;
        set_greedy(fixture.session);
        int32_t *expected = continuation(fixture.session, ids, 10, 3);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        busy_device_install(fixture.engine);
        ASSERT_OK(salvo_engine_submit(fixture.engine, &prompt, 1, sizeof prompt, &steps[0]));
        assert_int_equal(
            SALVO_ERROR_ARGUMENT, salvo_engine_submit(fixture.engine, NULL, 1, sizeof prompt, &none));
        assert_refused(fixture.engine, &(struct salvo_run){.session = NULL}, 1, "NULL");
        busy_device_refuse_next(fixture.engine);
        ASSERT_OK(salvo_engine_submit(fixture.engine, &decode, 1, sizeof decode, &steps[1]));
        ASSERT_OK(salvo_engine_submit(fixture.engine, &decode, 1, sizeof decode, &steps[2]));
        ASSERT_OK(salvo_engine_wait(fixture.engine, steps[0], &result, 1, sizeof result));
        assert_int_equal(SALVO_OK, result.status);
        assert_int_equal(expected[0], result.id);
        for (int i = 1; i < 3; i++) {
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[i], &result, 1, sizeof result));
            assert_int_equal(SALVO_ERROR_DEVICE, result.status);
            assert_non_null(strstr(result.message, i == 1 ? "takes no step" : "an earlier run"));
        }
        for (int i = 1; i < 3; i++) /* after the failure is reported, the session can be used again */
            assert_int_equal(expected[i], submit_one(fixture.engine, decode).id);
        free(expected);
        free(ids);
        fixture_close(&fixture);
    }
}

/* A callback of a generation and of an evaluation that submits steps. */
struct submitter {
    struct salvo_engine *engine;
    struct salvo_session *session;
    uint64_t steps[SALVO_OPEN_STEPS];
    uint32_t count;
};

static bool submit_more(struct submitter *submitter)
{
    const struct salvo_run run = {.session = submitter->session};
    if (submitter->count < SALVO_OPEN_STEPS)
        ASSERT_OK(salvo_engine_submit(
            submitter->engine, &run, 1, sizeof run, &submitter->steps[submitter->count++]));
    return true;
}

static bool submit_with_text(void *user, const char *text, size_t size)
{
    (void)text;
    (void)size;
    for (int i = 0; i < 3; i++) {
        if (!submit_more(user))
            return false;
    }
    return true;
}

static bool submit_with_logits(void *user, uint32_t position, const float *logits)
{
    (void)position;
    (void)logits;
    return submit_more(user);
}

/* busy_device fails the test when more steps are in flight than it says. */
static void callbacks_that_submit_keep_the_limit(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model_with_vocabulary("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
            .backend = "cpu",
            .threads = 1,
            .context = CONTEXT,
            .sessions = SESSIONS});
    struct submitter submitter = {.engine = fixture.engine};
    struct salvo_run_result result;
    int32_t *ids = some_ids(10, fixture.vocabulary, 3);
    ASSERT_OK(salvo_session_open(fixture.engine, &submitter.session));
    set_greedy(fixture.session);
    set_greedy(submitter.session);
    int32_t *expected = continuation(submitter.session, ids, 10, 2 * SALVO_OPEN_STEPS);
    int32_t *generated = continuation(fixture.session, ids, 10, 20);
    ASSERT_OK(salvo_session_rollback(submitter.session, 0));
    ASSERT_OK(salvo_session_feed(submitter.session, ids, 10));
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 10));
    busy_device_install(fixture.engine);
    struct salvo_generate_options options = SALVO_GENERATE_OPTIONS_INIT;
    options.text = submit_with_text;
    options.user = &submitter;
    options.max_tokens = 20;
    options.ignore_end = options.special = 1;
    ASSERT_OK(salvo_session_generate(fixture.session, &options, NULL));
    assert_int_equal(SALVO_OPEN_STEPS, submitter.count);
    assert_memory_equal(generated, salvo_session_tokens(fixture.session) + 10, 20 * sizeof *generated);
    for (int i = 0; i < SALVO_OPEN_STEPS; i++) {
        ASSERT_OK(salvo_engine_wait(fixture.engine, submitter.steps[i], &result, 1, sizeof result));
        assert_int_equal(expected[i + 1], result.id);
    }
    submitter.count = 0; /* the logits of an evaluation are lost with the next step */
    assert_int_equal(
        SALVO_ERROR_ARGUMENT, salvo_session_eval(fixture.session, ids, 10, submit_with_logits, &submitter));
    assert_non_null(strstr(salvo_error(), "has used the engine"));
    assert_int_equal(1, submitter.count);
    ASSERT_OK(salvo_engine_wait(fixture.engine, submitter.steps[0], &result, 1, sizeof result));
    assert_int_equal(expected[SALVO_OPEN_STEPS + 1], result.id);
    free(ids);
    free(expected);
    free(generated);
    fixture_close(&fixture);
}

/* Many sessions with short contexts share a large step. */
static void the_batch_is_that_of_all_contexts(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
            .backend = "cpu",
            .threads = 1,
            .context = 20,
            .sessions = 3});
    assert_int_equal(60, salvo_engine_info(fixture.engine)->batch);
    struct salvo_run runs[3] = {{.session = fixture.session, .count = 19}, {.count = 20}, {.count = 18}};
    struct salvo_run_result results[3];
    int32_t *ids = some_ids(20, fixture.vocabulary, 3);
    uint64_t step;
    for (int i = 0; i < 3; i++) {
        runs[i].ids = ids;
        if (i)
            ASSERT_OK(salvo_session_open(fixture.engine, &runs[i].session));
        set_greedy(runs[i].session);
    }
    ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 3, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 3, sizeof *results));
    for (int i = 0; i < 3; i++) {
        struct salvo_run alone = runs[i];
        alone.session = fixture.session;
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        assert_int_equal(submit_one(fixture.engine, alone).id, results[i].id);
    }
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_in_company_equal_requests_alone),
        cmocka_unit_test(runs_of_several_tokens_end_one_by_one),
        cmocka_unit_test(a_device_that_works_by_itself_gives_the_same),
        cmocka_unit_test(another_thread_may_cancel),
        cmocka_unit_test(mistakes_in_the_list_have_no_effect),
        cmocka_unit_test(sessions_that_fail_do_not_stop_others),
        cmocka_unit_test(runs_behind_a_failed_one_fail),
        cmocka_unit_test(a_prompt_begins_where_the_session_stopped),
        cmocka_unit_test(a_whole_batch_fits_behind_a_token_to_compute),
        cmocka_unit_test(a_step_that_is_refused_leaves_earlier_ones),
        cmocka_unit_test(callbacks_that_submit_keep_the_limit),
        cmocka_unit_test(the_batch_is_that_of_all_contexts),
        cmocka_unit_test(a_closed_session_leaves_its_results),
        cmocka_unit_test(logprobs_are_those_of_the_model),
        cmocka_unit_test(masks_allow_ids),
        cmocka_unit_test(masks_and_logprobs_of_any_vocabulary),
        cmocka_unit_test(a_loaded_state_drops_what_was_to_be_chosen),
        cmocka_unit_test(structs_may_have_another_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
