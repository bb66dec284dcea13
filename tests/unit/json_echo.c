#include "json_echo.h"

#include <stdlib.h>

enum salvo_status json_to_buffer(void *user, const char *data, size_t size)
{
    return buffer_append(user, data, size);
}

static void write_event(struct json_writer *writer, const struct json_event *event)
{
    switch (event->kind) {
    case JSON_NULL:
        json_null(writer);
        break;
    case JSON_FALSE:
    case JSON_TRUE:
        json_bool(writer, event->kind == JSON_TRUE);
        break;
    case JSON_INTEGER:
        json_signed(writer, event->integer);
        break;
    case JSON_NUMBER:
        json_float(writer, event->number, false);
        break;
    case JSON_STRING:
        json_text(writer, event->text);
        break;
    case JSON_KEY:
        json_key_text(writer, event->text);
        break;
    case JSON_ARRAY_BEGIN:
        json_begin(writer, '[');
        break;
    case JSON_ARRAY_END:
        json_end(writer, ']');
        break;
    case JSON_OBJECT_BEGIN:
        json_begin(writer, '{');
        break;
    case JSON_OBJECT_END:
        json_end(writer, '}');
        break;
    default:
        break;
    }
}

enum salvo_status json_echo(
    struct salvo_text json, size_t piece, uint64_t seed, size_t longest, struct json_writer *writer)
{
    enum salvo_status status = SALVO_OK;
    struct json_reader reader = {.longest = longest};
    struct json_event event = {JSON_MORE};
    char *copy = NULL; /* of one piece, so that a sanitizer sees a read beyond it */
    size_t at = 0;
    do {
        TRY(json_reader_next(&reader, &event));
        write_event(writer, &event);
        if (event.kind == JSON_MORE) {
            size_t size = json.size - at;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (piece && (seed >> 33) % (piece + 1) < size)
                size = (seed >> 33) % (piece + 1);
            free(copy);
            copy = malloc(size ? size : 1);
            if (!copy)
                abort();
            for (size_t i = 0; i < size; i++)
                copy[i] = json.data[at + i];
            at += size;
            json_reader_feed(&reader, copy, size, at == json.size);
        }
    } while (event.kind != JSON_DONE);
    TRY(writer->status);

cleanup:
    free(copy);
    json_reader_free(&reader);
    return status;
}
