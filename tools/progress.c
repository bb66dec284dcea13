#include "progress.h"

#include "measure.h"
#include "terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static double last_shown;

void progress_show(const char *format, ...)
{
    if (output_flags.quiet || !isatty(STDERR_FILENO) || !terminal_is_smart() ||
        seconds_now() - last_shown < 0.1)
        return;
    last_shown = seconds_now();
    va_list arguments;
    va_start(arguments, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
}

const char *progress_bar(double share, char *text)
{
    enum { WIDTH = 20 };
    int filled = share < 0 ? 0 : share > 1 ? WIDTH : (int)(share * WIDTH);
    char bar[WIDTH + 1];
    memset(bar, ' ', WIDTH);
    memset(bar, '=', (size_t)filled);
    bar[WIDTH] = 0;
    snprintf(text, 32, "[%s] %.0f%%", bar, share * 100);
    return text;
}

void progress_clear(void)
{
    if (last_shown > 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    last_shown = 0;
}
