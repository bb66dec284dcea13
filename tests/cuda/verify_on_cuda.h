/* `salvo verify` of a model that make-model makes, on CUDA against the CPU. */
#ifndef TESTS_CUDA_VERIFY_AGAINST_CPU_H
#define TESTS_CUDA_VERIFY_AGAINST_CPU_H

#include "cmocka_test.h"
#include "engine_fixture.h"

static inline void print_failed_output(void *user, const struct salvo_verify_output *output)
{
    (void)user;
    if (output->not_finite || !(output->error <= output->tolerance))
        print_message("%s: %g\n", output->operation, output->error);
}

/* After `count` ids, 6 at most. */
static inline void verify_against_cpu(
    const char *shape, const char *mix, enum salvo_kv_type kv_type, size_t count)
{
    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    ASSERT_OK(salvo_model_open(made_model(shape, mix), &model));
    const struct salvo_verify_options options = {.size = sizeof(struct salvo_verify_options),
        .backend = "cuda",
        .against = "cpu",
        .ids = (const int32_t[]){1, 5, 3, 4, 96, 6},
        .count = count,
        .threads = 1,
        .kv_type = kv_type};
    ASSERT_OK(salvo_verify(model, &options, print_failed_output, NULL, &result));
    assert_true(result.passed);
    assert_int_equal(0, result.failed);
    assert_true(result.outputs > 20);
    salvo_model_close(model);
}

#endif
