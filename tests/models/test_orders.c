/*
 * Sessions in random orders of events: tokens are fed, chosen, taken back, copied, saved, restored and begun
 * from the prefix cache, in engines of every size of KV memory. After each event a session has the tokens
 * that it should have, and at times its logits must equal the logits of a session that computed all tokens at
 * once. test_orders FIRST_SEED COUNT tries others.
 */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "random_weights.h"

#include <salvo/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 256, MOST_CONTEXT = 900, MOST_SESSIONS = 4, MOST_STATES = 3, STORIES = 3, EVENTS = 60 };

struct shadow {
    struct salvo_session *session;
    int32_t tokens[MOST_CONTEXT];
    uint32_t count;
};

struct saved {
    void *bytes;
    size_t size;
    int32_t tokens[MOST_CONTEXT];
    uint32_t count;
};

struct world {
    uint64_t random;
    struct fixture fixture, alone;
    uint32_t context, sessions;
    struct shadow shadows[MOST_SESSIONS];
    struct saved states[MOST_STATES];
    int32_t *stories[STORIES];
    unsigned refused, checked, hits;
};

static uint64_t first_seed = 1, seed_count = 12;

static uint32_t below(struct world *world, uint32_t limit)
{
    return limit ? (uint32_t)(random_next(&world->random) % limit) : 0;
}

/* ---- A world ---- */

static struct salvo_engine_options random_options(struct world *world)
{
    static const uint32_t contexts[] = {1, 2, 40, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 700, MOST_CONTEXT};
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = contexts[below(world, sizeof contexts / sizeof *contexts)];
    options.batch = 1 + below(world, 300);
    options.kv_type = below(world, 2) ? SALVO_KV_F16 : SALVO_KV_Q8_0;
    options.sessions = 1 + below(world, MOST_SESSIONS);
    options.prefix_cache = below(world, 4) > 0;
    options.prefix_states_mb = 1;
    return options;
}

static uint64_t bytes_of_page(const char *path, struct salvo_engine_options options)
{
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    struct fixture fixture = fixture_open(path, options);
    ASSERT_OK(salvo_engine_memory(fixture.engine, &memory));
    options.kv_memory = 1;
    struct salvo_engine *none = NULL;
    unsigned long long bytes = 0;
    if (memory.pages) { /* the message tells */
        assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_open(fixture.model, &options, &none));
        const char *number = strstr(salvo_error(), "takes ");
        assert_non_null(number);
        bytes = strtoull(number + strlen("takes "), NULL, 10);
        assert_true(bytes);
    }
    fixture_close(&fixture);
    return bytes;
}

static void open_world(struct world *world, uint64_t seed)
{
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny", "llama-odd"};
    *world = (struct world){.random = seed};
    const char *path = made_model(shapes[below(world, sizeof shapes / sizeof *shapes)], "Q8_0");
    struct salvo_engine_options options = random_options(world);
    world->context = options.context;
    world->sessions = options.sessions;
    const uint64_t page = bytes_of_page(path, options);
    if (page && below(world, 5)) /* often too little for all sessions, at times for one */
        options.kv_memory = page * (1 + below(world, (options.context + PAGE - 1) / PAGE + 2));
    world->fixture = fixture_open(path, options);
    if (below(world, 2))
        busy_device_install(world->fixture.engine);
    options.kv_memory = options.prefix_cache = 0;
    options.sessions = 1;
    options.batch = MOST_CONTEXT;
    world->alone = fixture_open(path, options);
    set_greedy(world->alone.session);
    world->shadows[0].session = world->fixture.session;
    for (uint32_t i = 0; i < world->sessions; i++) {
        if (i)
            ASSERT_OK(salvo_session_open(world->fixture.engine, &world->shadows[i].session));
        set_greedy(world->shadows[i].session);
    }
    for (uint64_t i = 0; i < STORIES; i++)
        world->stories[i] = some_ids(MOST_CONTEXT, world->fixture.vocabulary, i);
}

static struct salvo_memory memory_of(const struct world *world)
{
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(world->fixture.engine, &memory));
    assert_int_equal(memory.pages, memory.free_pages + memory.used_pages + memory.cached_pages);
    return memory;
}

static void close_world(struct world *world)
{
    world->hits = (unsigned)memory_of(world).hits;
    for (uint32_t i = 0; i < world->sessions; i++)
        salvo_session_close(world->shadows[i].session);
    world->fixture.session = NULL;
    assert_int_equal(0, memory_of(world).used_pages);
    for (int i = 0; i < MOST_STATES; i++)
        free(world->states[i].bytes);
    for (int i = 0; i < STORIES; i++)
        free(world->stories[i]);
    fixture_close(&world->fixture);
    fixture_close(&world->alone);
}

/* ---- Events ---- */

/* Other sessions are emptied. A session that is alone then has the whole memory. */
static void leave_alone(struct world *world, const struct shadow *kept)
{
    for (uint32_t i = 0; i < world->sessions; i++) {
        if (&world->shadows[i] == kept)
            continue;
        ASSERT_OK(salvo_session_rollback(world->shadows[i].session, 0));
        world->shadows[i].count = 0;
    }
}

/* Whether the call, which gave `status` for a session that was to hold `count` tokens, is to be tried again;
 * it must not fail then if the tokens fit into the memory at all. */
static bool tries_again(
    struct world *world, const struct shadow *shadow, enum salvo_status status, uint32_t count, bool *again)
{
    if (status == SALVO_OK)
        return false;
    const struct salvo_memory memory = memory_of(world);
    world->refused++;
    if (status != SALVO_ERROR_MEMORY)
        fail_msg("%s", salvo_error());
    if ((count + PAGE - 1) / PAGE > memory.pages)
        return false;
    if (*again)
        fail_msg("although the session is alone: %s", salvo_error());
    leave_alone(world, shadow);
    return *again = true;
}

static void feed(struct world *world, struct shadow *shadow, const int32_t *ids, uint32_t count)
{
    const uint32_t end = shadow->count + count;
    enum salvo_status status = salvo_session_feed(shadow->session, ids, count);
    bool again = false;
    if (end > world->context) {
        assert_int_equal(SALVO_ERROR_CONTEXT, status);
        return;
    }
    memcpy(shadow->tokens + shadow->count, ids, count * sizeof *ids);
    while (tries_again(world, shadow, status, end, &again)) {
        const uint32_t done = salvo_session_position(shadow->session);
        assert_true(done >= shadow->count && done < end);
        shadow->count = done;
        status = salvo_session_feed(shadow->session, shadow->tokens + done, end - done);
    }
    shadow->count = salvo_session_position(shadow->session);
    assert_true(shadow->count == end || status == SALVO_ERROR_MEMORY);
}

static void feed_story(struct world *world, struct shadow *shadow)
{
    const int32_t *story = world->stories[below(world, STORIES)];
    uint32_t count = 1 + below(world, below(world, 2) ? 20 : 400);
    if (shadow->count + count > MOST_CONTEXT)
        count = MOST_CONTEXT - shadow->count;
    if (count)
        feed(world, shadow, story + shadow->count, count);
}

static void choose(struct world *world, struct shadow *shadow)
{
    for (uint32_t i = 1 + below(world, 6); i && shadow->count; i--) {
        int32_t id;
        bool again = false;
        enum salvo_status status = salvo_session_next(shadow->session, &id);
        if (shadow->count == world->context) {
            assert_int_equal(SALVO_ERROR_CONTEXT, status);
            return;
        }
        while (tries_again(world, shadow, status, shadow->count, &again))
            status = salvo_session_next(shadow->session, &id);
        if (status != SALVO_OK)
            return;
        shadow->tokens[shadow->count++] = id;
    }
}

static void take_back(struct world *world, struct shadow *shadow)
{
    const uint32_t to = below(world, shadow->count + 1);
    ASSERT_OK(salvo_session_rollback(shadow->session, to));
    shadow->count = to;
}

static void copy(struct world *world, struct shadow *to)
{
    const struct shadow *from = &world->shadows[below(world, world->sessions)];
    if (from == to)
        return;
    const enum salvo_status status = salvo_session_copy(to->session, from->session);
    if (status == SALVO_ERROR_MEMORY) {
        world->refused++;
        return;
    }
    ASSERT_OK(status);
    memcpy(to->tokens, from->tokens, from->count * sizeof *from->tokens);
    to->count = from->count;
}

static void save(struct world *world, struct shadow *shadow)
{
    struct saved *saved = &world->states[below(world, MOST_STATES)];
    free(saved->bytes);
    saved->size = salvo_session_state_size(shadow->session);
    saved->bytes = malloc(saved->size);
    ASSERT_OK(salvo_session_state_save(shadow->session, saved->bytes, saved->size));
    memcpy(saved->tokens, shadow->tokens, shadow->count * sizeof *shadow->tokens);
    saved->count = shadow->count;
}

static void restore(struct world *world, struct shadow *shadow)
{
    const struct saved *saved = &world->states[below(world, MOST_STATES)];
    bool again = false;
    if (!saved->bytes)
        return;
    enum salvo_status status = salvo_session_state_restore(shadow->session, saved->bytes, saved->size);
    while (tries_again(world, shadow, status, saved->count, &again))
        status = salvo_session_state_restore(shadow->session, saved->bytes, saved->size);
    if (status != SALVO_OK)
        return;
    memcpy(shadow->tokens, saved->tokens, saved->count * sizeof *saved->tokens);
    shadow->count = saved->count;
}

static void open_again(struct world *world, struct shadow *shadow)
{
    salvo_session_close(shadow->session);
    ASSERT_OK(salvo_session_open(world->fixture.engine, &shadow->session));
    set_greedy(shadow->session);
    shadow->count = 0;
}

static void begin_cached(struct world *world, struct shadow *shadow)
{
    const int32_t *story = world->stories[below(world, STORIES)];
    const uint32_t count = 1 + below(world, world->context);
    uint32_t cached;
    ASSERT_OK(salvo_session_prefill_cached(shadow->session, story, count, &cached));
    assert_true(cached < count);
    memcpy(shadow->tokens, story, cached * sizeof *story);
    shadow->count = cached;
    feed(world, shadow, story + cached, count - cached);
}

static void mark(struct world *world, struct shadow *shadow)
{
    (void)world;
    ASSERT_OK(salvo_session_mark(shadow->session));
}

/* The last token is computed again; its logits and the next ids equal those of a new session with the same
 * tokens. */
static void check(struct world *world, struct shadow *shadow)
{
    if (shadow->count == 0)
        return;
    const uint32_t count = shadow->count;
    ASSERT_OK(salvo_session_rollback(shadow->session, --shadow->count));
    feed(world, shadow, shadow->tokens + count - 1, 1);
    if (shadow->count < count)
        return;
    ASSERT_OK(salvo_session_rollback(world->alone.session, 0));
    ASSERT_OK(salvo_session_feed(world->alone.session, shadow->tokens, count));
    assert_memory_equal(salvo_session_logits(world->alone.session), salvo_session_logits(shadow->session),
        world->fixture.vocabulary * sizeof(float));
    world->checked++;
    const uint32_t before = shadow->count;
    choose(world, shadow);
    for (uint32_t i = before; i < shadow->count; i++) {
        int32_t id;
        ASSERT_OK(salvo_session_next(world->alone.session, &id));
        assert_int_equal(id, shadow->tokens[i]);
    }
}

static void run_seed(uint64_t seed)
{
    static void (*const events[])(struct world *, struct shadow *) = {feed_story, feed_story, feed_story,
        choose, choose, take_back, copy, save, restore, open_again, begin_cached, begin_cached, mark, check};
    static struct world world;
    open_world(&world, seed);
    for (int i = 0; i < EVENTS; i++) {
        struct shadow *shadow = &world.shadows[below(&world, world.sessions)];
        events[below(&world, sizeof events / sizeof *events)](&world, shadow);
        for (uint32_t j = 0; j < world.sessions; j++) {
            const struct shadow *seen = &world.shadows[j];
            assert_int_equal(seen->count, salvo_session_position(seen->session));
            assert_memory_equal(
                seen->tokens, salvo_session_tokens(seen->session), seen->count * sizeof *seen->tokens);
        }
        (void)memory_of(&world);
    }
    for (uint32_t i = 0; i < world.sessions; i++)
        check(&world, &world.shadows[i]);
    close_world(&world);
    print_message("seed %llu: context %u, %u sessions, %u checks, %u hits, %u refused\n",
        (unsigned long long)seed, world.context, world.sessions, world.checked, world.hits, world.refused);
}

static void random_orders(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seed_count; i++) {
        const uint64_t seed = first_seed + i;
        print_message("seed %llu\n", (unsigned long long)seed);
        run_seed(seed);
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_orders)};
    if (count == 3) {
        first_seed = strtoull(arguments[1], NULL, 10);
        seed_count = strtoull(arguments[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
