/* Errors: a function returns a status and records one readable line. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <salvo/salvo.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(format_index, first_argument) \
    __attribute__((format(printf, format_index, first_argument)))
#else
#define PRINTF_LIKE(format_index, first_argument)
#endif

/* Records the message as this thread's last error and returns `status`. */
enum salvo_status fail(enum salvo_status status, const char *format, ...) PRINTF_LIKE(2, 3);

/* Puts context ("model.gguf: tensor 'x': ") before the recorded message, unless the message begins with
 * it; returns `status`. */
enum salvo_status fail_within(enum salvo_status status, const char *format, ...) PRINTF_LIKE(2, 3);

/* Static analysers see one file at a time: this tells them that a failure is never SALVO_OK. */
#ifdef __clang_analyzer__
#define fail(status, ...)        (fail(status, __VA_ARGS__), (status))
#define fail_within(status, ...) (fail_within(status, __VA_ARGS__), (status))
#endif

/* Every function that can fail has `enum salvo_status status = SALVO_OK;` and one `cleanup:` label. */
#define TRY(call)               \
    do {                        \
        status = (call);        \
        if (status != SALVO_OK) \
            goto cleanup;       \
    } while (0)

#endif
