/* KV pages: taken when tokens are computed, given back when they are removed, shared by copies. */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <salvo/memory.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE = 256, CONTEXT = 1024, MOST_SESSIONS = 8 };

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

/* Bytes of one page. */
static size_t page_bytes(const char *shape)
{
    struct fixture fixture = fixture_open(made_model(shape, "Q8_0"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = CONTEXT});
    const size_t bytes = saved_kv_size(&fixture, PAGE);
    fixture_close(&fixture);
    return bytes;
}

/* An engine whose sessions share `pages` pages. */
static struct fixture open_pool(const char *shape, uint32_t sessions, uint32_t pages)
{
    const size_t bytes = page_bytes(shape);
    return fixture_open(
        made_model(shape, "Q8_0"), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                       .backend = "cpu",
                                       .threads = 1,
                                       .context = CONTEXT,
                                       .batch = 64,
                                       .sessions = sessions,
                                       .kv_memory = (bytes ? bytes : 1) * pages});
}

static struct salvo_memory memory_of(const struct fixture *fixture)
{
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture->engine, &memory));
    return memory;
}

static void assert_used(const struct fixture *fixture, uint32_t used)
{
    const struct salvo_memory memory = memory_of(fixture);
    assert_int_equal(used, memory.used_pages);
    assert_int_equal(memory.pages, memory.free_pages + used);
}

static void open_sessions(const struct fixture *fixture, struct salvo_session **sessions, uint32_t count)
{
    sessions[0] = fixture->session;
    for (uint32_t i = 1; i < count; i++)
        ASSERT_OK(salvo_session_open(fixture->engine, &sessions[i]));
}

static void close_sessions(struct fixture *fixture, struct salvo_session **sessions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        salvo_session_close(sessions[i]);
    fixture->session = NULL;
    assert_used(fixture, 0);
}

static void pages_come_and_go_with_tokens(void **state)
{
    (void)state;
    struct fixture fixture = open_pool("llama-tiny", 1, 4);
    int32_t *ids = some_ids(CONTEXT, fixture.vocabulary, 3);
    assert_int_equal(PAGE, memory_of(&fixture).page_positions);
    assert_int_equal(4, memory_of(&fixture).pages);
    assert_used(&fixture, 0);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 1));
    assert_used(&fixture, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 1, PAGE - 1));
    assert_used(&fixture, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids + PAGE, 1));
    assert_used(&fixture, 2);
    ASSERT_OK(salvo_session_feed(fixture.session, ids + PAGE + 1, CONTEXT - PAGE - 1));
    assert_used(&fixture, 4);
    ASSERT_OK(salvo_session_rollback(fixture.session, PAGE + 1));
    assert_used(&fixture, 2);
    ASSERT_OK(salvo_session_rollback(fixture.session, PAGE));
    assert_used(&fixture, 1);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    assert_used(&fixture, 0);

    /* Refused tokens and cancelled ones take nothing. */
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_feed(fixture.session, &(int32_t){-1}, 1));
    salvo_session_cancel(fixture.session);
    assert_int_equal(SALVO_ERROR_CANCELLED, salvo_session_feed(fixture.session, ids, 1));
    assert_used(&fixture, 0);
    free(ids);
    fixture_close(&fixture);
}

/* Generation asks for several tokens at once; the pages of dropped tokens are given back. */
static void generation_gives_back_what_it_does_not_keep(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct fixture fixture = open_pool("llama-tiny", 1, 3);
        if (busy)
            busy_device_install(fixture.engine);
        int32_t *ids = some_ids(PAGE, fixture.vocabulary, 5);
        set_greedy(fixture.session);
        ASSERT_OK(salvo_session_feed(fixture.session, ids, PAGE - 2));
        const struct salvo_generate_options options = {
            .size = sizeof options, .max_tokens = 2, .ahead = 8, .ignore_end = 1};
        ASSERT_OK(salvo_session_generate(fixture.session, &options, NULL));
        assert_int_equal(PAGE, salvo_session_position(fixture.session));
        assert_used(&fixture, 1);
        free(ids);
        fixture_close(&fixture);
    }
}

static void a_pool_that_is_too_small_is_refused(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q8_0"), &model));
    const struct salvo_engine_options options = {
        .size = sizeof options, .backend = "cpu", .context = CONTEXT, .kv_memory = 100};
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_open(model, &options, &engine));
    assert_non_null(strstr(salvo_error(), "a KV memory of 100 bytes is too small"));
    salvo_model_close(model);
}

/* As much as there is: full contexts, or with a prefix cache more. */
static void the_most_memory(void **state)
{
    (void)state;
    for (uint32_t cache = 0; cache < 2; cache++) {
        struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                .backend = "cpu",
                .context = CONTEXT,
                .sessions = 2,
                .kv_memory = SALVO_KV_MEMORY_MOST,
                .prefix_cache = cache});
        const uint32_t pages = memory_of(&fixture).pages;
        assert_true(cache ? pages > 8 : pages == 8);
        int32_t *ids = some_ids(10, fixture.vocabulary, 3);
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 10));
        free(ids);
        fixture_close(&fixture);
    }
}

/* Two sessions have used all pages; a run that needs one more fails by name, its neighbour does not. */
static void a_run_without_pages_fails_alone(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct fixture fixture = open_pool("llama-tiny", 2, 2);
        if (busy)
            busy_device_install(fixture.engine);
        struct salvo_session *sessions[2];
        struct salvo_run_result results[2];
        uint64_t step;
        open_sessions(&fixture, sessions, 2);
        int32_t *ids = some_ids(2 * PAGE, fixture.vocabulary, 7);
        ASSERT_OK(salvo_session_feed(sessions[0], ids, PAGE));
        ASSERT_OK(salvo_session_feed(sessions[1], ids, 10));
        const struct salvo_run runs[2] = {{.session = sessions[0]}, {.session = sessions[1]}};
        ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
        ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 2, sizeof *results));
        assert_int_equal(SALVO_ERROR_MEMORY, results[0].status);
        assert_non_null(
            strstr(results[0].message, "the KV memory is full: 257 tokens need 1 more of its pages"));
        assert_int_equal(SALVO_OK, results[1].status);
        assert_int_equal(PAGE, results[0].position);
        assert_int_equal(11, results[1].position);

        /* The same for other calls; nothing is lost, and the session continues when pages are free. */
        int32_t id, expected;
        assert_int_equal(SALVO_OK, salvo_session_next(sessions[0], &expected)); /* chosen already */
        assert_int_equal(SALVO_ERROR_MEMORY, salvo_session_next(sessions[0], &id));
        salvo_session_close(sessions[1]);
        ASSERT_OK(salvo_session_next(sessions[0], &id));
        assert_used(&fixture, 2);
        close_sessions(&fixture, sessions, 1);
        free(ids);
        fixture_close(&fixture);
    }
}

/* Steps in flight, the last of which finds no page. */
static void steps_in_flight_end_in_order_when_pages_run_out(void **state)
{
    (void)state;
    struct fixture fixture = open_pool("llama-tiny", 1, 1);
    busy_device_install(fixture.engine);
    int32_t *ids = some_ids(PAGE, fixture.vocabulary, 9);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, PAGE - 1));
    uint64_t steps[3];
    struct salvo_run_result result;
    const struct salvo_run run = {.session = fixture.session};
    for (int i = 0; i < 3; i++)
        ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &steps[i]));
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(salvo_engine_wait(fixture.engine, steps[i], &result, 1, sizeof result));
        assert_int_equal(i ? SALVO_ERROR_MEMORY : SALVO_OK, result.status);
    }
    assert_int_equal(PAGE, salvo_session_position(fixture.session));
    assert_used(&fixture, 1);
    free(ids);
    fixture_close(&fixture);
}

/* A copy and its original go different ways and each is as if it were alone. */
static void copies_share_pages_until_they_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const bool has_pages = i == 0;
        for (uint32_t prompt = PAGE - 1; prompt <= 2 * PAGE + 3; prompt += PAGE / 2 + 1) {
            struct fixture fixture = open_pool(shapes[i], 3, 12);
            struct salvo_session *sessions[3];
            open_sessions(&fixture, sessions, 3);
            int32_t *ids = some_ids(prompt + 60, fixture.vocabulary, prompt);
            const uint32_t pages = has_pages ? (prompt + PAGE - 1) / PAGE : 0;
            ASSERT_OK(salvo_session_feed(sessions[0], ids, prompt));
            ASSERT_OK(salvo_session_copy(sessions[1], sessions[0]));
            assert_int_equal(prompt, salvo_session_position(sessions[1]));
            assert_used(&fixture, pages);
            /* The copy goes on first, then the original, with other tokens. */
            const size_t row = fixture.vocabulary * sizeof(float);
            float *logits[3];
            for (int j = 1; j >= 0; j--) {
                ASSERT_OK(salvo_session_feed(sessions[j], ids + prompt + j * 20, 30));
                logits[j] = malloc(row);
                memcpy(logits[j], salvo_session_logits(sessions[j]), row);
            }
            for (int j = 0; j < 2; j++) {
                ASSERT_OK(salvo_session_rollback(sessions[2], 0));
                ASSERT_OK(salvo_session_feed(sessions[2], ids, prompt));
                ASSERT_OK(salvo_session_feed(sessions[2], ids + prompt + j * 20, 30));
                assert_memory_equal(logits[j], salvo_session_logits(sessions[2]), row);
                free(logits[j]);
            }
            /* A copy over a session that has tokens, and a rollback of a copy. */
            ASSERT_OK(salvo_session_copy(sessions[2], sessions[1]));
            ASSERT_OK(salvo_session_rollback(sessions[2], prompt));
            ASSERT_OK(salvo_session_feed(sessions[2], ids + prompt, 30));
            ASSERT_OK(salvo_session_rollback(sessions[0], prompt));
            ASSERT_OK(salvo_session_feed(sessions[0], ids + prompt, 30));
            logits[0] = malloc(row);
            memcpy(logits[0], salvo_session_logits(sessions[0]), row);
            ASSERT_OK(salvo_session_rollback(sessions[2], prompt + 29));
            ASSERT_OK(salvo_session_feed(sessions[2], ids + prompt + 29, 1));
            assert_memory_equal(logits[0], salvo_session_logits(sessions[2]), row);
            free(logits[0]);
            free(ids);
            close_sessions(&fixture, sessions, 3);
            fixture_close(&fixture);
        }
    }
}

/* Runs of copies in one batch, while a step of another session is in flight. */
static void copies_in_batches(void **state)
{
    (void)state;
    enum { COPIES = 3, TOKENS = 12 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_pool(shapes[i], COPIES + 1, 8);
        busy_device_install(fixture.engine);
        struct salvo_session *sessions[COPIES + 1];
        open_sessions(&fixture, sessions, COPIES + 1);
        int32_t *ids = some_ids(100, fixture.vocabulary, 11), chosen[COPIES + 1][TOKENS];
        set_greedy(sessions[0]);
        ASSERT_OK(salvo_session_feed(sessions[0], ids, 100));
        for (int j = 1; j <= COPIES; j++) {
            set_greedy(sessions[j]);
            ASSERT_OK(salvo_session_copy(sessions[j], sessions[0]));
        }
        for (int round = 0; round < TOKENS; round++) {
            uint64_t steps[2];
            struct salvo_run runs[COPIES + 1] = {{0}};
            struct salvo_run_result results[COPIES + 1];
            for (int j = 0; j <= COPIES; j++)
                runs[j].session = sessions[j];
            ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 1, sizeof *runs, &steps[0]));
            ASSERT_OK(salvo_engine_submit(fixture.engine, runs + 1, COPIES, sizeof *runs, &steps[1]));
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[0], results, 1, sizeof *results));
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[1], results + 1, COPIES, sizeof *results));
            for (int j = 0; j <= COPIES; j++) {
                assert_int_equal(SALVO_OK, results[j].status);
                chosen[j][round] = results[j].id;
            }
        }
        for (int j = 1; j <= COPIES; j++)
            assert_memory_equal(chosen[0], chosen[j], sizeof chosen[0]);
        assert_used(&fixture, i == 0 ? COPIES + 1 : 0);
        close_sessions(&fixture, sessions, COPIES + 1);
        free(ids);
        fixture_close(&fixture);
    }
}

static void a_thousand_sessions_share_a_few_pages(void **state)
{
    (void)state;
    enum { SESSIONS = 1000, PAGES = 5 };
    struct fixture fixture = open_pool("llama-tiny", SESSIONS, PAGES);
    struct salvo_session **sessions = calloc(SESSIONS, sizeof(struct salvo_session *));
    int32_t *ids = some_ids(8, fixture.vocabulary, 13), id;
    open_sessions(&fixture, sessions, SESSIONS);
    uint32_t used = 0;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const enum salvo_status status = salvo_session_feed(sessions[i], ids, 8);
        assert_int_equal(used < PAGES ? SALVO_OK : SALVO_ERROR_MEMORY, status);
        used += status == SALVO_OK;
        if (used == PAGES && i % 3 == 0) { /* makes room for the next one */
            ASSERT_OK(salvo_session_rollback(sessions[i < 5 ? 0 : i - (i % 3)], 0));
            used = memory_of(&fixture).used_pages;
        }
        assert_used(&fixture, used);
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (salvo_session_position(sessions[i]))
            ASSERT_OK(salvo_session_next(sessions[i], &id));
    }
    close_sessions(&fixture, sessions, SESSIONS);
    free(sessions);
    free(ids);
    fixture_close(&fixture);
}

/* Sessions that grow, shrink, are copied, closed and opened at random; the logits are checked at times. */
static void random_sessions_leave_no_page_behind(void **state)
{
    (void)state;
    enum { STEPS = 150, PAGES = 7 };
    struct fixture fixture = open_pool("llama-tiny", MOST_SESSIONS, PAGES);
    struct fixture alone = open_pool("llama-tiny", 1, PAGES);
    struct salvo_session *sessions[MOST_SESSIONS];
    open_sessions(&fixture, sessions, MOST_SESSIONS);
    const size_t row = fixture.vocabulary * sizeof(float);
    uint32_t random = 1, refused = 0, copies = 0;
    for (int i = 0; i < STEPS; i++) {
        random = random * 1664525u + 1013904223u;
        const uint32_t choice = random >> 24, at = (random >> 16) % MOST_SESSIONS,
                       other = (random >> 12) % MOST_SESSIONS, count = 1 + (random >> 4) % 200;
        struct salvo_session *session = sessions[at];
        const uint32_t position = salvo_session_position(session);
        if (choice < 140 && position + count <= CONTEXT) {
            int32_t *ids = some_ids(count, fixture.vocabulary, random);
            const enum salvo_status status = salvo_session_feed(session, ids, count);
            assert_true(status == SALVO_OK || status == SALVO_ERROR_MEMORY);
            refused += status != SALVO_OK;
            free(ids);
            if (status == SALVO_OK && i % 4 == 0) {
                float *logits = malloc(row);
                memcpy(logits, salvo_session_logits(session), row);
                ASSERT_OK(salvo_session_rollback(alone.session, 0));
                ASSERT_OK(salvo_session_feed(
                    alone.session, salvo_session_tokens(session), salvo_session_position(session)));
                assert_memory_equal(logits, salvo_session_logits(alone.session), row);
                free(logits);
            }
        } else if (choice < 190) {
            ASSERT_OK(salvo_session_rollback(session, position ? random % position : 0));
        } else if (choice < 230) {
            ASSERT_OK(salvo_session_copy(session, sessions[other]));
            copies += session != sessions[other] && salvo_session_position(session);
        } else {
            salvo_session_close(session);
            ASSERT_OK(salvo_session_open(fixture.engine, &sessions[at]));
        }
    }
    assert_true(refused > 2 && copies > 2);
    close_sessions(&fixture, sessions, MOST_SESSIONS);
    fixture_close(&alone);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_and_go_with_tokens),
        cmocka_unit_test(generation_gives_back_what_it_does_not_keep),
        cmocka_unit_test(a_pool_that_is_too_small_is_refused),
        cmocka_unit_test(the_most_memory),
        cmocka_unit_test(a_run_without_pages_fails_alone),
        cmocka_unit_test(steps_in_flight_end_in_order_when_pages_run_out),
        cmocka_unit_test(copies_share_pages_until_they_differ),
        cmocka_unit_test(copies_in_batches),
        cmocka_unit_test(a_thousand_sessions_share_a_few_pages),
        cmocka_unit_test(random_sessions_leave_no_page_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
