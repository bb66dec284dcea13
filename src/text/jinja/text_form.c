/* Values as text: Python's str() and repr(). Punctuation around data is marked as data. */
#include "text/jinja/builtins.h"
#include "text/jinja/escape.h"
#include "text/jinja/literals.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum salvo_status text_escaped(struct text *text, struct string string)
{
    static const struct {
        char letter;
        const char *name;
    } names[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < string.size; i++) {
        const char *name = NULL;
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            if (CHAR_CODE(string.chars[i]) == (unsigned char)names[n].letter)
                name = names[n].name;
        }
        if (name)
            TRY(text_ascii(text, name, string.chars[i] & CHAR_DATA));
        else
            TRY(text_char(text, string.chars[i]));
    }

cleanup:
    return status;
}

/* ---- repr() ------------------------------------------------------------------------------------------ */

static enum salvo_status write_hidden_char(struct text *text, uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    char shown[16];
    const char *format = code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (code == '\n' || code == '\r' || code == '\t')
        snprintf(shown, sizeof shown, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else
        snprintf(shown, sizeof shown, format, (unsigned)code); // NOLINT(clang-diagnostic-format-nonliteral)
    return text_ascii(text, shown, character & CHAR_DATA);
}

static enum salvo_status write_string_repr(struct text *text, struct string string)
{
    enum salvo_status status = SALVO_OK;
    bool single = false, twofold = false;
    for (size_t i = 0; i < string.size; i++) {
        single = single || CHAR_CODE(string.chars[i]) == '\'';
        twofold = twofold || CHAR_CODE(string.chars[i]) == '"';
    }
    uint32_t quote = single && !twofold ? '"' : '\'';
    TRY(text_char(text, quote | CHAR_DATA));
    for (size_t i = 0; i < string.size; i++) {
        uint32_t character = string.chars[i], code = CHAR_CODE(character);
        if (code == quote || code == '\\')
            TRY(text_char(text, '\\' | CHAR_DATA));
        if (char_is_printable(character))
            TRY(text_char(text, character));
        else
            TRY(write_hidden_char(text, character));
    }
    TRY(text_char(text, quote | CHAR_DATA));

cleanup:
    return status;
}

static enum salvo_status write_items(struct interpreter *in, const struct list *list, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            TRY(text_ascii(text, ", ", CHAR_DATA));
        TRY(value_write_repr(in, list->items[i], text));
    }

cleanup:
    return status;
}

static enum salvo_status write_list(struct interpreter *in, const struct list *list, struct text *text)
{
    static const char *const opening[] = {"[", "(", "range(", "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const closing[] = {"]", ")", ")", "])", "])", "])"};
    enum salvo_status status = SALVO_OK;
    char shown[100];
    if (list->kind == LIST_GENERATOR) {
        TRY(text_ascii(text, "<generator object>", CHAR_DATA));
    } else if (list->kind == LIST_RANGE) {
        snprintf(shown, sizeof shown, "range(%" PRId64 ", %" PRId64, list->begin, list->end);
        TRY(text_ascii(text, shown, CHAR_DATA));
        snprintf(shown, sizeof shown, list->step == 1 ? ")" : ", %" PRId64 ")", list->step);
        TRY(text_ascii(text, shown, CHAR_DATA));
    } else {
        TRY(text_ascii(text, opening[list->kind], CHAR_DATA));
        TRY(write_items(in, list, text));
        if (list->kind == LIST_TUPLE && list->count == 1)
            TRY(text_char(text, ',' | CHAR_DATA));
        TRY(text_ascii(text, closing[list->kind], CHAR_DATA));
    }

cleanup:
    return status;
}

static enum salvo_status write_dict(struct interpreter *in, const struct dict *dict, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    TRY(text_char(text, '{' | CHAR_DATA));
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            TRY(text_ascii(text, ", ", CHAR_DATA));
        TRY(value_write_repr(in, dict->pairs[i].key, text));
        TRY(text_ascii(text, ": ", CHAR_DATA));
        TRY(value_write_repr(in, dict->pairs[i].value, text));
    }
    TRY(text_char(text, '}' | CHAR_DATA));

cleanup:
    return status;
}

static enum salvo_status write_object(struct interpreter *in, const struct object *object, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    if (object->type->write)
        return object->type->write(in, object, text);
    TRY(text_char(text, '<'));
    TRY(text_ascii(text, object->type->name, 0));
    TRY(text_char(text, '>'));

cleanup:
    return status;
}

enum salvo_status value_write_repr(struct interpreter *in, struct value value, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    char shown[40];
    TRY(enter(in));
    switch ((enum value_kind)value.kind) {
    case VALUE_ABSENT:
        break;
    case VALUE_UNDEFINED:
        TRY(text_ascii(text, "Undefined", 0));
        break;
    case VALUE_NONE:
        TRY(text_ascii(text, "None", value_mark(&value)));
        break;
    case VALUE_BOOL:
        TRY(text_ascii(text, value.boolean ? "True" : "False", value_mark(&value)));
        break;
    case VALUE_INT:
        snprintf(shown, sizeof shown, "%" PRId64, value.integer);
        TRY(text_ascii(text, shown, value_mark(&value)));
        break;
    case VALUE_FLOAT:
        TRY(text_ascii(text, show_float(value.number, shown), value_mark(&value)));
        break;
    case VALUE_STRING:
        TRY(spend(in, value.string.size / 8));
        if (value.markup)
            TRY(text_ascii(text, "Markup(", 0));
        TRY(write_string_repr(text, value.string));
        if (value.markup)
            TRY(text_char(text, ')'));
        break;
    case VALUE_LIST:
        TRY(write_list(in, value.list, text));
        break;
    case VALUE_DICT:
        TRY(write_dict(in, value.dict, text));
        break;
    case VALUE_NAMESPACE:
        TRY(text_ascii(text, "<Namespace ", 0));
        TRY(write_dict(in, value.dict, text));
        TRY(text_char(text, '>'));
        break;
    case VALUE_FUNCTION:
        TRY(text_ascii(text, "<function ", 0));
        TRY(text_ascii(text, value.function->builtin->name, 0));
        TRY(text_char(text, '>'));
        break;
    case VALUE_OBJECT:
        TRY(write_object(in, value.object, text));
        break;
    }

cleanup:
    leave(in);
    return status;
}

/* ---- str() ------------------------------------------------------------------------------------------- */

enum salvo_status value_write(struct interpreter *in, struct value value, struct text *text)
{
    if (value.kind == VALUE_UNDEFINED)
        return SALVO_OK;
    if (value.kind != VALUE_STRING)
        return value_write_repr(in, value, text);
    enum salvo_status status = spend(in, value.string.size / 8);
    return status == SALVO_OK ? text_string(text, value.string) : status;
}

enum salvo_status value_to_string(struct interpreter *in, struct value value, struct string *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    *out = value.string;
    if (value.kind == VALUE_STRING)
        goto cleanup;
    TRY(value_write(in, value, &text));
    *out = text_take(&text);

cleanup:
    return status;
}
