/* "...".format(values) */
#include "text/jinja/builtins.h"
#include "text/jinja/number_form.h"

#include <string.h>

struct braces {
    struct interpreter *in;
    const struct arguments *arguments;
    size_t next; /* of the arguments that are counted */
};

static enum salvo_status format_into(
    struct braces *braces, struct string format, unsigned depth, struct text *text);

/* ---- Which value ------------------------------------------------------------------------------------- */

static bool read_index(struct string name, size_t *out)
{
    *out = 0;
    for (size_t i = 0; i < name.size; i++) {
        uint32_t code = CHAR_CODE(name.chars[i]);
        if (code < '0' || code > '9' || *out > 100000)
            return false;
        *out = *out * 10 + (code - '0');
    }
    return name.size != 0;
}

static enum salvo_status first_value(struct braces *braces, struct string name, struct value *out)
{
    const struct arguments *arguments = braces->arguments;
    size_t index;
    char shown[64];
    if (!name.size || read_index(name, &index)) {
        if (!name.size)
            index = braces->next++;
        if (index >= arguments->count)
            return fail(SALVO_ERROR_FORMAT, "format: missing argument %zu", index);
        *out = arguments->values[index];
        return SALVO_OK;
    }
    for (size_t i = 0; i < arguments->named_count; i++) {
        if (string_equal(arguments->named[i].name, name)) {
            *out = arguments->named[i].value;
            return SALVO_OK;
        }
    }
    return fail(SALVO_ERROR_FORMAT, "format: missing argument '%s'", string_show(name, shown, sizeof shown));
}

/* "0.name[key]" */
static enum salvo_status find_value(struct braces *braces, struct string path, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    size_t at = 0, index;
    while (at < path.size && CHAR_CODE(path.chars[at]) != '.' && CHAR_CODE(path.chars[at]) != '[')
        at++;
    TRY(first_value(braces, string_part(path, 0, at), out));
    while (at < path.size) {
        bool item = CHAR_CODE(path.chars[at]) == '[';
        size_t begin = ++at;
        while (
            at < path.size && (item ? CHAR_CODE(path.chars[at]) != ']'
                                    : CHAR_CODE(path.chars[at]) != '.' && CHAR_CODE(path.chars[at]) != '['))
            at++;
        struct string name = string_part(path, begin, at);
        if (!item)
            TRY(value_attribute(braces->in, *out, name, out));
        else if (read_index(name, &index))
            TRY(value_item(braces->in, *out, value_int((int64_t)index), out));
        else
            TRY(value_item(braces->in, *out, value_string(name), out));
        at += item;
    }

cleanup:
    return status;
}

/* ---- How it is written ------------------------------------------------------------------------------- */

static bool is_align(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    return code == '<' || code == '>' || code == '^' || code == '=';
}

static enum salvo_status read_number(struct string spec, size_t *at, int64_t *out)
{
    for (; *at < spec.size; ++*at) {
        uint32_t code = CHAR_CODE(spec.chars[*at]);
        if (code < '0' || code > '9')
            break;
        *out = (*out < 0 ? 0 : *out) * 10 + (int64_t)(code - '0');
        if (*out > INT32_MAX)
            return fail(SALVO_ERROR_FORMAT, "format: width too large");
    }
    return SALVO_OK;
}

static enum salvo_status read_spec(struct string spec, struct field *field)
{
    enum salvo_status status = SALVO_OK;
    size_t at = 0;
    if (spec.size >= 2 && is_align(spec.chars[1])) {
        field->fill = spec.chars[0];
        field->align = (char)CHAR_CODE(spec.chars[1]);
        at = 2;
    } else if (spec.size && is_align(spec.chars[0])) {
        field->align = (char)CHAR_CODE(spec.chars[at++]);
    }
#define NEXT (at < spec.size ? CHAR_CODE(spec.chars[at]) : 0)
    if (NEXT == '+' || NEXT == '-' || NEXT == ' ') {
        field->sign = NEXT == '-' ? 0 : (char)NEXT;
        at++;
    }
    if (NEXT == '#') {
        field->alternate = true;
        at++;
    }
    if (NEXT == '0') {
        field->zeros = true;
        at++;
    }
    TRY(read_number(spec, &at, &field->width));
    if (NEXT == ',' || NEXT == '_')
        field->group = (char)CHAR_CODE(spec.chars[at++]);
    if (NEXT == '.') {
        at++;
        field->precision = 0;
        TRY(read_number(spec, &at, &field->precision));
    }
    if (at < spec.size && CHAR_CODE(spec.chars[at]) < 0x80)
        field->type = (char)CHAR_CODE(spec.chars[at++]);
#undef NEXT
    if (at != spec.size || (field->type && !strchr("sdbcoxXneEfFgG%", field->type)))
        TRY(fail(SALVO_ERROR_FORMAT, "format: invalid format specification"));

cleanup:
    return status;
}

static enum salvo_status write_value(
    struct braces *braces, struct value value, struct string spec, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    struct field field = {.width = -1, .precision = -1};
    struct string string;
    if (!spec.size) {
        TRY(value_write(braces->in, value, text));
        goto cleanup;
    }
    TRY(read_spec(spec, &field));
    if (value_is_number(&value) && field.type != 's' && !(value.kind == VALUE_BOOL && !field.type)) {
        bool integral = field.type && strchr("dboxXc", field.type);
        if (integral && value.kind == VALUE_FLOAT)
            TRY(fail(SALVO_ERROR_FORMAT, "format: format specification not valid for a float"));
        if (field.type == 'c' || field.type == 'n')
            field.type = value.kind == VALUE_FLOAT ? 'g' : 'd';
        TRY(write_number_field(braces->in, value, &field, text));
        goto cleanup;
    }
    if (value.kind != VALUE_STRING && value.kind != VALUE_BOOL)
        TRY(fail(SALVO_ERROR_FORMAT, "format: '%s' takes no format specification", value_type(&value)));
    if (field.type && field.type != 's')
        TRY(fail(SALVO_ERROR_FORMAT, "format: format specification not valid for a string"));
    TRY(value_to_string(braces->in, value, &string));
    if (field.zeros && !field.fill)
        field.fill = '0';
    TRY(write_string_field(braces->in, string, &field, text));

cleanup:
    return status;
}

/* A replacement field, without the braces: path, "!r", ":spec". */
static enum salvo_status write_replacement(
    struct braces *braces, struct string inside, unsigned depth, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    struct text spec = {.heap = &braces->in->heap}, shown = {.heap = &braces->in->heap};
    struct value value;
    size_t end = 0, colon;
    for (bool in_item = false; end < inside.size; end++) {
        uint32_t code = CHAR_CODE(inside.chars[end]);
        if (!in_item && (code == ':' || code == '!'))
            break;
        in_item = in_item ? code != ']' : code == '[';
    }
    TRY(find_value(braces, string_part(inside, 0, end), &value));
    colon = end;
    if (end < inside.size && CHAR_CODE(inside.chars[end]) == '!') {
        uint32_t letter = end + 1 < inside.size ? CHAR_CODE(inside.chars[end + 1]) : 0;
        colon = end + 2;
        if ((letter != 'r' && letter != 's' && letter != 'a') ||
            (colon < inside.size && CHAR_CODE(inside.chars[colon]) != ':'))
            TRY(fail(SALVO_ERROR_FORMAT, "format: invalid conversion"));
        TRY(letter == 's' ? value_write(braces->in, value, &shown)
                          : value_write_repr(braces->in, value, &shown));
        value = value_string(text_take(&shown));
    }
    if (colon < inside.size)
        TRY(format_into(braces, string_part(inside, colon + 1, inside.size), depth + 1, &spec));
    TRY(write_value(braces, value, text_take(&spec), text));

cleanup:
    return status;
}

static enum salvo_status format_into(
    struct braces *braces, struct string format, unsigned depth, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    if (depth > 2)
        TRY(fail(SALVO_ERROR_FORMAT, "format: braces are nested too deeply"));
    for (size_t at = 0; at < format.size; at++) {
        uint32_t code = CHAR_CODE(format.chars[at]);
        bool twice = at + 1 < format.size && CHAR_CODE(format.chars[at + 1]) == code;
        if (code != '{' && code != '}') {
            TRY(text_char(text, format.chars[at]));
            continue;
        }
        if (twice) {
            TRY(text_char(text, format.chars[at++]));
            continue;
        }
        size_t begin = at + 1, end = begin, open = 1;
        for (; end < format.size; end++) {
            uint32_t inner = CHAR_CODE(format.chars[end]);
            open += (inner == '{') - (size_t)(inner == '}');
            if (!open)
                break;
        }
        if (code == '}' || open)
            TRY(fail(SALVO_ERROR_FORMAT, "format: unmatched brace"));
        TRY(spend(braces->in, 1));
        TRY(write_replacement(braces, string_part(format, begin, end), depth, text));
        at = end;
    }

cleanup:
    return status;
}

enum salvo_status format_braces(
    struct interpreter *in, struct string format, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct braces braces = {.in = in, .arguments = arguments};
    struct text text = {.heap = &in->heap};
    TRY(spend(in, format.size));
    TRY(format_into(&braces, format, 0, &text));
    *out = value_string(text_take(&text));

cleanup:
    return status;
}
