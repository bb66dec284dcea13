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

/* Exit status 77 tells ctest that a test was skipped. */
#define RUN_VULKAN_TESTS(tests) (vulkan_device_count() ? RUN_CHOSEN_TESTS(tests, NULL) : 77)

/* The last of the `count` ids is a step of its own; 0: as many ids as verify takes. */
static inline void assert_verified_with(const char *path, enum salvo_kv_type kv_type, size_t count)
{
    int32_t *ids = count ? some_ids((uint32_t)count, 64, 5) : NULL;
    const struct salvo_verify_result result = verify_against_cpu("vulkan", path, kv_type, ids, count);
    free(ids);
    assert_true(result.outputs >= 16);
    assert_true(result.same_argmax * 10 >= result.positions * 9); /* random weights: some are close */
    assert_int_equal(0, vulkan_validation_messages());
}

static inline void assert_verified(const char *path, enum salvo_kv_type kv_type)
{
    assert_verified_with(path, kv_type, 0);
}

#endif
