/* The Vulkan backend against the CPU: whole programs, sampling, states that move, and what it promises. */
#include "batch_schedule.h"
#include "conversation_checks.h"
#include "copy_checks.h"
#include "embed_checks.h"
#include "mask_checks.h"
#include "repeat_checks.h"
#include "vulkan_test.h"

#include "backend/vulkan/vulkan_executor.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static struct fixture open_on(const char *backend, const char *path, uint32_t sessions)
{
    return fixture_open(path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                  .backend = backend,
                                  .context = 128,
                                  .batch = 32,
                                  .sessions = sessions,
                                  .threads = 2});
}

enum { SESSIONS = 3 };

/* llama-tiny and rwkv7-mini in F32. The tests share an engine of each: where the device is a processor,
 * opening compiles shaders for seconds. */
static struct fixture tiny, recurrent;

/* With a new session. */
static void open_shared(struct fixture *fixture, const char *shape)
{
    if (!fixture->engine) {
        *fixture = open_on("vulkan", made_model(shape, "F32"), SESSIONS);
        return;
    }
    salvo_session_close(fixture->session);
    ASSERT_OK(salvo_session_open(fixture->engine, &fixture->session));
}

static void open_tiny(void)
{
    open_shared(&tiny, "llama-tiny");
}

static void nothing_is_reported_after_closing(void **state)
{
    if (tiny.engine)
        fixture_close(&tiny);
    if (recurrent.engine)
        fixture_close(&recurrent);
    no_validation_messages(state);
}

static void programs_of_llama_in_floats_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_verified(made_model("llama-odd", "F32"), SALVO_KV_AUTO);
}

static void programs_of_llama_in_blocks_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_verified(made_model("llama-odd", "Q4_0"), SALVO_KV_F16);
    assert_verified_with(
        made_model("llama-tiny", "Q4_0"), SALVO_KV_F32, 200); /* more positions than threads */
}

static void programs_of_rwkv7_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_verified(made_model("rwkv7-256", "Q4_K_M"), SALVO_KV_AUTO);
}

static void bytes_in_the_cache_agree_with_the_cpu(void **state)
{
    (void)state;
    assert_verified(made_model("llama-tiny", "F32"), SALVO_KV_Q8_0);
}

static void ids_are_chosen_as_sampling_defines(void **state)
{
    (void)state;
    open_tiny();
    check_sampling(&tiny);
}

static void a_bias_counts(void **state)
{
    (void)state;
    open_tiny();
    check_bias(&tiny);
}

/* Devices may limit workgroups to 1024 invocations. */
static void check_workgroups(const struct fixture *fixture)
{
    const struct vulkan_pipelines *pipelines = &fixture->engine->executor->pipelines;
    assert_true(pipelines->count > 5);
    for (uint32_t i = 0; i < pipelines->count; i++)
        assert_in_range(pipelines->made[i].constants.threads, 1, 1024);
}

static void conversations_of_llama(void **state)
{
    (void)state;
    open_tiny();
    check_workgroups(&tiny);
    check_conversations(&tiny, "llama-tiny");
}

static void conversations_of_rwkv7(void **state)
{
    (void)state;
    open_shared(&recurrent, "rwkv7-mini");
    check_workgroups(&recurrent);
    check_conversations(&recurrent, "rwkv7-mini");
}

/* Several sessions in one step get what each gets alone on the CPU. */
static void sessions_share_a_step(void **state)
{
    (void)state;
    open_tiny();
    struct fixture alone = open_on("cpu", made_model("llama-tiny", "F32"), SESSIONS);
    struct salvo_session *sessions[SESSIONS] = {tiny.session}, *others[SESSIONS] = {alone.session};
    int32_t ids[SESSIONS], expected[SESSIONS];
    enum salvo_status statuses[SESSIONS];
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (i) {
            ASSERT_OK(salvo_session_open(tiny.engine, &sessions[i]));
            ASSERT_OK(salvo_session_open(alone.engine, &others[i]));
        }
        int32_t *prompt = some_ids(4 + 3 * i, tiny.vocabulary, i);
        set_greedy(sessions[i]);
        set_greedy(others[i]);
        ASSERT_OK(salvo_session_feed(sessions[i], prompt, 4 + 3 * i));
        ASSERT_OK(salvo_session_feed(others[i], prompt, 4 + 3 * i));
        free(prompt);
    }
    for (int round = 0; round < 5; round++) {
        ASSERT_OK(salvo_engine_next(sessions, SESSIONS, ids, statuses));
        ASSERT_OK(salvo_engine_next(others, SESSIONS, expected, statuses));
        assert_memory_equal(expected, ids, sizeof ids);
    }
    for (uint32_t i = 1; i < SESSIONS; i++)
        salvo_session_close(sessions[i]);
    fixture_close(&alone);
}

static void embeddings_are_those_of_the_cpu(void **state)
{
    (void)state;
    assert_true(embedding_difference(made_model("llama-tiny", "F32"), "vulkan") < 1e-5);
    assert_true(embedding_difference(made_model("rwkv7-mini", "F32"), "vulkan") < 1e-5);
}

static void copies_go_their_own_ways(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                .backend = "vulkan",
                .context = 128,
                .batch = 32,
                .sessions = 3,
                .prefix_cache = 1});
        check_copies(&fixture);
        fixture_close(&fixture);
    }
}

static void masks_and_logprobs(void **state)
{
    (void)state;
    const char *const models[] = {made_model("rwkv7-mini", "F32"), made_model_of("llama-mini", "F32", 3),
        made_model_of("llama-mini", "Q8_0", 8195)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture fixture =
            fixture_open(models[i], (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                        .backend = "vulkan",
                                        .context = 64,
                                        .batch = 32,
                                        .sessions = 3});
        check_masks(&fixture);
        fixture_close(&fixture);
    }
}

/* Decoding beside parts of prompts, with steps submitted before the results of the last are known. */
static void mixtures_give_what_each_request_gets_alone(void **state)
{
    (void)state;
    static const struct {
        struct fixture *fixture;
        const char *shape;
    } models[] = {{&tiny, "llama-tiny"}, {&recurrent, "rwkv7-mini"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        open_shared(models[i].fixture, models[i].shape);
        const struct schedule_report report =
            run_mixtures(made_model(models[i].shape, "F32"), models[i].fixture, SESSIONS);
        assert_true(report.mixed_steps > 5);
        assert_true(report.idle_runs > 0);
        assert_true(report.cancelled > 0);
        assert_true(report.longer_runs > 5);
    }
}

static void runs_of_several_tokens_end_one_by_one(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                .backend = "vulkan",
                .context = REPEAT_CONTEXT,
                .batch = 32,
                .sessions = 5});
        check_repeats(&fixture);
        fixture_close(&fixture);
    }
}

/* One submission of several dispatches a token, fewer barriers, and no allocation after loading. */
static void a_token_is_one_submission(void **state)
{
    (void)state;
    open_tiny();
    int32_t *ids = some_ids(8, tiny.vocabulary, 3);
    set_greedy(tiny.session);
    ASSERT_OK(salvo_session_feed(tiny.session, ids, 8));
    struct salvo_counters before = counters_of(tiny.engine);
    free(continuation(tiny.session, ids, 0, 10));
    struct salvo_counters after = counters_of(tiny.engine);
    assert_in_range(after.submissions - before.submissions, 9, 10);
    assert_int_equal(after.submissions - before.submissions, after.tokens - before.tokens);
    const uint64_t dispatches = after.dispatches - before.dispatches;
    assert_true(dispatches > after.tokens - before.tokens && after.barriers - before.barriers < dispatches);
    assert_int_equal(0, after.allocations_after_load);
    free(ids);
}

/* How many steps were complete when the first text came. */
struct first_text {
    const struct executor *executor;
    uint64_t completed;
    bool has_come;
};

static bool note_first_text(void *user, const char *text, size_t size)
{
    struct first_text *first = user;
    (void)text;
    (void)size;
    if (!first->has_come)
        first->completed = first->executor->queue.completed;
    first->has_come = true;
    return true;
}

static void a_run_that_misses_its_position_samples_nothing(void **state)
{
    (void)state;
    open_tiny();
    check_missed_position(&tiny);
}

/* The next token is handed over before the id of the last is read: the host waits at the beginning alone. */
static void steps_are_on_their_way_together(void **state)
{
    (void)state;
    /* Submissions for 40 tokens; the step of the prompt may have chosen the first one. */
    static const struct {
        uint32_t ahead, least, most;
    } cases[] = {{1, 39, 40}, {5, 8, 8}, {0, 5, 5}};
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = fixture_open(made_model_with_vocabulary("llama-tiny", "F32"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 192, .batch = 8});
    const bool is_unlimited = fixture.engine->executor->device.physical->features.processor;
    const int32_t ids[] = {5, 6, 7};
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 3));
    ASSERT_OK(salvo_engine_measure_idle(fixture.engine, true));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct first_text first = {.executor = fixture.engine->executor};
        const uint64_t completed = first.executor->queue.completed;
        const struct salvo_generate_options options = {.size = sizeof(struct salvo_generate_options),
            .max_tokens = 40,
            .ignore_end = true,
            .ahead = cases[i].ahead,
            .text = note_first_text,
            .user = &first};
        struct salvo_counters before = counters_of(fixture.engine);
        ASSERT_OK(salvo_session_generate(fixture.session, &options, &result));
        struct salvo_counters after = counters_of(fixture.engine);
        assert_int_equal(40, result.tokens);
        assert_true(first.has_come && first.completed - completed <= 1);
        assert_in_range(
            after.submissions - before.submissions, cases[i].least, is_unlimited ? cases[i].most : 40);
        assert_in_range(after.waits - before.waits, 1, 2);
        assert_true(after.idle_seconds > before.idle_seconds);
        assert_int_equal(0, after.allocations_after_load);
    }
    fixture_close(&fixture);
}

/* The cache of pipelines is not necessary. After a failure all objects are destroyed; the validation layer
 * reports leaks. */
static void long_every_allocation_of_opening_can_fail(void **state)
{
    (void)state;
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 32, .batch = 1};
    uint64_t count;
    const uint64_t failures = opening_failures(made_model("llama-tiny", "Q4_0"), &options, &count);
    print_message(
        "%llu of %llu allocations are needed\n", (unsigned long long)failures, (unsigned long long)count);
    assert_true(failures > 20);
}

static void processors_are_used_only_when_asked_for(void **state)
{
    (void)state;
    struct fixture fixture = open_on("auto", made_model("llama-tiny", "F32"), 1);
    if (vulkan_device_at(0)->type == VK_PHYSICAL_DEVICE_TYPE_CPU)
        assert_string_not_equal("vulkan", salvo_engine_info(fixture.engine)->backend);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_llama_in_floats_agree_with_the_cpu),
        cmocka_unit_test(programs_of_llama_in_blocks_agree_with_the_cpu),
        cmocka_unit_test(programs_of_rwkv7_agree_with_the_cpu),
        cmocka_unit_test(bytes_in_the_cache_agree_with_the_cpu),
        cmocka_unit_test(ids_are_chosen_as_sampling_defines),
        cmocka_unit_test(a_bias_counts),
        cmocka_unit_test(conversations_of_llama),
        cmocka_unit_test(conversations_of_rwkv7),
        cmocka_unit_test(sessions_share_a_step),
        cmocka_unit_test(copies_go_their_own_ways),
        cmocka_unit_test(embeddings_are_those_of_the_cpu),
        cmocka_unit_test(masks_and_logprobs),
        cmocka_unit_test(runs_of_several_tokens_end_one_by_one),
        cmocka_unit_test(mixtures_give_what_each_request_gets_alone),
        cmocka_unit_test(a_token_is_one_submission),
        cmocka_unit_test(a_run_that_misses_its_position_samples_nothing),
        cmocka_unit_test(steps_are_on_their_way_together),
        cmocka_unit_test(long_every_allocation_of_opening_can_fail),
        cmocka_unit_test(processors_are_used_only_when_asked_for),
        cmocka_unit_test(nothing_is_reported_after_closing),
    };
    return RUN_VULKAN_TESTS(tests);
}
