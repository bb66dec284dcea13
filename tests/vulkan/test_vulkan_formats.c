/* Every format of weights, group by group against the CPU. */
#include "vulkan_test.h"

static void every_format_agrees_with_the_cpu(void **state)
{
    (void)state;
    static const char *const mixes[] = {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
        "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        assert_verified(made_model("llama-256", mixes[i]), SALVO_KV_AUTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees_with_the_cpu),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
