/*
 * RWKV-7: logits against references, and a state that is recurrent: going back, stopping, repeating and long
 * conversations leave exactly the state of the tokens that were kept. test_invariance.c has chunks, threads
 * and neighbours.
 */
#include "arch/arch.h"
#include "backend/backend.h"
#include "backend/common/state.h"
#include "cancel_hook.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "unit/text_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fixture open_small(struct salvo_engine_options options)
{
    return fixture_open(made_model("rwkv7-tiny", "Q8_0"), options);
}

/* ---- References ---- */

static uint32_t read_ids(const char *path, int32_t *ids, uint32_t most)
{
    struct buffer text = read_whole_file(path);
    uint32_t count = 0;
    for (char *next = strtok(text.data, ",\n "); next && count < most; next = strtok(NULL, ",\n "))
        ids[count++] = (int32_t)strtol(next, NULL, 10);
    buffer_free(&text);
    return count;
}

/* The largest difference between the last `rows` rows of logits and the rows of a file. */
static double worst_difference(
    const char *model, const char *expected_path, const int32_t *ids, uint32_t count, uint32_t rows)
{
    struct fixture fixture =
        fixture_open(model, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct buffer expected = read_whole_file(expected_path);
    const size_t values = (size_t)rows * fixture.vocabulary;
    assert_int_equal(values * sizeof(float), expected.size);
    float *got = logits_at_once(&fixture, ids, count);
    double worst = 0;
    for (size_t i = 0; i < values; i++) {
        float want;
        memcpy(&want, expected.data + i * sizeof want, sizeof want);
        double error = fabs((double)got[(size_t)(count - rows) * fixture.vocabulary + i] - (double)want);
        worst = error <= worst ? worst : error; /* a NaN stays */
    }
    free(got);
    buffer_free(&expected);
    fixture_close(&fixture);
    return worst;
}

static void a_trained_model_matches_the_original(void **state)
{
    (void)state;
    const char *data = test_data_folder();
    if (!data)
        skip();
    char model[4096], expected[4096];
    snprintf(model, sizeof model, "%s/rwkv7-tiny/tiny-rwkv7-834k-f32.gguf", data);
    snprintf(expected, sizeof expected, "%s/rwkv7-tiny/expected-logits.f32", data);
    double worst = worst_difference(model, expected, (const int32_t[]){34, 105, 110}, 3, 1);
    print_message("worst: %.2g\n", worst);
    assert_true(worst < 1e-5);
}

static void a_random_model_matches_a_double_precision_reference(void **state)
{
    (void)state;
    const char *data = test_data_folder();
    if (!data)
        skip();
    char model[4096], expected[4096], tokens[4096];
    int32_t ids[64];
    snprintf(model, sizeof model, "%s/mini/rwkv7-mini-f32.gguf", data);
    snprintf(expected, sizeof expected, "%s/mini/rwkv7-mini-expected-logits.f32", data);
    snprintf(tokens, sizeof tokens, "%s/mini/tokens.csv", data);
    assert_int_equal(64, read_ids(tokens, ids, 64));
    double worst = worst_difference(model, expected, ids, 64, 64);
    print_message("worst of 64 positions: %.2g\n", worst);
    assert_true(worst < 1e-4);
}

static float *logits_of(const char *path, const int32_t *ids, uint32_t count, uint32_t *out_vocabulary)
{
    struct fixture fixture = fixture_open(
        path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .backend = "cpu"});
    float *logits = logits_at_once(&fixture, ids, count);
    *out_vocabulary = fixture.vocabulary;
    fixture_close(&fixture);
    return logits;
}

/* The error of rounded activations, first positions included, against the same weights as F32, whose logits
 * agree with a double-precision reference (above). llama.cpp has 5.3e-5, 5.4e-5 and 2.4e-4 on such files. */
static void rounded_activations_cost_little(void **state)
{
    (void)state;
    static const struct {
        const char *mix;
        double most;
    } cases[] = {{"Q4_0", 4e-5}, {"Q8_0", 4.5e-5}, {"Q4_K_M", 5e-5}};
    enum { COUNT = 64 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = made_model("rwkv7-256", cases[i].mix);
        char exact[4096];
        quantized_copy(path, "F32", exact, sizeof exact);
        uint32_t vocabulary;
        int32_t *ids = some_ids(COUNT, 512, 7);
        float *got = logits_of(path, ids, COUNT, &vocabulary),
              *want = logits_of(exact, ids, COUNT, &vocabulary);
        double divergence = 0;
        for (size_t row = 0; row < COUNT; row++)
            divergence += divergence_of(want + row * vocabulary, got + row * vocabulary, vocabulary) / COUNT;
        print_message("%s: mean KL %.2g\n", cases[i].mix, divergence);
        assert_true(divergence < cases[i].most);
        free(ids);
        free(got);
        free(want);
        remove(exact);
    }
}

/* ---- Defaults ---- */

static void the_family_has_its_own_defaults(void **state)
{
    (void)state;
    struct fixture fixture =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct salvo_sampler sampler = default_sampler(fixture.model);
    assert_true(sampler.temperature == 1 && sampler.top_p == 0.3f && sampler.min_p == 0);
    assert_true(sampler.presence_penalty == 0.5f && sampler.frequency_penalty == 0.5f);
    assert_int_equal(0, sampler.top_k);
    assert_int_equal(1048576, salvo_engine_info(fixture.engine)->context);
    fixture_close(&fixture);
}

/* ---- Going back ---- */

struct way_back {
    uint32_t from, to; /* positions */
};

/* The token that follows the first `position` ids, and the logits after another one; to be freed. `session`
 * was fed ids up to some position before, and stands there again. */
static float *logits_after(struct salvo_session *session, const int32_t *ids, uint32_t position,
    uint32_t vocabulary, int32_t *out_next)
{
    const uint32_t before = salvo_session_position(session);
    float *logits = malloc(vocabulary * sizeof *logits);
    assert_non_null(logits);
    ASSERT_OK(salvo_session_feed(session, ids + before, position - before));
    const size_t size = salvo_session_state_size(session);
    uint8_t *state = malloc(size);
    assert_non_null(state);
    ASSERT_OK(salvo_session_state_save(session, state, size));
    *out_next = -1;
    if (position)
        ASSERT_OK(salvo_session_next(session, out_next));
    ASSERT_OK(salvo_session_feed(session, ids + 9, 1));
    memcpy(logits, salvo_session_logits(session), vocabulary * sizeof *logits);
    ASSERT_OK(salvo_session_state_restore(session, state, size));
    free(state);
    return logits;
}

/* Far enough for snapshots to be taken, thinned out and missed. The expected logits come from a session
 * without a rollback. */
static void rolling_back_gives_the_state_of_the_tokens_kept(void **state)
{
    (void)state;
    static const struct way_back ways[] = {{1500, 1499}, {1500, 1490}, {1500, 1300}, {1500, 1025},
        {1200, 1024}, {1100, 700}, {800, 256}, {400, 255}, {300, 1}, {20, 0}};
    enum { COUNT = 1500, WAYS = sizeof ways / sizeof *ways };
    struct fixture fixture = open_small((struct salvo_engine_options){
        .size = sizeof(struct salvo_engine_options), .batch = 128, .sessions = 2});
    struct salvo_session *session = fixture.session, *fresh;
    ASSERT_OK(salvo_session_open(fixture.engine, &fresh));
    int32_t *ids = some_ids(COUNT, fixture.vocabulary, 1), expected[WAYS], id;
    float *logits[WAYS];
    for (size_t i = WAYS; i-- > 0;) /* by rising positions */
        logits[i] = logits_after(fresh, ids, ways[i].to, fixture.vocabulary, &expected[i]);
    for (size_t i = 0; i < WAYS; i++) {
        const uint32_t position = salvo_session_position(session);
        ASSERT_OK(salvo_session_feed(session, ids + position, ways[i].from - position));
        ASSERT_OK(salvo_session_rollback(session, ways[i].to));
        assert_int_equal(ways[i].to, salvo_session_position(session));
        if (i % 2 == 0 && ways[i].to) { /* the next token is there again */
            ASSERT_OK(salvo_session_next(session, &id));
            assert_int_equal(expected[i], id);
        } else if (ways[i].to) {
            ASSERT_OK(salvo_session_feed(session, &expected[i], 1));
        }
        for (int again = 0; again < 2; again++) { /* a snapshot of the end brings it back */
            ASSERT_OK(salvo_session_feed(session, ids + 9, 1));
            assert_memory_equal(
                logits[i], salvo_session_logits(session), fixture.vocabulary * sizeof **logits);
            ASSERT_OK(salvo_session_rollback(session, salvo_session_position(session) - 1));
        }
        ASSERT_OK(salvo_session_rollback(session, ways[i].to));
        free(logits[i]);
    }
    free(ids);
    salvo_session_close(fresh);
    fixture_close(&fixture);
}

static void going_back_a_little_does_not_compute_the_prompt_again(void **state)
{
    (void)state;
    enum { PROMPT = 1000 };
    struct fixture fixture =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 2);
    for (int turn = 0; turn < 3; turn++) {
        uint64_t before = counters_of(fixture.engine).tokens;
        int32_t *taken = continuation(fixture.session, ids, turn ? 10 : PROMPT, 300);
        uint64_t computed = counters_of(fixture.engine).tokens - before;
        if (turn)
            assert_true(computed < 10 + 300 + 256);
        free(taken);
        ASSERT_OK(salvo_session_rollback(fixture.session, PROMPT));
    }
    assert_int_equal(0, counters_of(fixture.engine).allocations_after_load);
    free(ids);
    fixture_close(&fixture);
}

/* Evaluated tokens left no sample: the last one is computed again. */
static void a_token_can_be_taken_after_an_evaluation(void **state)
{
    (void)state;
    struct fixture fixture =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    set_greedy(fixture.session);
    int32_t *ids = some_ids(40, fixture.vocabulary, 3), id;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 40));
    int32_t expected;
    ASSERT_OK(salvo_session_next(fixture.session, &expected));
    free(logits_at_once(&fixture, ids, 40));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    assert_int_equal(expected, id);
    free(ids);
    fixture_close(&fixture);
}

/* ---- Stopping and repeating ---- */

static void a_cancelled_step_leaves_the_state_alone(void **state)
{
    (void)state;
    enum { COUNT = 600 };
    struct fixture fixture =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 32});
    struct fixture other =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 512});
    int32_t *ids = some_ids(COUNT, fixture.vocabulary, 4);
    uint32_t done = 0, cancels = 0;
    for (unsigned call = 1; done < COUNT; call += 40) { /* in the first chunk, then in later ones */
        cancel_hook_set(fixture.engine, fixture.session, call);
        const enum salvo_status status = salvo_session_feed(fixture.session, ids + done, COUNT - done);
        const bool came = cancel_hook_remove(fixture.engine);
        assert_int_equal(came ? SALVO_ERROR_CANCELLED : SALVO_OK, status);
        cancels += came;
        done = salvo_session_position(fixture.session);
    }
    print_message("%u cancels\n", cancels);
    assert_in_range(cancels, 10, COUNT);
    ASSERT_OK(salvo_session_feed(other.session, ids, COUNT));
    assert_memory_equal(salvo_session_logits(other.session), salvo_session_logits(fixture.session),
        fixture.vocabulary * sizeof(float));
    free(ids);
    fixture_close(&other);
    fixture_close(&fixture);
}

/* A step of `count` tokens that were chosen greedily, in one submission or in as many. */
static void decode(struct executor *executor, uint32_t *position, uint32_t count, bool at_once,
    const bool *cancel, enum salvo_status expected)
{
    static const uint32_t pages[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t done = 0; done < count; done += at_once ? count : 1) {
        struct run run = {.first = *position,
            .count = 1,
            .source = SOURCE_LAST,
            .logits = LOGITS_LAST,
            .pages = pages,
            .sampler = {.repeat_penalty = 1}};
        struct step step = {
            .runs = &run, .run_count = 1, .token_count = 1, .repeat = at_once ? count : 1, .cancel = cancel};
        uint64_t ticket;
        struct run_result result;
        assert_int_equal(expected, cpu_backend.submit(executor, &step, &ticket));
        if (expected != SALVO_OK)
            return;
        ASSERT_OK(cpu_backend.wait(executor, ticket, &result));
        *position += at_once ? count : 1;
    }
}

static void a_step_that_repeats_folds_every_token_once(void **state)
{
    (void)state;
    enum { COUNT = 33 };
    struct gguf *gguf;
    struct program *program;
    struct executor *executors[2];
    uint32_t positions[2] = {0, 0};
    bool cancel = true;
    ASSERT_OK(gguf_open(made_model("rwkv7-tiny", "Q8_0"), &gguf));
    ASSERT_OK(arch_build(gguf, &program));
    const struct backend_options options = {
        .slots = 1, .context = 512, .batch = 16, .outputs = 1, .kv_type = TYPE_F16, .threads = 2};
    for (int i = 0; i < 2; i++)
        ASSERT_OK(cpu_backend.open(program, &options, &executors[i]));
    for (int round = 0; round < 3; round++) {
        decode(executors[0], &positions[0], COUNT, false, NULL, SALVO_OK);
        decode(executors[1], &positions[1], COUNT, true, &cancel, SALVO_ERROR_CANCELLED);
        decode(executors[1], &positions[1], COUNT, true, NULL, SALVO_OK);
        assert_int_equal(positions[0], positions[1]);
    }
    size_t size = state_size(&cpu_backend, executors[0], 0);
    uint8_t *states[2];
    for (int i = 0; i < 2; i++) {
        states[i] = malloc(size);
        assert_non_null(states[i]);
        ASSERT_OK(state_save(&cpu_backend, executors[i], 0, NULL, 0, states[i]));
    }
    assert_memory_equal(states[0], states[1], size);
    assert_memory_equal(cpu_backend.tokens(executors[0], 0), cpu_backend.tokens(executors[1], 0),
        positions[0] * sizeof(int32_t));
    for (int i = 0; i < 2; i++) {
        free(states[i]);
        cpu_backend.close(executors[i]);
    }
    program_close(program);
    gguf_close(gguf);
}

/* ---- Long conversations ---- */

static void two_thousand_turns_are_one_pass(void **state)
{
    (void)state;
    enum { TURNS = LONG_RUN(2000), SAID = 3, ANSWERED = 2 };
    struct fixture fixture =
        open_small((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .sessions = 2});
    struct salvo_session *whole;
    ASSERT_OK(salvo_session_open(fixture.engine, &whole));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        int32_t *ids = some_ids(SAID, fixture.vocabulary, turn);
        free(continuation(fixture.session, ids, SAID, ANSWERED));
        free(ids);
    }
    int32_t last[1] = {5};
    ASSERT_OK(salvo_session_feed(fixture.session, last, 1));
    const size_t bytes = fixture.vocabulary * sizeof(float);
    float *logits = malloc(bytes);
    assert_non_null(logits);
    memcpy(logits, salvo_session_logits(fixture.session), bytes);
    uint32_t count = salvo_session_position(fixture.session);
    assert_int_equal(TURNS * (SAID + ANSWERED) + 1, count);
    ASSERT_OK(salvo_session_feed(whole, salvo_session_tokens(fixture.session), count));
    assert_memory_equal(logits, salvo_session_logits(whole), bytes);
    free(logits);
    salvo_session_close(whole);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trained_model_matches_the_original),
        cmocka_unit_test(a_random_model_matches_a_double_precision_reference),
        cmocka_unit_test(rounded_activations_cost_little),
        cmocka_unit_test(the_family_has_its_own_defaults),
        cmocka_unit_test(rolling_back_gives_the_state_of_the_tokens_kept),
        cmocka_unit_test(going_back_a_little_does_not_compute_the_prompt_again),
        cmocka_unit_test(a_token_can_be_taken_after_an_evaluation),
        cmocka_unit_test(a_cancelled_step_leaves_the_state_alone),
        cmocka_unit_test(a_step_that_repeats_folds_every_token_once),
        cmocka_unit_test(two_thousand_turns_are_one_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
