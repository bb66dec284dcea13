/* Sessions of a thousand turns, and the published continuations of the default model. */
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
        cmocka_unit_test(smollm2_continues_as_its_reference),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, ignore_races);
}
