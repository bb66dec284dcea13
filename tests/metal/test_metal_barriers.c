/* The Metal without a GPU leaves out one barrier after the other, and must find a conflict each time. */
#include "backend/metal/metal_executor.h"
#include "metal/find_fake_metal.h"

/* Each barrier that is left out is a conflict of two dispatches. */
static void check_barriers(const char *shape, enum salvo_kv_type kv_type, uint32_t count)
{
    int32_t *ids = some_ids(1 + count, 64, 5);
    unsigned long barriers = 1;
    for (unsigned long nth = 0; nth <= barriers; nth++) {
        struct salvo_engine_options options = metal_options(1);
        options.context = 32;
        options.batch = 4; /* all rows are in use */
        options.kv_type = kv_type;
        struct fixture fixture = fixture_open(made_model(shape, "F32"), options);
        ASSERT_OK(salvo_session_feed(fixture.session, ids, 1));
        const unsigned long before = fake_metal()->barriers;
        fake_metal()->ignore_barrier = nth ? before + nth : 0;
        (void)salvo_session_feed(fixture.session, ids + 1, count); /* its logits may be NaN */
        fake_metal()->ignore_barrier = 0;
        if (nth == 0)
            barriers = fake_metal()->barriers - before;
        if ((fake_metal()->violations != 0) != (nth != 0))
            fail_msg("%s, %u tokens, barrier %lu of %lu: %s", shape, count, nth, barriers,
                nth ? "nothing notices its absence" : fake_metal()->first_violation);
        fake_metal()->violations = 0;
        fixture_close(&fixture);
    }
    print_message("%s, %u tokens: each of %lu barriers is needed\n", shape, count, barriers);
    assert_true(barriers > 10);
    free(ids);
}

static void every_barrier_is_needed(void **state)
{
    (void)state;
    check_barriers("llama-tiny", SALVO_KV_F16, 1);
    check_barriers("llama-tiny", SALVO_KV_Q8_0, 1);
    check_barriers("llama-tiny", SALVO_KV_F16, 4);
    check_barriers("rwkv7-tiny", SALVO_KV_AUTO, 1);
}

/* A dispatch that is left out passes its barrier on: where the next one has none of its own, nothing
 * conflicts. */
static void a_dispatch_that_is_left_out_keeps_its_barrier(void **state)
{
    (void)state;
    int32_t *ids = some_ids(3, 64, 5);
    uint32_t moved = 0;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), metal_options(1));
    const struct metal_plan *plan = &fixture.engine->executor->single;
    for (uint32_t i = 1; i + 1 < plan->dispatch_count; i++) {
        if (plan->dispatches[i].shape.groups == 0 && plan->waits[i + 1]) {
            plan->waits[i] = true;
            plan->waits[i + 1] = false;
            moved++;
        }
    }
    assert_int_equal(
        2 * 2, moved); /* in each layer from a projection to attention, and from its sum to the next */
    for (int i = 0; i < 3; i++)
        ASSERT_OK(salvo_session_feed(fixture.session, ids + i, 1));
    assert_int_equal(0, fake_metal()->violations);
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_barrier_is_needed),
        cmocka_unit_test(a_dispatch_that_is_left_out_keeps_its_barrier),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
