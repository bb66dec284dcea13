/* Methods of Metal that are missing or have other types: an error names them. Each is tried in a process of
 * its own, because devices are found once. */
#include "backend/metal/metal_device.h"
#include "metal/find_fake_metal.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_OF(selector, ...)       selector,
#define SELECTOR(name, receiver, ...) FIRST_OF(__VA_ARGS__, 0)
static const char *const selectors[] = {
    OBJC_CALLS(SELECTOR, SELECTOR, SELECTOR, SELECTOR, SELECTOR, SELECTOR, SELECTOR, SELECTOR, SELECTOR)};
enum { SELECTORS = sizeof selectors / sizeof *selectors };

/* Older versions of macOS lack these selectors; the engine works without the features that need them. */
static bool may_be_missing(const char *selector)
{
    return strcmp(selector, "setMathMode:") == 0 ||
           strcmp(selector, "newResidencySetWithDescriptor:error:") == 0;
}

/* Whether the engine opens, or an error names the selector. */
static bool is_noticed(struct salvo_model *model, const char *selector, bool opens)
{
    struct salvo_engine_options options = metal_options(1);
    struct salvo_engine *engine;
    options.context = 32;
    options.batch = 8;
    const enum salvo_status status = salvo_engine_open(model, &options, &engine);
    if (!opens)
        return status == SALVO_ERROR_UNSUPPORTED && strstr(salvo_error(), selector);
    if (status == SALVO_OK)
        salvo_engine_close(engine);
    return status == SALVO_OK && fake_metal()->violations == 0;
}

/* Runs the check in a child, which has not found any device yet. */
static void check_in_child(const char *selector, bool is_hidden, bool opens)
{
    struct salvo_model *model;
    int result;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct fake_metal *fake = fake_metal();
        *(is_hidden ? &fake->hidden_method : &fake->changed_method) = selector;
        const bool noticed = is_noticed(model, selector, opens);
        if (!noticed)
            fprintf(stderr, "%s: %s\n", selector, salvo_error());
        _exit(noticed ? 0 : 1);
    }
    assert_int_equal(child, waitpid(child, &result, 0));
    salvo_model_close(model);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail_msg("%s: %s was not noticed", selector, is_hidden ? "its absence" : "another type");
}

static void a_method_that_is_missing_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < SELECTORS; i++)
        check_in_child(selectors[i], true, may_be_missing(selectors[i]));
}

static void a_method_of_other_types_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < SELECTORS; i++)
        check_in_child(selectors[i], false, false);
}

/* A device without what the kernels need is not one of the devices; the reason names it. */
static void a_device_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    static const char *const lacks[] = {"unified memory", "simdgroup matrices"};
    for (int i = 0; i < 2; i++) {
        int result;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            *(i ? &fake_metal()->is_apple7 : &fake_metal()->has_unified_memory) = 0;
            const bool is_found = metal_device_count() != 0;
            const char *why = metal_unusable(0);
            _exit(!is_found && why && strstr(why, "Emulated Apple GPU") && strstr(why, lacks[i]) ? 0 : 1);
        }
        assert_int_equal(child, waitpid(child, &result, 0));
        if (!WIFEXITED(result) || WEXITSTATUS(result) != 0)
            fail_msg("a device without %s", lacks[i]);
    }
}

enum { THREADS = 8 };

static pthread_barrier_t start;

static void *count_devices(void *out)
{
    pthread_barrier_wait(&start);
    *(uint32_t *)out = metal_device_count();
    return NULL;
}

/* Engines of several threads find the same devices, whichever is the first to look. */
static bool threads_find_one_device(void)
{
    pthread_t threads[THREADS];
    uint32_t counts[THREADS];
    bool same = pthread_barrier_init(&start, NULL, THREADS) == 0;
    for (int i = 0; i < THREADS; i++)
        same = pthread_create(&threads[i], NULL, count_devices, &counts[i]) == 0 && same;
    for (int i = 0; i < THREADS; i++)
        same = pthread_join(threads[i], NULL) == 0 && counts[i] == 1 && same;
    return same;
}

static void devices_are_found_once(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        int result;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(threads_find_one_device() ? 0 : 1);
        assert_int_equal(child, waitpid(child, &result, 0));
        assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_found_once),
        cmocka_unit_test(a_method_that_is_missing_is_named),
        cmocka_unit_test(a_method_of_other_types_is_named),
        cmocka_unit_test(a_device_that_cannot_be_used_is_named),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
