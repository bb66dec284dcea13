/*
 * The device's sampling, emulated on the host, against the reference in src/program/sampling.c: the same id
 * from the same logits, settings and seed, for any number of blocks and threads and in whatever order they
 * come.
 */
#include "cmocka_test.h"

#include "cuda/emulated_sample.h"
#include "program/sampling.h"
#include "test_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 151936, CONTEXT = 96, ROWS = 5, MASK_WORDS = (LARGEST + 31) / 32 };

/* ---- Random cases ---- */

static uint64_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
    return test_random(&random_state, below);
}

static bool one_in(uint32_t many)
{
    return next_random(many) == 0;
}

static float random_float(float lowest, float highest)
{
    return lowest + (highest - lowest) * (float)next_random(1u << 24) * 0x1p-24f;
}

/* Logits: peaked like a model's, flat, with many ties, or with NaN and infinities. */
static void fill_logits(float *logits, uint32_t vocabulary)
{
    const uint32_t kind = next_random(8);
    const float spread = random_float(0.01f, 12);
    for (uint32_t i = 0; i < vocabulary; i++) {
        float sum = 0;
        for (int j = 0; j < 4; j++)
            sum += random_float(-1, 1);
        logits[i] = kind == 0   ? 1.5f
                    : kind == 1 ? (float)next_random(5)
                    : kind == 2 ? (float)next_random(200) / 8 - 12
                                : sum * spread;
        if (kind == 3 && one_in(3))
            logits[i] = one_in(2) ? NAN : -INFINITY;
        if (kind == 4 && one_in(vocabulary))
            logits[i] = INFINITY;
        if (kind == 5)
            logits[i] = one_in(vocabulary) ? -0.0F : one_in(2) ? NAN : -INFINITY;
        if (kind == 6 && one_in(1000))
            logits[i] += 15;
    }
}

static void fill_settings(struct sampler_settings *settings, uint32_t vocabulary, float *bias)
{
    *settings = (struct sampler_settings){.temperature = random_float(0.05f, 2),
        .top_p = 1,
        .repeat_penalty = 1,
        .repeat_last_n = next_random(CONTEXT),
        .seed = next_random(1u << 30)};
    if (one_in(6))
        settings->temperature = one_in(3) ? 1e-40f : 0;
    if (one_in(2))
        settings->top_k = one_in(4) ? next_random(vocabulary + 1) : 1 + next_random(200);
    if (one_in(2))
        settings->top_p = one_in(8) ? 0 : one_in(3) ? random_float(0.9f, 1) : random_float(0, 1);
    if (one_in(3))
        settings->min_p = one_in(8) ? 1 : random_float(0, 0.3f);
    if (one_in(3))
        settings->repeat_penalty = random_float(0.5f, 2);
    if (one_in(3))
        settings->presence_penalty = random_float(-1, 2);
    if (one_in(3))
        settings->frequency_penalty = random_float(-1, 2);
    if (one_in(4)) {
        for (uint32_t i = 0; i < vocabulary; i++)
            bias[i] = one_in(10) ? random_float(-5, 5) : one_in(50) ? -INFINITY : 0;
        settings->bias = bias;
    }
}

/* Bits beyond the vocabulary are set: they must not be read. */
static void fill_mask(uint32_t *mask, uint32_t vocabulary)
{
    const uint32_t kind = next_random(4), only = next_random(vocabulary);
    memset(mask, 0xff, MASK_WORDS * sizeof *mask);
    for (uint32_t i = 0; i < vocabulary; i++) {
        if (kind == 0 || (kind == 1 && i != only) || (kind > 1 && one_in(kind)))
            mask[i / 32] &= ~(UINT32_C(1) << i % 32);
    }
}

/* ---- A machine whose memory is the host's ---- */

struct fixture {
    float *logits, *copy;               /* [ROWS][vocabulary], and one row */
    float *bias;                        /* [ROWS][vocabulary] */
    struct sampling_candidate *scratch; /* [vocabulary] */
    uint32_t masks[ROWS][MASK_WORDS];
    struct cuda_logprob logprobs[ROWS][1 + MAX_TOP_LOGPROBS];
    uint8_t *sampling;
    int32_t tokens[ROWS][CONTEXT + 1], host_tokens[ROWS][CONTEXT + 1];
    struct {
        struct cuda_step step;
        struct cuda_run runs[ROWS];
        struct cuda_row rows[ROWS];
        uint32_t outputs[ROWS];
    } step;
};

static struct fixture f;

static uint64_t address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static struct cuda_machine machine_of(uint32_t vocabulary)
{
    return (struct cuda_machine){
        .context = CONTEXT,
        .vocabulary = vocabulary,
        .step = address(&f.step),
        .runs_at = (uint32_t)((uint8_t *)f.step.runs - (uint8_t *)&f.step),
        .rows_at = (uint32_t)((uint8_t *)f.step.rows - (uint8_t *)&f.step),
        .outputs_at = (uint32_t)((uint8_t *)f.step.outputs - (uint8_t *)&f.step),
        .tokens = address(f.tokens),
        .host_tokens = address(f.host_tokens),
        .logits = address(f.logits),
        .sampling = address(f.sampling),
    };
}

static struct cuda_sampler sampler_of(const struct sampler_settings *settings)
{
    return (struct cuda_sampler){
        .temperature = settings->temperature,
        .inverse_temperature = 1 / settings->temperature,
        .top_p = settings->top_p,
        .min_p = settings->min_p,
        .repeat = settings->repeat_penalty,
        .inverse_repeat = 1 / settings->repeat_penalty,
        .presence = settings->presence_penalty,
        .frequency = settings->frequency_penalty,
        .top_k = settings->top_k,
        .last_n = settings->repeat_last_n,
        .seed = settings->seed,
        .bias = address(settings->bias),
        .mask = address(settings->mask),
    };
}

static struct cuda_sample_row *row_at(uint32_t row, uint32_t vocabulary)
{
    return (struct cuda_sample_row *)(f.sampling + row * cuda_sample_row_bytes(vocabulary));
}

static bool is_near(float a, float b)
{
    return a == b || fabsf(a - b) < 1e-3f;
}

/* Log-probabilities are computed from the unmodified logits; only the requested ones are written. */
static void check_logprobs(uint32_t vocabulary, uint32_t row, int32_t chosen)
{
    const struct cuda_sampler *sampler = &f.step.runs[row].sampler;
    const uint32_t count = sampler->logprobs && chosen >= 0 ? 1 + sampler->top_count : 0;
    struct sampling_logprob expected[1 + MAX_TOP_LOGPROBS];
    if (count)
        sampling_logprobs(
            f.logits + (size_t)row * vocabulary, vocabulary, chosen, sampler->top_count, expected);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(expected[i].id, f.logprobs[row][i].id);
        assert_true(is_near(expected[i].logprob, f.logprobs[row][i].logprob));
    }
    for (uint32_t i = count; i <= MAX_TOP_LOGPROBS; i++)
        assert_int_equal(-7, f.logprobs[row][i].id);
}

/* Rows of several runs, in slots and rows of another order; some ask for no id. */
static void check_case(uint32_t vocabulary, uint32_t rows, uint32_t blocks, uint32_t threads)
{
    struct sampler_settings settings[ROWS];
    uint32_t asked[ROWS], position[ROWS];
    const struct cuda_machine machine = machine_of(vocabulary);
    memset(f.host_tokens, 0xff, sizeof f.host_tokens);
    f.step.step.output_count = rows;
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j <= MAX_TOP_LOGPROBS; j++)
            f.logprobs[i][j].id = -7;
    }
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t slot = (i + 2) % rows, row = rows - 1 - i;
        float *bias = f.bias + (size_t)i * vocabulary;
        fill_logits(f.logits + (size_t)i * vocabulary, vocabulary);
        fill_settings(&settings[i], vocabulary, bias);
        if (one_in(3)) {
            fill_mask(f.masks[i], vocabulary);
            settings[i].mask = f.masks[i];
        }
        asked[i] = rows == 1 || !one_in(5);
        position[i] = next_random(CONTEXT);
        for (uint32_t j = 0; j <= CONTEXT; j++)
            f.tokens[slot][j] = (int32_t)next_random(one_in(2) && vocabulary > 4 ? 4 : vocabulary);
        f.step.outputs[i] = row;
        f.step.rows[row] = (struct cuda_row){.run = i, .slot = slot, .position = position[i]};
        f.step.runs[i] = (struct cuda_run){.slot = slot,
            .count = 1,
            .first_row = row,
            .logits = asked[i] ? LOGITS_LAST : LOGITS_ALL,
            .next_id = (int32_t)next_random(vocabulary),
            .sampler = sampler_of(&settings[i])};
        f.step.runs[i].sampler.row = i;
        if (one_in(3)) {
            f.step.runs[i].sampler.logprobs = address(f.logprobs[i]);
            f.step.runs[i].sampler.top_count = next_random(MAX_TOP_LOGPROBS + 1);
        }
    }
    memcpy(f.copy, f.logits, (size_t)rows * vocabulary * sizeof *f.copy);
    emulated_sample(&machine, blocks, threads, next_random(1000));
    assert_memory_equal(f.copy, f.logits, (size_t)rows * vocabulary * sizeof *f.copy);
    for (uint32_t i = 0; i < rows; i++) {
        const uint32_t slot = (i + 2) % rows, count = position[i] + 1;
        const struct cuda_sample_row *row = row_at(i, vocabulary);
        int32_t expected = CUDA_SAMPLE_NOT_ASKED;
        if (asked[i])
            expected = sampling_choose(
                &settings[i], f.copy + (size_t)i * vocabulary, vocabulary, f.tokens[slot], count, f.scratch);
        if (row->id != expected) {
            const struct sampler_settings *s = &settings[i];
            print_message("vocabulary %u, row %u of %u, %u blocks of %u: temp %g top-k %u top-p %g min-p %g "
                          "repeat %g presence %g frequency %g last %u bias %d mask %d\n",
                vocabulary, i, rows, blocks, threads, (double)s->temperature, s->top_k, (double)s->top_p,
                (double)s->min_p, (double)s->repeat_penalty, (double)s->presence_penalty,
                (double)s->frequency_penalty, s->repeat_last_n, s->bias != NULL, s->mask != NULL);
        }
        assert_int_equal(expected, row->id);
        check_logprobs(vocabulary, i, asked[i] ? expected : f.step.runs[i].next_id);
        assert_int_equal(0, row->arrived);
        assert_true(row->finished);
        for (uint32_t j = 0; j <= CONTEXT; j++)
            assert_int_equal(j == count && expected >= 0 ? expected : -1, f.host_tokens[slot][j]);
        if (expected >= 0)
            assert_int_equal(expected, f.tokens[slot][count]);
    }
}

static void check_cases(uint32_t vocabulary, uint32_t cases)
{
    memset(f.sampling, 0, ROWS * cuda_sample_row_bytes(vocabulary));
    for (uint32_t i = 0; i < cases; i++) {
        const uint32_t threads = 32u << next_random(3);
        check_case(vocabulary, one_in(2) ? 1 : 1 + next_random(ROWS), 1 + next_random(12), threads);
    }
}

static void tiny_vocabularies(void **state)
{
    (void)state;
    check_cases(1, 200);
    check_cases(2, 200);
    check_cases(3, 200);
    check_cases(31, 500);
    check_cases(33, 300);
    check_cases(500, 600);
}

static void small_vocabularies(void **state)
{
    (void)state;
    check_cases(3000, 300);
}

static void vocabularies_of_models(void **state)
{
    (void)state;
    check_cases(32000 + 1, 30);
    check_cases(49152, 30);
    check_cases(65536, 20);
    check_cases(LARGEST, 12);
}

/* As on a large device. */
static void many_blocks(void **state)
{
    (void)state;
    memset(f.sampling, 0, ROWS * cuda_sample_row_bytes(49152));
    for (int i = 0; i < 6; i++)
        check_case(49152, 1, 132, 512);
    memset(f.sampling, 0, ROWS * cuda_sample_row_bytes(31));
    for (int i = 0; i < 3; i++)
        check_case(31, ROWS, 132, 512);
}

static void weights_are_those_of_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        float x = -random_float(0, 24);
        assert_true(emulated_weight(x) == sampling_weight(x));
    }
    const float special[] = {0, -0.0F, -INFINITY, NAN, -23, -1e-45f, -1e-30f};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        assert_true(emulated_weight(special[i]) == sampling_weight(special[i]));
}

static int set_up(void **state)
{
    (void)state;
    f.logits = malloc(sizeof(float) * ROWS * LARGEST);
    f.copy = malloc(sizeof(float) * ROWS * LARGEST);
    f.bias = malloc(sizeof(float) * ROWS * LARGEST);
    f.scratch = malloc(sizeof *f.scratch * LARGEST);
    f.sampling = malloc(ROWS * cuda_sample_row_bytes(LARGEST));
    return f.logits && f.copy && f.bias && f.scratch && f.sampling ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(f.logits);
    free(f.copy);
    free(f.bias);
    free(f.scratch);
    free(f.sampling);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_reference),
        cmocka_unit_test(tiny_vocabularies),
        cmocka_unit_test(small_vocabularies),
        cmocka_unit_test(vocabularies_of_models),
        cmocka_unit_test(many_blocks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
