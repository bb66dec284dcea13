/* Log messages, discarded until the program sets a function (salvo_log_set). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

void log_line(enum salvo_log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
