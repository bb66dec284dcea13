/* Prompt tokens of a step, on simulated devices whose steps take a known time. */
#include "cmocka_test.h"
#include "engine/prompt_pace.h"
#include "test_random.h"

static uint64_t random_state = 1;

static uint32_t pick(uint32_t below)
{
    return test_random(&random_state, below);
}

/* A device: nanoseconds of a step. */
struct device {
    double step, decode, token;
};

static double duration(const struct device *device, uint32_t decodes, uint32_t tokens)
{
    return device->step + decodes * device->decode + tokens * device->token;
}

static struct prompt_pace open_for(const struct device *device, double latency)
{
    struct prompt_pace pace;
    prompt_pace_open(&pace, latency, 16, 512, duration(device, 1, 0), 0, duration(device, 0, 64) / 64);
    return pace;
}

/* Runs steps beside a prompt without end; returns the tokens of the last one that had any. */
static uint32_t run_steps(
    struct prompt_pace *pace, const struct device *device, uint32_t decodes, uint32_t steps)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t tokens = prompt_pace_tokens(pace, decodes);
        prompt_pace_note(pace, decodes, tokens, (uint64_t)duration(device, decodes, tokens));
        last = tokens ? tokens : last;
    }
    return last;
}

static void steps_take_as_long_as_chosen(void **state)
{
    (void)state;
    const struct device devices[] = {{1e6, 1e4, 2e4}, /* a GPU: decoding more costs little */
        {1e5, 3e6, 1e6},                              /* a CPU: every token costs */
        {3e6, 1e5, 3e4}, {1e4, 1e4, 1e4}};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        for (uint32_t decodes = 1; decodes <= 256; decodes *= 4) {
            const double rest = duration(&devices[i], decodes, 0);
            struct prompt_pace pace = open_for(&devices[i], 0);
            const uint32_t tokens = run_steps(&pace, &devices[i], decodes, 200);
            assert_in_range(tokens, 16, 512);
            if (tokens > 16)
                assert_true(duration(&devices[i], decodes, tokens) < 2.1 * rest);
            if (tokens < 512)
                assert_true(duration(&devices[i], decodes, tokens + tokens / 5 + 1) > 2 * rest);
            pace = open_for(&devices[i], 4 * rest);
            const uint32_t chosen = run_steps(&pace, &devices[i], decodes, 200);
            assert_true(chosen == 16 || duration(&devices[i], decodes, chosen) < 4.2 * rest);
            assert_true(chosen >= tokens);
        }
    }
}

/* A token costs more the longer the context is, and less in the next prompt. */
static void costs_that_change_are_followed(void **state)
{
    (void)state;
    struct device device = {1e6, 1e5, 1e4};
    struct prompt_pace pace = open_for(&device, 0);
    const uint32_t before = run_steps(&pace, &device, 8, 100);
    device.token *= 4;
    const uint32_t after = run_steps(&pace, &device, 8, 100);
    assert_in_range(after, before / 5, before / 3);
    device.token /= 4;
    assert_in_range(run_steps(&pace, &device, 8, 100), before - before / 10, before + before / 10);
}

static void one_late_step_changes_little(void **state)
{
    (void)state;
    const struct device device = {1e6, 1e5, 1e4};
    struct prompt_pace pace = open_for(&device, 0);
    const uint32_t before = run_steps(&pace, &device, 8, 100);
    prompt_pace_note(&pace, 8, before, UINT64_MAX);
    assert_true(prompt_pace_limit(&pace, 8) > before / 2);
    prompt_pace_note(&pace, 8, 0, UINT64_MAX);
    assert_true(prompt_pace_limit(&pace, 8) <= 2 * before);
    assert_in_range(run_steps(&pace, &device, 8, 1000), before - before / 10, before + before / 10);
}

static void prompts_are_never_held_back_twice(void **state)
{
    (void)state;
    struct prompt_pace pace;
    bool was_none = false;
    prompt_pace_open(&pace, 0, 16, 512, 0, 0, 0); /* a clock that stands still */
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t decodes = 1 + pick(1 << pick(20)), tokens = prompt_pace_tokens(&pace, decodes);
        assert_true(tokens == 0 || (tokens >= 16 && tokens <= 512));
        assert_false(was_none && tokens == 0);
        was_none = tokens == 0;
        if (pick(3)) /* others fail, and have no duration */
            prompt_pace_note(&pace, decodes, tokens, pick(4) ? UINT64_C(1) << pick(63) : 0);
    }
    prompt_pace_open(&pace, 0, 16, 5, 1, 1, 1); /* a context of 5 */
    assert_int_equal(5, prompt_pace_tokens(&pace, 1));
}

/* A GPU decodes a token in 0.25 ms, and no step with a prompt takes less than 1 ms: a prompt token costs 4 us
 * all the same. */
static void shortest_step_is_no_cost_of_tokens(void **state)
{
    (void)state;
    const double decode = 2.5e5, least = 1e6, token = 4e3;
    struct prompt_pace pace;
    prompt_pace_open(&pace, 0, 16, 512, decode, least, token);
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t tokens = prompt_pace_tokens(&pace, 1);
        prompt_pace_note(&pace, 1, tokens, (uint64_t)(tokens ? least + tokens * token : decode));
    }
    assert_in_range(prompt_pace_limit(&pace, 1), 240, 260);
    /* The end of a prompt, which takes less, corrects it. */
    prompt_pace_note(&pace, 1, 16, (uint64_t)(least / 4 + 16 * token));
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t tokens = prompt_pace_tokens(&pace, 1);
        prompt_pace_note(&pace, 1, tokens, (uint64_t)(tokens ? least / 4 + tokens * token : decode));
    }
    assert_in_range(prompt_pace_limit(&pace, 1), 80, 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_as_long_as_chosen),
        cmocka_unit_test(costs_that_change_are_followed),
        cmocka_unit_test(one_late_step_changes_little),
        cmocka_unit_test(prompts_are_never_held_back_twice),
        cmocka_unit_test(shortest_step_is_no_cost_of_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
