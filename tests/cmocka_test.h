/* cmocka with the headers it forgets to include. */
#ifndef CMOCKA_TEST_H
#define CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* SALVO_TEST_ONLY and SALVO_TEST_SKIP name tests to run and to leave out, with wildcards. */
#define RUN_CHOSEN_TESTS(tests, set_up) (choose_tests(), cmocka_run_group_tests(tests, set_up, NULL))

static inline void choose_tests(void)
{
    const char *only = getenv("SALVO_TEST_ONLY"), *skipped = getenv("SALVO_TEST_SKIP");
    if (only)
        cmocka_set_test_filter(only);
    if (skipped)
        cmocka_set_skip_filter(skipped);
}

/* A macro of that name would hide the library's function; what is built on it has to do without. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* The repetitions of a long test: fewer where all code is many times slower, with a sanitizer or on an
 * emulated CPU. The ordinary build does them all. */
#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define WITH_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__) /* gcc */
#define WITH_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__) || defined(SALVO_EMULATED_CPU)
#define LONG_RUN(count) ((count) / 20)
#elif defined(WITH_ADDRESS_SANITIZER)
#define LONG_RUN(count) ((count) / 4)
#else
#define LONG_RUN(count) (count)
#endif

#endif
