/* Several steps in flight, of both families, of which one stops, is cancelled or is lost: what follows is
 * what the CPU computes. */
#include "backend/metal/metal_executor.h"
#include "metal/find_fake_metal.h"

#include <math.h>

enum { FED = 3, COUNT = 14, AHEAD = 4, MORE = 3 };

static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
static const int32_t prompt[FED] = {5, 6, 7};

/* Both have the same tokens, and the same state behind them. */
struct pair {
    struct fixture metal, cpu;
    int32_t expected[FED + COUNT + MORE];
};

static struct pair open_pair(const char *shape)
{
    struct salvo_engine_options options = metal_options(2);
    const char *path = made_model_with_vocabulary(shape, "F32");
    struct pair pair = {.metal = fixture_open(path, options)};
    options.backend = "cpu";
    pair.cpu = fixture_open(path, options);
    set_greedy(pair.cpu.session);
    set_greedy(pair.metal.session);
    memcpy(pair.expected, prompt, sizeof prompt);
    int32_t *ids = continuation(pair.cpu.session, prompt, FED, COUNT + MORE);
    memcpy(pair.expected + FED, ids, (COUNT + MORE) * sizeof *ids);
    free(ids);
    return pair;
}

static void close_pair(struct pair *pair)
{
    fixture_close(&pair->metal);
    fixture_close(&pair->cpu);
}

/* The session has the CPU's tokens up to its position, and goes on as the CPU does from there. */
static void check_session(struct pair *pair, struct salvo_session *session)
{
    const uint32_t position = salvo_session_position(session);
    assert_in_range(position, 1, FED + COUNT);
    assert_memory_equal(pair->expected, salvo_session_tokens(session), position * sizeof(int32_t));
    for (uint32_t i = 0; i < MORE; i++) {
        int32_t id;
        ASSERT_OK(salvo_session_next(session, &id));
        assert_int_equal(pair->expected[position + i], id);
    }
    ASSERT_OK(salvo_session_feed(session, prompt, 1));
    ASSERT_OK(salvo_session_rollback(pair->cpu.session, 0));
    ASSERT_OK(salvo_session_feed(pair->cpu.session, pair->expected, position + MORE));
    ASSERT_OK(salvo_session_feed(pair->cpu.session, prompt, 1));
    const double divergence = divergence_of(
        salvo_session_logits(pair->cpu.session), salvo_session_logits(session), pair->cpu.vocabulary);
    if (!(divergence < 1e-9))
        fail_msg("at position %u: KL divergence %g", position, divergence);
}

/* Counts the tokens of a generation; at one of them it stops, cancels or spoils the generation. */
struct listener {
    struct salvo_session *session;
    uint32_t count, at; /* at: the token that stops or cancels; 0: none */
    bool cancels, spoils;
};

/* A NaN reaches sampling as a bias, which the host would refuse: it is written behind its back. */
static void set_biases(struct salvo_session *session, float value)
{
    float *biases = (float *)(void *)session->engine->executor->biases.bytes;
    for (uint32_t i = 0; i < session->engine->program->vocabulary; i++)
        biases[i] = value;
}

static bool note_token(void *user, int32_t id, const char *data, size_t size)
{
    struct listener *listener = user;
    (void)id;
    (void)data;
    (void)size;
    if (++listener->count != listener->at)
        return true;
    if (listener->cancels)
        salvo_session_cancel(listener->session);
    if (listener->spoils)
        set_biases(listener->session, NAN);
    return listener->cancels || listener->spoils;
}

/* The prompt, `nexts` tokens one by one, and the others of COUNT four at a time. */
static enum salvo_status generate(struct fixture *fixture, uint32_t nexts, struct listener *listener)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    listener->session = fixture->session;
    TRY(salvo_session_rollback(fixture->session, 0));
    TRY(salvo_session_feed(fixture->session, prompt, FED));
    for (uint32_t i = 0; i < nexts; i++) {
        int32_t id;
        TRY(salvo_session_next(fixture->session, &id));
    }
    TRY(salvo_session_generate(fixture->session,
        &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .max_tokens = COUNT - nexts,
            .ahead = AHEAD,
            .ignore_end = true,
            .token = note_token,
            .user = listener},
        &result));
cleanup:
    return status;
}

static void several_command_buffers_are_in_flight(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        ASSERT_OK(generate(&pair.metal, 0, &(struct listener){0})); /* the time of a token is known then */
        const struct fake_metal before = *fake_metal();
        fake_metal()->most_waiting = 0;
        ASSERT_OK(generate(&pair.metal, 0, &(struct listener){0}));
        assert_int_equal(2, fake_metal()->most_waiting);
        assert_int_equal(1 + (COUNT + AHEAD - 1) / AHEAD, fake_metal()->commits - before.commits);
        assert_int_equal(FED + COUNT, salvo_session_position(pair.metal.session));
        check_session(&pair, pair.metal.session);
        assert_int_equal(0, counters_of(pair.metal.engine).allocations_after_load);
        close_pair(&pair);
    }
}

/* Before the time of a token is known, each is a command buffer of its own; the step ends with the last. */
static void a_step_of_several_command_buffers_has_all_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        struct salvo_run_result result;
        int32_t chosen[AHEAD];
        uint64_t step;
        const struct salvo_run run = {.session = pair.metal.session, .tokens = AHEAD, .chosen_ids = chosen};
        ASSERT_OK(salvo_session_feed(pair.metal.session, prompt, FED));
        const unsigned long before = fake_metal()->commits;
        ASSERT_OK(salvo_engine_submit(pair.metal.engine, &run, 1, sizeof run, &step));
        assert_int_equal(AHEAD, fake_metal()->commits - before);
        ASSERT_OK(salvo_engine_wait(pair.metal.engine, step, &result, 1, sizeof result));
        assert_int_equal(AHEAD, result.id_count);
        close_pair(&pair);
    }
}

/* The host stops or cancels at each token, when more or fewer of the tokens behind it have run. */
static void the_host_gives_up_at_any_token(void **state)
{
    (void)state;
    static const unsigned long parts[] = {1, 16, 400};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        for (uint32_t way = 0; way < 3; way++) {
            fake_metal()->most_parts = parts[way];
            for (uint32_t at = 1; at <= 2 * AHEAD + 2; at += way == 1 ? 1 : 3) {
                struct listener listener = {.at = at, .cancels = way != 1};
                ASSERT_OK(generate(&pair.metal, way, &listener));
                check_session(&pair, pair.metal.session);
            }
        }
        close_pair(&pair);
    }
}

/* From a token on no id can be chosen, in steps that are in flight already. */
static void a_step_in_flight_chooses_no_id(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        ASSERT_OK(salvo_session_set_bias(pair.metal.session, 0, 1e-30f));
        for (uint32_t at = 1; at <= 2 * AHEAD; at += 3) {
            fake_metal()->most_parts = at % 2 ? 16 : 400;
            struct listener listener = {.at = at, .spoils = true};
            assert_int_equal(SALVO_ERROR_NUMERIC, generate(&pair.metal, 0, &listener));
            set_biases(pair.metal.session, 0);
            assert_true(listener.count >= at);
            check_session(&pair, pair.metal.session);
        }
        close_pair(&pair);
    }
}

/* Each of the command buffers is lost, with another in flight behind it that a wait may run to its end. */
static void any_command_buffer_in_flight_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        ASSERT_OK(generate(&pair.metal, 0, &(struct listener){0}));
        const unsigned long before = fake_metal()->commits;
        ASSERT_OK(generate(&pair.metal, 0, &(struct listener){0}));
        const unsigned long commits = fake_metal()->commits - before;
        for (unsigned long nth = 1; nth <= commits; nth++) {
            struct salvo_session *copy;
            fake_metal()->most_parts = (nth + i) % 2 ? 16 : 100000;
            fake_metal()->lose_commit = fake_metal()->commits + nth;
            fake_metal()->most_waiting = 0;
            assert_int_equal(SALVO_ERROR_DEVICE, generate(&pair.metal, 0, &(struct listener){0}));
            assert_int_equal(nth == 1 ? 1 : 2, fake_metal()->most_waiting);
            const uint32_t position = salvo_session_position(pair.metal.session);
            assert_true(position < FED + COUNT);
            assert_memory_equal(
                pair.expected, salvo_session_tokens(pair.metal.session), position * sizeof(int32_t));
            assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(pair.metal.session, prompt, 1));
            ASSERT_OK(salvo_session_open(pair.metal.engine, &copy));
            if (salvo_session_copy(copy, pair.metal.session) == SALVO_OK) /* without the device */
                assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(copy, prompt, 1));
            salvo_session_close(copy);
            fake_metal()->lose_commit = 0;
            close_pair(&pair);
            pair = open_pair(shapes[i]);
            ASSERT_OK(generate(&pair.metal, 0, &(struct listener){0}));
        }
        close_pair(&pair);
    }
}

/* Parts of a prompt, then a token, in flight together, of which each is lost: the status of its command
 * buffer is known later than the signals of those behind it. */
static void any_step_in_flight_is_lost(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    for (size_t i = 0; i < 2 * STEPS; i++) {
        struct pair pair = open_pair(shapes[i % 2]);
        const size_t lost = i / 2;
        struct salvo_run_result result;
        uint64_t steps[STEPS];
        fake_metal()->lose_commit = fake_metal()->commits + lost + 1;
        for (size_t step = 0; step < STEPS; step++) {
            const struct salvo_run run = {.session = pair.metal.session,
                .ids = prompt + step,
                .count = step < 2,
                .want = step < 2 ? SALVO_WANT_NOTHING : SALVO_WANT_ID};
            ASSERT_OK(salvo_engine_submit(pair.metal.engine, &run, 1, sizeof run, &steps[step]));
        }
        for (size_t step = 0; step < STEPS; step++) {
            ASSERT_OK(salvo_engine_wait(pair.metal.engine, steps[step], &result, 1, sizeof result));
            assert_int_equal(step < lost ? SALVO_OK : SALVO_ERROR_DEVICE, result.status);
        }
        assert_int_equal(lost, salvo_session_position(pair.metal.session));
        fake_metal()->lose_commit = 0;
        close_pair(&pair);
    }
}

/* Two sessions of which one ends at a stop id, after each number of tokens, while steps of both are in
 * flight: its run then does nothing beside the other. */
static void a_session_ends_beside_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pair pair = open_pair(shapes[i]);
        struct salvo_session *sessions[2] = {pair.metal.session};
        ASSERT_OK(salvo_session_open(pair.metal.engine, &sessions[1]));
        for (uint32_t at = 1; at <= 2 * AHEAD; at += 1 + at / 2) { /* 1, 2, 4, 7 */
            enum { STEPS = 3 };
            struct salvo_run_result results[STEPS][2];
            int32_t chosen[STEPS][2][AHEAD];
            uint64_t steps[STEPS];
            for (int j = 0; j < 2; j++) {
                set_greedy(sessions[j]);
                ASSERT_OK(salvo_session_rollback(sessions[j], 0));
                ASSERT_OK(salvo_session_feed(sessions[j], prompt, FED));
            }
            fake_metal()->most_waiting = 0;
            for (int step = 0; step < STEPS; step++) {
                const struct salvo_run runs[2] = {{.session = sessions[0],
                                                      .tokens = AHEAD,
                                                      .chosen_ids = chosen[step][0],
                                                      .stop_ids = &pair.expected[FED + at - 1],
                                                      .stop_id_count = 1},
                    {.session = sessions[1], .tokens = AHEAD, .chosen_ids = chosen[step][1]}};
                ASSERT_OK(salvo_engine_submit(pair.metal.engine, runs, 2, sizeof *runs, &steps[step]));
            }
            assert_true(fake_metal()->most_waiting > 1);
            for (int step = 0; step < STEPS; step++)
                ASSERT_OK(salvo_engine_wait(
                    pair.metal.engine, steps[step], results[step], 2, sizeof *results[step]));
            for (int j = 0; j < 2; j++)
                check_session(&pair, sessions[j]);
        }
        salvo_session_close(sessions[1]);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_command_buffers_are_in_flight),
        cmocka_unit_test(a_step_of_several_command_buffers_has_all_tokens),
        cmocka_unit_test(the_host_gives_up_at_any_token),
        cmocka_unit_test(a_step_in_flight_chooses_no_id),
        cmocka_unit_test(any_command_buffer_in_flight_is_lost),
        cmocka_unit_test(any_step_in_flight_is_lost),
        cmocka_unit_test(a_session_ends_beside_another),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    fake_metal()->records_races = 0; /* other tests check for races */
    return RUN_CHOSEN_TESTS(tests, NULL);
}
