#include "engine/arguments.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

enum salvo_status argument_is_null(const char *function, const char *name)
{
    return fail(SALVO_ERROR_ARGUMENT, "%s: '%s' is NULL", function, name);
}

static size_t size_of(const void *sized)
{
    size_t size;
    memcpy(&size, sized, sizeof size);
    return size;
}

/* All sized structs begin with a size_t that must at least count itself. A size above the limit comes from a
 * struct that was not initialised. */
enum { MOST_STRUCT_BYTES = 65536 };

static enum salvo_status check_size(const char *name, const void *sized)
{
    const size_t size = size_of(sized);
    if (size >= sizeof size && size <= MOST_STRUCT_BYTES)
        return SALVO_OK;
    return fail(SALVO_ERROR_ARGUMENT, "the 'size' of struct %s is %zu; its INIT macro sets it", name, size);
}

/* Copies `size` bytes into a struct of `known` bytes: a shorter struct is filled up with zeros, a longer one
 * must have zeros beyond. */
static enum salvo_status copy_known(const char *name, const void *from, size_t size, size_t known, void *out)
{
    for (size_t i = known; i < size; i++) {
        if (((const uint8_t *)from)[i]) {
            return fail(SALVO_ERROR_ARGUMENT,
                "struct %s has %zu bytes and sets members that this version, with %zu, does not know", name,
                size, known);
        }
    }
    memset(out, 0, known);
    memcpy(out, from, size < known ? size : known);
    return SALVO_OK;
}

enum salvo_status options_read(const char *name, const void *given, size_t known, void *out)
{
    enum salvo_status status = SALVO_OK;
    memset(out, 0, known);
    if (given) {
        TRY(check_size(name, given));
        TRY(copy_known(name, given, size_of(given), known, out));
    }
    memcpy(out, &known, sizeof known);
cleanup:
    return status;
}

enum salvo_status result_write(const char *name, const void *result, size_t known, void *out)
{
    enum salvo_status status = check_size(name, out);
    if (status != SALVO_OK)
        return status;
    const size_t size = size_of(out);
    memset(out, 0, size);
    memcpy(out, result, size < known ? size : known);
    memcpy(out, &size, sizeof size);
    return SALVO_OK;
}

enum salvo_status items_read(const char *name, const void *given, size_t count, size_t item_size,
    size_t known, void **out_copy, const void **out)
{
    enum salvo_status status = SALVO_OK;
    const char *noun = name + strlen("salvo_");
    uint8_t *copy = NULL;
    size_t bytes;
    *out_copy = NULL;
    *out = given;
    if (count == 0)
        goto cleanup;
    if (!given)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the list of %zu %ss is NULL", count, noun));
    if (item_size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the size of a %s is 0; it is sizeof(struct %s)", noun, name));
    if (item_size != known) {
        if (!checked_mul(count, known, &bytes))
            TRY(fail(SALVO_ERROR_MEMORY, "a list of %zu %ss is too large", count, noun));
        TRY(NEW(&copy, bytes));
        for (size_t i = 0; i < count; i++)
            TRY(copy_known(name, (const uint8_t *)given + i * item_size, item_size, known, copy + i * known));
        *out = copy;
    }
    *out_copy = copy;
    copy = NULL;
cleanup:
    memory_free(copy);
    return status;
}

void item_write(const void *item, size_t known, void *out, size_t item_size, size_t index)
{
    uint8_t *place = (uint8_t *)out + index * item_size;
    memset(place, 0, item_size);
    memcpy(place, item, item_size < known ? item_size : known);
}

enum salvo_status messages_read(const struct salvo_message *given, size_t count, size_t item_size,
    struct salvo_message **out_copy, const struct salvo_message **out)
{
    enum salvo_status status = SALVO_OK;
    void *copy = NULL;
    const void *messages;
    *out_copy = NULL;
    *out = given;
    TRY(items_read("salvo_message", given, count, item_size, sizeof *given, &copy, &messages));
    *out = messages;
    for (size_t i = 0; i < count; i++) {
        if ((*out)[i].content.size && !(*out)[i].content.data)
            TRY(fail(SALVO_ERROR_ARGUMENT, "the content of message %zu of %zu is NULL", i + 1, count));
    }
    *out_copy = copy;
    copy = NULL;
cleanup:
    memory_free(copy);
    return status;
}
