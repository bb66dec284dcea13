/* Forms whose calls have a text for each parameter, as <parameter=KEY>VALUE</parameter>. */
#include "engine/tool_probe.h"

#include <string.h>

/* A rendering with the places of the words of its first call; false: they are not there. */
struct places {
    struct salvo_text text;
    const char *name, *key, *value; /* of which the last two may be NULL */
    const char *name_end, *key_end, *value_end;
};

static bool find_places(
    const struct probe *probe, const struct salvo_prompt *rendering, const char *value, struct places *out)
{
    *out = (struct places){.text = probe_answer(probe, rendering)};
    out->name = probe_find(out->text, "toolname0");
    if (!out->name)
        return false;
    out->name_end = out->name + strlen("toolname0");
    if (!value)
        return true;
    out->key = probe_find(probe_behind(out->text, out->name_end), "argkey0");
    out->value = out->key ? probe_find(probe_behind(out->text, out->key), value) : NULL;
    if (!out->value)
        return false;
    out->key_end = out->key + strlen("argkey0");
    out->value_end = out->value + strlen(value);
    return true;
}

static struct buffer *value_text(
    struct salvo_tool_form *form, enum tool_value_kind kind, enum tool_value_text text)
{
    return &form->texts[TEXT_VALUES + (int)kind * VALUE_TEXTS + (int)text];
}

/* The text from a place to a word behind it. Nothing is kept if the word is not there. */
static enum salvo_status keep_until(
    struct buffer *out, struct salvo_text text, const char *begin, const char *word)
{
    const char *end = begin ? probe_find(probe_behind(text, begin), word) : NULL;
    return end ? probe_keep(out, begin, end) : SALVO_OK;
}

/* The text that begins all texts behind a value: the last whole tag of it. White space before it is not a
 * part. */
static enum salvo_status find_close(struct salvo_tool_form *form, enum tool_value_kind kind)
{
    const struct buffer *more = value_text(form, kind, VALUE_MORE), *end = value_text(form, kind, VALUE_END),
                        *next = value_text(form, kind, VALUE_NEXT);
    size_t size = 0, begin = 0;
    while (size < more->size && size < end->size && more->data[size] == end->data[size] &&
           (!next->size || (size < next->size && next->data[size] == end->data[size])))
        size++;
    while (begin < size && tool_is_space(end->data[begin]))
        begin++;
    while (size > begin && tool_is_space(end->data[size - 1]))
        size--;
    if (size > begin && end->data[begin] == '<') {
        while (size > begin && end->data[size - 1] != '>')
            size--;
    }
    return size > begin ? probe_keep(value_text(form, kind, VALUE_CLOSE), end->data + begin, end->data + size)
                        : SALVO_OK;
}

/* The texts around values of one kind. */
static enum salvo_status read_values(const struct probe *probe, struct probe_style style,
    enum tool_value_kind kind, struct salvo_tool_form *form, bool *out_found)
{
    static const struct {
        const char *value, *one, *two;
    } probes[] = {
        {"argvalue0", "{\"argkey0\":\"argvalue0\"}", "{\"argkey0\":\"argvalue0\",\"argkey1\":\"argvalue1\"}"},
        {"12345", "{\"argkey0\":12345}", "{\"argkey0\":12345,\"argkey1\":\"argvalue1\"}"},
    };
    enum salvo_status status = SALVO_OK;
    struct salvo_prompt *one = NULL, *more = NULL, *two = NULL;
    struct places places;
    struct buffer middle = {0};
    *out_found = false;
    TRY(probe_calls(probe, style, probes[kind].one, NULL, &one));
    TRY(probe_calls(probe, style, probes[kind].two, NULL, &more));
    TRY(probe_calls(probe, style, probes[kind].one, "{\"argkey1\":\"argvalue1\"}", &two));
    if (!find_places(probe, one, probes[kind].value, &places))
        goto cleanup;
    if (probe_find(places.text, "{'argkey0'")) /* Python's notation: the template wants text */
        goto cleanup;
    if (kind == VALUE_STRING) {
        TRY(probe_keep(&form->texts[TEXT_BEFORE], places.text.data, places.name));
        TRY(probe_keep(&form->texts[TEXT_MIDDLE], places.name_end, places.key));
    }
    TRY(probe_keep(value_text(form, kind, VALUE_BEGIN), places.key_end, places.value));
    const struct salvo_text tail = probe_behind(places.text, places.value_end);
    TRY(probe_keep(value_text(form, kind, VALUE_END), tail.data, probe_end(probe, tail)));
    if (!find_places(probe, more, probes[kind].value, &places))
        goto cleanup;
    TRY(keep_until(value_text(form, kind, VALUE_MORE), places.text, places.value_end, "argkey1"));
    if (find_places(probe, two, probes[kind].value, &places)) {
        TRY(keep_until(value_text(form, kind, VALUE_NEXT), places.text, places.value_end, "toolname1"));
        const char *second = probe_find(probe_behind(places.text, places.value_end), "toolname1");
        TRY(keep_until(&middle, places.text, second ? second + strlen("toolname1") : NULL, "argkey1"));
        probe_number(&form->texts[TEXT_MIDDLE], &middle);
    }
    TRY(find_close(form, kind));
    *out_found =
        value_text(form, kind, VALUE_BEGIN)->size > 0 && value_text(form, kind, VALUE_MORE)->size > 0;
cleanup:
    salvo_free(one);
    salvo_free(more);
    salvo_free(two);
    buffer_free(&middle);
    return status;
}

/* Calls without parameters. */
static enum salvo_status read_none(
    const struct probe *probe, struct probe_style style, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_prompt *one = NULL, *two = NULL;
    struct places places;
    TRY(probe_calls(probe, style, "{}", NULL, &one));
    TRY(probe_calls(probe, style, "{}", "{\"argkey1\":\"argvalue1\"}", &two));
    *out_found = find_places(probe, one, NULL, &places);
    if (!*out_found)
        goto cleanup;
    const struct salvo_text tail = probe_behind(places.text, places.name_end);
    TRY(probe_keep(&form->texts[TEXT_NONE_END], tail.data, probe_end(probe, tail)));
    if (find_places(probe, two, NULL, &places))
        TRY(keep_until(&form->texts[TEXT_NONE_NEXT], places.text, places.name_end, "toolname1"));
    *out_found = form->texts[TEXT_NONE_END].size > 0;
cleanup:
    salvo_free(one);
    salvo_free(two);
    return status;
}

enum salvo_status probe_parameters(
    const struct probe *probe, struct probe_style style, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    TRY(read_values(probe, style, VALUE_STRING, form, out_found));
    if (*out_found)
        TRY(read_values(probe, style, VALUE_JSON, form, out_found));
    if (*out_found)
        TRY(read_none(probe, style, form, out_found));
    if (!*out_found)
        goto cleanup;
    *out_found = value_text(form, VALUE_STRING, VALUE_CLOSE)->size > 0 && form->texts[TEXT_MIDDLE].size > 0 &&
                 form->texts[TEXT_BEFORE].size > 0;
    const struct buffer *end = value_text(form, VALUE_STRING, VALUE_END),
                        *next = value_text(form, VALUE_STRING, VALUE_NEXT);
    TRY(probe_keep(&form->texts[TEXT_AFTER], end->data, end->data + end->size));
    if (next->size)
        TRY(probe_keep(&form->texts[TEXT_BETWEEN], next->data, next->data + next->size));
    if (*out_found)
        TRY(probe_marker(probe, form, out_found));
cleanup:
    return status;
}
