/* A device that fails while a session uses it: an error that names the call and the device, nothing moves to
 * another one, and the engine can be opened again. */
#include "vulkan_test.h"

#include <stdlib.h>
#include <string.h>

static void check_loss(const char *call)
{
    const char *path = made_model("llama-tiny", "F32");
    const struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .backend = "auto", .context = 64, .batch = 8};
    struct fixture fixture = fixture_open(path, options);
    int32_t *ids = some_ids(6, fixture.vocabulary, 4), id;
    float *logits = malloc(fixture.vocabulary * sizeof *logits);
    set_greedy(fixture.session);
    assert_string_equal("vulkan", salvo_engine_info(fixture.engine)->backend);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    memcpy(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
    ASSERT_OK(salvo_session_next(fixture.session, &id));

    setenv("FAILING_DRIVER_LOST", call, 1);
    assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids + 5, 1));
    print_message("%s\n", salvo_error());
    assert_non_null(strstr(salvo_error(), call));
    assert_non_null(strstr(salvo_error(), salvo_engine_info(fixture.engine)->device));
    unsetenv("FAILING_DRIVER_LOST");
    assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids + 5, 1));
    assert_non_null(strstr(salvo_error(), "opened again"));
    assert_string_equal("vulkan", salvo_engine_info(fixture.engine)->backend);
    fixture_close(&fixture);

    fixture = fixture_open(path, options);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    assert_memory_equal(logits, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *logits);
    free(logits);
    free(ids);
    fixture_close(&fixture);
}

static void a_submission_that_fails(void **state)
{
    (void)state;
    check_loss("vkQueueSubmit");
}

static void a_wait_that_fails(void **state)
{
    (void)state;
    check_loss(vulkan_device_at(0)->features.timeline ? "vkWaitSemaphores" : "vkWaitForFences");
}

/* If logits cannot be read back, there are none: neither the logits of an earlier step nor zeros. */
static void logits_that_cannot_be_read_back(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 64});
    int32_t *ids = some_ids(6, fixture.vocabulary, 4);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    assert_non_null(salvo_session_logits(fixture.session));
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 5, 1));
    setenv("FAILING_DRIVER_LOST", "vkQueueSubmit", 1);
    assert_null(salvo_session_logits(fixture.session));
    assert_non_null(strstr(salvo_error(), "vkQueueSubmit"));
    unsetenv("FAILING_DRIVER_LOST");
    assert_null(salvo_session_logits(fixture.session));
    assert_non_null(strstr(salvo_error(), "opened again"));
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_submission_that_fails),
        cmocka_unit_test(a_wait_that_fails),
        cmocka_unit_test(logits_that_cannot_be_read_back),
    };
    return RUN_VULKAN_TESTS(tests);
}
