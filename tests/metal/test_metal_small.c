/* Small models from prompt to text and group by group against the CPU, in seconds also on an emulated CPU:
 * arguments of messages, structures among them, are passed differently on each CPU. */
#include "metal/prompt_to_text.h"

/* Greedy continuations in steps of one token, then eight tokens in one command buffer. */
static void text_is_that_of_the_cpu(const char *shape)
{
    enum { ALONE = 5, TOGETHER = 8 };
    const char *path = made_model_with_vocabulary(shape, "F32");
    struct fixture metal = open_on(path, "metal"), cpu = open_on(path, "cpu");
    char *ours = continued(&metal, "hello world", ALONE), *theirs = continued(&cpu, "hello world", ALONE);
    assert_string_equal(theirs, ours);
    check_command_buffers(&metal, TOGETHER, 1);
    generate(&cpu, TOGETHER);
    const uint32_t position = salvo_session_position(cpu.session);
    assert_int_equal(position, salvo_session_position(metal.session));
    assert_memory_equal(
        salvo_session_tokens(cpu.session), salvo_session_tokens(metal.session), position * sizeof(int32_t));
    free(ours);
    free(theirs);
    fixture_close(&metal);
    fixture_close(&cpu);
}

static void a_llama_writes_what_the_cpu_writes(void **state)
{
    (void)state;
    text_is_that_of_the_cpu("llama-tiny");
}

static void a_recurrence_writes_what_the_cpu_writes(void **state)
{
    (void)state;
    text_is_that_of_the_cpu("rwkv7-mini");
}

/* One row and several rows of quantised weights. */
static void each_group_agrees_with_the_cpu(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 9, 2, 7};
    assert_true(
        verify_against_cpu("metal", made_model("llama-mini", "Q4_K"), SALVO_KV_AUTO, ids, 4).outputs > 20);
    assert_true(
        verify_against_cpu("metal", made_model("rwkv7-tiny", "Q8_0"), SALVO_KV_AUTO, ids, 4).outputs > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_writes_what_the_cpu_writes),
        cmocka_unit_test(a_recurrence_writes_what_the_cpu_writes),
        cmocka_unit_test(each_group_agrees_with_the_cpu),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
