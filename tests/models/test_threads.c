/* Threads of the library take no signals from their first instruction on: all but faults are blocked when
 * they are created, and the creator's own mask is as before afterwards. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static unsigned created, taking_signals, blocking_faults;

int __real_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);

/* The linker puts this in the place of pthread_create. */
int __wrap_pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGCHLD, SIGUSR1, SIGWINCH};
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t mask;
    assert_int_equal(0, pthread_sigmask(SIG_SETMASK, NULL, &mask));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        taking_signals += !sigismember(&mask, signals[i]);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        blocking_faults += (unsigned)sigismember(&mask, faults[i]);
    created++;
    return __real_pthread_create(thread, attributes, function, argument);
}

/* Checks the `expected` threads that were created since the last call. */
static void assert_no_signals(unsigned expected)
{
    sigset_t mask;
    assert_int_equal(expected, created);
    assert_int_equal(0, taking_signals);
    assert_int_equal(0, blocking_faults);
    assert_int_equal(0, pthread_sigmask(SIG_SETMASK, NULL, &mask));
    assert_int_equal(0, sigismember(&mask, SIGINT));
    assert_int_equal(1, sigismember(&mask, SIGUSR2));
    created = 0;
}

static void block_one_signal(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    assert_int_equal(0, pthread_sigmask(SIG_BLOCK, &mask, NULL));
}

static void engines(void **state)
{
    (void)state;
    block_one_signal();
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .threads = 3});
    assert_no_signals(2);
    fixture_close(&fixture);
}

static void quantising(void **state)
{
    (void)state;
    const char *path = made_model("llama-tiny", "F32");
    char quantised[4096];
    struct salvo_model *model;
    block_one_signal();
    snprintf(quantised, sizeof quantised, "%s.q8", path);
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_quantize(model, quantised,
        &(struct salvo_quantize_options){
            .size = sizeof(struct salvo_quantize_options), .type = "Q8_0", .threads = 2}));
    assert_true(created > 0);
    assert_no_signals(created);
    remove(quantised);
    salvo_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines),
        cmocka_unit_test(quantising),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
