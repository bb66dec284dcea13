/* The prefix cache: a session that begins with kept tokens has the bits of one that computes them. */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <salvo/memory.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE = 256, CONTEXT = 1024 };

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

/* `states_mb` 0: without a prefix cache. */
static struct fixture open_cache(const char *shape, uint32_t sessions, size_t kv_memory, uint32_t states_mb)
{
    return fixture_open(
        made_model(shape, "Q8_0"), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                       .backend = "cpu",
                                       .threads = 1,
                                       .context = CONTEXT,
                                       .batch = 200,
                                       .sessions = sessions,
                                       .kv_memory = kv_memory,
                                       .prefix_cache = states_mb > 0,
                                       .prefix_states_mb = states_mb});
}

static struct salvo_memory memory_of(const struct fixture *fixture)
{
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture->engine, &memory));
    return memory;
}

/* Bytes of `pages` KV pages: the state grows by them. */
static size_t bytes_of_pages(const char *shape, uint32_t pages)
{
    struct fixture fixture = open_cache(shape, 1, 0, 0);
    const size_t bytes = saved_kv_size(&fixture, PAGE);
    fixture_close(&fixture);
    return bytes * pages;
}

/* The logits after a prompt, computed from nothing; to be freed. */
static float *logits_alone(const struct fixture *alone, const int32_t *ids, uint32_t count)
{
    const size_t row = alone->vocabulary * sizeof(float);
    float *logits = malloc(row);
    ASSERT_OK(salvo_session_rollback(alone->session, 0));
    ASSERT_OK(salvo_session_feed(alone->session, ids, count));
    memcpy(logits, salvo_session_logits(alone->session), row);
    return logits;
}

/* Begins the session with a prompt, whose logits and next tokens must be the same as without a cache; returns
 * the number of cached tokens. */
static uint32_t check_prompt(struct salvo_session *session, const struct fixture *alone, const int32_t *ids,
    uint32_t count, uint32_t answer)
{
    uint32_t cached;
    ASSERT_OK(salvo_session_prefill_cached(session, ids, count, &cached));
    assert_true(cached < count);
    assert_int_equal(cached, salvo_session_position(session));
    ASSERT_OK(salvo_session_feed(session, ids + cached, count - cached));
    assert_memory_equal(ids, salvo_session_tokens(session), count * sizeof *ids);
    float *logits = logits_alone(alone, ids, count);
    assert_memory_equal(logits, salvo_session_logits(session), alone->vocabulary * sizeof(float));
    free(logits);
    for (uint32_t i = 0; i < answer; i++) {
        int32_t id, expected;
        ASSERT_OK(salvo_session_next(session, &id));
        ASSERT_OK(salvo_session_next(alone->session, &expected));
        assert_int_equal(expected, id);
    }
    return cached;
}

/* Prompts that share their prefixes with prompts of closed sessions. Penalties count the ids of the cached
 * part. */
static void a_hit_has_the_bits_of_computing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_cache(shapes[i], 1, 0, 16), alone = open_cache(shapes[i], 1, 0, 0);
        int32_t *ids = some_ids(CONTEXT, fixture.vocabulary, 17);
        struct salvo_sampler sampler = default_sampler(fixture.model);
        sampler.repeat_penalty = 1.3f;
        sampler.repeat_last_n = 400;
        ASSERT_OK(salvo_session_set_sampler(alone.session, &sampler));
        static const uint32_t counts[] = {300, 300, 301, 257, 256, 255, 513, 512, 769, 20, 1};
        for (size_t j = 0; j < sizeof counts / sizeof *counts; j++) {
            ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
            const uint32_t cached = check_prompt(fixture.session, &alone, ids, counts[j], 5);
            if (j == 1)
                assert_int_equal(299, cached);
            if (j == 0)
                assert_int_equal(0, cached);
            salvo_session_close(fixture.session);
            ASSERT_OK(salvo_session_open(fixture.engine, &fixture.session));
        }
        const struct salvo_memory memory = memory_of(&fixture);
        assert_int_equal(sizeof counts / sizeof *counts, memory.lookups);
        assert_true(memory.hits >= 6 && memory.reused_tokens > 1500);
        assert_int_equal(0, memory.used_pages);
        assert_int_equal(memory.pages, memory.free_pages + memory.cached_pages);
        free(ids);
        fixture_close(&fixture);
        fixture_close(&alone);
    }
}

/* A prompt that differs in one token: the pages from there on must not be taken. */
static void a_token_that_differs_is_no_hit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_cache(shapes[i], 1, i == 0 ? bytes_of_pages(shapes[i], 40) : 0, 16),
                       alone = open_cache(shapes[i], 1, 0, 0);
        int32_t *ids = some_ids(600, fixture.vocabulary, 19);
        (void)check_prompt(fixture.session, &alone, ids, 600, 0);
        static const uint32_t places[] = {0, PAGE - 1, PAGE, 2 * PAGE - 1, 598};
        for (size_t j = 0; j < sizeof places / sizeof *places; j++) {
            const int32_t kept = ids[places[j]];
            ids[places[j]] = (kept + 1) % (int32_t)fixture.vocabulary;
            const uint32_t cached = check_prompt(fixture.session, &alone, ids, 600, 2);
            assert_true(cached <= places[j]);
            if (places[j] >= PAGE)
                assert_true(cached >= places[j] / PAGE * PAGE); /* the pages before it are found */
            ids[places[j]] = kept;
        }
        assert_int_equal(599, check_prompt(fixture.session, &alone, ids, 600, 2));
        free(ids);
        fixture_close(&fixture);
        fixture_close(&alone);
    }
}

/* A second session begins with the pages of one that is still open and goes on. */
static void open_sessions_share_a_prompt(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_cache(shapes[i], 3, 0, 16), alone = open_cache(shapes[i], 1, 0, 0);
        struct salvo_session *others[2];
        int32_t *ids = some_ids(600, fixture.vocabulary, 23), id;
        (void)check_prompt(fixture.session, &alone, ids, 600, 0);
        const uint32_t used = memory_of(&fixture).used_pages;
        for (int j = 0; j < 2; j++) {
            ASSERT_OK(salvo_session_open(fixture.engine, &others[j]));
            ids[550 + j]++;
            assert_true(check_prompt(others[j], &alone, ids, 600, 3) >= 512);
            ids[550 + j]--;
        }
        if (i == 0) /* each has a page of its own, after two that they share */
            assert_int_equal(used + 2, memory_of(&fixture).used_pages);
        /* The first one is not disturbed. */
        float *logits = logits_alone(&alone, ids, 600);
        ASSERT_OK(salvo_session_rollback(fixture.session, 599));
        ASSERT_OK(salvo_session_feed(fixture.session, ids + 599, 1));
        assert_memory_equal(
            logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof(float));
        free(logits);
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        for (int j = 0; j < 2; j++)
            salvo_session_close(others[j]);
        free(ids);
        fixture_close(&fixture);
        fixture_close(&alone);
    }
}

/* Without a prefix cache the session keeps the tokens that it shares with the prompt. */
static void a_session_without_a_cache_keeps_what_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_cache(shapes[i], 1, 0, 0), alone = open_cache(shapes[i], 1, 0, 0);
        int32_t *ids = some_ids(400, fixture.vocabulary, 29);
        assert_int_equal(0, check_prompt(fixture.session, &alone, ids, 300, 4));
        assert_int_equal(299, check_prompt(fixture.session, &alone, ids, 300, 0));
        assert_int_equal(300, check_prompt(fixture.session, &alone, ids, 400, 0));
        ids[100]++;
        assert_int_equal(100, check_prompt(fixture.session, &alone, ids, 400, 2));
        assert_int_equal(0, memory_of(&fixture).lookups);
        free(ids);
        fixture_close(&fixture);
        fixture_close(&alone);
    }
}

static void wrong_prompts_are_refused_without_effect(void **state)
{
    (void)state;
    struct fixture fixture = open_cache("llama-tiny", 1, 0, 16), alone = open_cache("llama-tiny", 1, 0, 0);
    int32_t *ids = some_ids(CONTEXT + 1, fixture.vocabulary, 31);
    uint32_t cached = 7;
    (void)check_prompt(fixture.session, &alone, ids, 100, 0);
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_prefill_cached(fixture.session, ids, 0, &cached));
    assert_int_equal(0, cached);
    assert_int_equal(
        SALVO_ERROR_CONTEXT, salvo_session_prefill_cached(fixture.session, ids, CONTEXT + 1, &cached));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_prefill_cached(fixture.session, NULL, 3, &cached));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_prefill_cached(NULL, ids, 3, &cached));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_prefill_cached(fixture.session, ids, 3, NULL));
    ids[50] = -1;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_prefill_cached(fixture.session, ids, 100, &cached));
    assert_int_equal(100, salvo_session_position(fixture.session));
    int32_t id, expected;
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    ASSERT_OK(salvo_session_next(alone.session, &expected));
    assert_int_equal(expected, id);
    free(ids);
    fixture_close(&fixture);
    fixture_close(&alone);
}

/* The cache has all pages of the pool: sessions get them back, the oldest first. */
static void pages_are_given_up_under_pressure(void **state)
{
    (void)state;
    struct fixture fixture = open_cache("llama-tiny", 1, bytes_of_pages("llama-tiny", 4), 16),
                   alone = open_cache("llama-tiny", 1, 0, 0);
    int32_t *ids[3];
    assert_int_equal(4, memory_of(&fixture).pages);
    for (uint64_t i = 0; i < 3; i++)
        ids[i] = some_ids(1000, fixture.vocabulary, 41 + i);
    (void)check_prompt(fixture.session, &alone, ids[0], 510, 0);
    (void)check_prompt(fixture.session, &alone, ids[1], 510, 0);
    assert_int_equal(0, memory_of(&fixture).evictions);
    /* Used again: the other one is now the oldest. Its end goes first. */
    assert_int_equal(509, check_prompt(fixture.session, &alone, ids[0], 510, 0));
    assert_int_equal(1, memory_of(&fixture).evictions);
    assert_int_equal(PAGE, check_prompt(fixture.session, &alone, ids[1], 300, 0));
    /* One that needs the whole pool. */
    assert_int_equal(0, check_prompt(fixture.session, &alone, ids[2], 1000, 10));
    assert_int_equal(4, memory_of(&fixture).used_pages);
    assert_int_equal(0, check_prompt(fixture.session, &alone, ids[0], 510, 0));

    /* A session that shares its only page with the cache alone gets it back instead of a copy. */
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    (void)check_prompt(fixture.session, &alone, ids[2], 1000, 0);
    ASSERT_OK(salvo_session_rollback(fixture.session, 900));
    ASSERT_OK(salvo_session_feed(fixture.session, ids[2] + 900, 100));
    float *logits = logits_alone(&alone, ids[2], 1000);
    assert_memory_equal(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof(float));
    free(logits);
    for (int i = 0; i < 3; i++)
        free(ids[i]);
    fixture_close(&fixture);
    fixture_close(&alone);
}

/* Several prompts have a page each: the one that was not used for the longest time is removed. */
static void the_oldest_prompt_goes_first(void **state)
{
    (void)state;
    enum { PROMPTS = 5, TOKENS = 200 };
    struct fixture fixture = open_cache("llama-tiny", 1, bytes_of_pages("llama-tiny", PROMPTS - 1), 16);
    for (uint64_t i = 0; i < PROMPTS; i++) {
        int32_t *ids = some_ids(TOKENS, fixture.vocabulary, 71 + i);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        ASSERT_OK(salvo_session_feed(fixture.session, ids, TOKENS));
        free(ids);
    }
    for (uint64_t i = 0; i < PROMPTS; i++) {
        int32_t *ids = some_ids(TOKENS, fixture.vocabulary, 71 + i);
        uint32_t cached;
        ASSERT_OK(salvo_session_prefill_cached(fixture.session, ids, TOKENS, &cached));
        assert_int_equal(i == 0 ? 0 : TOKENS - 1, cached);
        free(ids);
    }
    assert_int_equal(1, memory_of(&fixture).evictions);
    fixture_close(&fixture);
}

/* Two sessions compute the same tokens, so that the cache has the pages of one and, behind them, pages of the
 * other. When the first is closed, the other gets the whole pool. */
static void pages_before_those_of_a_session_are_given_up(void **state)
{
    (void)state;
    struct fixture fixture = open_cache("llama-tiny", 2, bytes_of_pages("llama-tiny", 4), 16),
                   alone = open_cache("llama-tiny", 1, 0, 0);
    struct salvo_session *other;
    int32_t *ids = some_ids(1000, fixture.vocabulary, 59);
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 2 * PAGE));
    ASSERT_OK(salvo_session_feed(other, ids, 2 * PAGE));
    assert_int_equal(4, memory_of(&fixture).used_pages);
    salvo_session_close(fixture.session);
    fixture.session = other;
    ASSERT_OK(salvo_session_feed(other, ids + 2 * PAGE, PAGE)); /* now behind the first page of the other */
    ASSERT_OK(salvo_session_feed(other, ids + 3 * PAGE, 1000 - 3 * PAGE));
    assert_int_equal(4, memory_of(&fixture).used_pages);
    float *logits = logits_alone(&alone, ids, 1000);
    assert_memory_equal(logits, salvo_session_logits(other), fixture.vocabulary * sizeof(float));
    free(logits);
    free(ids);
    fixture_close(&fixture);
    fixture_close(&alone);
}

/* The pages that it is written to, and the pages after them, are in the cache. */
static void a_state_is_restored_over_pages_of_the_cache(void **state)
{
    (void)state;
    enum { SAVED = 405 };
    struct fixture fixture = open_cache("llama-tiny", 1, bytes_of_pages("llama-tiny", 4), 16),
                   alone = open_cache("llama-tiny", 1, 0, 0);
    int32_t *ids = some_ids(4 * PAGE, fixture.vocabulary, 61);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, SAVED));
    const size_t size = salvo_session_state_size(fixture.session);
    void *saved = malloc(size);
    ASSERT_OK(salvo_session_state_save(fixture.session, saved, size));
    ASSERT_OK(salvo_session_feed(fixture.session, ids + SAVED, 4 * PAGE - SAVED));
    ASSERT_OK(salvo_session_state_restore(fixture.session, saved, size));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, PAGE));
    memmove(ids + SAVED, ids, PAGE * sizeof *ids);
    float *logits = logits_alone(&alone, ids, SAVED + PAGE);
    assert_memory_equal(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof(float));
    free(logits);
    free(saved);
    free(ids);
    fixture_close(&fixture);
    fixture_close(&alone);
}

/* More states than the budget has room for. */
static void states_stay_within_their_budget(void **state)
{
    (void)state;
    struct fixture fixture = open_cache("rwkv7-tiny", 1, 0, 1), alone = open_cache("rwkv7-tiny", 1, 0, 0);
    const struct salvo_memory before = memory_of(&fixture);
    assert_true(before.states > 2 && before.states * before.state_bytes <= 1 << 20);
    const uint32_t prompts = before.states / 2 + 3;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < prompts && i < 60; i++) {
            int32_t *ids = some_ids(40, fixture.vocabulary, 100 + i);
            const uint32_t cached = check_prompt(fixture.session, &alone, ids, 40, 0);
            assert_true(cached == 0 || cached == 39);
            free(ids);
        }
        const struct salvo_memory now = memory_of(&fixture);
        assert_true(now.cached_states <= before.states);
        assert_in_range(
            now.used_states, now.cached_states, now.cached_states + 4); /* snapshots of a session */
    }
    int32_t *last = some_ids(40, fixture.vocabulary, 100 + (prompts < 60 ? prompts : 60) - 1);
    assert_int_equal(39, check_prompt(fixture.session, &alone, last, 40, 0));
    free(last);
    if (prompts < 60)
        assert_true(memory_of(&fixture).evictions > 0);
    salvo_session_close(fixture.session);
    fixture.session = NULL;
    assert_int_equal(memory_of(&fixture).cached_states, memory_of(&fixture).used_states);
    fixture_close(&fixture);
    fixture_close(&alone);
}

/* Conversations that grow, branch and are taken up again, on few pages, with and without a device that works
 * by itself. */
static void random_conversations(void **state)
{
    (void)state;
    enum { TURNS = 16, TREES = 2, SESSIONS = 2 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int busy = 0; busy < 2; busy++) {
            struct fixture fixture =
                open_cache(shapes[i], SESSIONS, i == 0 ? bytes_of_pages(shapes[i], 5) : 0, 16);
            struct fixture alone = open_cache(shapes[i], 1, 0, 0);
            struct salvo_session *sessions[SESSIONS] = {fixture.session};
            int32_t *trees[TREES];
            uint32_t random = 7 + (uint32_t)busy;
            if (busy)
                busy_device_install(fixture.engine);
            ASSERT_OK(salvo_session_open(fixture.engine, &sessions[1]));
            for (uint64_t j = 0; j < TREES; j++)
                trees[j] = some_ids(CONTEXT, fixture.vocabulary, j);
            for (int j = 0; j < TURNS; j++) {
                random = random * 1664525u + 1013904223u;
                struct salvo_session **session = &sessions[random >> 31];
                int32_t *ids = trees[(random >> 8) % TREES];
                const uint32_t count = 1 + (random >> 12) % 500, answer = (random >> 22) % 12;
                if (random % 5 == 0)
                    ids[count - 1] = (ids[count - 1] + 1) % (int32_t)fixture.vocabulary;
                set_greedy(*session);
                set_greedy(alone.session);
                (void)check_prompt(*session, &alone, ids, count, answer);
                if (random % 3 == 0) { /* the answer becomes part of the conversation */
                    memcpy(
                        ids, salvo_session_tokens(*session), salvo_session_position(*session) * sizeof *ids);
                }
                if (random % 4 == 0) {
                    salvo_session_close(*session);
                    ASSERT_OK(salvo_session_open(fixture.engine, session));
                }
            }
            const struct salvo_memory memory = memory_of(&fixture);
            assert_true(memory.hits > 3);
            if (i == 0)
                assert_true(memory.evictions > 0);
            for (int j = 0; j < SESSIONS; j++)
                salvo_session_close(sessions[j]);
            fixture.session = NULL;
            assert_int_equal(0, memory_of(&fixture).used_pages);
            for (int j = 0; j < TREES; j++)
                free(trees[j]);
            fixture_close(&fixture);
            fixture_close(&alone);
        }
    }
}

/* Prompts in batches, as a scheduler computes them. */
static void prompts_in_batches_are_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = open_cache(shapes[i], 2, 0, 16), alone = open_cache(shapes[i], 1, 0, 0);
        busy_device_install(fixture.engine);
        struct salvo_session *other;
        ASSERT_OK(salvo_session_open(fixture.engine, &other));
        int32_t *ids = some_ids(640, fixture.vocabulary, 53);
        for (uint32_t at = 0; at < 640; at += 128) {
            uint64_t step;
            struct salvo_run_result result;
            const struct salvo_run run = {.session = fixture.session,
                .ids = ids + at,
                .count = 128,
                .want = at == 512 ? SALVO_WANT_ID : SALVO_WANT_NOTHING};
            ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
            ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
            assert_int_equal(SALVO_OK, result.status);
        }
        assert_true(check_prompt(other, &alone, ids, 640, 3) >= 512);
        salvo_session_close(other);
        free(ids);
        fixture_close(&fixture);
        fixture_close(&alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_has_the_bits_of_computing),
        cmocka_unit_test(a_token_that_differs_is_no_hit),
        cmocka_unit_test(open_sessions_share_a_prompt),
        cmocka_unit_test(a_session_without_a_cache_keeps_what_fits),
        cmocka_unit_test(wrong_prompts_are_refused_without_effect),
        cmocka_unit_test(pages_are_given_up_under_pressure),
        cmocka_unit_test(the_oldest_prompt_goes_first),
        cmocka_unit_test(pages_before_those_of_a_session_are_given_up),
        cmocka_unit_test(a_state_is_restored_over_pages_of_the_cache),
        cmocka_unit_test(states_stay_within_their_budget),
        cmocka_unit_test(random_conversations),
        cmocka_unit_test(prompts_in_batches_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
