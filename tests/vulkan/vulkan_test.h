/* Common to the Vulkan tests: they are skipped without a device, and fail on messages of a validation layer.
 */
#ifndef TESTS_VULKAN_TEST_H
#define TESTS_VULKAN_TEST_H

#include "backend/vulkan/vulkan_device.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <stdlib.h>

static inline void no_validation_messages(void **state)
{
    (void)state;
    assert_int_equal(0, vulkan_validation_messages());
}

/* Exit status 77 tells ctest that a test was skipped. SALVO_TEST_ONLY names the tests to run, with wildcards.
 */
#define RUN_VULKAN_TESTS(tests) \
    (choose_tests(), vulkan_device_count() ? cmocka_run_group_tests(tests, NULL, NULL) : 77)

static inline void choose_tests(void)
{
    const char *only = getenv("SALVO_TEST_ONLY");
    if (only)
        cmocka_set_test_filter(only);
}

/* Of `count` ids, the last is a step of its own; 0: as many as verify takes. */
static inline void assert_verified_with(const char *path, enum salvo_kv_type kv_type, size_t count)
{
    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    int32_t *ids = count ? some_ids((uint32_t)count, 64, 5) : NULL;
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .backend = "vulkan",
            .against = "cpu",
            .ids = ids,
            .count = count,
            .threads = 2,
            .kv_type = kv_type},
        NULL, NULL, &result));
    free(ids);
    if (!result.passed)
        fail_msg("%s: %u of %u outputs out of tolerance, mean divergence %g", path, result.failed,
            result.outputs, result.mean_divergence);
    assert_true(result.outputs >= 16);
    assert_true(result.same_argmax * 10 >= result.positions * 9); /* random weights: some are close */
    salvo_model_close(model);
    assert_int_equal(0, vulkan_validation_messages());
}

static inline void assert_verified(const char *path, enum salvo_kv_type kv_type)
{
    assert_verified_with(path, kv_type, 0);
}

#endif
