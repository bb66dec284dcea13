/*
 * Steps in random orders: prompts, decodes, choices that are left to a later step, masks given by bits and by
 * number, cancels by handle, copies and rollbacks of sessions, with fewer KV pages than the sessions need.
 * Several steps are open at once and waited for in any order. Every id must be the most likely one that the
 * mask allows after the session's tokens, computed by an engine of its own. test_batch_orders FIRST_SEED
 * COUNT tries others.
 */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "scheduler_fixture.h"
#include "test_random.h"

#include <salvo/memory.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 540, PLACES = 3, OPEN = 3, ROUNDS = 16, MASKS = 3, KV_PAGES = 3, MASK_WORDS = 64 };

struct shadow {
    struct salvo_session *session;
    int32_t tokens[MOST];
    uint32_t count;
    int32_t pending;  /* chosen and not appended; -1: none */
    bool is_chooser;  /* a choice is left to its next run */
    bool is_finished; /* in this round: it was cancelled */
};

/* A run and its expected result. */
struct expected_run {
    uint32_t place, tokens;
    int32_t id;
    bool is_cancelled;
    struct shadow before;
    struct salvo_run_result result;
};

struct world {
    uint64_t random;
    struct fixture fixture, alone;
    struct shadow shadows[PLACES];
    uint32_t masks[MASKS][MASK_WORDS], numbers[MASKS];
    uint64_t last_handle;
};

/* Runs of all worlds. */
static struct {
    uint32_t cancelled, starved, only_chose;
} seen;

static uint64_t first_seed = 1, seed_count = LONG_RUN(20);

static uint32_t below(struct world *world, uint32_t limit)
{
    return test_random(&world->random, limit);
}

/* The most likely id after the tokens that the mask allows. */
static int32_t best_id(struct world *world, const struct shadow *shadow, const uint32_t *mask)
{
    struct salvo_session *session = world->alone.session;
    const int32_t *tokens = salvo_session_tokens(session);
    const uint32_t held = salvo_session_position(session);
    uint32_t common = 0;
    while (common < held && common + 1 < shadow->count && tokens[common] == shadow->tokens[common])
        common++;
    ASSERT_OK(salvo_session_rollback(session, common));
    ASSERT_OK(salvo_session_feed(session, shadow->tokens + common, shadow->count - common));
    const float *logits = salvo_session_logits(session);
    int32_t best = -1;
    for (uint32_t i = 0; i < world->fixture.vocabulary; i++) {
        if ((!mask || mask[i / 32] >> i % 32 & 1) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    }
    return best;
}

static void append(struct shadow *shadow, int32_t id)
{
    shadow->tokens[shadow->count++] = id;
    shadow->pending = -1;
}

/* Plans a run of a session that has room for it, and its expected result. */
static void plan_run(struct world *world, struct shadow *shadow, int32_t *ids, struct salvo_run *run,
    struct expected_run *expected)
{
    const uint32_t mask = below(world, 2 * MASKS);
    *run = (struct salvo_run){.session = shadow->session, .handle = ++world->last_handle};
    expected->before = *shadow;
    if (shadow->count == 0 || (!shadow->is_chooser && below(world, 5) == 0)) {
        run->ids = ids;
        run->count = 1 + below(world, below(world, 4) ? 8 : 90);
        run->want = below(world, 3) ? SALVO_WANT_ID : SALVO_WANT_NOTHING;
        for (size_t i = 0; i < run->count; i++)
            append(shadow, ids[i] = (int32_t)below(world, world->fixture.vocabulary));
    } else if (shadow->pending >= 0) {
        append(shadow, shadow->pending);
        run->want = below(world, 3) ? SALVO_WANT_ID : SALVO_WANT_LATER;
    }
    shadow->is_chooser = run->want == SALVO_WANT_LATER;
    expected->tokens = shadow->count - expected->before.count;
    expected->id = -1;
    if (run->want != SALVO_WANT_ID)
        return;
    if (mask < MASKS && world->numbers[mask] && below(world, 2))
        run->mask_number = world->numbers[mask];
    else if (mask < MASKS)
        run->mask = world->masks[mask];
    expected->id = shadow->pending = best_id(world, shadow, mask < MASKS ? world->masks[mask] : NULL);
    seen.only_chose += expected->tokens == 0;
}

/* One step with runs of some sessions. Returns their number; 0: none has been submitted. */
static uint32_t submit_step(
    struct world *world, bool only_choosers, struct expected_run expected[PLACES], uint64_t *out_step)
{
    static int32_t ids[PLACES][100];
    struct salvo_run runs[PLACES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACES; i++) {
        struct shadow *shadow = &world->shadows[i];
        if (shadow->is_finished || shadow->count + 100 > MOST || below(world, 4) == 0 ||
            (only_choosers && !shadow->is_chooser))
            continue;
        expected[count] = (struct expected_run){.place = i};
        plan_run(world, shadow, ids[i], &runs[count], &expected[count]);
        count++;
    }
    if (count)
        ASSERT_OK(salvo_engine_submit(world->fixture.engine, runs, count, sizeof *runs, out_step));
    for (uint32_t i = 0; i < count; i++) {
        if (below(world, 12) == 0) {
            salvo_engine_cancel(world->fixture.engine, runs[i].handle);
            expected[i].is_cancelled = world->shadows[expected[i].place].is_finished = true;
        }
    }
    return count;
}

/* A run that failed has left its session as it was, and those behind it fail alike. */
static void take_results(struct world *world, struct expected_run *expected, uint32_t count, bool failed[])
{
    for (uint32_t i = 0; i < count; i++) {
        const struct salvo_run_result *result = &expected[i].result;
        struct shadow *shadow = &world->shadows[expected[i].place];
        if (result->status == SALVO_OK) {
            assert_false(failed[expected[i].place]);
            assert_int_equal(expected[i].id, result->id);
            assert_int_equal(expected[i].tokens, result->tokens);
            continue;
        }
        if (!failed[expected[i].place]) {
            assert_true(result->status == SALVO_ERROR_MEMORY ||
                        (result->status == SALVO_ERROR_CANCELLED && expected[i].is_cancelled));
            seen.cancelled += result->status == SALVO_ERROR_CANCELLED;
            seen.starved += result->status == SALVO_ERROR_MEMORY;
            *shadow = expected[i].before;
            failed[expected[i].place] = true;
        }
    }
}

/* While no step is open. */
static void change_session(struct world *world, struct shadow *shadow)
{
    struct salvo_engine *engine = world->fixture.engine;
    const struct shadow *other = &world->shadows[below(world, PLACES)];
    const uint32_t position = below(world, shadow->count + 1);
    switch (below(world, 8)) {
    case 0:
        if (other == shadow)
            break;
        ASSERT_OK(salvo_session_copy(shadow->session, other->session));
        memcpy(shadow->tokens, other->tokens, sizeof shadow->tokens);
        shadow->count = other->count;
        shadow->pending = other->pending;
        break;
    case 1:
        ASSERT_OK(salvo_session_rollback(shadow->session, position));
        if (position < shadow->count)
            shadow->pending = -1;
        shadow->count = position;
        break;
    case 2: /* another request in the same slot: the cancel of an earlier handle does not hit it */
        salvo_session_close(shadow->session);
        ASSERT_OK(salvo_session_open(engine, &shadow->session));
        set_greedy(shadow->session);
        *shadow = (struct shadow){.session = shadow->session, .pending = -1};
        break;
    default:
        salvo_engine_cancel(engine, world->last_handle - below(world, 5));
    }
    shadow->is_chooser = false;
}

static void run_round(struct world *world)
{
    struct expected_run expected[OPEN][PLACES];
    uint64_t steps[OPEN];
    uint32_t counts[OPEN] = {0}, order[OPEN] = {0};
    bool failed[PLACES] = {false};
    for (uint32_t i = 0; i < OPEN; i++) {
        counts[i] = submit_step(world, i && below(world, 2), expected[i], &steps[i]);
        const uint32_t at = below(world, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < OPEN; i++) {
        struct salvo_run_result results[PLACES];
        const uint32_t step = order[i];
        if (counts[step])
            ASSERT_OK(salvo_engine_wait(
                world->fixture.engine, steps[step], results, counts[step], sizeof *results));
        for (uint32_t j = 0; j < counts[step]; j++)
            expected[step][j].result = results[j];
    }
    for (uint32_t i = 0; i < OPEN; i++)
        take_results(world, expected[i], counts[i], failed);
    for (uint32_t i = 0; i < PLACES; i++) {
        struct shadow *shadow = &world->shadows[i];
        shadow->is_finished = false;
        assert_int_equal(shadow->count, salvo_session_position(shadow->session));
        if (below(world, 3) == 0 || shadow->count + 100 > MOST)
            change_session(world, shadow);
    }
}

static void run_world(size_t model, bool is_busy, uint64_t seed)
{
    struct world world = {.random = seed};
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = options.batch = MOST + 1;
    world.alone = fixture_open(scheduler_model_path(model), options);
    options.kv_memory = KV_PAGES * scheduler_page_bytes(&world.alone);
    options.sessions = PLACES;
    options.prefix_cache = 1;
    world.fixture = fixture_open(scheduler_model_path(model), options);
    salvo_session_close(world.fixture.session);
    if (is_busy)
        busy_device_install(world.fixture.engine);
    assert_true(world.fixture.vocabulary <= 32 * MASK_WORDS);
    for (uint32_t i = 0; i < MASKS; i++) {
        for (uint32_t id = i; id < world.fixture.vocabulary; id += 2 + i)
            world.masks[i][id / 32] |= UINT32_C(1) << id % 32;
        ASSERT_OK(salvo_engine_mask_open(world.fixture.engine, world.masks[i], &world.numbers[i]));
    }
    for (uint32_t i = 0; i < PLACES; i++) {
        struct shadow *shadow = &world.shadows[i];
        ASSERT_OK(salvo_session_open(world.fixture.engine, &shadow->session));
        set_greedy(shadow->session);
        shadow->pending = -1;
    }
    for (uint32_t i = 0; i < ROUNDS; i++)
        run_round(&world);
    for (uint32_t i = 0; i < PLACES; i++)
        salvo_session_close(world.shadows[i].session);
    ASSERT_OK(salvo_engine_memory(world.fixture.engine, &memory));
    assert_int_equal(0, memory.used_pages);
    assert_int_equal(memory.cached_states, memory.used_states);
    world.fixture.session = NULL;
    fixture_close(&world.fixture);
    fixture_close(&world.alone);
}

static void random_orders(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        for (size_t model = 0; model < SCHEDULER_MODELS; model++) {
            run_world(model, false, seed);
            run_world(model, true, seed);
        }
    }
    if (seed_count >= 20) /* fewer seeds need not bring all of them */
        assert_true(seen.cancelled > 0 && seen.starved > 0 && seen.only_chose > 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seed_count = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_orders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
