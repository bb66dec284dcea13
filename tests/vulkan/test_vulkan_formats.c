/* Every format of weights, group by group against the CPU; how prompts are cut. */
#include "vulkan_test.h"

static void every_format_agrees_with_the_cpu(void **state)
{
    (void)state;
    static const char *const mixes[] = {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
        "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        assert_verified(made_model("llama-mini", mixes[i]), SALVO_KV_AUTO);
}

/* A device that may be reset gets 64 tokens first, then as many as it does in a tenth of a second, at least
 * 16; a processor gets all at once. */
static void long_prompts_are_cut_by_time(void **state)
{
    (void)state;
    const bool is_processor = vulkan_device_at(0)->features.processor;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 160, .batch = 128});
    int32_t *ids = some_ids(128, fixture.vocabulary, 3);
    const uint64_t before = counters_of(fixture.engine).submissions;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 128));
    const uint64_t parts = counters_of(fixture.engine).submissions - before;
    assert_in_range(parts, is_processor ? 1 : 2, is_processor ? 1 : 1 + 64 / 16);
    assert_int_equal(128, salvo_session_position(fixture.session));
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees_with_the_cpu),
        cmocka_unit_test(long_prompts_are_cut_by_time),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
