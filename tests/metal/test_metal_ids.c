/* Ids of a command buffer of several tokens: the host sees them while it runs, where the system allows it. */
#include "metal/find_fake_metal.h"

enum { COUNT = 24, AHEAD = 8, FIRST = 3 };

/* The dispatches that had run when each id arrived. */
struct arrivals {
    unsigned long dispatches[COUNT];
    int32_t ids[COUNT];
    uint32_t count, stop_after; /* 0: never */
};

static bool note_arrival(void *user, int32_t id, const char *data, size_t size)
{
    struct arrivals *arrivals = user;
    (void)data;
    (void)size;
    arrivals->ids[arrivals->count] = id;
    arrivals->dispatches[arrivals->count++] = fake_metal()->dispatches;
    return arrivals->count != arrivals->stop_after;
}

static struct arrivals generate(struct fixture *fixture, uint32_t stop_after)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct arrivals arrivals = {.stop_after = stop_after};
    const int32_t ids[FIRST] = {5, 6, 7};
    set_greedy(fixture->session);
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    ASSERT_OK(salvo_session_feed(fixture->session, ids, FIRST));
    ASSERT_OK(salvo_session_generate(fixture->session,
        &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .max_tokens = COUNT,
            .ahead = AHEAD,
            .ignore_end = true,
            .token = note_arrival,
            .user = &arrivals},
        &result));
    assert_int_equal(stop_after ? stop_after : COUNT, arrivals.count);
    assert_int_equal(arrivals.count, result.tokens);
    assert_memory_equal(
        arrivals.ids, salvo_session_tokens(fixture->session) + FIRST, arrivals.count * sizeof(int32_t));
    return arrivals;
}

/* How many ids arrived when less had run than at the next. */
static uint32_t moments_of(const struct arrivals *arrivals)
{
    uint32_t moments = 1;
    for (uint32_t i = 1; i < arrivals->count; i++)
        moments += arrivals->dispatches[i] > arrivals->dispatches[i - 1];
    return moments;
}

static struct fixture open_tiny(const char *shape)
{
    return fixture_open(made_model_with_vocabulary(shape, "F32"), metal_options(1));
}

/* With a wait that runs little, each id arrives at a moment of its own; otherwise all of a command buffer
 * arrive together. The ids are the same. */
static void ids_arrive_while_their_command_buffer_runs(void **state)
{
    (void)state;
    struct fixture fixture = open_tiny("llama-tiny");
    (void)generate(&fixture, 0); /* then the device's time for a token is known */
    fake_metal()->most_parts = 4;
    const unsigned long before = fake_metal()->interruptions, commits = fake_metal()->commits;
    const struct arrivals early = generate(&fixture, 0);
    assert_true(fake_metal()->interruptions > before + COUNT);
    assert_true(fake_metal()->commits - commits <= 1 + COUNT / AHEAD);
    assert_int_equal(COUNT, moments_of(&early));
    fixture_close(&fixture);

    fake_metal()->refuses_system_scope = 1;
    fixture = open_tiny("llama-tiny");
    fake_metal()->refuses_system_scope = 0;
    (void)generate(&fixture, 0);
    const unsigned long between = fake_metal()->interruptions;
    const struct arrivals late = generate(&fixture, 0);
    assert_int_equal(between, fake_metal()->interruptions); /* the host has not checked */
    assert_true(moments_of(&late) <= 1 + COUNT / AHEAD);
    assert_memory_equal(early.ids, late.ids, sizeof early.ids);
    fixture_close(&fixture);
}

/* All ids equal those of submissions with one token. */
static void ids_of_a_recurrence(void **state)
{
    (void)state;
    const int32_t ids[FIRST] = {5, 6, 7};
    struct fixture fixture = open_tiny("rwkv7-mini");
    fake_metal()->most_parts = 4;
    const unsigned long before = fake_metal()->interruptions;
    const struct arrivals early = generate(&fixture, 0);
    assert_true(fake_metal()->interruptions > before + COUNT);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    int32_t *expected = continuation(fixture.session, ids, FIRST, COUNT);
    assert_memory_equal(expected, early.ids, sizeof early.ids);
    free(expected);
    fixture_close(&fixture);
}

/* The host may stop after any id: the device has computed a part of the command buffer, and sees it. */
static void the_host_stops_after_an_id_that_came_early(void **state)
{
    (void)state;
    struct fixture fixture = open_tiny("llama-tiny");
    fake_metal()->most_parts = 4;
    const struct arrivals all = generate(&fixture, 0);
    for (uint32_t stop_after = 2; stop_after < 2 * AHEAD; stop_after += 5) {
        const uint64_t before = computed_tokens(&fixture);
        const struct arrivals some = generate(&fixture, stop_after);
        assert_memory_equal(all.ids, some.ids, stop_after * sizeof(int32_t));
        /* A wait runs less than a token, so that of the tokens behind that id two are begun at most. */
        assert_in_range(computed_tokens(&fixture) - before, FIRST + stop_after - 1, FIRST + stop_after + 1);
        int32_t id;
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(all.ids[stop_after], id);
    }
    fixture_close(&fixture);
}

static void note_line(void *user, const char *line)
{
    int *found = user;
    if (strstr(line, "ids are seen as they come"))
        *found = 1;
    if (strstr(line, "ids are seen when their command buffer ends"))
        *found = 2;
}

static int told_of(struct fixture fixture)
{
    int found = 0;
    ASSERT_OK(salvo_engine_print(fixture.engine, note_line, &found));
    fixture_close(&fixture);
    return found;
}

/* Before macOS 15 there are no such stores. */
static void the_plan_tells_when_ids_are_seen(void **state)
{
    (void)state;
    assert_int_equal(1, told_of(open_tiny("llama-tiny")));
    fake_metal()->refuses_system_scope = 1;
    assert_int_equal(2, told_of(open_tiny("llama-tiny")));
    fake_metal()->refuses_system_scope = 0;
    fake_metal()->hidden_method = "setMathMode:";
    assert_int_equal(2, told_of(open_tiny("llama-tiny")));
    fake_metal()->hidden_method = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_arrive_while_their_command_buffer_runs),
        cmocka_unit_test(ids_of_a_recurrence),
        cmocka_unit_test(the_host_stops_after_an_id_that_came_early),
        cmocka_unit_test(the_plan_tells_when_ids_are_seen),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
