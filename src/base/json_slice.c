#include "base/json_slice.h"

#include "base/json.h"

#include <string.h>

bool json_slice_is_valid(struct salvo_text text)
{
    struct json_reader reader = {.longest = text.size};
    struct json_event event = {0};
    enum salvo_status status = SALVO_OK;
    json_reader_feed(&reader, text.data, text.size, true);
    while (status == SALVO_OK && event.kind != JSON_DONE)
        status = json_reader_next(&reader, &event);
    json_reader_free(&reader);
    return status == SALVO_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_space(struct salvo_text text, size_t at)
{
    while (at < text.size && is_space(text.data[at]))
        at++;
    return at;
}

/* The end of the string that begins at `at`; 0: it has none. */
static size_t string_end(struct salvo_text text, size_t at)
{
    for (at++; at < text.size; at++) {
        if (text.data[at] == '"')
            return at + 1;
        at += text.data[at] == '\\';
    }
    return 0;
}

size_t json_slice_end(struct salvo_text text)
{
    size_t depth = 0;
    for (size_t at = 0; at < text.size; at++) {
        const char c = text.data[at];
        if (c == '"') {
            at = string_end(text, at);
            if (at == 0 || depth == 0)
                return at;
            at--;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth <= 1)
                return depth ? at + 1 : 0;
            depth--;
        } else if (depth == 0) {
            return 0;
        }
    }
    return 0;
}

/* The value at `at` of a valid document. */
static struct salvo_text value_at(struct salvo_text text, size_t at)
{
    struct salvo_text value = {text.data + at, text.size - at};
    size_t end = json_slice_end(value);
    if (end == 0) {
        while (end < value.size && !is_space(value.data[end]) && !strchr(",]}", value.data[end]))
            end++;
    }
    value.size = end;
    return value;
}

/* The place behind a value and the comma after it. */
static size_t behind(struct salvo_text text, struct salvo_text value)
{
    size_t at = skip_space(text, (size_t)(value.data - text.data) + value.size);
    return at < text.size && text.data[at] == ',' ? skip_space(text, at + 1) : at;
}

static size_t first_place(struct salvo_text text, char bracket)
{
    const size_t at = skip_space(text, 0);
    return at < text.size && text.data[at] == bracket ? skip_space(text, at + 1) : text.size;
}

bool json_slice_item(struct salvo_text array, size_t *at, struct salvo_text *out)
{
    if (*at == 0)
        *at = first_place(array, '[');
    if (*at >= array.size || array.data[*at] == ']')
        return false;
    *out = value_at(array, *at);
    *at = behind(array, *out);
    return true;
}

enum salvo_status json_slice_string(struct salvo_text string, bool *out_is_string, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    struct json_reader reader = {.longest = string.size};
    struct json_event event = {0};
    json_reader_feed(&reader, string.data, string.size, true);
    TRY(json_reader_next(&reader, &event));
    *out_is_string = event.kind == JSON_STRING;
    if (*out_is_string && event.text.size)
        TRY(buffer_append(out, event.text.data, event.text.size));
cleanup:
    json_reader_free(&reader);
    return status;
}

bool json_slice_pair(
    struct salvo_text object, size_t *at, struct salvo_text *out_name, struct salvo_text *out_value)
{
    if (*at == 0)
        *at = first_place(object, '{');
    if (*at >= object.size || object.data[*at] != '"')
        return false;
    *out_name = value_at(object, *at);
    *at = skip_space(object, *at + out_name->size);
    if (*at >= object.size || object.data[*at] != ':')
        return false;
    *out_value = value_at(object, skip_space(object, *at + 1));
    *at = behind(object, *out_value);
    return true;
}

bool json_slice_member(struct salvo_text object, const char *key, struct salvo_text *out)
{
    struct salvo_text name, value;
    bool found = false;
    size_t at = 0;
    while (json_slice_pair(object, &at, &name, &value)) {
        struct buffer text = {0};
        bool is_string = false;
        if (json_slice_string(name, &is_string, &text) == SALVO_OK && text.size == strlen(key) &&
            (!text.size || memcmp(text.data, key, text.size) == 0)) {
            *out = value;
            found = true;
        }
        buffer_free(&text);
    }
    return found;
}
