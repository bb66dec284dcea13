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

/* How often a long test does what it repeats; with ThreadSanitizer, which is that much slower, a twentieth.
 */
#if defined(__SANITIZE_THREAD__)
#define LONG_RUN(count) ((count) / 20)
#else
#define LONG_RUN(count) (count)
#endif

#endif
