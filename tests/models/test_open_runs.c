/* Runs that are submitted while earlier runs of their session are open. */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "scheduler_fixture.h"

#include <sched.h>
#include <stdlib.h>

static struct fixture open_engine(void)
{
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = 64;
    options.sessions = 2;
    return fixture_open(made_model("llama-tiny", "Q8_0"), options);
}

static enum busy_fate count_steps(void *user, uint32_t position)
{
    (void)position;
    __atomic_fetch_add((uint32_t *)user, 1, __ATOMIC_RELEASE);
    return BUSY_GOES_ON;
}

/* A prompt drops the id that an open run chooses, and behind a run that chooses none, a decode chooses one.
 * The ids are right also if the device has computed the prompt before the id is asked for: a step of another
 * session shows that it has. */
static void prompts_and_choices_behind_open_runs(void **state)
{
    (void)state;
    struct fixture fixture = open_engine();
    int32_t *ids = some_ids(20, fixture.vocabulary, 7), expected[4] = {0, -1, -1, 0};
    set_greedy(fixture.session);
    for (int i = 0; i < 4; i += 3) {
        int32_t *next = continuation(fixture.session, ids, i ? 20 : 10, 1);
        expected[i] = *next;
        free(next);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    }
    uint32_t begun = 0;
    struct salvo_session *other;
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    busy_device_install(fixture.engine);
    busy_device_set_hook(fixture.engine, count_steps, &begun);
    struct salvo_run runs[4] = {{.session = fixture.session, .ids = ids, .count = 10},
        {.session = fixture.session, .ids = ids + 10, .count = 10, .want = SALVO_WANT_NOTHING},
        {.session = other, .ids = ids, .count = 1, .want = SALVO_WANT_NOTHING}, {.session = fixture.session}};
    struct salvo_run_result result;
    uint64_t steps[4];
    for (uint32_t i = 0; i < 4; i++) {
        ASSERT_OK(salvo_engine_submit(fixture.engine, &runs[i], 1, sizeof *runs, &steps[i]));
        while (i == 2 && __atomic_load_n(&begun, __ATOMIC_ACQUIRE) < 3)
            sched_yield();
    }
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(salvo_engine_wait(fixture.engine, steps[i], &result, 1, sizeof result));
        assert_int_equal(SALVO_OK, result.status);
        assert_int_equal(expected[i], result.id);
    }
    salvo_session_close(other);
    free(ids);
    fixture_close(&fixture);
}

/* A run that only chooses and is cancelled leaves the session without a chosen id: the next one chooses
 * again. */
static void a_cancelled_choice_is_dropped(void **state)
{
    (void)state;
    struct fixture fixture = open_engine();
    int32_t *ids = some_ids(10, fixture.vocabulary, 7);
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, ids, 10, 1);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    busy_device_install(fixture.engine);
    struct salvo_run runs[4] = {
        {.session = fixture.session, .ids = ids, .count = 9, .want = SALVO_WANT_NOTHING},
        {.session = fixture.session, .ids = ids + 9, .count = 1, .want = SALVO_WANT_LATER},
        {.session = fixture.session, .handle = 5}, {.session = fixture.session}};
    struct salvo_run_result results[4];
    uint64_t steps[4];
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(salvo_engine_submit(fixture.engine, &runs[i], 1, sizeof *runs, &steps[i]));
        salvo_engine_cancel(fixture.engine, 5);
        for (int j = i == 2 ? 0 : 3; j <= i; j++) /* no run is open when the last one is submitted */
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[j], &results[j], 1, sizeof *results));
    }
    assert_int_equal(SALVO_ERROR_CANCELLED, results[2].status);
    assert_int_equal(SALVO_OK, results[3].status);
    assert_int_equal(0, results[3].tokens);
    assert_int_equal(*expected, results[3].id);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* A cancel finds each run of a step, also the last one. */
static void each_run_of_a_step_can_be_cancelled(void **state)
{
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        struct fixture fixture = open_engine();
        int32_t *ids = some_ids(4, fixture.vocabulary, 7);
        struct salvo_session *other;
        struct salvo_run_result results[2];
        uint64_t step;
        ASSERT_OK(salvo_session_open(fixture.engine, &other));
        busy_device_install(fixture.engine);
        const struct salvo_run runs[2] = {{.session = fixture.session, .ids = ids, .count = 4, .handle = 8},
            {.session = other, .ids = ids, .count = 4, .handle = 9}};
        ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
        salvo_engine_cancel(fixture.engine, runs[cancelled].handle);
        ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 2, sizeof *results));
        assert_int_equal(SALVO_ERROR_CANCELLED, results[cancelled].status);
        assert_int_equal(SALVO_OK, results[!cancelled].status);
        salvo_session_close(other);
        free(ids);
        fixture_close(&fixture);
    }
}

/* A run that leaves its choice to the next is cancelled, and no run is open: the next run computes the token
 * again. */
static void a_choice_behind_a_cancelled_run_computes_its_token(void **state)
{
    (void)state;
    struct fixture fixture = open_engine();
    int32_t *ids = some_ids(10, fixture.vocabulary, 7);
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, ids, 10, 2);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 10));
    busy_device_install(fixture.engine);
    const struct salvo_run runs[2] = {
        {.session = fixture.session, .want = SALVO_WANT_LATER, .handle = 5}, {.session = fixture.session}};
    struct salvo_run_result results[2];
    for (int i = 0; i < 2; i++) {
        uint64_t step;
        ASSERT_OK(salvo_engine_submit(fixture.engine, &runs[i], 1, sizeof *runs, &step));
        salvo_engine_cancel(fixture.engine, 5);
        ASSERT_OK(salvo_engine_wait(fixture.engine, step, &results[i], 1, sizeof *results));
    }
    assert_int_equal(SALVO_ERROR_CANCELLED, results[0].status);
    assert_int_equal(SALVO_OK, results[1].status);
    assert_int_equal(1, results[1].tokens);
    assert_int_equal(expected[1], results[1].id);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* Stop ids that several runs have take one place in the step's list: the device knows all of them, and
 * computes nothing behind a stop id. Logits of a step of several tokens cannot be asked for. */
static void runs_share_stop_ids(void **state)
{
    (void)state;
    enum { SHARED = SALVO_STOP_IDS / 2, TOKENS = 4, PROMPT = 5 };
    struct fixture fixture = open_engine();
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 7), stop_ids[SHARED + 1], chosen[2][TOKENS];
    struct salvo_session *sessions[2] = {fixture.session};
    struct salvo_run runs[2];
    struct salvo_run_result results[2];
    uint64_t step;
    ASSERT_OK(salvo_session_open(fixture.engine, &sessions[1]));
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, ids, PROMPT, TOKENS + 1);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    uint32_t count = 0;
    for (int32_t id = 0; count < SHARED; id++) {
        bool is_expected = false;
        for (int i = 0; i <= TOKENS; i++)
            is_expected |= expected[i] == id;
        if (!is_expected)
            stop_ids[count++] = id;
    }
    stop_ids[SHARED] = expected[1];
    for (int i = 0; i < 2; i++) {
        set_greedy(sessions[i]);
        ASSERT_OK(salvo_session_feed(sessions[i], ids, PROMPT));
        runs[i] = (struct salvo_run){.session = sessions[i],
            .tokens = TOKENS,
            .chosen_ids = chosen[i],
            .stop_ids = stop_ids,
            .stop_id_count = SHARED + (uint32_t)i};
    }
    const uint64_t before = counters_of(fixture.engine).tokens;
    ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 2, sizeof *results));
    assert_int_equal(TOKENS, results[0].id_count);
    assert_int_equal(1, results[1].id_count);
    assert_true(results[1].ended);
    assert_int_equal(TOKENS + 1, counters_of(fixture.engine).tokens - before);
    assert_null(salvo_session_logits(fixture.session));
    salvo_session_close(sessions[1]);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* Where there is no page for a run of two tokens, it decodes one. */
static void a_run_gets_the_tokens_that_fit(void **state)
{
    (void)state;
    enum { FULL = PAGE - 1 };
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = 2 * PAGE;
    options.sessions = 2;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"), options);
    options.kv_memory = 2 * scheduler_page_bytes(&fixture);
    fixture_close(&fixture);
    fixture = fixture_open(made_model("llama-tiny", "Q8_0"), options);
    int32_t *ids = some_ids(FULL, fixture.vocabulary, 7), chosen[2];
    struct salvo_session *other;
    struct salvo_run_result result;
    uint64_t step;
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_feed(other, ids, 1));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, FULL));
    const struct salvo_run run = {.session = fixture.session, .tokens = 2, .chosen_ids = chosen};
    ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
    assert_int_equal(SALVO_OK, result.status);
    assert_int_equal(1, result.id_count);
    salvo_session_close(other);
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_and_choices_behind_open_runs),
        cmocka_unit_test(a_cancelled_choice_is_dropped),
        cmocka_unit_test(each_run_of_a_step_can_be_cancelled),
        cmocka_unit_test(a_choice_behind_a_cancelled_run_computes_its_token),
        cmocka_unit_test(runs_share_stop_ids),
        cmocka_unit_test(a_run_gets_the_tokens_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
