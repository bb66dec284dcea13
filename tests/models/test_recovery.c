/*
 * Sessions that were disturbed go on as if nothing had happened: after runs that found no token to choose,
 * after cancels and lost submissions in the middle of a long context, and in another engine. The undisturbed
 * session that they are compared with decodes token by token on the CPU.
 */
#include "busy_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 560, PROMPT = 250, COUNT = 530 }; /* pages have 256 positions: three of them */

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration */
#define FOR_EACH_SHAPE(shape) for (const char *const *shape = shapes; shape < shapes + 2; shape++)

static struct fixture open_session(const char *shape, uint32_t context, bool busy)
{
    struct fixture fixture = fixture_open(
        made_model(shape, "Q8_0"), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                       .backend = "cpu",
                                       .context = context,
                                       .threads = 1,
                                       .batch = 64});
    const struct salvo_sampler sampler = {
        .size = sizeof(struct salvo_sampler), .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 5};
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    if (busy)
        busy_device_install(fixture.engine);
    return fixture;
}

static enum salvo_status generate(
    struct salvo_session *session, uint32_t end, uint32_t ahead, struct salvo_generate_result *result)
{
    const struct salvo_generate_options options = {.size = sizeof(struct salvo_generate_options),
        .ignore_end = true,
        .max_tokens = end - salvo_session_position(session),
        .ahead = ahead};
    return salvo_session_generate(session, &options, result);
}

/* An undisturbed session: prompt and generated tokens, [COUNT]; and the logits of the first token, fed again
 * after all these tokens. They are computed once for each shape. */
struct expected {
    int32_t *ids;
    float *logits;
};

static struct expected all_expected[2];

static const struct expected *undisturbed(const char *const *shape)
{
    struct expected *expected = &all_expected[shape - shapes];
    if (expected->ids)
        return expected;
    struct fixture fixture = open_session(*shape, CONTEXT, false);
    const size_t bytes = fixture.vocabulary * sizeof(float);
    int32_t *ids = some_ids(COUNT, fixture.vocabulary, 1);
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, PROMPT));
    ASSERT_OK(generate(fixture.session, COUNT, 1, &result));
    memcpy(ids, salvo_session_tokens(fixture.session), COUNT * sizeof *ids);
    fixture_close(&fixture);
    fixture = open_session(*shape, CONTEXT, false);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, COUNT));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 1));
    expected->logits = malloc(bytes);
    assert_non_null(expected->logits);
    memcpy(expected->logits, salvo_session_logits(fixture.session), bytes);
    fixture_close(&fixture);
    expected->ids = ids;
    return expected;
}

static int free_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_expected / sizeof *all_expected; i++) {
        free(all_expected[i].ids);
        free(all_expected[i].logits);
    }
    return 0;
}

/* Generates up to COUNT; the tokens must be the expected ones, and the state must give the expected logits.
 */
static void assert_goes_on(struct fixture *fixture, const struct expected *expected)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    ASSERT_OK(generate(fixture->session, COUNT, 0, &result));
    assert_int_equal(COUNT, salvo_session_position(fixture->session));
    assert_memory_equal(expected->ids, salvo_session_tokens(fixture->session), COUNT * sizeof *expected->ids);
    ASSERT_OK(salvo_session_feed(fixture->session, expected->ids, 1));
    const float *logits = salvo_session_logits(fixture->session);
    assert_non_null(logits);
    assert_memory_equal(expected->logits, logits, fixture->vocabulary * sizeof *logits);
}

/* Goes back to the prompt; its last token is computed again. */
static void start_again(struct salvo_session *session, const struct expected *expected)
{
    const uint32_t position = salvo_session_position(session);
    const uint32_t kept = position < PROMPT ? position : PROMPT - 1;
    ASSERT_OK(salvo_session_rollback(session, kept));
    ASSERT_OK(salvo_session_feed(session, expected->ids + kept, PROMPT - kept));
}

/* ---- No token to choose ---- */

static void forbid(const struct fixture *fixture, float bias)
{
    for (uint32_t id = 0; id < fixture->vocabulary; id++)
        ASSERT_OK(salvo_session_set_bias(fixture->session, (int32_t)id, bias));
}

static void runs_that_find_no_token(void **state)
{
    (void)state;
    FOR_EACH_SHAPE(shape)
    {
        const struct expected *expected = undisturbed(shape);
        int32_t id;
        for (int busy = 0; busy < 2; busy++) {
            struct fixture fixture = open_session(*shape, CONTEXT, busy);
            struct salvo_session *session = fixture.session;
            struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
            forbid(&fixture, -INFINITY); /* already while the prompt is fed: its last chunk fails */
            assert_int_equal(SALVO_ERROR_NUMERIC, salvo_session_feed(session, expected->ids, PROMPT));
            const uint32_t chunks = PROMPT / 64 * 64;
            assert_int_equal(chunks, salvo_session_position(session));
            forbid(&fixture, 0);
            ASSERT_OK(salvo_session_feed(session, expected->ids + chunks, PROMPT - chunks));
            for (uint32_t end = PROMPT + 1; end < COUNT; end += 200) { /* and at any time later */
                ASSERT_OK(generate(session, end, 0, &result));
                forbid(&fixture, -INFINITY);
                assert_int_equal(SALVO_ERROR_NUMERIC, salvo_session_next(session, &id));
                assert_int_equal(SALVO_ERROR_NUMERIC, generate(session, COUNT, 7, &result));
                assert_int_equal(0, result.tokens);
                assert_int_equal(SALVO_ERROR_NUMERIC, salvo_session_feed(session, expected->ids, 3));
                assert_int_equal(end, salvo_session_position(session));
                forbid(&fixture, 0);
            }
            assert_goes_on(&fixture, expected);
            fixture_close(&fixture);
        }
    }
}

/* ---- Cancels and lost submissions ---- */

/* An event that happens once, when a device reaches a position. */
struct disturbance {
    struct salvo_session *cancels; /* or NULL */
    enum busy_fate fate;
    uint32_t position;
    unsigned hits;
};

static enum busy_fate disturb(void *user, uint32_t position)
{
    struct disturbance *disturbance = user;
    if (disturbance->hits || position < disturbance->position)
        return BUSY_GOES_ON;
    disturbance->hits++;
    if (disturbance->cancels)
        salvo_session_cancel(disturbance->cancels);
    return disturbance->fate;
}

/* Right after the prompt, at the first and at the last position of a page. */
static const uint32_t places[] = {PROMPT, 256, 511};

static void cancels_in_a_context_of_several_pages(void **state)
{
    (void)state;
    FOR_EACH_SHAPE(shape)
    {
        const struct expected *expected = undisturbed(shape);
        struct fixture fixture = open_session(*shape, CONTEXT, true);
        struct salvo_session *session = fixture.session;
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            struct disturbance disturbance = {.cancels = session, .position = places[i]};
            struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
            start_again(session, expected);
            busy_device_set_hook(fixture.engine, disturb, &disturbance);
            ASSERT_OK(generate(session, COUNT, 0, &result));
            busy_device_set_hook(fixture.engine, NULL, NULL);
            assert_int_equal(1, disturbance.hits);
            assert_int_equal(SALVO_FINISH_CANCELLED, result.finish);
            assert_in_range(salvo_session_position(session), PROMPT, places[i] + 1);
            assert_goes_on(&fixture, expected);
        }
        fixture_close(&fixture);
    }
}

static void cancels_while_a_prompt_is_fed(void **state)
{
    (void)state;
    FOR_EACH_SHAPE(shape)
    {
        const struct expected *expected = undisturbed(shape);
        struct fixture fixture = open_session(*shape, CONTEXT, true);
        struct disturbance disturbance = {.cancels = fixture.session, .position = 400};
        busy_device_set_hook(fixture.engine, disturb, &disturbance);
        assert_int_equal(SALVO_ERROR_CANCELLED, salvo_session_feed(fixture.session, expected->ids, 500));
        busy_device_set_hook(fixture.engine, NULL, NULL);
        assert_int_equal(1, disturbance.hits);
        assert_int_equal(448, salvo_session_position(fixture.session)); /* the first chunk beyond 400 */
        ASSERT_OK(salvo_session_feed(fixture.session, expected->ids + 448, 500 - 448));
        assert_goes_on(&fixture, expected);
        fixture_close(&fixture);
    }
}

static void lost_submissions(void **state)
{
    (void)state;
    FOR_EACH_SHAPE(shape)
    {
        const struct expected *expected = undisturbed(shape);
        struct fixture fixture = open_session(*shape, CONTEXT, true);
        struct salvo_session *session = fixture.session;
        for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
            struct disturbance disturbance = {
                .fate = i % 2 ? BUSY_LOST_AFTER : BUSY_LOST_BEFORE, .position = places[i / 2]};
            struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
            start_again(session, expected);
            busy_device_set_hook(fixture.engine, disturb, &disturbance);
            assert_int_equal(SALVO_ERROR_DEVICE, generate(session, COUNT, 0, &result));
            busy_device_set_hook(fixture.engine, NULL, NULL);
            assert_int_equal(1, disturbance.hits);
            assert_in_range(salvo_session_position(session), PROMPT, places[i / 2] + 1);
            assert_memory_equal(expected->ids, salvo_session_tokens(session),
                salvo_session_position(session) * sizeof *expected->ids);
            assert_goes_on(&fixture, expected);
        }
        struct disturbance disturbance = {.fate = BUSY_LOST_BEFORE, .position = 400};
        ASSERT_OK(salvo_session_rollback(session, 0));
        busy_device_set_hook(fixture.engine, disturb, &disturbance);
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(session, expected->ids, 500));
        busy_device_set_hook(fixture.engine, NULL, NULL);
        assert_int_equal(448, salvo_session_position(session));
        ASSERT_OK(salvo_session_feed(session, expected->ids + 448, 500 - 448));
        assert_goes_on(&fixture, expected);
        fixture_close(&fixture);
    }
}

/* ---- States ---- */

/* The context itself fits and is full; one token more does not, be it computed or only chosen. */
static void states_as_long_as_the_context(void **state)
{
    (void)state;
    enum { SHORT = 256 };
    FOR_EACH_SHAPE(shape)
    {
        struct fixture longer = open_session(*shape, CONTEXT, false);
        struct fixture shorter = open_session(*shape, SHORT, false);
        int32_t *ids = some_ids(SHORT + 1, longer.vocabulary, 3), id, want;
        ASSERT_OK(salvo_session_feed(shorter.session, ids, 10));
        for (uint32_t fed = SHORT - 1; fed <= SHORT + 1; fed++) {
            for (uint32_t taken = 0; taken < 3; taken++) {
                const uint32_t position = fed + taken;
                size_t size;
                ASSERT_OK(salvo_session_rollback(longer.session, 0));
                ASSERT_OK(salvo_session_feed(longer.session, ids, fed));
                for (uint32_t i = 0; i < taken; i++)
                    ASSERT_OK(salvo_session_next(longer.session, &id));
                uint8_t *bytes = saved_state(longer.session, &size);
                const uint32_t before = salvo_session_position(shorter.session);
                enum salvo_status status = salvo_session_state_restore(shorter.session, bytes, size);
                free(bytes);
                assert_int_equal(position <= SHORT ? SALVO_OK : SALVO_ERROR_CONTEXT, status);
                assert_int_equal(
                    position <= SHORT ? position : before, salvo_session_position(shorter.session));
                if (status != SALVO_OK)
                    continue;
                if (position == SHORT) {
                    assert_int_equal(SALVO_ERROR_CONTEXT, salvo_session_next(shorter.session, &id));
                    ASSERT_OK(salvo_session_rollback(shorter.session, SHORT - 1));
                    ASSERT_OK(salvo_session_rollback(longer.session, SHORT - 1));
                }
                ASSERT_OK(salvo_session_next(shorter.session, &id));
                ASSERT_OK(salvo_session_next(longer.session, &want));
                assert_int_equal(want, id);
            }
        }
        free(ids);
        fixture_close(&shorter);
        fixture_close(&longer);
    }
}

/* A head of 64, of 128 and of 40 elements has two scales or more, the last of part of a block. */
static void quantised_caches_of_larger_heads(void **state)
{
    (void)state;
    static const char *const models[][2] = {
        {"llama-256", "Q8_0"}, {"llama-128", "Q8_0"}, {"llama-odd", "F16"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *path = made_model(models[i][0], models[i][1]);
        const struct salvo_engine_options options = {
            .size = sizeof(struct salvo_engine_options), .kv_type = SALVO_KV_Q8_0, .context = 400};
        struct fixture first = fixture_open(path, options), second = fixture_open(path, options);
        int32_t *ids = some_ids(310, first.vocabulary, 4);
        size_t size, size_again;
        ASSERT_OK(salvo_session_feed(second.session, ids, 70)); /* something else to be replaced */
        ASSERT_OK(salvo_session_feed(first.session, ids, 300)); /* two pages */
        uint8_t *bytes = saved_state(first.session, &size);
        ASSERT_OK(salvo_session_state_restore(second.session, bytes, size));
        uint8_t *again = saved_state(second.session, &size_again);
        assert_int_equal(size, size_again);
        assert_memory_equal(bytes, again, size);
        ASSERT_OK(salvo_session_feed(first.session, ids + 300, 10));
        ASSERT_OK(salvo_session_feed(second.session, ids + 300, 10));
        assert_memory_equal(salvo_session_logits(first.session), salvo_session_logits(second.session),
            first.vocabulary * sizeof(float));
        free(bytes);
        free(again);
        free(ids);
        fixture_close(&second);
        fixture_close(&first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_that_find_no_token),
        cmocka_unit_test(cancels_in_a_context_of_several_pages),
        cmocka_unit_test(cancels_while_a_prompt_is_fed),
        cmocka_unit_test(lost_submissions),
        cmocka_unit_test(states_as_long_as_the_context),
        cmocka_unit_test(quantised_caches_of_larger_heads),
    };
    return cmocka_run_group_tests(tests, NULL, free_expected);
}
