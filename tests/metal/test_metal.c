/* The Metal backend: sampling, and the promises of backend.h. */
#include "backend/metal/metal_shared.h"
#include "conversation_checks.h"
#include "metal/find_fake_metal.h"

static void ids_are_chosen_as_sampling_defines(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    check_sampling(&fixture);
    fixture_close(&fixture);
}

static void a_bias_counts(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    check_bias(&fixture);
    fixture_close(&fixture);
}

/* The host would drop ids behind a stop id; the device does not compute them, nor those of a step behind it,
 * be the stop id the last of its step or not. */
static void the_device_stops_at_a_stop_id(void **state)
{
    (void)state;
    enum { MOST = 6 };
    const int32_t ids[] = {5, 6, 7}, stop = 11;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    struct salvo_run_result results[2];
    int32_t chosen[2][MOST];
    uint64_t steps[2];
    uint32_t tokens = MOST;
    set_greedy(fixture.session);
    for (int round = 0; round < 2; round++) {
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        ASSERT_OK(salvo_session_set_bias(fixture.session, stop, 0));
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
        ASSERT_OK(
            salvo_session_set_bias(fixture.session, stop, 1000)); /* the first id was chosen without it */
        const uint64_t before = computed_tokens(&fixture);
        for (int i = 0; i < 2; i++) {
            const struct salvo_run run = {.session = fixture.session,
                .tokens = tokens,
                .chosen_ids = chosen[i],
                .stop_ids = &stop,
                .stop_id_count = 1};
            ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &steps[i]));
        }
        for (int i = 0; i < 2; i++)
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[i], &results[i], 1, sizeof *results));
        assert_true(results[0].ended && results[0].id == stop);
        assert_int_equal(0, results[1].id_count);
        assert_int_equal(results[0].tokens, computed_tokens(&fixture) - before);
        assert_true(results[0].tokens < MOST);
        tokens = results[0].tokens;
    }
    fixture_close(&fixture);
}

static void a_run_that_misses_its_position_samples_nothing(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(2));
    check_missed_position(&fixture);
    fixture_close(&fixture);
}

/* Eight tokens are one command buffer with one encoder, once the device's time for a token is known. */
static void several_tokens_are_one_command_buffer(void **state)
{
    (void)state;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    const int32_t ids[] = {5, 6, 7};
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    free(continuation(fixture.session, ids, 0, 5));
    const struct fake_metal earlier = *fake_metal();
    const struct salvo_counters before = counters_of(fixture.engine);
    fake_metal()->most_waiting = 0;
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = 40, .ignore_end = true},
        &result));
    const struct salvo_counters after = counters_of(fixture.engine);
    assert_int_equal(40, result.tokens);
    assert_int_equal(5, after.submissions - before.submissions);
    assert_int_equal(5, fake_metal()->commits - earlier.commits);
    assert_int_equal(5, fake_metal()->encoders - earlier.encoders);
    assert_int_equal(2, fake_metal()->most_waiting);
    assert_int_equal(after.dispatches - before.dispatches, fake_metal()->dispatches - earlier.dispatches);
    /* In each of two layers: attention with norm, query, key, value, ropes and append, its output, gate and
     * up with norm and product, down; around them: begin, embed, select_rows, logits, sample. */
    assert_int_equal(40 * (2 * 4 + 5), after.dispatches - before.dispatches);
    assert_int_equal(after.barriers - before.barriers, fake_metal()->barriers - earlier.barriers);
    assert_true(after.barriers - before.barriers < after.dispatches - before.dispatches);
    assert_int_equal(0, after.allocations_after_load);
    fixture_close(&fixture);
}

static struct fixture fed_fixture(const char *backend, const int32_t *ids, uint32_t count)
{
    struct salvo_engine_options options = metal_options(1);
    options.backend = backend;
    options.context = 2 * METAL_SPLIT_POSITIONS;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), options);
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, count));
    return fixture;
}

static uint64_t dispatches_of(struct fixture *fixture, uint32_t tokens)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const uint64_t before = counters_of(fixture->engine).dispatches;
    ASSERT_OK(salvo_session_generate(fixture->session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = tokens, .ignore_end = true},
        &result));
    assert_int_equal(tokens, result.tokens);
    return counters_of(fixture->engine).dispatches - before;
}

/* Attention becomes five dispatches within a command buffer: query, key and value, its parts, and their sum.
 */
static void attention_is_split_from_a_position_on(void **state)
{
    (void)state;
    enum { COUNT = 8, SPLIT = 3, LAYERS = 2, FED = METAL_SPLIT_POSITIONS - 2 * COUNT + SPLIT };
    int32_t *ids = some_ids(FED, 331, 3), ours, theirs;
    fake_metal()->records_races = 0;
    struct fixture fixture = fed_fixture("metal", ids, FED), cpu = fed_fixture("cpu", ids, FED);
    fake_metal()->records_races = 1;
    const uint64_t before = dispatches_of(&fixture, COUNT), across = dispatches_of(&fixture, COUNT);
    /* The feed has chosen the first id, so the first of them computes one token less. */
    assert_int_equal(before / (COUNT - 1) * COUNT + SPLIT * LAYERS * 4, across);
    (void)dispatches_of(&cpu, 2 * COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        ASSERT_OK(salvo_session_next(fixture.session, &ours));
        ASSERT_OK(salvo_session_next(cpu.session, &theirs));
        assert_int_equal(theirs, ours);
    }
    free(ids);
    fixture_close(&fixture);
    fixture_close(&cpu);
}

/* The host measures how long the device takes for a token, and puts fewer of them into a command buffer. A
 * new engine has measured nothing and begins with one token. */
static void command_buffers_of_a_slow_device_are_short(void **state)
{
    (void)state;
    enum { COUNT = 24, MILLISECOND = 1000000 };
    const int32_t ids[] = {5, 6, 7};
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    static const unsigned long dispatch_ns[] = {MILLISECOND, MILLISECOND / 5};
    const unsigned long usual = fake_metal()->dispatch_ns;
    fake_metal()->longest_ns = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fake_metal()->dispatch_ns = dispatch_ns[i];
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), metal_options(1));
        set_greedy(fixture.session);
        free(continuation(fixture.session, ids, 3, 5));
        const unsigned long before = fake_metal()->commits;
        (void)dispatches_of(&fixture, COUNT);
        print_message("%s: %u tokens in %lu command buffers, the longest of %lu ms\n", shapes[i], COUNT,
            fake_metal()->commits - before, fake_metal()->longest_ns / MILLISECOND);
        assert_in_range(fake_metal()->longest_ns, 40 * MILLISECOND, 100 * MILLISECOND);
        assert_in_range(fake_metal()->commits - before, COUNT / 4, COUNT - 1);
        fixture_close(&fixture);
    }
    fake_metal()->dispatch_ns = usual;
}

/* Before macOS 15 there are no residency sets. */
static void buffers_are_resident(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    /* Buffers of the executor, one over the file, and the keys and values of two layers. */
    assert_int_equal(13 + 1 + 4, fake_metal()->resident);
    assert_int_equal(0, fake_metal()->violations);
    fixture_close(&fixture);
    assert_int_equal(0, fake_metal()->resident);
    fake_metal()->hidden_method = "newResidencySetWithDescriptor:error:";
    fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    fake_metal()->hidden_method = NULL;
    assert_int_equal(0, fake_metal()->resident);
    fixture_close(&fixture);
}

/* Attention and matmuls may use fast math; before macOS 15, where it has no infinities, nothing does. */
static void only_some_kernels_use_fast_math(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7};
    enum { COUNT = 8 };
    const unsigned long before = fake_metal()->fast_functions;
    struct fixture fast = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    const unsigned long between = fake_metal()->fast_functions;
    fake_metal()->hidden_method = "setMathMode:";
    struct fixture exact = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    fake_metal()->hidden_method = NULL;
    assert_true(between > before);
    assert_int_equal(between, fake_metal()->fast_functions);
    assert_int_equal(0, fake_metal()->violations);
    set_greedy(fast.session);
    set_greedy(exact.session);
    int32_t *expected = continuation(exact.session, ids, 3, COUNT),
            *taken = continuation(fast.session, ids, 3, COUNT);
    assert_memory_equal(expected, taken, COUNT * sizeof *taken);
    free(expected);
    free(taken);
    fixture_close(&fast);
    fixture_close(&exact);
}

/* The logits after each of some ids, which are steps of their own; freed by free. */
static float *logits_one_by_one(struct fixture *fixture, const int32_t *ids, uint32_t count)
{
    float *logits = calloc((size_t)count * fixture->vocabulary, sizeof *logits);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT_OK(salvo_session_feed(fixture->session, ids + i, 1));
        memcpy(logits + (size_t)i * fixture->vocabulary, salvo_session_logits(fixture->session),
            fixture->vocabulary * sizeof *logits);
    }
    return logits;
}

/* The fastest shape of a matmul is used, and all shapes give the same bits, which no rounding of activations
 * hides. */
static void results_do_not_depend_on_the_time(void **state)
{
    (void)state;
    static const unsigned long shapes[][3] = {
        {1, 2, 1}, {2, 2, 1}, {4, 2, 1}, {2, 4, 1}, {1, 2, 2}, {2, 2, 2}, {4, 2, 2}, {2, 4, 2}};
    enum { COUNT = 3 };
    int32_t *ids = some_ids(COUNT, 64, 9);
    float *expected = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fake_metal()->quick_rows = shapes[i][0];
        fake_metal()->quick_simdgroups = shapes[i][1];
        fake_metal()->quick_sums = shapes[i][2];
        struct fixture fixture = fixture_open(made_model("llama-odd", "F32"), metal_options(1));
        const unsigned long before = fake_metal()->quick_dispatches;
        float *logits = logits_one_by_one(&fixture, ids, COUNT);
        assert_true(fake_metal()->quick_dispatches > before + COUNT);
        if (expected)
            assert_memory_equal(expected, logits, COUNT * fixture.vocabulary * sizeof *logits);
        free(expected);
        expected = logits;
        fixture_close(&fixture);
    }
    fake_metal()->quick_rows = 0;
    free(expected);
    free(ids);
}

/* Activations of F16 matrices are rounded to F16, by simdgroup matrices as by sums of single rows. */
static void tiles_round_as_single_rows(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    struct salvo_engine_options options = metal_options(1);
    options.kv_type = SALVO_KV_F32;
    struct fixture fixture = fixture_open(made_model("llama-mini", "F16"), options);
    int32_t *ids = some_ids(COUNT, fixture.vocabulary, 17);
    float *tiles = logits_by_chunks(&fixture, ids, COUNT, COUNT),
          *rows = logits_by_chunks(&fixture, ids, COUNT, 1);
    const size_t last = (size_t)(COUNT - 1) * fixture.vocabulary;
    const double divergence = divergence_of(rows + last, tiles + last, fixture.vocabulary);
    print_message("KL divergence %g\n", divergence);
    assert_true(divergence < 1e-9);
    free(tiles);
    free(rows);
    free(ids);
    fixture_close(&fixture);
}

static void auto_does_not_take_it(void **state)
{
    (void)state;
    struct salvo_engine_options options = metal_options(1);
    options.backend = "auto";
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), options);
    assert_string_not_equal("metal", salvo_engine_info(fixture.engine)->backend);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_chosen_as_sampling_defines),
        cmocka_unit_test(a_bias_counts),
        cmocka_unit_test(the_device_stops_at_a_stop_id),
        cmocka_unit_test(a_run_that_misses_its_position_samples_nothing),
        cmocka_unit_test(several_tokens_are_one_command_buffer),
        cmocka_unit_test(attention_is_split_from_a_position_on),
        cmocka_unit_test(command_buffers_of_a_slow_device_are_short),
        cmocka_unit_test(buffers_are_resident),
        cmocka_unit_test(only_some_kernels_use_fast_math),
        cmocka_unit_test(results_do_not_depend_on_the_time),
        cmocka_unit_test(tiles_round_as_single_rows),
        cmocka_unit_test(auto_does_not_take_it),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
