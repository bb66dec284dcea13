/* How the device chooses ids from logits that the test has written: the cases of the CPU, and what
 * program/sampling.h says about random ones. */
#include "vulkan_test.h"

#include "backend/common/debug.h"
#include "backend/vulkan/vulkan_executor.h"
#include "engine/engine.h"
#include "engine/session_pages.h"
#include "program/sampling.h"
#include "unit/sampling_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POSITION = 40, MOST_CASE = 4 };

static const struct sampler_settings greedy = {.top_p = 1, .repeat_penalty = 1};

/* A session with some ids, whose next step the tests examine. */
static struct fixture open_chooser(const char *shape)
{
    struct fixture fixture = fixture_open(made_model(shape, "F32"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 64, .batch = 48});
    int32_t *ids = some_ids(POSITION, fixture.vocabulary, 5);
    for (int i = 0; i < POSITION; i++)
        ids[i] %= 40; /* so that some come often */
    ASSERT_OK(salvo_session_feed(fixture.session, ids, POSITION));
    free(ids);
    return fixture;
}

/* The id after position POSITION with these logits; -1 where the device says that there is none. The device
 * also leaves the log-probabilities of that id and of the `top_count` most likely ones. */
static int32_t choose(const struct fixture *fixture, const struct sampler_settings *settings,
    const float *logits, uint32_t top_count)
{
    const struct backend *backend = fixture->engine->backend;
    struct executor *executor = fixture->engine->executor;
    const int32_t id = 7;
    ASSERT_OK(session_take_pages(fixture->session, POSITION, POSITION + 1));
    const struct run run = {.slot = fixture->session->slot,
        .first = POSITION,
        .count = 1,
        .logits = LOGITS_LAST,
        .pages = fixture->session->pages,
        .sampler = *settings,
        .has_logprobs = top_count > 0,
        .top_count = top_count};
    const struct step step = {.runs = &run, .run_count = 1, .token_count = 1, .ids = &id};
    struct debug_step debug;
    ASSERT_OK(debug_step_begin(&debug, backend, executor, executor->program, &step));
    memcpy(
        debug_step_buffer(&debug, executor->program->logits), logits, fixture->vocabulary * sizeof *logits);
    ASSERT_OK(backend->debug.run(executor, debug.plan->group_count - 1));
    debug_step_end(&debug);
    const struct run_result *result = &step_queue_at(&executor->queue, executor->queue.submitted)->results[0];
    assert_int_equal(result->failed ? 0 : 1, result->sampled);
    if (result->failed)
        assert_int_equal(POSITION, result->failed_position);
    return result->failed ? -1 : backend->tokens(executor, run.slot)[POSITION + 1];
}

/* At the beginning of a vocabulary, across borders of blocks and subgroups, and at its end. */
static void the_largest_is_chosen_as_on_the_cpu(void **state)
{
    (void)state;
    static const struct {
        float logits[MOST_CASE];
        uint32_t count;
        int32_t expected;
    } cases[] = {
        {{7}, 1, 0},
        {{-7}, 1, 0},
        {{2, 1}, 2, 0},
        {{1, 2}, 2, 1},
        {{1, 1}, 2, 0},
        {{-3, -1, -2}, 3, 1},
        {{0, -0.0f}, 2, 0},
        {{-0.0f, 0}, 2, 0},
        {{NAN, 1, 2, NAN}, 4, 2},
        {{NAN, -INFINITY, NAN, -1e30f}, 4, 3},
        {{3, INFINITY, 4, INFINITY}, 4, 1},
        {{-INFINITY, NAN, -3e38f}, 3, 2},
        {{1e-42f, 2e-42f}, 2, 1},
        {{NAN}, 1, -1},
        {{NAN, NAN, NAN}, 3, -1},
        {{-INFINITY, NAN}, 2, -1},
    };
    struct fixture fixture = open_chooser("llama-tiny");
    const uint32_t starts[] = {0, 3, 31, 62, 255, fixture.vocabulary - MOST_CASE};
    float *logits = malloc(fixture.vocabulary * sizeof *logits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t start = starts[i % (sizeof starts / sizeof *starts)];
        for (uint32_t j = 0; j < fixture.vocabulary; j++)
            logits[j] = j % 2 ? -INFINITY : NAN;
        memcpy(logits + start, cases[i].logits, cases[i].count * sizeof *logits);
        const int32_t expected = cases[i].expected < 0 ? -1 : (int32_t)start + cases[i].expected;
        assert_int_equal(expected, choose(&fixture, &greedy, logits, 0));
    }
    for (uint32_t j = 0; j < fixture.vocabulary; j++)
        logits[j] = -5;
    assert_int_equal(0, choose(&fixture, &greedy, logits, 0)); /* all equal */
    for (uint32_t at = fixture.vocabulary - 1; at > 0; at = at * 3 / 4) {
        logits[at] = -4;
        assert_int_equal(at, choose(&fixture, &greedy, logits, 0));
        logits[at] = -5;
    }
    free(logits);
    fixture_close(&fixture);
}

/* None, one, or about half of the ids are allowed; bits beyond the vocabulary are set. */
static void fill_mask(unsigned round, uint32_t vocabulary, uint32_t *mask)
{
    const uint32_t only = round % 8 == 2 ? vocabulary : round % vocabulary;
    for (uint32_t id = 0; id < (vocabulary + 31) / 32 * 32; id++) {
        const bool allowed =
            id >= vocabulary || id == only || (round % 8 > 3 && sampling_random(round, id) & 1);
        mask[id / 32] = (mask[id / 32] & ~(UINT32_C(1) << id % 32)) | (uint32_t)allowed << id % 32;
    }
}

static void check_logprobs(
    const struct fixture *fixture, const float *logits, int32_t chosen, uint32_t top_count)
{
    struct sampling_logprob expected[1 + MAX_TOP_LOGPROBS];
    const struct sampling_logprob *got = fixture->engine->backend->logprobs(fixture->engine->executor, 0);
    sampling_logprobs(logits, fixture->vocabulary, chosen, top_count, expected);
    for (uint32_t i = 0; i <= top_count; i++) {
        assert_int_equal(expected[i].id, got[i].id);
        assert_true(
            expected[i].logprob == got[i].logprob || fabsf(expected[i].logprob - got[i].logprob) < 1e-3f);
    }
}

static void every_stage_is_as_sampling_defines(void **state)
{
    (void)state;
    uint64_t counter = 0;
    struct fixture fixture = open_chooser("llama-tiny");
    float *logits = malloc(fixture.vocabulary * sizeof *logits),
          *bias = malloc(fixture.vocabulary * sizeof *bias);
    struct sampling_candidate *scratch = malloc(fixture.vocabulary * sizeof *scratch);
    uint32_t *mask = calloc((fixture.vocabulary + 31) / 32, sizeof *mask);
    int32_t tokens[POSITION + 1];
    memcpy(tokens, salvo_session_tokens(fixture.session), POSITION * sizeof *tokens);
    tokens[POSITION] = 7;
    for (unsigned round = 0; round < 400; round++) {
        sampling_case_fill(round, fixture.vocabulary, logits, bias, &counter);
        struct sampler_settings settings = sampling_case_settings(round, POSITION + 20, bias);
        const uint32_t top_count = round % 5 < 2 ? 0 : round % (MAX_TOP_LOGPROBS + 1);
        fill_mask(round, fixture.vocabulary, mask);
        settings.mask = round % 4 < 2 ? NULL : mask;
        const int32_t got = choose(&fixture, &settings, logits, top_count);
        if (got >= 0 && top_count)
            check_logprobs(&fixture, logits, got, top_count);
        const int32_t expected = /* changes the logits */
            sampling_choose(&settings, logits, fixture.vocabulary, tokens, POSITION + 1, scratch);
        if (expected != got)
            fail_msg("round %u: %d, not %d", round, got, expected);
    }
    free(logits);
    free(bias);
    free(scratch);
    free(mask);
    fixture_close(&fixture);
}

/* A vocabulary of two vectors, the first `count` rows and the others: of many equal logits the first is
 * chosen, whichever workgroup, subgroup or invocation has it. */
static void set_vocabulary(const struct fixture *fixture, uint32_t count)
{
    struct executor *executor = fixture->engine->executor;
    const struct program *program = executor->program;
    const struct op *matmul = &program->ops[program->op_count - 2];
    assert_int_equal(OP_MATMUL, matmul->kind);
    const struct weight_slice *slice = &executor->weights[matmul->inputs[0]].slices[0];
    const size_t columns = program->buffers[matmul->inputs[0]].columns;
    struct vulkan_buffer *buffer = &executor->weight_buffers[slice->buffer];
    const size_t size = fixture->vocabulary * columns;
    int8_t *codes = malloc(size);
    uint16_t *scales = malloc(size / 32 * sizeof *scales);
    assert_int_equal(fixture->vocabulary, slice->rows);
    for (size_t i = 0; i < size; i++)
        codes[i] = (int8_t)((i % columns % 3 ? 2 : -1) * (i / columns < count ? 1 : -1));
    for (size_t i = 0; i < size / 32; i++)
        scales[i] = 0x3c00; /* 1 */
    ASSERT_OK(vulkan_write(&executor->transfer, buffer, slice->codes * UINT64_C(4), codes, size));
    ASSERT_OK(vulkan_write(
        &executor->transfer, buffer, slice->scales * UINT64_C(4), scales, size / 32 * sizeof *scales));
    free(codes);
    free(scales);
}

static void the_first_of_equal_logits_is_chosen(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 7, 8, 16, 17, 33, 64, 127, 255, 256, 300, 500, 511};
    unsigned later = 0;
    struct fixture fixture = fixture_open(made_model("llama-256", "Q8_0"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 256, .batch = 8});
    const struct salvo_sampler sampler = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1};
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        const uint32_t count = counts[i / 2];
        int32_t fed = i % 2 ? (int32_t)count : 0, id;
        set_vocabulary(&fixture, count);
        ASSERT_OK(salvo_session_feed(fixture.session, &fed, 1));
        const float *logits = salvo_session_logits(fixture.session);
        assert_non_null(logits);
        uint32_t expected = 0;
        for (uint32_t j = 0; j < fixture.vocabulary; j++) {
            expected = logits[j] > logits[expected] ? j : expected;
            assert_true(logits[j] == logits[j < count ? 0 : count]);
        }
        assert_true(logits[0] != logits[count]);
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(expected, id);
        later += expected == count;
    }
    assert_in_range(later, 1, 2 * sizeof counts / sizeof *counts - 1);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_is_chosen_as_on_the_cpu),
        cmocka_unit_test(every_stage_is_as_sampling_defines),
        cmocka_unit_test(the_first_of_equal_logits_is_chosen),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
