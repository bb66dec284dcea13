/* Failures of a CUDA device, on a driver without a GPU: every call fails once, memory is short, a kernel does
 * not end. Each gives a clear error, nothing is lost, and the device can be opened again. Kernels are not run
 * here: test_cuda_backend.c does that. */
#include "base/memory.h"
#include "cmocka_test.h"
#include "cuda/find_fake_cuda.h"
#include "engine_fixture.h"

#include <stdlib.h>
#include <string.h>

static const struct salvo_engine_options options = {
    .size = sizeof(struct salvo_engine_options), .backend = "cuda", .context = 64, .batch = 16, .threads = 1};

static int open_fake(void **state)
{
    if (find_fake(state))
        return -1;
    fake->idle = true;
    /* Devices are found once per process: before anything goes wrong. */
    struct salvo_device device = SALVO_DEVICE_INIT;
    return salvo_device_at(0, &device) == SALVO_OK && strcmp(device.backend, "cuda") == 0 ? 0 : -1;
}

static void fail_call(unsigned long nth, int code)
{
    fake->fail_at = nth ? fake->calls + nth : 0;
    fake->code = code;
}

static void every_call_of_opening(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine;
    unsigned long nth = 1;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    for (;; nth++) {
        fail_call(nth, 999);
        enum salvo_status status = salvo_engine_open(model, &options, &engine);
        bool reached = fake->calls >= fake->fail_at;
        fail_call(0, 0);
        if (status == SALVO_OK) {
            salvo_engine_close(engine);
            if (!reached)
                break;
            continue; /* a call whose failure has no effect, such as a release */
        }
        assert_null(engine);
        assert_int_equal(SALVO_ERROR_DEVICE, status);
        assert_non_null(strstr(salvo_error(), "cuda device 0 (Emulated GPU): cu"));
        assert_non_null(strstr(salvo_error(), "a fake error (999)"));
        assert_int_equal(0, fake->taken);
    }
    assert_true(nth > 100);
    assert_int_equal(0, fake->taken);
    salvo_model_close(model);
}

/* From the first step on: with kernels that do nothing, no step ends, which is one more error. */
static void every_call_of_a_step(void **state)
{
    (void)state;
    const char *path = made_model("rwkv7-tiny", "Q8_0");
    const int32_t ids[] = {1, 2, 3};
    for (unsigned long nth = 1; nth < 40; nth++) {
        struct fixture fixture = fixture_open(path, options);
        fail_call(nth, 700);
        enum salvo_status status = salvo_session_feed(fixture.session, ids, 1 + 2 * (nth % 2));
        bool reached = fake->calls >= fake->fail_at;
        fail_call(0, 0);
        assert_int_equal(SALVO_ERROR_DEVICE, status);
        bool ended = strstr(salvo_error(), "ended without a result") != NULL;
        assert_true(ended || strstr(salvo_error(), "an illegal memory access (700)"));
        if (!ended) { /* every later call returns the error and does nothing */
            assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, ids, 1));
            assert_non_null(strstr(salvo_error(), "was lost by an earlier error"));
            assert_non_null(strstr(salvo_error(), "illegal memory access"));
        }
        fixture_close(&fixture);
        assert_int_equal(0, fake->taken);
        if (!reached)
            break;
    }
}

static void kernels_that_do_not_end(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q4_0"), options);
    for (int i = 0; i < 3; i++) { /* the device is as it was */
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(fixture.session, (const int32_t[]){1}, 1));
        assert_non_null(strstr(salvo_error(), "ended without a result"));
        assert_int_equal(0, salvo_session_position(fixture.session));
    }
    fixture_close(&fixture);
}

static void memory(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine;
    const size_t all = fake->memory;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    fake->memory = 1 << 18;
    assert_int_equal(SALVO_ERROR_MEMORY, salvo_engine_open(model, &options, &engine));
    assert_non_null(strstr(salvo_error(), "weights of"));
    assert_non_null(strstr(salvo_error(), "a context of 64 for 1 session"));
    assert_non_null(strstr(salvo_error(), "of 1 MB are free"));
    fake->memory = all;

    /* Memory that goes while it is opened. */
    unsigned long nth = 1, refused = 0;
    for (;; nth++) {
        fail_call(nth, 2);
        enum salvo_status status = salvo_engine_open(model, &options, &engine);
        bool reached = fake->calls >= fake->fail_at;
        fail_call(0, 0);
        refused += status == SALVO_ERROR_MEMORY;
        if (status == SALVO_OK)
            salvo_engine_close(engine);
        if (!reached)
            break;
    }
    assert_true(refused > 5);
    assert_int_equal(0, fake->taken);
    salvo_model_close(model);
}

static void every_allocation_of_the_host(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine = NULL;
    uint64_t nth = 1;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    for (;; nth++) {
        memory_fail_at(nth);
        enum salvo_status status = salvo_engine_open(model, &options, &engine);
        memory_fail_at(0);
        if (status == SALVO_OK)
            break;
        assert_int_equal(SALVO_ERROR_MEMORY, status);
        assert_int_equal(0, fake->taken);
    }
    assert_true(nth > 20);
    salvo_engine_close(engine);
    salvo_model_close(model);
}

static void wrong_devices(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_engine_options other = options;
    other.device = 7;
    ASSERT_OK(salvo_model_open(made_model("llama-tiny", "Q4_0"), &model));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_open(model, &other, &engine));
    assert_string_equal("backend 'cuda' has no device 7: it has 1", salvo_error());
    salvo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_opening),
        cmocka_unit_test(every_call_of_a_step),
        cmocka_unit_test(kernels_that_do_not_end),
        cmocka_unit_test(memory),
        cmocka_unit_test(every_allocation_of_the_host),
        cmocka_unit_test(wrong_devices),
    };
    return cmocka_run_group_tests(tests, open_fake, NULL);
}
