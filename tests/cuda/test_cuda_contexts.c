/*
 * Attention of the CUDA backend over prompts and long contexts, on a driver without a GPU, whose kernels run
 * on the emulator. The CPU is the reference; other sessions of a step change no bit.
 */
#include "backend/common/debug.h"
#include "backend/cuda/cuda_batch.h"
#include "batch_schedule.h"
#include "cmocka_test.h"
#include "copy_checks.h"
#include "cuda/emulated_sessions.h"
#include "cuda/fake_device.h"
#include "cuda/find_fake_cuda.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_IDS = 290 };

/* Logits after `count` ids: in one step, or the last `alone` of them one by one and the others on the CPU. */
static float *logits_of(
    const char *path, const char *backend, const char *warpgroups, uint32_t count, uint32_t alone)
{
    struct salvo_engine_options options = on_cuda;
    options.backend = backend;
    options.batch = MOST_IDS;
    setenv("SALVO_FAKE_WARPGROUPS", warpgroups, 1);
    struct fixture fixture = fixture_open(path, options);
    unsetenv("SALVO_FAKE_WARPGROUPS");
    int32_t *ids = some_ids(MOST_IDS, fixture.vocabulary, 6);
    float *logits = test_calloc(MOST_VOCABULARY, sizeof *logits);
    assert_true(fixture.vocabulary <= MOST_VOCABULARY);
    if (alone)
        feed_on_the_cpu(path, options, fixture.session, ids, count - alone);
    else
        ASSERT_OK(salvo_session_feed(fixture.session, ids, count));
    for (uint32_t i = count - alone; i < count; i++)
        ASSERT_OK(salvo_session_feed(fixture.session, ids + i, 1));
    memcpy(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
    free(ids);
    fixture_close(&fixture);
    return logits;
}

/* Logits of the last of two tokens in one step, behind `count` that the CPU has computed. */
static float *logits_behind(const char *path, const char *backend, uint32_t count)
{
    struct salvo_engine_options options = on_cuda;
    options.backend = backend;
    options.context = 512;
    setenv("SALVO_FAKE_WARPGROUPS", "1", 1);
    struct fixture fixture = fixture_open(path, options);
    unsetenv("SALVO_FAKE_WARPGROUPS");
    int32_t *ids = some_ids(count + 2, fixture.vocabulary, 8);
    float *logits = test_calloc(MOST_VOCABULARY, sizeof *logits);
    assert_true(fixture.vocabulary <= MOST_VOCABULARY);
    feed_on_the_cpu(path, options, fixture.session, ids, count);
    ASSERT_OK(salvo_session_feed(fixture.session, ids + count, 2));
    memcpy(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
    free(ids);
    fixture_close(&fixture);
    return logits;
}

/* A prompt that is long enough for warpgroups, in one step: logits with kernels for them, without, and of the
 * CPU. */
static void prompts(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        uint32_t count;
    } cases[] = {{"llama-odd", MOST_IDS}, {"llama-256", 150}}; /* beyond a page, and within one */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = made_model(cases[i].shape, "F16");
        const uint32_t count = cases[i].count;
        const unsigned long before = fake->wide;
        float *plain = logits_of(path, "cuda", "0", count, 0), *cpu = logits_of(path, "cpu", "0", count, 0);
        assert_int_equal(before, fake->wide);
        float *wide = logits_of(path, "cuda", "1", count, 0);
        assert_true(fake->wide > before);
        assert_true(largest_difference(wide, cpu, MOST_VOCABULARY) < 0.01f);
        assert_true(largest_difference(plain, cpu, MOST_VOCABULARY) < 0.01f);
        test_free(wide);
        test_free(plain);
        test_free(cpu);
    }
}

/* The context is so long that several blocks share a head: by lanes, and by tensor cores with heads of
 * both sizes. */
static void contexts(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        int blocks; /* more than KV heads */
    } cases[] = {{"llama-odd", 15}, {"llama-256", 5}, {"llama-128", FAKE_MULTIPROCESSORS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = made_model(cases[i].shape, "F16");
        set_fake_device(FAKE_SHARED, cases[i].blocks);
        float *cuda = logits_of(path, "cuda", "0", MOST_IDS, 3),
              *cpu = logits_of(path, "cpu", "0", MOST_IDS, 0);
        assert_true(largest_difference(cuda, cpu, MOST_VOCABULARY) < 0.01f);
        test_free(cuda);
        test_free(cpu);
    }
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
}

/* Two tokens at once: with warpgroups, blocks of attention divide the keys of a long context, and do not
 * divide those of a short one. */
static void divided_keys(void **state)
{
    (void)state;
    static const uint32_t counts[] = {FLASH_LONG_CONTEXT - 2, FLASH_LONG_CONTEXT - 1};
    static const char *const shapes[] = {"llama-256", "llama-128"}; /* heads of 64 and of 128 */
    set_fake_device(FAKE_SHARED, 20);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *path = made_model(shapes[i], "F16");
        unsigned long clusters[2]; /* those of matmuls among them */
        for (int j = 0; j < 2; j++) {
            const unsigned long before = fake->clusters;
            float *cuda = logits_behind(path, "cuda", counts[j]),
                  *cpu = logits_behind(path, "cpu", counts[j]);
            clusters[j] = fake->clusters - before;
            assert_true(largest_difference(cuda, cpu, MOST_VOCABULARY) < 0.01f);
            test_free(cuda);
            test_free(cpu);
        }
        assert_true(clusters[1] > clusters[0]);
    }
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
}

/* ---- Other sessions do not change the bits of a run ---- */

enum { PAIR_IDS = 460, PAIR_TOKENS = 4 };

/* Two sessions with the same PAIR_IDS ids, on a device with warpgroups whose blocks of attention divide the
 * keys of a long context. Everything else is computed in F32: logits show the last bits of attention. */
struct pair {
    struct fixture fixture;
    struct salvo_session *both[2];
    int32_t *ids;
    uint8_t *saved;
    size_t saved_size;
};

static struct pair pair_open(const char *shape)
{
    const char *path = made_model(shape, "F32");
    struct salvo_engine_options options = on_cuda;
    struct pair pair = {0};
    options.context = 512;
    options.kv_type = SALVO_KV_F16;
    set_fake_device(FAKE_SHARED, 20);
    setenv("SALVO_FAKE_WARPGROUPS", "1", 1);
    pair.fixture = fixture_open(path, options);
    unsetenv("SALVO_FAKE_WARPGROUPS");
    assert_true(pair.fixture.vocabulary <= MOST_VOCABULARY);
    pair.both[0] = pair.fixture.session;
    ASSERT_OK(salvo_session_open(pair.fixture.engine, &pair.both[1]));
    for (int i = 0; i < 2; i++)
        set_greedy(pair.both[i]);
    pair.ids = some_ids(PAIR_IDS, pair.fixture.vocabulary, 8);
    feed_on_the_cpu(path, options, pair.fixture.session, pair.ids, PAIR_IDS);
    pair.saved = saved_state(pair.fixture.session, &pair.saved_size);
    return pair;
}

static void pair_close(struct pair *pair)
{
    salvo_session_close(pair->both[1]);
    fixture_close(&pair->fixture);
    free(pair->saved);
    free(pair->ids);
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
}

/* Both sessions with the first of their ids. */
static void pair_move(const struct pair *pair, const uint32_t positions[2])
{
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_state_restore(pair->both[i], pair->saved, pair->saved_size));
        ASSERT_OK(salvo_session_rollback(pair->both[i], positions[i]));
    }
}

/* A step of two runs: each session computes the `count` ids from its position on, or with 0 decodes `tokens`
 * of them. */
static void pair_step(
    const struct pair *pair, const uint32_t positions[2], size_t count, uint32_t tokens, float *logits)
{
    int32_t chosen[2][PAIR_TOKENS];
    struct salvo_run runs[2];
    struct salvo_run_result results[2];
    uint64_t step;
    for (int i = 0; i < 2; i++) {
        runs[i] = (struct salvo_run){.session = pair->both[i],
            .ids = count ? pair->ids + positions[i] : NULL,
            .count = count,
            .tokens = tokens,
            .chosen_ids = chosen[i]};
    }
    ASSERT_OK(salvo_engine_submit(pair->fixture.engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(pair->fixture.engine, step, results, 2, sizeof *results));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(results[i].status);
        assert_int_equal(positions[i] + (count ? count : tokens), results[i].position);
    }
    /* Logits of the last token, for which runs of several tokens cannot ask. */
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(logits + i * MOST_VOCABULARY,
            pair->fixture.engine->backend->logits(pair->fixture.engine->executor, i),
            pair->fixture.vocabulary * sizeof *logits);
    }
}

/* Logits of both sessions, [2][MOST_VOCABULARY], after a step of `count` ids of each. */
static float *pair_logits(const struct pair *pair, uint32_t own, uint32_t other, size_t count)
{
    const uint32_t positions[2] = {own, other};
    float *logits = test_calloc(2 * MOST_VOCABULARY, sizeof *logits);
    pair_move(pair, positions);
    pair_step(pair, positions, count, 0, logits);
    return logits;
}

/* Whether a context is long decides, for attention, how its sums are made: of this run alone, though a step
 * has one graph for all runs. */
static void neighbours(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-256", "llama-128"}; /* heads of 64 and of 128 */
    static const struct {
        uint32_t own, others[2], count;
    } cases[] = {
        {300, {100, 450}, 1}, {FLASH_LONG_CONTEXT - 1, {0, FLASH_LONG_CONTEXT}, 1},
        {FLASH_LONG_CONTEXT, {FLASH_LONG_CONTEXT - 1, 450}, 1},
        {FLASH_LONG_CONTEXT - 9, {7, 430}, 20}, /* some of its blocks divide the keys */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = pair_open(shapes[i]);
        for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
            float *first = pair_logits(&pair, cases[j].own, cases[j].others[0], cases[j].count),
                  *second = pair_logits(&pair, cases[j].own, cases[j].others[1], cases[j].count);
            if (memcmp(first, second, pair.fixture.vocabulary * sizeof *first) != 0)
                fail_msg("%s: position %u has other logits beside position %u than beside %u", shapes[i],
                    cases[j].own, cases[j].others[1], cases[j].others[0]);
            test_free(first);
            test_free(second);
        }
        pair_close(&pair);
    }
}

/* A step of several tokens, whose contexts become long meanwhile, against steps of one. */
static void growing_contexts(void **state)
{
    (void)state;
    enum { BEFORE = FLASH_LONG_CONTEXT - 3 };
    static const uint32_t cases[][2] = {{BEFORE, BEFORE}, {50, BEFORE}};
    struct pair pair = pair_open("llama-256");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* A session chooses an id after each that it is given. */
        float *together = pair_logits(&pair, cases[i][0], cases[i][1], 1);
        pair_step(&pair, (uint32_t[]){cases[i][0] + 1, cases[i][1] + 1}, 0, PAIR_TOKENS, together);
        float *one_by_one = pair_logits(&pair, cases[i][0], cases[i][1], 1);
        for (uint32_t j = 1; j <= PAIR_TOKENS; j++)
            pair_step(&pair, (uint32_t[]){cases[i][0] + j, cases[i][1] + j}, 0, 1, one_by_one);
        assert_memory_equal(one_by_one, together, 2 * MOST_VOCABULARY * sizeof *together);
        test_free(together);
        test_free(one_by_one);
    }
    pair_close(&pair);
}

/* Launches with clusters, in a profile of two tokens at `position` and in a debug step, group by group. */
static void count_clusters(const struct pair *pair, uint32_t position, unsigned long out[2])
{
    const struct salvo_engine *engine = pair->fixture.engine;
    struct salvo_session *session = pair->both[0];
    unsigned long before = fake->clusters;
    uint32_t phases = 0;
    struct debug_step debug = {0};
    pair_move(pair, (uint32_t[]){position, position});
    ASSERT_OK(salvo_session_profile(session, pair->ids + position, 2, 1, count_phase, &phases));
    assert_true(phases > 10);
    out[0] = fake->clusters - before;
    before = fake->clusters;
    ASSERT_OK(session_take_pages(session, position, position + 2));
    const struct run run = session_run(session, 2, 0, LOGITS_LAST);
    const struct step step = {.runs = &run, .run_count = 1, .token_count = 2, .ids = pair->ids + position};
    ASSERT_OK(debug_step_begin(&debug, engine->backend, engine->executor, engine->program, &step));
    for (uint32_t group = 0; group < debug.plan->group_count; group++)
        ASSERT_OK(engine->backend->debug.run(engine->executor, group));
    debug_step_end(&debug);
    out[1] = fake->clusters - before;
}

/* A profile and the debug path launch what a step does. */
static void clusters_outside_graphs(void **state)
{
    (void)state;
    struct pair pair = pair_open("llama-128");
    unsigned long before[2], after[2];
    count_clusters(&pair, FLASH_LONG_CONTEXT - 2, before);
    count_clusters(&pair, FLASH_LONG_CONTEXT - 1, after);
    for (int i = 0; i < 2; i++)
        assert_true(after[i] > before[i]);
    pair_close(&pair);
}

/* Calls of the driver that opening and closing an engine takes. */
static unsigned long calls_to_open(uint32_t context)
{
    struct salvo_engine_options options = on_cuda;
    const unsigned long before = fake->calls;
    options.context = context;
    setenv("SALVO_FAKE_WARPGROUPS", "1", 1);
    struct fixture fixture = fixture_open(made_model("llama-256", "F16"), options);
    unsetenv("SALVO_FAKE_WARPGROUPS");
    fixture_close(&fixture);
    return fake->calls - before;
}

/* Engines that never have a long context have no graphs for it. */
static void graphs(void **state)
{
    (void)state;
    set_fake_device(FAKE_SHARED, 20);
    assert_true(calls_to_open(FLASH_LONG_CONTEXT + 1) > calls_to_open(FLASH_LONG_CONTEXT));
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LONG_TEST(prompts),
        cmocka_unit_test(contexts),
        cmocka_unit_test(divided_keys),
        cmocka_unit_test(neighbours),
        cmocka_unit_test(growing_contexts),
        cmocka_unit_test(clusters_outside_graphs),
        cmocka_unit_test(graphs),
    };
    return RUN_CHOSEN_TESTS(tests, find_fake);
}
