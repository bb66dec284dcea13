/* The Metal backend at its limits: long and full contexts, penalties of repeated ids, logits that are NaN,
 * unlikely ids, engines and sessions that are closed while steps run, devices whose buffers, memory or
 * pipelines are too small. */
#include "backend/metal/metal_executor.h"
#include "metal/find_fake_metal.h"
#include "model_plan.h"
#include "model_write.h"
#include "program/sampling.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct fixture open_long(const char *backend, const char *path, uint32_t context)
{
    struct salvo_engine_options options = metal_options(1);
    options.backend = backend;
    options.context = context;
    options.batch = 64;
    options.kv_type = SALVO_KV_F32;
    struct fixture fixture = fixture_open(path, options);
    set_greedy(fixture.session);
    return fixture;
}

/* Single tokens behind a context that the CPU has computed. */
static void check_behind(const char *path, uint32_t positions)
{
    enum { MORE = 2 };
    struct fixture metal = open_long("metal", path, positions + MORE),
                   cpu = open_long("cpu", path, positions + MORE);
    int32_t *ids = some_ids(positions + MORE, cpu.vocabulary, 11);
    size_t size;
    ASSERT_OK(salvo_session_feed(cpu.session, ids, positions));
    uint8_t *state = saved_state(cpu.session, &size);
    ASSERT_OK(salvo_session_state_restore(metal.session, state, size));
    for (int i = 0; i < MORE; i++) {
        ASSERT_OK(salvo_session_feed(cpu.session, ids + positions + i, 1));
        ASSERT_OK(salvo_session_feed(metal.session, ids + positions + i, 1));
        const double divergence = divergence_of(
            salvo_session_logits(cpu.session), salvo_session_logits(metal.session), cpu.vocabulary);
        print_message("%u positions: KL divergence %g\n", positions + i + 1, divergence);
        assert_true(divergence < 1e-9);
    }
    free(state);
    free(ids);
    fixture_close(&metal);
    fixture_close(&cpu);
}

static struct model_shape shape_of(const char *name)
{
    const struct model_shape *known = model_shapes;
    while (strcmp(known->name, name) != 0)
        known++;
    return *known;
}

/* Writes a model of another shape beside the one of that name. */
static void write_changed(const struct model_shape *shape, const char *mix_name, char *path, size_t size)
{
    const struct model_mix *mix = model_mixes;
    while (strcmp(mix->name, mix_name) != 0)
        mix++;
    snprintf(path, size, "%s.changed", made_model(shape->name, mix_name));
    ASSERT_OK(model_write(shape, mix, path, 1));
}

/* The same for a model of a known shape with another window, or with heads of which a part rotates. */
static void check_changed(const char *name, uint32_t window, uint32_t rope_dimensions, uint32_t positions)
{
    char path[160];
    struct model_shape shape = shape_of(name);
    shape.window = window;
    shape.rope_dimensions = rope_dimensions;
    shape.context = 1024;
    write_changed(&shape, "F32", path, sizeof path);
    check_behind(path, positions);
    unlink(path);
}

/* From 2048 positions on each of the threadgroups that share a head takes more than 128; with a window the
 * first of them does not begin at position 0. */
static void attention_is_shared_in_long_contexts_and_windows(void **state)
{
    (void)state;
    check_behind(made_model("llama-long", "F32"), 16 * METAL_PART_POSITIONS + 100);
    check_changed("gemma2-tiny", METAL_SPLIT_POSITIONS + 50, 0, 3 * METAL_SPLIT_POSITIONS);
}

/* Pairs of neighbours, and of halves. */
static void a_part_of_each_head_rotates(void **state)
{
    (void)state;
    check_changed("llama-odd", 0, 14, 5);
    check_changed("gemma2-tiny", 4, 10, 5);
}

/* The id that is chosen behind `ids` by a greedy session: 7, which is there three times, has a bias of 1000,
 * 20 has `second`, and 30, the last of `ids`, has a little more. Logits without bias are far smaller. */
static int32_t penalised(struct fixture *fixture, float frequency, float presence, float second)
{
    const int32_t ids[] = {7, 9, 7, 8, 7, 30};
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    int32_t id;
    sampler.temperature = 0;
    sampler.frequency_penalty = frequency;
    sampler.presence_penalty = presence;
    sampler.repeat_last_n = 6;
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    ASSERT_OK(salvo_session_set_sampler(fixture->session, &sampler));
    ASSERT_OK(salvo_session_set_bias(fixture->session, 7, 1000));
    ASSERT_OK(salvo_session_set_bias(fixture->session, 20, second));
    ASSERT_OK(salvo_session_set_bias(fixture->session, 30, second + 25));
    ASSERT_OK(salvo_session_feed(fixture->session, ids, sizeof ids / sizeof *ids));
    ASSERT_OK(salvo_session_next(fixture->session, &id));
    return id;
}

static void penalties_count_repeated_ids_once_each(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    assert_int_equal(20, penalised(&fixture, 50, 0, 900)); /* 850 */
    assert_int_equal(7, penalised(&fixture, 50, 0, 800));
    assert_int_equal(7, penalised(&fixture, 0, 50, 900)); /* 950: the penalty of an id that is there */
    assert_int_equal(20, penalised(&fixture, 0, 50, 980));
    fixture_close(&fixture);
}

/* A NaN reaches sampling as a bias, which the host would refuse: it is written behind its back. */
static void nan_never_wins(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7};
    int32_t id;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_set_bias(fixture.session, 3, 1000));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    float *biases = (float *)(void *)fixture.engine->executor->biases.bytes;
    biases[2] = biases[4] = NAN;
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(3, id);
    }
    for (uint32_t i = 0; i < fixture.vocabulary; i++)
        biases[i] = NAN;
    assert_int_equal(SALVO_ERROR_NUMERIC, salvo_session_next(fixture.session, &id));
    assert_non_null(strstr(salvo_error(), "position 6"));
    fixture_close(&fixture);
}

/* An id whose weight is e^-17 to e^-20 of the largest is chosen where the random number says so. */
static void unlikely_ids_are_chosen_too(void **state)
{
    (void)state;
    enum { MOST_SEEDS = 4000000 };
    const int32_t ids[] = {5, 6, 7};
    struct fixture fixture = fixture_open(made_model_of("llama-mini", "F32", 64), metal_options(1));
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    struct sampler_settings settings = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    struct sampling_candidate scratch[64];
    float logits[64];
    int32_t id, expected = 3;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    memcpy(logits, salvo_session_logits(fixture.session), sizeof logits);
    for (int32_t i = 0; i < 64; i++) { /* 3 has the largest logit, the others are far below */
        const float bias = (i == 3 ? 0 : -16) - logits[i];
        ASSERT_OK(salvo_session_set_bias(fixture.session, i, bias));
        logits[i] += bias;
    }
    for (uint64_t seed = 1; expected == 3 && seed < MOST_SEEDS; seed++) {
        settings.seed = seed;
        expected = sampling_choose(&settings, logits, 64, ids, 3, scratch);
    }
    assert_int_not_equal(3, expected);
    sampler.temperature = 1;
    sampler.top_k = 0;
    sampler.top_p = 1;
    sampler.min_p = 0;
    sampler.repeat_penalty = 1;
    sampler.seed = settings.seed;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_rollback(fixture.session, 2));
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 2, 1));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    assert_int_equal(expected, id);
    fixture_close(&fixture);
}

/* When all runs of a step have ended, its dispatches have no rows. */
static void an_ended_step_has_no_rows(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7}, stop = 11;
    struct salvo_run_result result;
    int32_t chosen[6];
    uint64_t step;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_set_bias(fixture.session, stop, 1000));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    const struct salvo_run run = {
        .session = fixture.session, .tokens = 6, .chosen_ids = chosen, .stop_ids = &stop, .stop_id_count = 1};
    const uint64_t before = counters_of(fixture.engine).bytes_read_back;
    ASSERT_OK(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, &result, 1, sizeof result));
    assert_true(result.ended && result.tokens < 6);
    assert_int_equal(16, counters_of(fixture.engine).bytes_read_back - before);
    const struct executor *executor = fixture.engine->executor;
    const struct step_header *entry = metal_ring_entry(executor, executor->queue.submitted);
    for (int i = 0; i < ROW_KIND_COUNT; i++) {
        assert_int_equal(1, entry->given[i]);
        assert_int_equal(0, entry->live[i]);
    }
    fixture_close(&fixture);
}

/* Steps that nobody waits for, of two sessions of which one is closed first. */
static void an_engine_is_closed_while_its_steps_run(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-mini", "rwkv7-mini"};
    const int32_t ids[] = {5, 6, 7};
    for (int i = 0; i < 4; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i % 2], "Q8_0"), metal_options(2));
        struct salvo_session *other;
        int32_t chosen[4][6];
        uint64_t step;
        ASSERT_OK(salvo_session_open(fixture.engine, &other));
        struct salvo_run runs[2] = {{.session = fixture.session, .tokens = 6, .chosen_ids = chosen[0]},
            {.session = other, .tokens = 6, .chosen_ids = chosen[1]}};
        for (int j = 0; j < 2; j++) {
            set_greedy(runs[j].session);
            ASSERT_OK(salvo_session_feed(runs[j].session, ids, 3));
        }
        ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
        for (int j = 0; j < 2; j++)
            runs[j].chosen_ids = chosen[2 + j];
        ASSERT_OK(salvo_engine_submit(fixture.engine, runs, i < 2 ? 1 : 2, sizeof *runs, &step));
        if (i < 2)
            salvo_session_cancel(other);
        salvo_session_close(other);
        fixture_close(&fixture);
    }
    assert_int_equal(0, fake_metal()->violations);
}

/* A session that is closed leaves the ids of the others as they are, and so does the one that takes its
 * place. */
static void a_session_is_closed_while_another_decodes(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    const int32_t ids[] = {5, 6, 7, 8};
    struct fixture fixture = fixture_open(made_model("llama-mini", "F32"), metal_options(2));
    struct salvo_session *other;
    struct salvo_run_result results[2];
    int32_t chosen[2][COUNT];
    uint64_t step;
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, ids, 4, COUNT + 1);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 4));
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    set_greedy(other);
    free(continuation(other, ids + 1, 3, 2));
    const struct salvo_run runs[2] = {{.session = fixture.session, .tokens = COUNT, .chosen_ids = chosen[0]},
        {.session = other, .tokens = COUNT, .chosen_ids = chosen[1]}};
    ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
    salvo_session_close(other);
    ASSERT_OK(salvo_session_open(fixture.engine, &other));
    ASSERT_OK(salvo_session_copy(other, fixture.session));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 2, sizeof *results));
    for (uint32_t i = 0; i < results[0].id_count; i++)
        assert_int_equal(expected[i + 1], chosen[0][i]); /* feeding chose the first */
    const uint32_t position = salvo_session_position(other);
    assert_memory_equal(ids, salvo_session_tokens(other), sizeof ids);
    assert_memory_equal(expected, salvo_session_tokens(other) + 4, (position - 4) * sizeof *expected);
    free(expected);
    salvo_session_close(other);
    fixture_close(&fixture);
}

/* A prompt as long as the context, of one id and of more, in batches of one and of all. */
static void a_prompt_fills_its_context(void **state)
{
    (void)state;
    static const uint32_t contexts[] = {1, 2, 33};
    for (int i = 0; i < 6; i++) {
        struct fixture fixtures[2];
        const uint32_t count = contexts[i / 2];
        int32_t id;
        for (int j = 0; j < 2; j++) {
            struct salvo_engine_options options = metal_options(1);
            options.backend = j ? "cpu" : "metal";
            options.context = count;
            options.batch = i % 2 ? count : 1;
            fixtures[j] = fixture_open(made_model("llama-odd", "F32"), options);
            int32_t *ids = some_ids(count + 1, fixtures[j].vocabulary, 3);
            set_greedy(fixtures[j].session);
            ASSERT_OK(salvo_session_feed(fixtures[j].session, ids, count));
            assert_int_equal(SALVO_ERROR_CONTEXT, salvo_session_feed(fixtures[j].session, ids, 1));
            assert_int_equal(SALVO_ERROR_CONTEXT, salvo_session_next(fixtures[j].session, &id));
            free(ids);
        }
        const double divergence = divergence_of(salvo_session_logits(fixtures[1].session),
            salvo_session_logits(fixtures[0].session), fixtures[0].vocabulary);
        print_message("%u tokens: KL divergence %g\n", count, divergence);
        assert_true(divergence < 1e-9);
        fixture_close(&fixtures[0]);
        fixture_close(&fixtures[1]);
    }
}

/* Generates in a context with room for `room` tokens behind the prompt. The result is the end's reason. */
static enum salvo_finish generate_to_the_end(const char *backend, const char *path, uint32_t room,
    float temperature, int32_t *out_ids, uint32_t *out_count)
{
    const int32_t ids[] = {0, 0, 0};
    struct salvo_engine_options options = metal_options(1);
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    options.backend = backend;
    options.context = 3 + room;
    struct fixture fixture = fixture_open(path, options);
    sampler.temperature = temperature;
    sampler.seed = 5;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = 100, .ahead = 4, .ignore_end = true},
        &result));
    *out_count = salvo_session_position(fixture.session);
    memcpy(out_ids, salvo_session_tokens(fixture.session), *out_count * sizeof *out_ids);
    fixture_close(&fixture);
    return result.finish;
}

/* Contexts that end within a step of four tokens or with it, and vocabularies of an id and of many. */
static void a_generation_fills_its_context(void **state)
{
    (void)state;
    enum { MOST = 3 + 10 };
    static const char *const shapes[] = {"llama-mini", "rwkv7-mini"};
    static const uint32_t vocabularies[] = {1, 33, 2049};
    for (uint32_t i = 0; i < 12; i++) {
        int32_t taken[MOST], expected[MOST];
        uint32_t counts[2];
        const char *path = made_model_of(shapes[i % 2], "F32", vocabularies[i / 2 % 3]);
        const uint32_t room = 5 + i / 2;
        const float temperature = i < 6 ? 0 : 0.8f;
        assert_int_equal(generate_to_the_end("cpu", path, room, temperature, expected, &counts[0]),
            generate_to_the_end("metal", path, room, temperature, taken, &counts[1]));
        assert_int_equal(counts[0], counts[1]);
        assert_int_equal(3 + room, counts[1]);
        assert_memory_equal(expected, taken, counts[0] * sizeof *taken);
    }
}

static void check_refused(const char *path, enum salvo_status expected, const char *text)
{
    const struct salvo_engine_options options = metal_options(1);
    struct salvo_model *model;
    struct salvo_engine *engine;
    ASSERT_OK(salvo_model_open(path, &model));
    assert_int_equal(expected, salvo_engine_open(model, &options, &engine));
    if (!strstr(salvo_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, salvo_error());
    salvo_model_close(model);
}

/* Everything that the engine allocates counts, to the byte. */
static void memory_up_to_the_working_set_is_enough(void **state)
{
    (void)state;
    const char *path = made_model("llama-tiny", "F16");
    const unsigned long memory = fake_metal()->memory;
    struct fixture fixture = fixture_open(path, metal_options(1));
    const struct backend_counters counted = fixture.engine->executor->counters;
    const uint64_t bytes = counted.weight_bytes + counted.state_bytes + counted.scratch_bytes;
    /* Timing of matmuls counts as nothing. */
    assert_int_equal(0, counted.submissions);
    assert_int_equal(0, counted.dispatches);
    assert_int_equal(0, counted.barriers);
    fixture_close(&fixture);
    fake_metal()->memory = bytes;
    fixture = fixture_open(path, metal_options(1));
    fixture_close(&fixture);
    fake_metal()->memory = bytes - 1;
    check_refused(path, SALVO_ERROR_MEMORY, "recommends at most");
    fake_metal()->memory = memory;
}

/* Timing of matmuls and earlier steps leave their numbers there; NaN would spread. */
static void scratch_is_written_before_it_is_read(void **state)
{
    (void)state;
    enum { COUNT = 14, TOGETHER = 11 };
    static const char *const shapes[] = {"llama-odd", "rwkv7-mini"};
    for (int i = 0; i < 4; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i / 2], "F32"), metal_options(1));
        int32_t *ids = some_ids(COUNT, fixture.vocabulary, 13);
        static float logits[2][512];
        const struct metal_buffer *arena = &fixture.engine->executor->arena;
        if (i % 2)
            memset(arena->bytes, 0xff, arena->size);
        ASSERT_OK(salvo_session_feed(fixture.session, ids, TOGETHER));
        for (uint32_t j = TOGETHER; j < COUNT; j++)
            ASSERT_OK(salvo_session_feed(fixture.session, ids + j, 1));
        memcpy(logits[i % 2], salvo_session_logits(fixture.session), fixture.vocabulary * sizeof(float));
        if (i % 2)
            assert_memory_equal(logits[0], logits[1], fixture.vocabulary * sizeof(float));
        free(ids);
        fixture_close(&fixture);
    }
}

/* On a device that takes the same time for each row, the first shape is as fast as the others. */
static void shapes_are_timed_with_equally_many_rows(void **state)
{
    (void)state;
    char path[160];
    struct model_shape shape = shape_of("llama-mini");
    shape.feed_forward = 8192;
    write_changed(&shape, "F16", path, sizeof path);
    fake_metal()->row_ns = 1000;
    struct fixture fixture = fixture_open(path, metal_options(1));
    fake_metal()->row_ns = 0;
    const struct executor *executor = fixture.engine->executor;
    assert_true(executor->choice_count > 1);
    for (uint32_t i = 0; i < executor->choice_count; i++) {
        const struct matmul_choice *choice = &executor->choices[i];
        assert_int_equal(1, choice->shape.rows);
        assert_int_equal(metal_sums_for(choice->kind.columns), choice->shape.sums);
    }
    fixture_close(&fixture);
    unlink(path);
}

static void what_no_buffer_has_room_for_is_refused(void **state)
{
    (void)state;
    const unsigned long largest = fake_metal()->largest_buffer;
    fake_metal()->largest_buffer = 65536;
    check_refused(made_model("llama-tiny", "F32"), SALVO_ERROR_UNSUPPORTED,
        "a buffer of Emulated Apple GPU has 0 MB at most");
    check_refused(made_model_of("llama-mini", "Q2_K", 64), SALVO_ERROR_MEMORY, "ask for a smaller batch");
    /* The largest buffer of this model fits, or lacks a byte. */
    const char *path = made_model_of("llama-mini", "Q2_K", 64);
    fake_metal()->largest_buffer = largest;
    struct fixture fixture = fixture_open(path, metal_options(1));
    const struct executor *executor = fixture.engine->executor;
    uint64_t most = executor->arena.size;
    for (uint32_t i = 0; i < fixture.engine->program->buffer_count; i++)
        most = executor->kv_pages[i].size > most ? executor->kv_pages[i].size : most;
    fixture_close(&fixture);
    fake_metal()->largest_buffer = most;
    fixture = fixture_open(path, metal_options(1));
    fixture_close(&fixture);
    fake_metal()->largest_buffer = most - 1;
    check_refused(path, SALVO_ERROR_MEMORY, "ask for a smaller batch");
    fake_metal()->largest_buffer = largest;
}

static void pipelines_that_are_too_small_are_refused(void **state)
{
    (void)state;
    const char *path = made_model("llama-tiny", "F32");
    fake_metal()->most_threads = 255; /* sampling takes 256 */
    check_refused(path, SALVO_ERROR_UNSUPPORTED, "sample runs with 255 threads");
    fake_metal()->most_threads = 1024;
    fake_metal()->simd_width = 64;
    check_refused(path, SALVO_ERROR_UNSUPPORTED, "in simdgroups of 64");
    fake_metal()->simd_width = 32;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_shared_in_long_contexts_and_windows),
        cmocka_unit_test(a_part_of_each_head_rotates),
        cmocka_unit_test(penalties_count_repeated_ids_once_each),
        cmocka_unit_test(nan_never_wins),
        cmocka_unit_test(unlikely_ids_are_chosen_too),
        cmocka_unit_test(an_ended_step_has_no_rows),
        cmocka_unit_test(an_engine_is_closed_while_its_steps_run),
        cmocka_unit_test(a_session_is_closed_while_another_decodes),
        cmocka_unit_test(a_prompt_fills_its_context),
        cmocka_unit_test(a_generation_fills_its_context),
        cmocka_unit_test(memory_up_to_the_working_set_is_enough),
        cmocka_unit_test(scratch_is_written_before_it_is_read),
        cmocka_unit_test(shapes_are_timed_with_equally_many_rows),
        cmocka_unit_test(what_no_buffer_has_room_for_is_refused),
        cmocka_unit_test(pipelines_that_are_too_small_are_refused),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    fake_metal()->records_races = 0; /* other tests check for races, in shorter contexts */
    return RUN_CHOSEN_TESTS(tests, NULL);
}
