/* A Metal that fails: each object that cannot be made, command buffers that end with an error, too little
 * memory. Nothing is lost but the engine, which can be opened again. */
#include "base/memory.h"
#include "base/status.h"
#include "metal/find_fake_metal.h"

#include <stdio.h>
#include <unistd.h>

static struct salvo_engine_options small_options(void)
{
    struct salvo_engine_options options = metal_options(1);
    options.context = 32;
    options.batch = 8;
    return options;
}

static void every_object_of_opening_can_fail(void **state)
{
    (void)state;
    const struct salvo_engine_options options = small_options();
    struct salvo_model *model;
    struct salvo_engine *engine;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    const unsigned long before = fake_metal()->creations;
    ASSERT_OK(salvo_engine_open(model, &options, &engine));
    const unsigned long count = fake_metal()->creations - before;
    salvo_engine_close(engine);
    const unsigned long live = fake_metal()->live_objects;
    unsigned long done_without = 0;
    assert_true(count > 40);
    for (unsigned long nth = 1; nth <= count; nth++) {
        fake_metal()->fail_creation = fake_metal()->creations + nth;
        const enum salvo_status status = salvo_engine_open(model, &options, &engine);
        if (status == SALVO_OK) {
            salvo_engine_close(engine);
            done_without++;
        } else {
            assert_true(status == SALVO_ERROR_DEVICE || status == SALVO_ERROR_MEMORY);
            assert_non_null(strstr(salvo_error(), "Emulated Apple GPU"));
        }
        assert_int_equal(live, fake_metal()->live_objects);
    }
    assert_int_equal(1, done_without); /* the library by which ids are seen early: there is one without */
    fake_metal()->fail_creation = 0;
    salvo_model_close(model);
}

static void every_allocation_of_opening_can_fail(void **state)
{
    (void)state;
    const struct salvo_engine_options options = small_options();
    uint64_t count;
    const uint64_t failures = opening_failures(made_model("llama-tiny", "Q4_0"), &options, &count);
    assert_int_equal(count, failures);
    assert_true(count > 20);
}

enum { SAMPLED = 4, FED = 5 };

/* Two new sessions of an engine: a prompt, decoding, a copy, a state that goes to a file and back. */
static enum salvo_status use_sessions(
    const struct fixture *fixture, const char *file, int32_t out[FED + SAMPLED])
{
    enum salvo_status status = SALVO_OK;
    const int32_t ids[FED] = {5, 6, 7, 8, 9};
    struct salvo_session *session = NULL, *copy = NULL;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    sampler.temperature = 0.7f;
    TRY(salvo_session_open(fixture->engine, &session));
    TRY(salvo_session_open(fixture->engine, &copy));
    TRY(salvo_session_set_sampler(session, &sampler));
    TRY(salvo_session_set_bias(session, 3, 2));
    TRY(salvo_session_feed(session, ids, FED));
    TRY(salvo_session_generate(session,
        &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .max_tokens = SAMPLED,
            .ignore_end = true,
            .ahead = 2},
        &result));
    TRY(salvo_session_copy(copy, session));
    TRY(salvo_session_state_save_file(copy, file));
    TRY(salvo_session_state_load_file(session, file));
    TRY(salvo_session_feed(session, ids, 1));
    memcpy(out, salvo_session_tokens(session), (FED + SAMPLED) * sizeof *out);
cleanup:
    salvo_session_close(copy);
    salvo_session_close(session);
    return status;
}

/* Each allocation of the host fails once while sessions run; the engine then does the same work with the same
 * result. */
static void an_engine_survives_failed_allocations_of_its_sessions(void **state)
{
    (void)state;
    struct salvo_engine_options options = small_options();
    options.sessions = 3;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), options);
    char file[160];
    int32_t expected[FED + SAMPLED], taken[FED + SAMPLED] = {0};
    snprintf(file, sizeof file, "%s.state", made_model("llama-tiny", "F32"));
    const uint64_t before = memory_count();
    ASSERT_OK(use_sessions(&fixture, file, expected));
    const uint64_t count = memory_count() - before;
    assert_true(count > 5);
    for (uint64_t nth = 1; nth <= count; nth++) {
        memory_fail_at(nth);
        const enum salvo_status status = use_sessions(&fixture, file, taken);
        memory_fail_at(0);
        assert_int_equal(SALVO_ERROR_MEMORY, status);
        ASSERT_OK(use_sessions(&fixture, file, taken));
        assert_memory_equal(expected, taken, sizeof taken);
    }
    print_message("%llu allocations\n", (unsigned long long)count);
    unlink(file);
    fixture_close(&fixture);
}

/* Errors of a command buffer: timeout, page fault, out of memory. */
static void a_lost_device_is_an_error_and_can_be_opened_again(void **state)
{
    (void)state;
    static const unsigned long codes[] = {2, 3, 8};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), small_options());
        int32_t *ids = some_ids(6, fixture.vocabulary, 4);
        float *logits = malloc(fixture.vocabulary * sizeof *logits);
        char code[32];
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
        memcpy(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
        fake_metal()->lose_commit = fake_metal()->commits + 1;
        fake_metal()->error_code = codes[i];
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids + 5, 1));
        snprintf(code, sizeof code, "error %lu", codes[i]);
        assert_non_null(strstr(salvo_error(), code));
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids + 5, 1));
        assert_non_null(strstr(salvo_error(), "opened again"));
        fixture_close(&fixture);

        fixture = fixture_open(made_model("llama-tiny", "F32"), small_options());
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
        assert_memory_equal(
            logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
        free(logits);
        free(ids);
        fixture_close(&fixture);
    }
}

/* Command buffers and encoders that cannot be made while a session decodes. */
static void a_step_that_cannot_be_encoded_is_an_error(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7};
    for (unsigned long nth = 1; nth <= 2; nth++) {
        struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), small_options());
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
        fake_metal()->fail_creation = fake_metal()->creations + nth;
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids, 1));
        fixture_close(&fixture);
    }
    fake_metal()->fail_creation = 0;
}

static enum salvo_status generate(struct fixture *fixture, uint32_t count, uint32_t *out_tokens)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const int32_t ids[] = {5, 6, 7};
    set_greedy(fixture->session);
    enum salvo_status status = salvo_session_feed(fixture->session, ids, 3);
    if (status == SALVO_OK) {
        status = salvo_session_generate(fixture->session,
            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .max_tokens = count,
                .ignore_end = true,
                .ahead = 4},
            &result);
    }
    *out_tokens = result.tokens;
    return status;
}

/* Each command buffer of a generation is lost, and each command buffer or encoder cannot be made, while the
 * host checks for ids of the previous one. The tokens up to there are kept, and equal the tokens of a device
 * that works. */
static void a_generation_survives_any_loss(void **state)
{
    (void)state;
    enum { COUNT = 13 };
    uint32_t tokens;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), small_options());
    fake_metal()->most_parts = 5;
    const struct fake_metal before = *fake_metal();
    ASSERT_OK(generate(&fixture, COUNT, &tokens));
    const unsigned long commits = fake_metal()->commits - before.commits,
                        creations = fake_metal()->creations - before.creations;
    int32_t expected[3 + COUNT];
    memcpy(expected, salvo_session_tokens(fixture.session), sizeof expected);
    fixture_close(&fixture);
    assert_true(commits >= 4 && creations == 2 * commits);
    for (unsigned long nth = 1; nth <= commits + creations; nth++) {
        fixture = fixture_open(made_model("llama-tiny", "F32"), small_options());
        if (nth <= commits)
            fake_metal()->lose_commit = fake_metal()->commits + nth;
        else
            fake_metal()->fail_creation = fake_metal()->creations + nth - commits;
        assert_int_equal(SALVO_ERROR_DEVICE, generate(&fixture, COUNT, &tokens));
        assert_true(tokens < COUNT);
        const uint32_t position = salvo_session_position(fixture.session);
        assert_true(position <= 3 + tokens);
        assert_memory_equal(expected, salvo_session_tokens(fixture.session), position * sizeof *expected);
        assert_int_equal(SALVO_ERROR_DEVICE, generate(&fixture, 1, &tokens));
        fake_metal()->lose_commit = fake_metal()->fail_creation = 0;
        fixture_close(&fixture);
    }
    fake_metal()->most_parts = before.most_parts;
}

/* The host detects the truncated file before the device reads the missing part. */
static void a_file_that_is_cut_is_noticed_before_the_next_step(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7};
    const char *path = made_model("llama-mini", "F16");
    struct fixture fixture = fixture_open(path, small_options());
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    const unsigned long commits = fake_metal()->commits;
    assert_int_equal(0, truncate(path, 64));
    const enum salvo_status status = salvo_session_feed(fixture.session, ids, 1);
    assert_true(status == SALVO_ERROR_IO || status == SALVO_ERROR_FORMAT);
    assert_non_null(strstr(salvo_error(), path));
    assert_int_equal(commits, fake_metal()->commits);
    assert_int_equal(3, salvo_session_position(fixture.session));
    fixture_close(&fixture);
}

/* The first of a step's command buffers may have the whole file, the others may not. */
static void a_file_that_is_cut_is_noticed_before_the_next_command_buffer(void **state)
{
    (void)state;
    uint32_t tokens;
    const char *path = made_model("llama-mini", "F32");
    struct fixture fixture = fixture_open(path, small_options());
    const unsigned long commits = fake_metal()->commits;
    fake_metal()->cut_file = path;
    fake_metal()->cut_commit = commits + 2; /* behind the prompt */
    const enum salvo_status status = generate(&fixture, 8, &tokens);
    assert_true(status == SALVO_ERROR_IO || status == SALVO_ERROR_FORMAT);
    assert_non_null(strstr(salvo_error(), path));
    assert_int_equal(commits + 2, fake_metal()->commits);
    fake_metal()->cut_commit = 0;
    fixture_close(&fixture);
}

/* Of two engines at once, each has what it has alone, and closing one leaves the other. */
static void two_engines_run_beside_each_other(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    const int32_t ids[] = {5, 6, 7};
    struct fixture fixtures[2];
    int32_t expected[2][COUNT];
    static const char *const shapes[2] = {"llama-tiny", "rwkv7-mini"};
    for (int i = 0; i < 2; i++) {
        fixtures[i] = fixture_open(made_model(shapes[i], "Q8_0"), small_options());
        set_greedy(fixtures[i].session);
        int32_t *alone = continuation(fixtures[i].session, ids, 3, COUNT);
        memcpy(expected[i], alone, sizeof expected[i]);
        free(alone);
        ASSERT_OK(salvo_session_rollback(fixtures[i].session, 0));
        ASSERT_OK(salvo_session_feed(fixtures[i].session, ids, 3));
    }
    for (int position = 0; position < COUNT; position++) {
        for (int i = 0; i < 2; i++) {
            int32_t id;
            ASSERT_OK(salvo_session_next(fixtures[i].session, &id));
            assert_int_equal(expected[i][position], id);
        }
    }
    fixture_close(&fixtures[1]);
    ASSERT_OK(salvo_session_feed(fixtures[0].session, ids, 3));
    fixture_close(&fixtures[0]);
}

static void a_model_that_is_too_large_is_refused_with_numbers(void **state)
{
    (void)state;
    const struct salvo_engine_options options = small_options();
    const unsigned long memory = fake_metal()->memory;
    struct salvo_model *model;
    struct salvo_engine *engine;
    ASSERT_OK(salvo_model_open(made_model("llama-mini", "F16"), &model));
    fake_metal()->memory = 1000;
    assert_int_equal(SALVO_ERROR_MEMORY, salvo_engine_open(model, &options, &engine));
    assert_non_null(strstr(salvo_error(), "Emulated Apple GPU recommends at most 0 MB"));
    fake_metal()->memory = memory;
    salvo_model_close(model);
}

/* Weights beyond the largest buffer are in several, which overlap; each matrix is in one of them. */
static void a_file_larger_than_a_buffer_has_several(void **state)
{
    (void)state;
    const unsigned long largest = fake_metal()->largest_buffer;
    const int32_t ids[] = {5, 6, 7};
    struct fixture whole = fixture_open(made_model("llama-tiny", "F32"), small_options());
    fake_metal()->largest_buffer = 420000;
    struct fixture parts = fixture_open(made_model("llama-tiny", "F32"), small_options());
    fake_metal()->largest_buffer = largest;
    set_greedy(whole.session);
    set_greedy(parts.session);
    int32_t *expected = continuation(whole.session, ids, 3, 4),
            *taken = continuation(parts.session, ids, 3, 4);
    assert_memory_equal(expected, taken, 4 * sizeof *taken);
    free(expected);
    free(taken);
    fixture_close(&whole);
    fixture_close(&parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_object_of_opening_can_fail),
        cmocka_unit_test(every_allocation_of_opening_can_fail),
        cmocka_unit_test(an_engine_survives_failed_allocations_of_its_sessions),
        cmocka_unit_test(a_lost_device_is_an_error_and_can_be_opened_again),
        cmocka_unit_test(a_step_that_cannot_be_encoded_is_an_error),
        cmocka_unit_test(a_generation_survives_any_loss),
        cmocka_unit_test(a_file_larger_than_a_buffer_has_several),
        cmocka_unit_test(a_model_that_is_too_large_is_refused_with_numbers),
        cmocka_unit_test(a_file_that_is_cut_is_noticed_before_the_next_step),
        cmocka_unit_test(a_file_that_is_cut_is_noticed_before_the_next_command_buffer),
        cmocka_unit_test(two_engines_run_beside_each_other),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    fake_metal()->records_races =
        0; /* other tests check for races; here the engine is opened hundreds of times */
    return RUN_CHOSEN_TESTS(tests, NULL);
}
