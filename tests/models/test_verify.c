/* `verify` must report wrong ops, and only these. */
#include "cmocka_test.h"
#include "engine/session_pages.h"
#include "engine/verify.h"
#include "engine_fixture.h"
#include "gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    unsigned outputs, failed;
    double last_ratio;
    bool in_order;
};

static void look(void *user, const struct salvo_verify_output *output)
{
    struct seen *seen = user;
    double ratio = output->not_finite      ? (double)INFINITY
                   : output->tolerance > 0 ? output->error / output->tolerance
                                           : 0;
    if (seen->outputs++ && ratio > seen->last_ratio)
        seen->in_order = false;
    seen->last_ratio = ratio;
    seen->failed += output->not_finite > 0 || output->error > output->tolerance;
    assert_true(strlen(output->operation) > 0 && output->rows > 0 && output->columns > 0);
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    static const char *const mixes[] = {"F32", "Q4_0", "Q4_K_M"};
    for (int i = 0; i < 3; i++) {
        struct salvo_model *model;
        struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
        struct seen seen = {.in_order = true};
        ASSERT_OK(salvo_model_open(made_model("llama-256", mixes[i]), &model));
        ASSERT_OK(salvo_verify(model,
            &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options), .threads = 2}, look,
            &seen, &result));
        assert_true(result.passed);
        assert_true(seen.in_order);
        assert_int_equal(0, seen.failed);
        assert_int_equal(seen.outputs, result.outputs);
        assert_true(seen.outputs > 20);
        assert_int_equal(48, result.positions);
        assert_true(result.mean_divergence < 1e-4);
        salvo_model_close(model);
    }
}

/* The same random weights with fewer bits: every matmul differs, and the other ops, which get equal
 * inputs, do not. */
static void other_weights_are_seen(void **state)
{
    (void)state;
    struct fixture ours = fixture_open(made_model("llama-256", "Q4_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 64});
    struct fixture theirs = fixture_open(made_model("llama-256", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 64});
    const struct verify_pair pair = {ours.engine, theirs.engine};
    struct verify_list list = {0};
    int32_t ids[4] = {1, 2, 3, 4};
    ASSERT_OK(session_take_pages(ours.session, 0, 4));
    const struct run run = {.count = 4, .logits = LOGITS_ALL, .pages = ours.session->pages};
    ASSERT_OK(verify_step(
        &pair, &(struct step){.runs = &run, .run_count = 1, .token_count = 4, .ids = ids}, &list));
    unsigned matmuls = 0;
    for (size_t i = 0; i < list.count; i++) {
        const struct verify_record *record = &list.records[i];
        bool wrong = record->output.error > record->output.tolerance;
        matmuls += wrong && strstr(record->operation, "matmul") != NULL;
    }
    assert_true(matmuls >= 5);
    verify_list_free(&list);
    fixture_close(&ours);
    fixture_close(&theirs);
}

static uint32_t argmax(const float *logits, uint32_t count)
{
    uint32_t largest = 0;
    for (uint32_t i = 1; i < count; i++)
        largest = logits[i] > logits[largest] ? i : largest;
    return largest;
}

/* Weights and their roundings agree about the largest logit at some positions and not at others. */
static void distances_of_free_runs(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .context = 64, .sessions = 2};
    const char *path = made_model("llama-256", "F32");
    char rounded[4096];
    quantized_copy(path, "Q4_0", rounded, sizeof rounded);
    struct fixture ours = fixture_open(rounded, options), theirs = fixture_open(path, options);
    const uint32_t vocabulary = ours.vocabulary;
    int32_t *ids = some_ids(COUNT, vocabulary, 3);
    float *got = logits_at_once(&ours, ids, COUNT), *want = logits_at_once(&theirs, ids, COUNT);
    uint32_t same = 0;
    double sum = 0, largest = 0;
    for (size_t row = 0; row < COUNT; row++) {
        const float *q = got + row * vocabulary, *p = want + row * vocabulary;
        const double divergence = divergence_of(p, q, vocabulary);
        same += argmax(p, vocabulary) == argmax(q, vocabulary);
        sum += divergence;
        largest = divergence > largest ? divergence : largest;
    }
    assert_in_range(same, 1, COUNT - 1);
    struct verify_distance distance;
    ASSERT_OK(verify_run_free(&(struct verify_pair){ours.engine, theirs.engine}, ids, COUNT, &distance));
    assert_int_equal(same, distance.same_argmax);
    assert_true(fabs(distance.divergences - sum) < 1e-9 * sum);
    assert_true(fabs(distance.largest - largest) < 1e-9 * largest);
    free(ids);
    free(got);
    free(want);
    fixture_close(&ours);
    fixture_close(&theirs);
    remove(rounded);
}

/* A NaN on both sides fails: there is no error that a tolerance could be compared with. */
static void elements_that_are_not_finite_are_seen(void **state)
{
    (void)state;
    const char *path = made_model("llama-odd", "F32"); /* of this test alone */
    struct gguf *gguf;
    ASSERT_OK(gguf_open(path, &gguf));
    const struct gguf_tensor *table = gguf_find_tensor(gguf, "token_embd.weight");
    assert_non_null(table);
    const uint64_t at = table->offset + 5 * table->shape[0] * sizeof(float); /* the row of id 5 */
    gguf_close(gguf);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, (long)at, SEEK_SET));
    assert_int_equal(1, fwrite(&(float){NAN}, sizeof(float), 1, file));
    assert_int_equal(0, fclose(file));

    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    struct seen seen = {.in_order = true};
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .ids = (const int32_t[]){1, 5, 2},
            .count = 3,
            .threads = 1},
        look, &seen, &result));
    assert_false(result.passed);
    assert_true(seen.in_order);
    assert_true(seen.failed > 10);
    assert_int_equal(seen.failed, result.failed);
    salvo_model_close(model);
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "F32"), &model));
    const struct salvo_verify_options wrong[] = {
        {.backend = "cuda"},
        {.against = "cpu:mmx"},
        {.ids = (const int32_t[]){1, 100000}, .count = 2},
        {.ids = (const int32_t[]){1}, .count = 0},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_not_equal(SALVO_OK, salvo_verify(model, &wrong[i], NULL, NULL, &result));
    ASSERT_OK(salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .ids = (const int32_t[]){1},
            .count = 1,
            .threads = 1},
        NULL, NULL, &result));
    assert_true(result.passed);
    salvo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(other_weights_are_seen),
        cmocka_unit_test(distances_of_free_runs),
        cmocka_unit_test(elements_that_are_not_finite_are_seen),
        cmocka_unit_test(wrong_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
