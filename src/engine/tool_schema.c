/* Tools and calls as JSON. */
#include "base/json_slice.h"
#include "engine/tool_form.h"

#include <string.h>

static bool is_true(struct salvo_text object, const char *key)
{
    struct salvo_text value;
    return json_slice_member(object, key, &value) && value.size == 4 && memcmp(value.data, "true", 4) == 0;
}

enum salvo_status tool_read(struct salvo_text text, size_t number, struct tool *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text type, function, name;
    bool is_string = false;
    struct buffer kind = {0};
    if (json_slice_member(text, "type", &type))
        TRY(json_slice_string(type, &is_string, &kind));
    out->is_function = is_string && kind.size == 8 && memcmp(kind.data, "function", 8) == 0;
    if (!out->is_function)
        goto cleanup;
    is_string = false;
    if (json_slice_member(text, "function", &function) && json_slice_member(function, "name", &name))
        TRY(json_slice_string(name, &is_string, &out->name));
    bool fits = is_string && out->name.size > 0 && out->name.size <= TOOL_NAME_LONGEST;
    for (size_t i = 0; fits && i < out->name.size; i++)
        fits = is_tool_name(out->name.data[i]);
    if (!fits) {
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "tool %zu needs a function with a name of at most %d letters, digits, '_', '-' and '.'", number,
            TOOL_NAME_LONGEST));
    }
    if (!json_slice_member(function, "parameters", &out->parameters))
        out->parameters = (struct salvo_text){0};
    out->strict = is_true(function, "strict");
cleanup:
    buffer_free(&kind);
    return status;
}

static bool is_word(struct salvo_text value, const char *word)
{
    return value.size == strlen(word) && memcmp(value.data, word, value.size) == 0;
}

enum tool_value_kind tool_value_kind(struct salvo_text schema)
{
    struct salvo_text type, list, item;
    size_t at = 0;
    if (json_slice_member(schema, "type", &type))
        return is_word(type, "\"string\"") ? VALUE_STRING : VALUE_JSON;
    if (!json_slice_member(schema, "enum", &list))
        return VALUE_JSON;
    while (json_slice_item(list, &at, &item)) {
        if (item.data[0] != '"')
            return VALUE_JSON;
    }
    return VALUE_STRING;
}

enum salvo_status tool_check_list(const char *what, struct salvo_text text)
{
    size_t at = 0;
    while (at < text.size && strchr(" \t\r\n", text.data[at]))
        at++;
    if (at < text.size && text.data[at] == '[' && json_slice_is_valid(text))
        return SALVO_OK;
    return fail(SALVO_ERROR_ARGUMENT, "the %s are no JSON array", what);
}
