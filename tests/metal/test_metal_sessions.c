/* Sessions on the Metal backend against the CPU: states that move, copies, batches, masks, embeddings. */
#include "batch_schedule.h"
#include "conversation_checks.h"
#include "copy_checks.h"
#include "embed_checks.h"
#include "mask_checks.h"
#include "metal/find_fake_metal.h"
#include "repeat_checks.h"

static void conversations(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), metal_options(1));
        check_conversations(&fixture, shapes[i]);
        fixture_close(&fixture);
    }
}

static void copies_go_their_own_ways(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct salvo_engine_options options = metal_options(3);
        options.prefix_cache = 1;
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), options);
        check_copies(&fixture);
        fixture_close(&fixture);
    }
}

static void embeddings_are_those_of_the_cpu(void **state)
{
    (void)state;
    assert_true(embedding_difference(made_model("llama-tiny", "F32"), "metal") < 1e-5);
    assert_true(embedding_difference(made_model("rwkv7-mini", "F32"), "metal") < 1e-5);
}

static void masks_and_logprobs(void **state)
{
    (void)state;
    const char *const models[] = {made_model("rwkv7-mini", "F32"), made_model_of("llama-mini", "F32", 3)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture fixture = fixture_open(models[i], metal_options(3));
        check_masks(&fixture);
        fixture_close(&fixture);
    }
}

/* The result of a run of each session, whose masks begin at rows of their own. A mask has one bit, or none if
 * the id is below 0; all bits beyond the vocabulary are set, and nothing may read them. */
static void run_masked(const struct fixture *fixture, struct salvo_session *const sessions[2],
    const int32_t allowed[2], struct salvo_run_result results[2])
{
    enum { MOST_WORDS = 4 };
    uint32_t masks[2][MOST_WORDS] = {{0}};
    struct salvo_run runs[2] = {{0}};
    uint64_t step;
    for (int i = 0; i < 2; i++) {
        for (uint32_t id = fixture->vocabulary; id < 32 * MOST_WORDS; id++)
            masks[i][id / 32] |= UINT32_C(1) << id % 32;
        if (allowed[i] >= 0)
            masks[i][allowed[i] / 32] |= UINT32_C(1) << allowed[i] % 32;
        runs[i] = (struct salvo_run){.session = sessions[i], .mask = masks[i]};
    }
    ASSERT_OK(salvo_engine_submit(fixture->engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(fixture->engine, step, results, 2, sizeof *results));
}

/* A mask of one bit decides the id, whichever it is and however it is sampled, beside an empty mask or one of
 * another bit. */
static void check_lone_bits(uint32_t vocabulary)
{
    const int32_t ids[] = {1, 2}, count = (int32_t)vocabulary;
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    struct fixture fixture = fixture_open(made_model_of("llama-mini", "F32", vocabulary), metal_options(2));
    struct salvo_session *sessions[2] = {fixture.session};
    ASSERT_OK(salvo_session_open(fixture.engine, &sessions[1]));
    for (int i = 0; i < 2; i++)
        ASSERT_OK(salvo_session_feed(sessions[i], ids, 2));
    sampler.temperature = 0.9f;
    sampler.top_k = 0;
    sampler.top_p = 1;
    set_greedy(sessions[0]);
    ASSERT_OK(salvo_session_set_sampler(sessions[1], &sampler));
    for (int32_t id = 0; id < count; id++) {
        const bool is_empty = id % 8 == 5;
        const int32_t allowed[2] = {is_empty ? -1 : id, count - 1 - id};
        struct salvo_run_result results[2];
        const uint32_t position = salvo_session_position(sessions[0]);
        run_masked(&fixture, sessions, allowed, results);
        assert_int_equal(is_empty ? SALVO_ERROR_NUMERIC : SALVO_OK, results[0].status);
        if (!is_empty)
            assert_int_equal(id, results[0].id);
        assert_int_equal(position + !is_empty, salvo_session_position(sessions[0]));
        assert_int_equal(SALVO_OK, results[1].status);
        assert_int_equal(count - 1 - id, results[1].id);
    }
    salvo_session_close(sessions[1]);
    fixture_close(&fixture);
}

static void masks_of_one_bit(void **state)
{
    (void)state;
    check_lone_bits(31);
    check_lone_bits(33); /* the last bit is alone in its word */
}

/* Decoding beside parts of prompts, with steps submitted before the results of the last are known. */
static void mixtures_give_what_each_request_gets_alone(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *path = made_model(shapes[i], "F32");
        struct fixture fixture = fixture_open(path, metal_options(3));
        const struct schedule_report report = run_mixtures(path, &fixture, 2);
        assert_true(report.mixed_steps > 2);
        assert_true(report.idle_runs > 0);
        assert_true(report.cancelled > 0);
        fixture_close(&fixture);
    }
}

static void runs_of_several_tokens_end_one_by_one(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-mini"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct salvo_engine_options options = metal_options(5);
        options.context = REPEAT_CONTEXT;
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), options);
        check_repeats(&fixture);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_several_tokens_end_one_by_one),
        cmocka_unit_test(conversations),
        cmocka_unit_test(copies_go_their_own_ways),
        cmocka_unit_test(embeddings_are_those_of_the_cpu),
        cmocka_unit_test(masks_and_logprobs),
        cmocka_unit_test(masks_of_one_bit),
        cmocka_unit_test(mixtures_give_what_each_request_gets_alone),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
