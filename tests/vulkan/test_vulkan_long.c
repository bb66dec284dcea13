/* Long sessions, and a real model: SmolLM2 continues as its reference does, and what it chooses is what the
 * CPU chooses wherever that is not a matter of rounding. */
#include "vulkan_test.h"

#include "smollm2_continuations.h"
#include "turn_checks.h"
#include "unit/text_data.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS = LONG_RUN(400) };

static void hundreds_of_turns_are_one_pass(void **state)
{
    (void)state;
    /* Software devices are slow where the context is long. */
    check_turns("vulkan", made_model("llama-tiny", "Q8_0"), TURNS, TURNS / 4);
    check_turns("vulkan", made_model("rwkv7-tiny", "F32"), TURNS, TURNS);
}

/* ---- SmolLM2 ---- */

static void smollm2_continues_as_its_reference(void **state)
{
    (void)state;
    const char *path = default_model_path();
    if (!path)
        skip();
    check_smollm2_continuations(path,
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 64, .batch = 16});
}

/* Beside weights and state, with the usual context and batch. */
static void smollm2_takes_at_most_200_megabytes_more(void **state)
{
    (void)state;
    const char *path = default_model_path();
    if (!path)
        skip();
    struct fixture fixture = fixture_open(path,
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .backend = "vulkan"});
    const struct salvo_engine_info info = *salvo_engine_info(fixture.engine);
    print_message("weights %llu, state %llu, scratch %llu bytes\n", (unsigned long long)info.weight_bytes,
        (unsigned long long)info.state_bytes, (unsigned long long)info.scratch_bytes);
    assert_in_range(info.weight_bytes, 80000000, 120000000); /* the file has 98 MB */
    assert_in_range(info.scratch_bytes, 1, 200000000);
    assert_true(info.memory_free > 0);
    fixture_close(&fixture);
}

/* The device reads the ids that the CPU backend generated. */
static void smollm2_fed_the_cpus_ids_chooses_the_same(void **state)
{
    (void)state;
    enum { PROMPT = 4, COUNT = 32 };
    const int32_t prompt[PROMPT] = {504, 3575, 282, 4649};
    const char *path = default_model_path();
    uint32_t clear = 0;
    if (!path)
        skip();
    struct fixture cpu = fixture_open(path,
                       (struct salvo_engine_options){
                           .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = 64}),
                   fixture = fixture_open(
                       path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                 .backend = "vulkan",
                                 .context = 64,
                                 .batch = 16});
    set_greedy(cpu.session);
    free(continuation(cpu.session, prompt, PROMPT, COUNT - PROMPT));
    int32_t ids[COUNT];
    memcpy(ids, salvo_session_tokens(cpu.session), sizeof ids);
    float *expected = logits_at_once(&cpu, ids, COUNT), *got = logits_at_once(&fixture, ids, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        float margin, other;
        const size_t at = (size_t)i * cpu.vocabulary;
        const int32_t best = argmax_of(expected + at, cpu.vocabulary, &margin);
        if (margin > 0.1f) {
            assert_int_equal(best, argmax_of(got + at, cpu.vocabulary, &other));
            clear++;
        }
    }
    print_message("%u of %d positions have a margin over 0.1\n", clear, (int)COUNT);
    assert_true(clear >= COUNT / 2);
    free(expected);
    free(got);
    fixture_close(&cpu);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hundreds_of_turns_are_one_pass),
        cmocka_unit_test(smollm2_continues_as_its_reference),
        cmocka_unit_test(smollm2_takes_at_most_200_megabytes_more),
        cmocka_unit_test(smollm2_fed_the_cpus_ids_chooses_the_same),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
