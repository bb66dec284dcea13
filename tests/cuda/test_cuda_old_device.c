/* A device of a kind that there are no kernels for, on a driver without a GPU: it is named with its compute
 * capability, refused where it is asked for, and passed over by `auto` with a word. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const why = "Emulated GPU has compute capability 7.5; 8.0 is needed";
static char logged[512];
static unsigned lines;

static void keep_line(void *user, enum salvo_log_level level, const char *line)
{
    (void)user;
    assert_int_equal(SALVO_LOG_WARNING, level);
    snprintf(logged, sizeof logged, "%s", line);
    lines++;
}

static void is_named(void **state)
{
    (void)state;
    const char *backend;
    for (size_t i = 0; i < salvo_device_count(); i++) {
        struct salvo_device device = SALVO_DEVICE_INIT;
        ASSERT_OK(salvo_device_at(i, &device));
        assert_string_not_equal("cuda", device.backend);
    }
    assert_string_equal(why, salvo_device_unusable(0, &backend));
    assert_string_equal("cuda", backend);
    assert_null(salvo_device_unusable(1, &backend));
    assert_string_equal("", backend);
}

static void is_refused_or_passed_over(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q8_0"), &model));
    struct salvo_engine_options options = {
        .size = sizeof(struct salvo_engine_options), .backend = "cuda", .context = 64, .threads = 1};
    assert_int_equal(SALVO_ERROR_UNSUPPORTED, salvo_engine_open(model, &options, &engine));
    assert_string_equal(
        "backend 'cuda' has no device: Emulated GPU has compute capability 7.5; 8.0 is needed",
        salvo_error());
    salvo_log_set(keep_line, NULL);
    options.backend = "auto";
    ASSERT_OK(salvo_engine_open(model, &options, &engine));
    const char *taken = salvo_engine_info(engine)->backend;
    assert_string_not_equal("cuda", taken);
    char expected[200];
    snprintf(expected, sizeof expected, "cuda: %s; going on with %s", why, taken);
    assert_string_equal(expected, logged);
    assert_int_equal(1, lines);
    salvo_log_set(NULL, NULL);
    salvo_engine_close(engine);
    salvo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_named),
        cmocka_unit_test(is_refused_or_passed_over),
    };
    setenv("SALVO_FAKE_CAPABILITY", "75", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
