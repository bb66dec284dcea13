/* Sessions of a thousand turns, a long prompt, and the published continuations of the default model. */
#include "metal/find_fake_metal.h"
#include "smollm2_continuations.h"
#include "turn_checks.h"
#include "unit/text_data.h"

enum { TURNS = 1000 };

/* Other tests check for races; here the check would take hours. */
static int ignore_races(void **state)
{
    (void)state;
    fake_metal()->records_races = 0;
    return 0;
}

static void a_thousand_turns_are_one_pass(void **state)
{
    (void)state;
    check_turns("metal", made_model("llama-tiny", "F32"), TURNS, TURNS / 8);
}

static void a_thousand_turns_of_quantised_weights(void **state)
{
    (void)state;
    check_turns("metal", made_model("llama-tiny", "Q8_0"), TURNS, TURNS / 8);
}

static void a_thousand_turns_of_a_recurrence(void **state)
{
    (void)state;
    check_turns("metal", made_model("rwkv7-tiny", "F32"), TURNS, TURNS);
}

/* A session with the prompt, and the ids that follow; freed by free. */
static int32_t *continued(
    struct fixture *fixture, const char *backend, const int32_t *ids, uint32_t count, uint32_t taken)
{
    struct salvo_engine_options options = metal_options(1);
    options.backend = backend;
    options.context = count + taken + 1;
    *fixture = fixture_open(made_model("llama-long", "F32"), options);
    set_greedy(fixture->session);
    return continuation(fixture->session, ids, count, taken);
}

/* Logits and ids after a prompt of several pages of the cache, in steps of 32 tokens. */
static void a_long_prompt_is_that_of_the_cpu(void **state)
{
    (void)state;
    enum { PROMPT = 4000, TAKEN = 8 };
    int32_t *ids = some_ids(PROMPT, 97, 7);
    struct fixture metal, cpu;
    int32_t *ours = continued(&metal, "metal", ids, PROMPT, TAKEN),
            *theirs = continued(&cpu, "cpu", ids, PROMPT, TAKEN);
    assert_memory_equal(theirs, ours, TAKEN * sizeof *ours);
    ASSERT_OK(salvo_session_feed(metal.session, ids, 1));
    ASSERT_OK(salvo_session_feed(cpu.session, ids, 1));
    const double divergence =
        divergence_of(salvo_session_logits(cpu.session), salvo_session_logits(metal.session), cpu.vocabulary);
    print_message("%u tokens: KL divergence %g\n", PROMPT, divergence);
    assert_true(divergence < 1e-6);
    free(ids);
    free(ours);
    free(theirs);
    fixture_close(&metal);
    fixture_close(&cpu);
}

static void smollm2_continues_as_its_reference(void **state)
{
    (void)state;
    const char *path = default_model_path();
    struct salvo_engine_options options = metal_options(1);
    if (!path)
        skip();
    options.context = 64;
    options.batch = 16;
    check_smollm2_continuations(path, options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_turns_are_one_pass),
        cmocka_unit_test(a_thousand_turns_of_quantised_weights),
        cmocka_unit_test(a_thousand_turns_of_a_recurrence),
        cmocka_unit_test(a_long_prompt_is_that_of_the_cpu),
        cmocka_unit_test(smollm2_continues_as_its_reference),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, ignore_races);
}
