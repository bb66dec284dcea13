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
        cmocka_unit_test(mixtures_give_what_each_request_gets_alone),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
