/* Checks of the arguments of public functions: required pointers, and structs with a size. */
#ifndef ENGINE_ARGUMENTS_H
#define ENGINE_ARGUMENTS_H

#include "base/status.h"

/* Returns SALVO_ERROR_ARGUMENT from the calling function if `pointer` is NULL. */
#define REQUIRE(pointer)                                 \
    do {                                                 \
        if (!(pointer))                                  \
            return argument_is_null(__func__, #pointer); \
    } while (0)

enum salvo_status argument_is_null(const char *function, const char *name);

/* Copies the caller's options into *out, a struct of `known` bytes: members that the caller's struct does not
 * have are zero. NULL gives zeros. `name` is the struct's, for errors. */
enum salvo_status options_read(const char *name, const void *given, size_t known, void *out);

/* Stores `result`, a struct of `known` bytes, in *out: as many bytes as the caller's struct has. */
enum salvo_status result_write(const char *name, const void *result, size_t known, void *out);

/* The caller's array of structs as an array of this version's struct of `known` bytes: the caller's own, or a
 * copy in *out_copy, which the caller frees with memory_free. */
enum salvo_status items_read(const char *name, const void *given, size_t count, size_t item_size,
    size_t known, void **out_copy, const void **out);

/* Stores `item`, a struct of `known` bytes, in place `index` of the caller's array. */
void item_write(const void *item, size_t known, void *out, size_t item_size, size_t index);

/* The caller's messages as an array of this version's struct: the caller's own, or a copy in *out_copy, which
 * the caller frees with memory_free. */
enum salvo_status messages_read(const struct salvo_message *given, size_t count, size_t item_size,
    struct salvo_message **out_copy, const struct salvo_message **out);

#endif
