#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[1024];

#define STRINGIFY_(x) #x
#define STRINGIFY(x)  STRINGIFY_(x)

const char *salvo_version(void)
{
    return STRINGIFY(SALVO_VERSION_MAJOR) "." STRINGIFY(SALVO_VERSION_MINOR) "." STRINGIFY(
        SALVO_VERSION_PATCH);
}

const char *salvo_error(void)
{
    return last_error;
}

/* Names from a file may contain any bytes; an error is one printable line. */
static void keep_to_one_line(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
    }
}

enum salvo_status(fail)(enum salvo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    keep_to_one_line(last_error);
    return status;
}

enum salvo_status(fail_within)(enum salvo_status status, const char *format, ...)
{
    char inner[sizeof last_error];
    memcpy(inner, last_error, sizeof inner);

    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    if (length >= 0 && strncmp(inner, last_error, (size_t)length) == 0)
        memcpy(last_error, inner, sizeof last_error);
    else if (length >= 0 && (size_t)length < sizeof last_error)
        snprintf(last_error + length, sizeof last_error - (size_t)length, "%s", inner);
    keep_to_one_line(last_error);
    return status;
}
