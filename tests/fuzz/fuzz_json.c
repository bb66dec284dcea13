/*
 * JSON, after a byte that seeds the sizes of the pieces: the reader gives the same events, or the same error,
 * for pieces of any size, and reads what the writer writes as the same value.
 */
#include "../unit/json_echo.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_same(struct salvo_text left, struct salvo_text right)
{
    if (left.size != right.size || (left.size && memcmp(left.data, right.data, left.size) != 0))
        abort();
}

static enum salvo_status echo(
    struct salvo_text json, size_t piece, uint64_t seed, struct json_writer style, struct buffer *out)
{
    style.write = json_to_buffer;
    style.user = out;
    return json_echo(json, piece, seed, 1000, &style);
}

static struct salvo_text text_of(const struct buffer *buffer)
{
    return (struct salvo_text){buffer->data, buffer->size};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const struct salvo_text json = {(const char *)data + 1, size - 1};
    const struct json_writer compact = {0}, pretty = {.indent = " ", .key_separator = ": ", .ascii = true};
    struct buffer whole = {0}, other = {0}, again = {0};
    char error[256] = "";
    enum salvo_status status = echo(json, 0, 0, compact, &whole);
    strncpy(error, salvo_error(), sizeof error - 1);
    if (echo(json, 1 + data[0] % 16, data[0], compact, &other) != status)
        abort();
    expect_same(text_of(&whole), text_of(&other));
    if (status != SALVO_OK) {
        expect_same((struct salvo_text){error, strlen(error)},
            (struct salvo_text){salvo_error(), strlen(salvo_error())});
    } else {
        other.size = 0;
        if (echo(text_of(&whole), 0, 0, pretty, &other) != SALVO_OK ||
            echo(text_of(&other), 0, 0, compact, &again) != SALVO_OK)
            abort();
        expect_same(text_of(&whole), text_of(&again));
    }
    buffer_free(&whole);
    buffer_free(&other);
    buffer_free(&again);
    return 0;
}
