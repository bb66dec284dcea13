/* Runs that are submitted while earlier runs of their session are open. */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_and_choices_behind_open_runs),
        cmocka_unit_test(a_cancelled_choice_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
