/* Real logits against references that others computed. Skipped where the data or the model is not there. */
#include "cmocka_test.h"
#include "engine/engine.h"
#include "engine_fixture.h"
#include "smollm2_continuations.h"
#include "unit/text_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };
static char data[4096], model_path[4096];

static uint32_t read_ids(const char *name, int32_t *ids, uint32_t most)
{
    struct buffer text = read_whole_file(test_data_path(data, name));
    uint32_t count = 0;
    for (char *next = text.data; *next && count < most;) {
        char *end;
        long id = strtol(next, &end, 10);
        if (end != next)
            ids[count++] = (int32_t)id;
        next = end != next ? end : next + 1;
    }
    buffer_free(&text);
    return count;
}

static void random_llama_matches_a_double_precision_reference(void **state)
{
    (void)state;
    char path[sizeof data + 64];
    int32_t ids[64];
    snprintf(path, sizeof path, "%s/mini/llama-mini-f32.gguf", data);
    struct buffer expected = read_whole_file(test_data_path(data, "mini/llama-mini-expected-logits.f32"));
    assert_int_equal(64, read_ids("mini/tokens.csv", ids, 64));
    /* Keys and values as exact as the reference's; with the usual f16 they are rounded to 11 bits. */
    static const struct {
        enum salvo_kv_type kv_type;
        double tolerance;
    } cases[] = {{SALVO_KV_AUTO, 1e-4}, {SALVO_KV_F32, 1e-4}, {SALVO_KV_F16, 1e-2}};
    for (int i = 0; i < 3; i++) {
        struct fixture fixture =
            fixture_open(path, (struct salvo_engine_options){
                                   .size = sizeof(struct salvo_engine_options), .kv_type = cases[i].kv_type});
        assert_int_equal(64 * fixture.vocabulary * sizeof(float), expected.size);
        float *got = logits_at_once(&fixture, ids, 64);
        double worst = 0;
        for (size_t j = 0; j < 64 * fixture.vocabulary; j++) {
            float want;
            memcpy(&want, expected.data + j * sizeof want, sizeof want);
            double error = fabs((double)got[j] - (double)want);
            worst = error <= worst ? worst : error; /* a NaN stays */
        }
        print_message("worst of 64 positions: %.2g\n", worst);
        assert_true(worst < cases[i].tolerance);
        free(got);
        fixture_close(&fixture);
    }
    buffer_free(&expected);
}

/* ---- SmolLM2 ---- */

enum { POSITIONS = 263, EVERY = 16 };

struct comparison {
    const int32_t *ids;
    int32_t argmaxes[POSITIONS];
    const float *logits; /* of positions 15, 31, ... */
    uint32_t vocabulary, agreeing, compared;
    double nll, divergence;
};

static double log_sum(const float *logits, uint32_t count)
{
    float largest = -INFINITY;
    for (uint32_t i = 0; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    double sum = exp((double)logits[0] - (double)largest);
    for (uint32_t i = 1; i < count; i++)
        sum += exp((double)logits[i] - (double)largest);
    return (double)largest + log(sum);
}

static int32_t argmax_of(const float *logits, uint32_t count)
{
    int32_t best = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[best])
            best = (int32_t)i;
    }
    return best;
}

static bool compare_row(void *user, uint32_t position, const float *logits)
{
    struct comparison *comparison = user;
    uint32_t count = comparison->vocabulary;
    comparison->agreeing += argmax_of(logits, count) == comparison->argmaxes[position];
    double total = log_sum(logits, count);
    if (position + 1 < POSITIONS)
        comparison->nll += total - (double)logits[comparison->ids[position + 1]];
    if (position % EVERY == EVERY - 1 && position / EVERY < 16) {
        const float *expected = comparison->logits + (size_t)(position / EVERY) * count;
        double expected_total = log_sum(expected, count), divergence = 0;
        for (uint32_t i = 0; i < count; i++) {
            double log_p = (double)expected[i] - expected_total, log_q = (double)logits[i] - total;
            divergence += exp(log_p) * (log_p - log_q);
        }
        comparison->divergence += divergence;
        comparison->compared++;
    }
    return true;
}

static void read_argmaxes(struct comparison *comparison)
{
    struct buffer text = read_whole_file(test_data_path(data, "smollm2/expected.tsv"));
    for (char *line = strchr(text.data, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        char *rest;
        unsigned long position = strtoul(line, &rest, 10);
        (void)strtol(rest, &rest, 10); /* the token */
        assert_true(position < POSITIONS);
        comparison->argmaxes[position] = (int32_t)strtol(rest, NULL, 10);
    }
    buffer_free(&text);
}

/* The default model on the reference's text, with activations rounded so. */
static struct comparison compare_smollm2(enum activation_rounding rounding)
{
    static int32_t ids[POSITIONS];
    struct comparison comparison = {.ids = ids};
    assert_int_equal(POSITIONS, read_ids("smollm2/text.tokens.csv", ids, POSITIONS));
    struct buffer expected = read_whole_file(test_data_path(data, "smollm2/expected-logits.f32"));
    float *logits = malloc(expected.size);
    assert_non_null(logits);
    memcpy(logits, expected.data, expected.size);
    comparison.logits = logits;
    read_argmaxes(&comparison);

    struct fixture fixture = fixture_open(model_path,
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .backend = "cpu"});
    fixture.engine->backend->set_rounding(fixture.engine->executor, rounding);
    comparison.vocabulary = fixture.vocabulary;
    assert_int_equal(16 * fixture.vocabulary * sizeof(float), expected.size);
    ASSERT_OK(salvo_session_eval(fixture.session, ids, POSITIONS, compare_row, &comparison));
    comparison.nll /= POSITIONS - 1;
    comparison.divergence /= comparison.compared;
    print_message("KL %.2e, %u of %u argmaxes, NLL %.5f\n", comparison.divergence, comparison.agreeing,
        POSITIONS, comparison.nll);
    assert_int_equal(16, comparison.compared);
    free(logits);
    buffer_free(&expected);
    fixture_close(&fixture);
    return comparison;
}

static void smollm2_matches_its_reference(void **state)
{
    (void)state;
    if (!*model_path)
        skip();
    struct comparison comparison = compare_smollm2(ACTIVATIONS_AS_USUAL);
    assert_true(comparison.divergence <= 3.0e-3);
    assert_true(comparison.agreeing >= 252);
    assert_true(fabs(comparison.nll - 3.27552) <= 0.02);
}

/* `verify` compares with this rounding when two sides diverge. */
static void finest_rounding_loses_next_to_nothing(void **state)
{
    (void)state;
    if (!*model_path)
        skip();
    struct comparison comparison = compare_smollm2(ACTIVATIONS_FINEST);
    assert_true(comparison.divergence <= 1e-4);
    assert_true(comparison.agreeing >= POSITIONS - 3);
}

static void smollm2_continues_as_its_reference(void **state)
{
    (void)state;
    if (!*model_path)
        skip();
    check_smollm2_continuations(
        model_path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
}

int main(void)
{
    const char *folder = test_data_folder(), *path = default_model_path();
    if (!folder)
        return SKIPPED;
    snprintf(data, sizeof data, "%s", folder);
    snprintf(model_path, sizeof model_path, "%s", path ? path : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_llama_matches_a_double_precision_reference),
        cmocka_unit_test(smollm2_matches_its_reference),
        cmocka_unit_test(finest_rounding_loses_next_to_nothing),
        cmocka_unit_test(smollm2_continues_as_its_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
