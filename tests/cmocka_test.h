/* cmocka with the headers it forgets to include. */
#ifndef CMOCKA_TEST_H
#define CMOCKA_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A macro of that name would hide the library's function. */
#undef fail

#endif
