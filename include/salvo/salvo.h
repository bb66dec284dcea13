/*
 * salvo: language models from GGUF files, one submission per token.
 *
 * This header is the whole interface and its manual. It needs nothing but a C11 or C++ compiler.
 *
 * OWNERSHIP. Every object made by a `salvo_*_open` is destroyed by the matching `salvo_*_close`, which
 * accepts NULL. Pointers returned by a getter belong to the object asked and live as long as it does. An
 * object may be closed only after the objects made from it.
 *
 * ERRORS. Functions that can fail return `enum salvo_status`; results go to the last parameters, which
 * are nulled first. After a failure salvo_error() has one readable line about it, for the calling thread.
 *
 * THREADS. A model is immutable once open and may be used by any number of threads at once.
 */
#ifndef SALVO_H
#define SALVO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SALVO_VERSION_MAJOR 0
#define SALVO_VERSION_MINOR 1
#define SALVO_VERSION_PATCH 0

/* "0.1.0" */
const char *salvo_version(void);

/* ---- Status ---------------------------------------------------------------------------------------------
 */

enum salvo_status {
    SALVO_OK = 0,
    SALVO_ERROR_ARGUMENT,    /* the caller passed something that cannot be meant */
    SALVO_ERROR_IO,          /* a file could not be opened, read or written */
    SALVO_ERROR_FORMAT,      /* a file is damaged or contradicts itself */
    SALVO_ERROR_UNSUPPORTED, /* a file or device is valid but not handled */
    SALVO_ERROR_MEMORY,      /* not enough memory */
};

/* The last error of the calling thread: one line, no newline, names the file, key or tensor. Never NULL. */
const char *salvo_error(void);

enum salvo_log_level { SALVO_LOG_WARNING, SALVO_LOG_INFO, SALVO_LOG_DEBUG };

/* Where warnings go. `line` has no newline. Set once, before other calls; NULL restores silence, the default.
 */
typedef void (*salvo_log_function)(void *user, enum salvo_log_level level, const char *line);
void salvo_log_set(salvo_log_function function, void *user);

/* ---- Values ----------------------------------------------------------------------------------------------
 */

/* The numbers are those of the GGUF format. */
enum salvo_type {
    SALVO_U8 = 0,
    SALVO_I8 = 1,
    SALVO_U16 = 2,
    SALVO_I16 = 3,
    SALVO_U32 = 4,
    SALVO_I32 = 5,
    SALVO_F32 = 6,
    SALVO_BOOL = 7,
    SALVO_STRING = 8,
    SALVO_ARRAY = 9,
    SALVO_U64 = 10,
    SALVO_I64 = 11,
    SALVO_F64 = 12,
};

/* Bytes with a length; not terminated by NUL. */
struct salvo_text {
    const char *data;
    size_t size;
};

/* One metadata value. Every unsigned type is in `u`, every signed one in `i`, both floats in `f`. */
struct salvo_value {
    enum salvo_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct salvo_text text;
        struct {
            enum salvo_type type;
            uint64_t count;
            const uint8_t *data; /* private */
        } array;
    };
};

/*
 * Takes the first item out of an array: `array` then holds the rest. False when it is empty. Work on a copy:
 *     struct salvo_value rest = value, item;
 *     while (salvo_array_next(&rest, &item)) ...
 */
bool salvo_array_next(struct salvo_value *array, struct salvo_value *out_item);

#ifdef __cplusplus
}
#endif

#endif
