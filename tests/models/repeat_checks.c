#include "repeat_checks.h"

#include "cmocka_test.h"

#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 5, TOKENS = 4, PROMPT = 9, LAST_POSITIONS = 3, EXPECTED = 3 * TOKENS + 1 };
enum { FREE, SHORT, STOPS, FAILS, FULL }; /* why the run of each session ends */

/* Each id of the mask can be chosen once: its bias times the penalty is -infinity. */
static void allow_once(struct salvo_session *session, uint32_t vocabulary)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    sampler.temperature = 0;
    sampler.repeat_penalty = 1e6f;
    sampler.repeat_last_n = TOKENS;
    ASSERT_OK(salvo_session_set_sampler(session, &sampler));
    for (uint32_t id = 0; id < vocabulary; id++)
        ASSERT_OK(salvo_session_set_bias(session, (int32_t)id, -1e35f));
}

static uint32_t prompt_of(int session)
{
    return session == FULL ? REPEAT_CONTEXT - LAST_POSITIONS : PROMPT;
}

static void check_ids(const int32_t *expected, uint32_t count, const int32_t *ids,
    const struct salvo_run_result *result, uint32_t prompt)
{
    assert_int_equal(count, result->id_count);
    assert_memory_equal(expected, ids, count * sizeof *ids);
    assert_int_equal(ids[count - 1], result->id);
    assert_int_equal(count, result->tokens);
    assert_int_equal(prompt + count, result->position);
}

/* Stores as many stop ids as a step can carry, none of which is in the list. */
static void fill_stop_ids(const int32_t *list, uint32_t count, int32_t stop_ids[SALVO_STOP_IDS])
{
    uint32_t stored = 0;
    for (int32_t id = 0; stored < SALVO_STOP_IDS; id++) {
        bool is_listed = false;
        for (uint32_t i = 0; i < count; i++)
            is_listed |= list[i] == id;
        if (!is_listed)
            stop_ids[stored++] = id;
    }
}

/* The stop ids of one run fill the step, so that the device does not know the other run's stop ids. Both
 * sessions have 2 * TOKENS of their expected ids. */
static void check_unknown_stop(
    struct salvo_engine *engine, struct salvo_session *const sessions[2], const int32_t *const expected[2])
{
    enum { DONE = 2 * TOKENS + 1 };
    int32_t others[SALVO_STOP_IDS], ids[2][TOKENS];
    struct salvo_run_result results[2];
    uint32_t stop = 1;
    uint64_t step;
    struct salvo_run runs[2];
    for (int i = 0; i < 2; i++)
        runs[i] = (struct salvo_run){.session = sessions[i], .tokens = TOKENS, .chosen_ids = ids[i]};
    fill_stop_ids(expected[0], EXPECTED, others);
    runs[0].stop_ids = others;
    runs[0].stop_id_count = SALVO_STOP_IDS;
    runs[1].stop_ids = &expected[1][DONE + 1];
    runs[1].stop_id_count = 1;
    while (expected[1][DONE + stop - 1] != expected[1][DONE + 1])
        stop++;
    assert_true(stop < TOKENS);
    ASSERT_OK(salvo_engine_submit(engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(engine, step, results, 2, sizeof *results));
    check_ids(expected[0] + DONE, TOKENS, ids[0], &results[0], PROMPT + 2 * TOKENS);
    assert_false(results[0].ended);
    check_ids(expected[1] + DONE, stop, ids[1], &results[1], PROMPT + 2 * TOKENS);
    assert_true(results[1].ended);
    runs[1].stop_id_count = 0;
    runs[1].tokens = TOKENS - stop;
    ASSERT_OK(salvo_engine_submit(engine, &runs[1], 1, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(engine, step, results, 1, sizeof *results));
    check_ids(expected[1] + DONE + stop, TOKENS - stop, ids[1], results, PROMPT + 2 * TOKENS + stop);
}

void check_repeats(struct fixture *fixture)
{
    struct salvo_session *sessions[SESSIONS] = {fixture->session};
    struct salvo_run runs[SESSIONS];
    struct salvo_run_result results[SESSIONS], behind[SESSIONS];
    int32_t *prompt = some_ids(REPEAT_CONTEXT, fixture->vocabulary - 2, 11), *expected[SESSIONS] = {NULL};
    int32_t ids[SESSIONS][TOKENS], ids_behind[SESSIONS][TOKENS];
    const uint32_t words = (fixture->vocabulary + 31) / 32;
    const int32_t allowed[2] = {(int32_t)fixture->vocabulary - 2, (int32_t)fixture->vocabulary - 1};
    uint32_t *mask = calloc(words, sizeof *mask);
    uint64_t step, next_step;
    assert_non_null(mask);
    for (int i = 0; i < 2; i++)
        mask[allowed[i] / 32] |= UINT32_C(1) << allowed[i] % 32;
    for (int i = 0; i < SESSIONS; i++) {
        const uint32_t count = i == FULL ? LAST_POSITIONS : EXPECTED;
        if (i)
            ASSERT_OK(salvo_session_open(fixture->engine, &sessions[i]));
        set_greedy(sessions[i]);
        if (i == FAILS)
            allow_once(sessions[i], fixture->vocabulary);
        else
            expected[i] = continuation(sessions[i], prompt, prompt_of(i), count);
        ASSERT_OK(salvo_session_rollback(sessions[i], 0));
        ASSERT_OK(salvo_session_feed(sessions[i], prompt, prompt_of(i))); /* chooses the first id */
    }
    for (int i = 0; i < SESSIONS; i++)
        runs[i] = (struct salvo_run){.session = sessions[i], .tokens = TOKENS, .chosen_ids = ids[i]};
    runs[SHORT].tokens = 2;
    runs[STOPS].stop_ids = &expected[STOPS][3];
    runs[STOPS].stop_id_count = 1;
    runs[FAILS].mask = mask;
    uint32_t stop = 1; /* the first time that the stop id is chosen */
    while (expected[STOPS][stop] != expected[STOPS][3])
        stop++;
    ASSERT_OK(salvo_engine_submit(fixture->engine, runs, SESSIONS, sizeof *runs, &step));
    for (int i = 0; i < SESSIONS; i++)
        runs[i].chosen_ids = ids_behind[i];
    ASSERT_OK(salvo_engine_submit(fixture->engine, runs, SESSIONS, sizeof *runs, &next_step));
    ASSERT_OK(salvo_engine_wait(fixture->engine, step, results, SESSIONS, sizeof *results));
    for (int i = 0; i < SESSIONS; i++) {
        if (i != FAILS)
            assert_int_equal(SALVO_OK, results[i].status);
        assert_int_equal(i == STOPS, results[i].ended);
    }
    check_ids(expected[FREE] + 1, TOKENS, ids[FREE], &results[FREE], PROMPT);
    check_ids(expected[SHORT] + 1, 2, ids[SHORT], &results[SHORT], PROMPT);
    check_ids(expected[STOPS] + 1, stop, ids[STOPS], &results[STOPS], PROMPT);
    assert_memory_equal(expected[FULL] + 1, ids[FULL], (LAST_POSITIONS - 1) * sizeof **ids);
    check_ids(ids[FULL], LAST_POSITIONS, ids[FULL], &results[FULL], prompt_of(FULL));
    assert_int_equal(SALVO_ERROR_NUMERIC, results[FAILS].status);
    assert_int_equal(2, results[FAILS].id_count);
    assert_memory_equal(allowed, ids[FAILS], sizeof allowed);
    assert_int_equal(PROMPT + 2, results[FAILS].position);
    assert_non_null(strstr(results[FAILS].message, "the mask allows none"));

    ASSERT_OK(salvo_engine_wait(fixture->engine, next_step, behind, SESSIONS, sizeof *behind));
    check_ids(expected[FREE] + 1 + TOKENS, TOKENS, ids_behind[FREE], &behind[FREE], PROMPT + TOKENS);
    check_ids(expected[SHORT] + 3, 2, ids_behind[SHORT], &behind[SHORT], PROMPT + 2);
    assert_int_equal(SALVO_OK, behind[STOPS].status);
    assert_int_equal(0, behind[STOPS].id_count);
    assert_int_equal(SALVO_ERROR_NUMERIC, behind[FAILS].status);
    assert_int_equal(SALVO_ERROR_CONTEXT, behind[FULL].status);

    /* Sessions that ended early continue from where they are. */
    uint32_t left[2] = {STOPS, SHORT};
    for (int i = 0; i < 2; i++) {
        runs[i] = (struct salvo_run){
            .session = sessions[left[i]], .tokens = (uint32_t)(i ? TOKENS : 3), .chosen_ids = ids[i]};
    }
    ASSERT_OK(salvo_engine_submit(fixture->engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(fixture->engine, step, results, 2, sizeof *results));
    check_ids(expected[STOPS] + 1 + stop, 3, ids[0], &results[0], PROMPT + stop);
    check_ids(expected[SHORT] + 5, TOKENS, ids[1], &results[1], PROMPT + 4);
    check_unknown_stop(fixture->engine, (struct salvo_session *[]){sessions[FREE], sessions[SHORT]},
        (const int32_t *[]){expected[FREE], expected[SHORT]});
    for (int i = 0; i < SESSIONS; i++) {
        free(expected[i]);
        if (i)
            salvo_session_close(sessions[i]);
    }
    free(mask);
    free(prompt);
}
