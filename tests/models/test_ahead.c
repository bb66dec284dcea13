/*
 * Decoding ahead changes nothing but the speed: the same text, the same tokens and the same state as token by
 * token, whatever ends a generation and whatever a callback does, on the CPU and on a device that works by
 * itself.
 */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include "backend/common/state.h"
#include "engine/engine.h"
#include "test_random.h"
#include "unit/text_sample.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 400, MORE = 3, MOST_TEXT = 16384 };

static const uint32_t aheads[] = {1, 3, 8, 64, 0};

static uint64_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
    return test_random(&random_state, below);
}

static bool one_in(uint32_t many)
{
    return next_random(many) == 0;
}

/* ---- A generation, and all that can be seen of it ---- */

/* The options of a generation, and the number of the call at which a callback does something; 0: never. */
struct script {
    int32_t prompt[300];
    uint32_t prompt_count, max_tokens;
    struct salvo_sampler sampler;
    const char *stops[2];
    size_t stop_count;
    int32_t stop_ids[40];
    size_t stop_id_count;
    bool ignore_end, special, takes_one_first, evaluates;
    bool runs_dry; /* there are a few ids to choose from, each of them once, and then none */
    unsigned ends_at, cancels_at, changes_sampler_at, changes_bias_at, uses_other_at, saves_at, feeds_at;
};

struct outcome {
    struct salvo_generate_result result;
    enum salvo_status status, status_of_feed, status_of_more;
    char text[MOST_TEXT];
    size_t text_size;
    unsigned calls;
    uint32_t position;
    int32_t tokens[CONTEXT];
    bool has_logits;
    int32_t other[MORE], more[MORE];
    size_t state_size, saved_size, more_size;
    uint8_t *state, *saved, *more_state; /* after the generation, within it, and after some more tokens */
};

struct scene {
    struct fixture *fixture;
    struct salvo_session *other;
    const struct script *script;
    struct outcome *outcome;
};

/* The state of a session, without a snapshot of earlier recurrent state and the size and checksum, which
 * depend on it: decoding ahead may take snapshots at other positions. */
static uint8_t *save(struct salvo_session *session, size_t *size)
{
    enum { SIZE_AT = 16, CHECKSUM_END = 32, HEADER = 128 };
    const struct salvo_engine *engine = session->engine;
    *size = salvo_session_state_size(session);
    uint8_t *state = malloc(*size);
    assert_non_null(state);
    ASSERT_OK(salvo_session_state_save(session, state, *size));
    memset(state + SIZE_AT, 0, CHECKSUM_END - SIZE_AT);
    *size = HEADER + session->position * sizeof(int32_t) +
            state_size(engine->backend, engine->executor, session->computed);
    return state;
}

static bool act(void *user, const char *text, size_t size)
{
    struct scene *scene = user;
    struct outcome *outcome = scene->outcome;
    const struct script *script = scene->script;
    struct salvo_session *session = scene->fixture->session;
    const unsigned call = ++outcome->calls;
    assert_true(outcome->text_size + size <= MOST_TEXT);
    memcpy(outcome->text + outcome->text_size, text, size);
    outcome->text_size += size;
    outcome->has_logits |= salvo_session_logits(session) != NULL;
    if (call == script->changes_sampler_at) {
        struct salvo_sampler sampler = script->sampler;
        sampler.temperature = 0.3f;
        sampler.seed ^= 99;
        ASSERT_OK(salvo_session_set_sampler(session, &sampler));
    }
    if (call == script->changes_bias_at)
        ASSERT_OK(salvo_session_set_bias(session, 'q', 5));
    if (call == script->uses_other_at) {
        ASSERT_OK(salvo_session_feed(scene->other, script->prompt, 1 + script->prompt_count / 2));
        for (int i = 0; i < MORE; i++)
            ASSERT_OK(salvo_session_next(scene->other, &outcome->other[i]));
    }
    if (call == script->saves_at && !outcome->saved)
        outcome->saved = save(session, &outcome->saved_size);
    if (call == script->feeds_at) /* fails where no id is left to choose */
        outcome->status_of_feed = salvo_session_feed(session, (const int32_t[]){'x', 'y'}, 2);
    if (call == script->cancels_at)
        salvo_session_cancel(session);
    return call != script->ends_at;
}

static void perform(struct fixture *fixture, struct salvo_session *other, const struct script *script,
    uint32_t ahead, struct outcome *outcome)
{
    struct salvo_session *session = fixture->session;
    struct scene scene = {fixture, other, script, outcome};
    *outcome = (struct outcome){.result = SALVO_GENERATE_RESULT_INIT};
    ASSERT_OK(salvo_session_rollback(session, 0));
    ASSERT_OK(salvo_session_rollback(other, 0));
    for (int32_t id = 0; id < SAMPLE_COUNT; id++) {
        float bias = id == SAMPLE_END ? 1.5f : 0;
        if (script->runs_dry) /* a penalty of a million makes it infinite */
            bias = id >= 'A' && id < 'M' ? -1e37f : -INFINITY;
        ASSERT_OK(salvo_session_set_bias(session, id, bias));
    }
    ASSERT_OK(salvo_session_set_sampler(session, &script->sampler));
    ASSERT_OK(salvo_session_feed(session, script->prompt, script->prompt_count));
    int32_t id;
    if (script->takes_one_first)
        ASSERT_OK(salvo_session_next(session, &id));
    if (script->evaluates)
        ASSERT_OK(salvo_session_eval(session, script->prompt, 2, NULL, NULL));
    const struct salvo_generate_options options = {
        .size = sizeof(struct salvo_generate_options),
        .max_tokens = script->max_tokens,
        .stop_strings = script->stops,
        .stop_count = script->stop_count,
        .stop_ids = script->stop_ids,
        .stop_id_count = script->stop_id_count,
        .ignore_end = script->ignore_end,
        .special = script->special,
        .ahead = ahead,
        .text = act,
        .user = &scene,
    };
    outcome->status = salvo_session_generate(session, &options, &outcome->result);
    outcome->position = salvo_session_position(session);
    memcpy(outcome->tokens, salvo_session_tokens(session), outcome->position * sizeof(int32_t));
    outcome->state = save(session, &outcome->state_size);
    for (int i = 0; i < MORE && salvo_session_position(session) < CONTEXT; i++) {
        outcome->status_of_more = salvo_session_next(session, &outcome->more[i]);
        if (outcome->status_of_more == SALVO_ERROR_CANCELLED)
            i--; /* by a cancel that came with the last text */
    }
    outcome->more_state = save(session, &outcome->more_size);
}

static void forget(struct outcome *outcome)
{
    free(outcome->state);
    free(outcome->saved);
    free(outcome->more_state);
}

/* States have equal bits, except that a recurrent state that was rolled back stays at an earlier
 * position until more tokens are requested. */
static void assert_same(const struct outcome *expected, const struct outcome *got, bool recurrent)
{
    assert_int_equal(expected->status, got->status);
    assert_int_equal(expected->status_of_feed, got->status_of_feed);
    assert_int_equal(expected->status_of_more, got->status_of_more);
    assert_int_equal(expected->result.finish, got->result.finish);
    assert_int_equal(expected->result.tokens, got->result.tokens);
    assert_int_equal(expected->calls, got->calls);
    assert_int_equal(expected->text_size, got->text_size);
    assert_memory_equal(expected->text, got->text, expected->text_size);
    assert_int_equal(expected->position, got->position);
    assert_memory_equal(expected->tokens, got->tokens, expected->position * sizeof(int32_t));
    assert_int_equal(expected->has_logits, got->has_logits);
    assert_memory_equal(expected->other, got->other, sizeof expected->other);
    assert_memory_equal(expected->more, got->more, sizeof expected->more);
    assert_int_equal(expected->more_size, got->more_size);
    assert_memory_equal(expected->more_state, got->more_state, expected->more_size);
    const bool is_exact = !recurrent || expected->result.finish == SALVO_FINISH_LENGTH ||
                          expected->result.finish == SALVO_FINISH_CONTEXT;
    if (is_exact) {
        assert_int_equal(expected->state_size, got->state_size);
        assert_memory_equal(expected->state, got->state, expected->state_size);
    }
    if (expected->saved && !recurrent) {
        assert_int_equal(expected->saved_size, got->saved_size);
        assert_memory_equal(expected->saved, got->saved, expected->saved_size);
    }
}

/* ---- Random generations ---- */

static void write_script(struct script *script)
{
    static const char *const stops[] = {"a", "o", "he", "hello", "xyz", " ", "\n", "0"};
    *script = (struct script){
        .prompt_count = one_in(4) ? 1 + next_random(299) : 1 + next_random(20),
        .max_tokens = one_in(6) ? 0 : 1 + next_random(40),
        .sampler = {.size = sizeof(struct salvo_sampler),
            .temperature = one_in(4) ? 0 : 0.5f + (float)next_random(10) / 10,
            .top_k = one_in(2) ? 40 : 0,
            .top_p = one_in(2) ? 0.9f : 1,
            .repeat_penalty = one_in(3) ? 1.3f : 1,
            .frequency_penalty = one_in(3) ? 0.4f : 0,
            .repeat_last_n = 64,
            .seed = next_random(1u << 30)},
        .ignore_end = one_in(4),
        .special = one_in(3),
        .takes_one_first = one_in(3),
        .evaluates = one_in(5),
    };
    for (uint32_t i = 0; i < script->prompt_count; i++)
        script->prompt[i] = (int32_t)(128 + next_random(SAMPLE_START - 128));
    if (one_in(8)) {
        script->runs_dry = true;
        script->sampler.repeat_penalty = 1e6f;
    }
    while (script->stop_count < 2 && one_in(3))
        script->stops[script->stop_count++] = stops[next_random(sizeof stops / sizeof *stops)];
    const size_t stop_ids = one_in(3) ? next_random(3) : one_in(8) ? 40 : 0; /* more than a device checks */
    while (script->stop_id_count < stop_ids)
        script->stop_ids[script->stop_id_count++] = (int32_t)next_random(SAMPLE_START);
    unsigned *const acts[] = {&script->ends_at, &script->cancels_at, &script->changes_sampler_at,
        &script->changes_bias_at, &script->uses_other_at, &script->saves_at, &script->feeds_at};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        *acts[i] = one_in(6) ? 1 + next_random(12) : 0;
}

/* An engine with two sessions. */
struct stage {
    struct fixture fixture;
    struct salvo_session *other;
};

static struct stage stage_open(const char *shape, bool busy)
{
    struct stage stage = {.fixture = fixture_open(made_model_with_vocabulary(shape, "Q8_0"),
                              (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                  .context = CONTEXT,
                                  .sessions = 2,
                                  .threads = 1,
                                  .batch = 64})};
    ASSERT_OK(salvo_session_open(stage.fixture.engine, &stage.other));
    if (busy)
        busy_device_install(stage.fixture.engine);
    return stage;
}

static void random_generations(const char *shape, bool busy, unsigned cases)
{
    const bool recurrent = strncmp(shape, "rwkv", 4) == 0;
    struct stage one_by_one = stage_open(shape, false), tested = stage_open(shape, busy);
    static struct outcome expected, got;
    static struct script script;
    unsigned finishes[SALVO_FINISH_CANCELLED + 1] = {0}, dry = 0;
    for (unsigned i = 0; i < cases; i++) {
        write_script(&script);
        perform(&one_by_one.fixture, one_by_one.other, &script, 1, &expected);
        perform(&tested.fixture, tested.other, &script, aheads[next_random(sizeof aheads / sizeof *aheads)],
            &got);
        assert_same(&expected, &got, recurrent);
        finishes[expected.result.finish]++;
        dry += expected.status == SALVO_ERROR_NUMERIC && expected.result.tokens > 3;
        forget(&expected);
        forget(&got);
    }
    for (size_t i = 0; cases >= 100 && i < sizeof finishes / sizeof *finishes; i++)
        assert_true(finishes[i] > 0 && dry > 0); /* every way to end was tried */
    if (busy)
        assert_int_equal(3, busy_device_most_in_flight(tested.fixture.engine));
    assert_int_equal(0, counters_of(tested.fixture.engine).allocations_after_load);
    fixture_close(&one_by_one.fixture);
    fixture_close(&tested.fixture);
}

static void attention_on_the_cpu(void **state)
{
    (void)state;
    random_generations("llama-tiny", false, LONG_RUN(300));
}

static void attention_on_a_busy_device(void **state)
{
    (void)state;
    random_generations("llama-tiny", true, LONG_RUN(300));
}

static void recurrence_on_the_cpu(void **state)
{
    (void)state;
    random_generations("rwkv7-tiny", false, LONG_RUN(200));
}

static void recurrence_on_a_busy_device(void **state)
{
    (void)state;
    random_generations("rwkv7-tiny", true, LONG_RUN(200));
}

/* ---- Cancelled at any moment ---- */

/* Another thread cancels at some moment between two calls of the text callback: from `call` on, and before
 * the end of the call LATEST_CALL calls later, so that the cancel happens within the generation. */
enum { LATEST_CALL = 4 };

struct canceller {
    struct salvo_session *session;
    unsigned call, late; /* late: calls after the cancel was certainly made */
    atomic_uint calls;
    atomic_bool done;
};

static void *cancel_at_call(void *user)
{
    struct canceller *canceller = user;
    while (atomic_load(&canceller->calls) < canceller->call)
        sched_yield();
    salvo_session_cancel(canceller->session);
    atomic_store(&canceller->done, true);
    return NULL;
}

static bool watch(void *user, const char *text, size_t size)
{
    struct canceller *canceller = user;
    (void)text;
    (void)size;
    canceller->late += atomic_load(&canceller->done);
    if (atomic_fetch_add(&canceller->calls, 1) + 1 == canceller->call + LATEST_CALL) {
        while (!atomic_load(&canceller->done))
            sched_yield();
    }
    return true;
}

/* Wherever it was cancelled, the session continues with the same ids. */
static void cancelled_generations(const char *shape, bool busy, unsigned cases)
{
    enum { MOST_CALLS = 150 };
    struct stage stage = stage_open(shape, busy);
    struct salvo_session *session = stage.fixture.session;
    const struct salvo_sampler sampler = {
        .size = sizeof(struct salvo_sampler), .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 5};
    int32_t expected[CONTEXT];
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    ASSERT_OK(salvo_session_set_sampler(session, &sampler));
    ASSERT_OK(salvo_session_feed(session, (const int32_t[]){'a', 'b', 'c'}, 3));
    ASSERT_OK(salvo_session_generate(session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .ignore_end = true, .ahead = 1},
        &result));
    assert_int_equal(CONTEXT - 3, result.tokens);
    memcpy(expected, salvo_session_tokens(session), sizeof expected);
    for (unsigned i = 0; i < cases; i++) {
        struct canceller canceller = {.session = session, .call = 1 + next_random(MOST_CALLS)};
        pthread_t thread;
        ASSERT_OK(salvo_session_rollback(session, 3));
        assert_int_equal(0, pthread_create(&thread, NULL, cancel_at_call, &canceller));
        const struct salvo_generate_options options = {.size = sizeof(struct salvo_generate_options),
            .ignore_end = true,
            .ahead = aheads[next_random(sizeof aheads / sizeof *aheads)],
            .text = watch,
            .user = &canceller};
        ASSERT_OK(salvo_session_generate(session, &options, &result));
        assert_true(atomic_load(&canceller.calls) >= canceller.call); /* else the thread would not end */
        pthread_join(thread, NULL);
        assert_in_range(canceller.late, 0, 1); /* the one that was just being handed over */
        assert_int_equal(SALVO_FINISH_CANCELLED, result.finish);
        const uint32_t position = salvo_session_position(session);
        assert_int_equal(3 + result.tokens, position);
        assert_memory_equal(expected, salvo_session_tokens(session), position * sizeof *expected);
        ASSERT_OK(salvo_session_generate(session,
            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .ignore_end = true,
                .max_tokens = 4,
                .ahead = 3},
            &result));
        const uint32_t further = salvo_session_position(session);
        assert_int_equal(position + 4 < CONTEXT ? position + 4 : CONTEXT, further);
        assert_memory_equal(expected, salvo_session_tokens(session), further * sizeof *expected);
    }
    fixture_close(&stage.fixture);
}

static void cancels_come_at_any_moment(void **state)
{
    (void)state;
    cancelled_generations("llama-tiny", false, LONG_RUN(60));
    cancelled_generations("llama-tiny", true, LONG_RUN(60));
    cancelled_generations("rwkv7-tiny", false, LONG_RUN(40));
    cancelled_generations("rwkv7-tiny", true, LONG_RUN(40));
}

/* ---- Other things ---- */

static void fewer_submissions_and_waits(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct stage stage = stage_open("llama-tiny", busy);
        struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
        ASSERT_OK(salvo_session_feed(stage.fixture.session, (const int32_t[]){'a', 'b', 'c'}, 3));
        struct salvo_counters before = counters_of(stage.fixture.engine);
        ASSERT_OK(salvo_session_generate(stage.fixture.session,
            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .ignore_end = true,
                .max_tokens = 161,
                .ahead = 16},
            &result));
        struct salvo_counters after = counters_of(stage.fixture.engine);
        assert_int_equal(10, after.submissions - before.submissions);
        assert_int_equal(160, after.tokens - before.tokens);
        assert_true(busy ? after.waits - before.waits <= 5 : after.waits - before.waits == 10);
        fixture_close(&stage.fixture);
    }
}

/* A model without a vocabulary still generates ids. */
static void ids_alone(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 64});
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, (const int32_t[]){1, 2, 3}, 3, 20);
    ASSERT_OK(salvo_session_rollback(fixture.session, 3));
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .ignore_end = true, .max_tokens = 20, .ahead = 7},
        &result));
    assert_int_equal(20, result.tokens);
    assert_memory_equal(expected, salvo_session_tokens(fixture.session) + 3, 20 * sizeof *expected);
    free(expected);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_on_the_cpu),
        cmocka_unit_test(attention_on_a_busy_device),
        cmocka_unit_test(recurrence_on_the_cpu),
        cmocka_unit_test(recurrence_on_a_busy_device),
        cmocka_unit_test(cancels_come_at_any_moment),
        cmocka_unit_test(fewer_submissions_and_waits),
        cmocka_unit_test(ids_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
