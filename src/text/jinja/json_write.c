#include "text/jinja/builtins.h"
#include "text/jinja/json.h"
#include "text/jinja/literals.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct writer {
    struct interpreter *in;
    const struct json_style *style;
    struct text *text;
};

static enum salvo_status write_escape(struct writer *writer, uint32_t code, uint32_t mark)
{
    static const char letters[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    char shown[16];
    for (size_t i = 0; letters[i]; i++) {
        if (code == (unsigned char)letters[i]) {
            snprintf(shown, sizeof shown, "\\%c", names[i]);
            return text_ascii(writer->text, shown, mark);
        }
    }
    unsigned first = code, second = 0xdc00 | (code & 0x3ff);
    if (code >= 0x10000)
        snprintf(shown, sizeof shown, "\\u%04x\\u%04x", 0xd7c0 + (first >> 10), second);
    else
        snprintf(shown, sizeof shown, "\\u%04x", first);
    return text_ascii(writer->text, shown, mark);
}

static enum salvo_status write_string(struct writer *writer, struct string string)
{
    enum salvo_status status = SALVO_OK;
    TRY(spend(writer->in, string.size / 4));
    TRY(text_char(writer->text, '"' | CHAR_DATA));
    for (size_t i = 0; i < string.size; i++) {
        uint32_t code = CHAR_CODE(string.chars[i]);
        bool escaped = code < 0x20 || code == '"' || code == '\\' || (writer->style->ascii && code >= 0x7f);
        escaped = escaped && !(writer->style->ascii && code == 0x7f);
        if (escaped)
            TRY(write_escape(writer, code, string.chars[i] & CHAR_DATA));
        else
            TRY(text_char(writer->text, string.chars[i]));
    }
    TRY(text_char(writer->text, '"' | CHAR_DATA));

cleanup:
    return status;
}

static enum salvo_status write_line(struct writer *writer, unsigned level)
{
    enum salvo_status status = SALVO_OK;
    if (!writer->style->indented)
        goto cleanup;
    TRY(text_char(writer->text, '\n' | CHAR_DATA));
    for (unsigned i = 0; i < level; i++) {
        TRY(spend(writer->in, writer->style->indent.size + 1));
        TRY(text_string(writer->text, writer->style->indent));
    }

cleanup:
    return status;
}

static enum salvo_status write_separator(struct writer *writer, unsigned level)
{
    enum salvo_status status = SALVO_OK;
    if (writer->style->separated)
        TRY(text_string(writer->text, writer->style->item_separator));
    else
        TRY(text_ascii(writer->text, writer->style->indented ? "," : ", ", CHAR_DATA));
    TRY(write_line(writer, level));

cleanup:
    return status;
}

static enum salvo_status write_number(struct writer *writer, const struct value *value)
{
    char shown[40];
    const char *infinite = value->number < 0 ? "-Infinity" : "Infinity";
    if (value->kind == VALUE_INT)
        snprintf(shown, sizeof shown, "%" PRId64, value->integer);
    else if (isfinite(value->number))
        show_float(value->number, shown);
    else
        snprintf(shown, sizeof shown, "%s", isnan(value->number) ? "NaN" : infinite);
    return text_ascii(writer->text, shown, CHAR_DATA);
}

static enum salvo_status write_value(struct writer *writer, struct value value, unsigned level);

static enum salvo_status write_key(struct writer *writer, struct value key)
{
    enum salvo_status status = SALVO_OK;
    bool quoted = key.kind >= VALUE_NONE && key.kind <= VALUE_FLOAT;
    if (key.kind != VALUE_STRING && !quoted)
        TRY(fail(SALVO_ERROR_FORMAT, "tojson: '%s' cannot be a key", value_type(&key)));
    if (quoted)
        TRY(text_char(writer->text, '"' | CHAR_DATA));
    TRY(write_value(writer, key, 0));
    if (quoted)
        TRY(text_char(writer->text, '"' | CHAR_DATA));
    if (writer->style->separated)
        TRY(text_string(writer->text, writer->style->key_separator));
    else
        TRY(text_ascii(writer->text, ": ", CHAR_DATA));

cleanup:
    return status;
}

/* The same pairs, in the order of their keys. */
static enum salvo_status sort_keys(struct interpreter *in, struct value *dict)
{
    static const uint32_t name[] = {'d', 'i', 'c', 't', 's', 'o', 'r', 't'};
    enum salvo_status status = SALVO_OK;
    const struct value case_matters = value_bool(true);
    const struct arguments arguments = {.values = &case_matters, .count = 1};
    const struct builtin *dictsort = builtin_find(builtin_filters, (struct string){name, 8});
    struct value pairs = {0}, sorted;
    TRY(builtin_call(in, dictsort, *dict, &arguments, &pairs));
    TRY(dict_new(&in->heap, dict->dict->count, &sorted));
    for (size_t i = 0; i < dict->dict->count; i++) {
        const struct value *pair = pairs.list->items[i].list->items;
        sorted.dict->pairs[sorted.dict->count++] = (struct pair){pair[0], pair[1]};
    }
    *dict = sorted;

cleanup:
    return status;
}

static enum salvo_status write_dict(struct writer *writer, struct value value, unsigned level)
{
    enum salvo_status status = SALVO_OK;
    if (!value.dict->count)
        return text_ascii(writer->text, "{}", CHAR_DATA);
    if (writer->style->sorted)
        TRY(sort_keys(writer->in, &value));
    TRY(text_char(writer->text, '{' | CHAR_DATA));
    TRY(write_line(writer, level + 1));
    for (size_t i = 0; i < value.dict->count; i++) {
        if (i)
            TRY(write_separator(writer, level + 1));
        TRY(write_key(writer, value.dict->pairs[i].key));
        TRY(write_value(writer, value.dict->pairs[i].value, level + 1));
    }
    TRY(write_line(writer, level));
    TRY(text_char(writer->text, '}' | CHAR_DATA));

cleanup:
    return status;
}

static enum salvo_status write_list(struct writer *writer, const struct list *list, unsigned level)
{
    enum salvo_status status = SALVO_OK;
    if (!list->count)
        return text_ascii(writer->text, "[]", CHAR_DATA);
    TRY(text_char(writer->text, '[' | CHAR_DATA));
    TRY(write_line(writer, level + 1));
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            TRY(write_separator(writer, level + 1));
        TRY(write_value(writer, list->items[i], level + 1));
    }
    TRY(write_line(writer, level));
    TRY(text_char(writer->text, ']' | CHAR_DATA));

cleanup:
    return status;
}

static enum salvo_status write_value(struct writer *writer, struct value value, unsigned level)
{
    enum salvo_status status = SALVO_OK;
    bool row = value.kind == VALUE_LIST && value.list->kind <= LIST_TUPLE;
    TRY(enter(writer->in));
    if (value.kind == VALUE_STRING)
        TRY(write_string(writer, value.string));
    else if (value.kind == VALUE_NONE)
        TRY(text_ascii(writer->text, "null", CHAR_DATA));
    else if (value.kind == VALUE_BOOL)
        TRY(text_ascii(writer->text, value.boolean ? "true" : "false", CHAR_DATA));
    else if (value_is_number(&value))
        TRY(write_number(writer, &value));
    else if (value.kind == VALUE_DICT)
        TRY(write_dict(writer, value, level));
    else if (row)
        TRY(write_list(writer, value.list, level));
    else
        TRY(fail(SALVO_ERROR_FORMAT, "tojson: JSON has no words for '%s'", value_type(&value)));

cleanup:
    leave(writer->in);
    return status;
}

enum salvo_status json_write(
    struct interpreter *in, struct value value, const struct json_style *style, struct text *text)
{
    struct writer writer = {in, style, text};
    return write_value(&writer, value, 0);
}
