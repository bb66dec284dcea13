/* cmocka with the headers it forgets to include. */
#ifndef CMOCKA_TEST_H
#define CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A macro of that name would hide the library's function; what is built on it has to do without. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* The repetitions of a long test: fewer where all code is many times slower, with a sanitizer or on an
 * emulated CPU. The ordinary build does them all. */
#if defined(__SANITIZE_THREAD__) || defined(SALVO_EMULATED_CPU)
#define LONG_RUN(count) ((count) / 20)
#elif defined(__SANITIZE_ADDRESS__)
#define LONG_RUN(count) ((count) / 4)
#else
#define LONG_RUN(count) (count)
#endif

#endif
