#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static salvo_log_function log_function;
static void *log_user;

void salvo_log_set(salvo_log_function function, void *user)
{
    log_function = function;
    log_user = user;
}

void log_line(enum salvo_log_level level, const char *format, ...)
{
    if (!log_function)
        return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_function(log_user, level, line);
}
