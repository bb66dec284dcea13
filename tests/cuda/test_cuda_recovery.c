/*
 * Recovery after a device gave up, on a driver without a GPU whose kernels run on the emulator. A block
 * stalls somewhere in a launch, or a launch finds a step that is not its own, while others are queued behind
 * it. No token of that step or of a later one is committed or shown, and the session then goes on with the
 * tokens of an undisturbed one.
 */
#include "backend/backend.h"
#include "cmocka_test.h"
#include "cuda/emulated_sessions.h"
#include "cuda/find_fake_cuda.h"
#include "engine/engine.h"
#include "engine/session_pages.h"
#include "engine_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 5, TOKENS = 12, MOST_TEXT = 1024 };

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

/* ---- Launches that are given up while others are queued behind them ---- */

struct text {
    char bytes[MOST_TEXT];
    size_t size;
};

static bool keep_text(void *user, const char *bytes, size_t size)
{
    struct text *text = user;
    assert_true(text->size + size <= MOST_TEXT);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return true;
}

static struct fixture open_session(const char *shape, bool greedy)
{
    struct fixture fixture = fixture_open(made_model_with_vocabulary(shape, "Q8_0"), on_cuda);
    struct salvo_sampler sampler = default_sampler(fixture.model);
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 4);
    sampler.temperature = greedy ? 0 : 1;
    sampler.seed = 9;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, PROMPT));
    free(ids);
    return fixture;
}

/* Generates up to position PROMPT + TOKENS, two tokens with each launch once it is known how long one takes.
 */
static enum salvo_status generate(struct salvo_session *session, struct text *text)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const struct salvo_generate_options options = {.size = sizeof(struct salvo_generate_options),
        .max_tokens = PROMPT + TOKENS - salvo_session_position(session),
        .ignore_end = true,
        .special = true,
        .ahead = 2,
        .text = keep_text,
        .user = text};
    return salvo_session_generate(session, &options, &result);
}

struct expected {
    struct text text;
    int32_t tokens[PROMPT + TOKENS];
    unsigned rounds; /* of a launch */
};

static struct expected undisturbed(const char *shape, bool greedy)
{
    struct expected expected = {.text.size = 0};
    struct fixture fixture = open_session(shape, greedy);
    ASSERT_OK(generate(fixture.session, &expected.text));
    memcpy(expected.tokens, salvo_session_tokens(fixture.session), sizeof expected.tokens);
    expected.rounds = fake->rounds;
    fixture_close(&fixture);
    return expected;
}

/* Launch number `nth` after the prompt fails. Checks the error, the text before the failure, and the
 * text after recovery. */
static void give_up(const char *shape, bool greedy, const struct expected *expected, unsigned long nth,
    unsigned block, unsigned round)
{
    struct fixture fixture = open_session(shape, greedy);
    struct text shown = {.size = 0}, again = {.size = 0};
    fake_stall(nth, block, round);
    assert_int_equal(SALVO_ERROR_DEVICE, generate(fixture.session, &shown));
    if (!strstr(salvo_error(), "a wait on the device took too long"))
        fail_msg("%s", salvo_error());
    assert_true(fake->steps > fake->fails_at); /* others were queued behind it */
    assert_true(shown.size <= expected->text.size);
    assert_memory_equal(expected->text.bytes, shown.bytes, shown.size);

    const uint32_t position = salvo_session_position(fixture.session);
    assert_true(position >= PROMPT && position < PROMPT + TOKENS);
    assert_memory_equal(
        expected->tokens, salvo_session_tokens(fixture.session), position * sizeof *expected->tokens);
    ASSERT_OK(generate(fixture.session, &again));
    assert_memory_equal(expected->tokens, salvo_session_tokens(fixture.session), sizeof expected->tokens);
    fixture_close(&fixture);
}

/* Each block once, at another place of the launch each time. */
static void queued_launches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int greedy = 0; greedy < 2; greedy++) {
            const struct expected expected = undisturbed(shapes[i], greedy);
            for (unsigned j = 0; j < 3; j++)
                give_up(shapes[i], greedy, &expected, 1 + j, (j + 1) % 3, 1 + expected.rounds * j / 4);
        }
    }
}

/* ---- Launches that find a step that is not their own ---- */

static struct run run_of(struct salvo_session *session, uint32_t first, uint32_t count)
{
    ASSERT_OK(session_take_pages(session, first, first + count));
    return (struct run){.slot = session->slot,
        .first = first,
        .count = count,
        .source = SOURCE_IDS,
        .logits = LOGITS_LAST,
        .pages = session->pages,
        .sampler = session->sampler};
}

/* Three steps on their way, of one token and of many in the given order: the second fails. */
static void three_steps(
    const char *shape, enum fake_failure failure, const uint32_t counts[3], const char *why)
{
    struct fixture fixture = fixture_open(made_model(shape, "Q8_0"), on_cuda);
    struct salvo_session *other;
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    int32_t *ids = some_ids(40, fixture.vocabulary, 7), next[2], expected[2];
    const struct backend *backend = fixture.engine->backend;
    struct executor *executor = fixture.engine->executor;
    struct run_result result;
    uint64_t tickets[3];
    set_greedy(fixture.session);
    fake_fail(2, failure);
    fake->stalled_block = 1;
    fake->stall_round = 20;
    for (int i = 0; i < 3; i++) {
        const struct run run = run_of(i == 0 ? other : fixture.session, i == 2 ? counts[1] : 0, counts[i]);
        const struct step step = {.runs = &run, .run_count = 1, .token_count = counts[i], .ids = ids};
        ASSERT_OK(backend->submit(executor, &step, &tickets[i]));
    }
    ASSERT_OK(backend->wait(executor, tickets[0], &result));
    assert_int_equal(1, result.sampled);
    assert_int_equal(SALVO_ERROR_DEVICE, backend->wait(executor, tickets[1], &result));
    if (!strstr(salvo_error(), why))
        fail_msg("%s", salvo_error());
    assert_int_equal(SALVO_ERROR_DEVICE, backend->wait(executor, tickets[2], &result));
    assert_non_null(strstr(salvo_error(), "dropped because an earlier step failed"));

    /* The session has accepted nothing of it, and continues as an undisturbed one. */
    set_greedy(other);
    for (int i = 0; i < 2; i++) {
        struct salvo_session *session = i == 0 ? fixture.session : other;
        ASSERT_OK(salvo_session_feed(session, ids, 20));
        ASSERT_OK(salvo_session_next(session, i == 0 ? &next[0] : &expected[0]));
        ASSERT_OK(salvo_session_next(session, i == 0 ? &next[1] : &expected[1]));
    }
    assert_memory_equal(expected, next, sizeof next);
    free(ids);
    fixture_close(&fixture);
}

/* The ring has eight entries: the results of the last eight steps are kept. */
static void old_tickets(void **state)
{
    (void)state;
    enum { STEPS = 9 };
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"), on_cuda);
    const struct backend *backend = fixture.engine->backend;
    struct executor *executor = fixture.engine->executor;
    struct run_result result;
    uint64_t tickets[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct run run = run_of(fixture.session, i, 1);
        const struct step step = {.runs = &run, .run_count = 1, .token_count = 1, .ids = &(int32_t){7}};
        ASSERT_OK(backend->submit(executor, &step, &tickets[i]));
        ASSERT_OK(backend->wait(executor, tickets[i], &result));
    }
    assert_int_equal(SALVO_ERROR_ARGUMENT, backend->wait(executor, tickets[0], &result));
    assert_non_null(strstr(salvo_error(), "is not one of the last 8"));
    assert_int_equal(SALVO_ERROR_ARGUMENT, backend->wait(executor, tickets[STEPS - 1] + 1, &result));
    ASSERT_OK(backend->wait(executor, tickets[1], &result));
    assert_int_equal(1, result.sampled);
    fixture_close(&fixture);
}

static void mixed_launches(void **state)
{
    (void)state;
    static const uint32_t orders[][3] = {{1, 1, 20}, {20, 1, 1}, {1, 20, 1}, {20, 20, 20}};
    const char *late = "a wait on the device took too long", *not_own = "a launch found a step that is not";
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (size_t j = 0; j < sizeof orders / sizeof *orders; j++) {
            if (orders[j][1] == 1) /* launches of many tokens do not wait */
                three_steps(shapes[i], FAKE_STALL, orders[j], late);
            if (i == 0) {
                three_steps(shapes[i], FAKE_WRONG_NUMBER, orders[j], not_own);
                three_steps(shapes[i], FAKE_WRONG_PLAN, orders[j], not_own);
            }
        }
    }
}

/* ---- Other users of the device ---- */

static char logged[512];

static void keep_line(void *user, enum salvo_log_level level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

/* One engine is closed, also after an unrecoverable error; another engine, and a user of the context
 * outside the library, continue. */
static void other_users(void **state)
{
    (void)state;
    salvo_log_set(keep_line, NULL);
    for (int lost = 0; lost < 2; lost++) {
        struct fixture first = open_session("llama-tiny", true), second = open_session("llama-tiny", true);
        struct text text = {.size = 0}, other = {.size = 0};
        logged[0] = 0;
        fake->contexts++; /* another user of the context */
        assert_int_equal(3, fake->contexts);
        ASSERT_OK(generate(first.session, &text));
        if (lost) {
            fake->code = 700;
            fake->fail_at = fake->calls + 1;
            assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(first.session, (const int32_t[]){1}, 1));
        }
        fixture_close(&first);
        assert_int_equal(2, fake->contexts);
        assert_int_equal(
            lost, strstr(logged, "an illegal memory access (700)) while others in this process") != NULL);
        ASSERT_OK(generate(second.session, &other));
        assert_int_equal(text.size, other.size);
        assert_memory_equal(text.bytes, other.bytes, text.size);
        fixture_close(&second);
        assert_int_equal(1, fake->contexts);
        fake->contexts = 0;
    }
    assert_int_equal(0, fake->resets);
    salvo_log_set(NULL, NULL);
}

/* ---- How much is handed over at once ---- */

static void choose_ahead(struct fixture *fixture, uint32_t ahead, int32_t out[TOKENS])
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    set_greedy(fixture->session);
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    ASSERT_OK(salvo_session_feed(fixture->session, (const int32_t[]){1, 5, 3}, 3));
    fake->longest_ns = 0;
    ASSERT_OK(salvo_session_generate(fixture->session,
        &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .max_tokens = TOKENS,
            .ignore_end = true,
            .ahead = ahead},
        &result));
    assert_int_equal(TOKENS, result.tokens);
    memcpy(out, salvo_session_tokens(fixture->session) + 3, TOKENS * sizeof *out);
}

/* For any number of tokens ahead. */
static void any_ahead(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "cuda"};
    for (size_t i = 0; i < 4; i++) {
        struct salvo_engine_options options = on_cuda;
        int32_t one[TOKENS], many[TOKENS];
        options.backend = backends[i % 2];
        struct fixture fixture = fixture_open(made_model(shapes[i / 2], "Q8_0"), options);
        choose_ahead(&fixture, 1, one);
        choose_ahead(&fixture, 70000, many);
        assert_memory_equal(one, many, sizeof many);
        choose_ahead(&fixture, UINT32_MAX, many);
        assert_memory_equal(one, many, sizeof many);
        fixture_close(&fixture);
    }
}

/* On a device whose launches exceed the time limit, by the emulator's clock. */
static void launches_by_time(void **state)
{
    (void)state;
    const unsigned long most_ns = getenv("SALVO_FAKE_WATCHDOG") ? 250000000 : 1000000000;
    int32_t free_running[TOKENS], timed[TOKENS];
    struct salvo_engine_options options = on_cuda;
    options.batch = 256;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"), options);
    int32_t *ids = some_ids(256, fixture.vocabulary, 3);
    choose_ahead(&fixture, 64, free_running);

    /* A token takes a sixth of what a launch may. */
    choose_ahead(&fixture, 1, timed);
    fake->round_ns = most_ns / 6 / fake->rounds;
    choose_ahead(&fixture, 1, timed);
    const uint64_t before = counters_of(fixture.engine).submissions;
    choose_ahead(&fixture, 64, timed);
    const uint64_t submissions = counters_of(fixture.engine).submissions - before;
    assert_true(fake->longest_ns > most_ns / 6 && fake->longest_ns < most_ns);
    assert_true(submissions > 3 && submissions < TOKENS);
    assert_memory_equal(free_running, timed, sizeof timed);

    /* A prompt of 64 tokens takes all of it. */
    fake->round_ns = 1000;
    fake->longest_ns = 0;
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 64));
    fake->round_ns = most_ns * 1000 / fake->longest_ns;
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 64)); /* it learns that */
    fake->longest_ns = 0;
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 256));
    assert_true(fake->longest_ns > most_ns / 8 && fake->longest_ns < most_ns);
    fake->round_ns = 0;
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queued_launches),
        cmocka_unit_test(old_tickets),
        cmocka_unit_test(mixed_launches),
        cmocka_unit_test(other_users),
        cmocka_unit_test(any_ahead),
        cmocka_unit_test(launches_by_time),
    };
    if (getenv("SALVO_FAKE_WATCHDOG"))
        cmocka_set_test_filter("launches_by_time");
    return cmocka_run_group_tests(tests, find_fake, NULL);
}
