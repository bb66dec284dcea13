/* "..." % values */
#include "text/jinja/number_form.h"

#include <string.h>

struct percent {
    struct interpreter *in;
    struct string format;
    size_t at;
    struct value values; /* the right operand of "%" */
    size_t used;
    struct text text;
};

static enum salvo_status next_value(struct percent *percent, struct value *out)
{
    const struct value *values = &percent->values;
    bool tuple = value_is_list(values, LIST_TUPLE);
    size_t count = tuple ? values->list->count : 1;
    if (percent->used == count)
        return fail(SALVO_ERROR_FORMAT, "%%: not enough values for the format");
    *out = tuple ? values->list->items[percent->used] : *values;
    percent->used++;
    return SALVO_OK;
}

static uint32_t peek(const struct percent *percent)
{
    return percent->at < percent->format.size ? CHAR_CODE(percent->format.chars[percent->at]) : 0;
}

/* "(name)": the value of that name. */
static enum salvo_status read_name(struct percent *percent, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    size_t begin = ++percent->at;
    struct value *found;
    while (percent->at < percent->format.size && peek(percent) != ')')
        percent->at++;
    if (percent->values.kind != VALUE_DICT || !peek(percent))
        TRY(fail(SALVO_ERROR_FORMAT, "%%: a format with names needs a dict"));
    struct value key = value_string(string_part(percent->format, begin, percent->at++));
    TRY(dict_find(percent->in, percent->values.dict, key, &found));
    if (!found)
        TRY(fail(SALVO_ERROR_FORMAT, "%%: the dict has no value for a name"));
    *out = *found;

cleanup:
    return status;
}

static enum salvo_status read_size(struct percent *percent, int64_t *out)
{
    enum salvo_status status = SALVO_OK;
    struct value value;
    if (peek(percent) == '*') {
        percent->at++;
        TRY(next_value(percent, &value));
        TRY(want_integer(&value, "%", out));
        goto cleanup;
    }
    for (; peek(percent) >= '0' && peek(percent) <= '9'; percent->at++) {
        *out = (*out < 0 ? 0 : *out) * 10 + (int64_t)(peek(percent) - '0');
        if (*out > INT32_MAX)
            TRY(fail(SALVO_ERROR_FORMAT, "%%: width too large"));
    }

cleanup:
    return status;
}

static enum salvo_status read_field(struct percent *percent, struct field *field)
{
    enum salvo_status status = SALVO_OK;
    bool left = false;
    for (;; percent->at++) {
        uint32_t flag = peek(percent);
        if (flag == '-')
            left = true;
        else if (flag == '+' || (flag == ' ' && field->sign != '+'))
            field->sign = (char)flag;
        else if (flag == '#')
            field->alternate = true;
        else if (flag == '0')
            field->zeros = true;
        else if (flag != ' ')
            break;
    }
    TRY(read_size(percent, &field->width));
    if (field->width < -1) {
        left = true;
        field->width = field->width == INT64_MIN ? 0 : -field->width;
    }
    if (peek(percent) == '.') {
        percent->at++;
        field->precision = 0;
        TRY(read_size(percent, &field->precision));
    }
    while (peek(percent) == 'h' || peek(percent) == 'l' || peek(percent) == 'L')
        percent->at++;
    field->align = left ? '<' : '>';
    if (!left && field->zeros)
        field->align = 0;
    field->zeros = field->zeros && !left;

cleanup:
    return status;
}

static enum salvo_status write_text(
    struct percent *percent, struct value value, struct field field, bool repr)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &percent->in->heap};
    TRY(repr ? value_write_repr(percent->in, value, &text) : value_write(percent->in, value, &text));
    field.align = field.align ? field.align : '>';
    TRY(write_string_field(percent->in, text_take(&text), &field, &percent->text));

cleanup:
    return status;
}

static enum salvo_status write_char(struct percent *percent, struct value value, struct field field)
{
    uint32_t character;
    bool code = value_is_integral(&value) && value_integer(&value) >= 0 && value_integer(&value) < 0x110000 &&
                (value_integer(&value) < 0xd800 || value_integer(&value) >= 0xe000);
    if (code)
        character = (uint32_t)value_integer(&value) | value_mark(&value);
    else if (value.kind == VALUE_STRING && value.string.size == 1)
        character = value.string.chars[0];
    else
        return fail(SALVO_ERROR_FORMAT, "%%c needs a character");
    field.precision = -1;
    return write_string_field(percent->in, (struct string){&character, 1}, &field, &percent->text);
}

static enum salvo_status write_conversion(struct percent *percent, struct value value, struct field field)
{
    enum salvo_status status = SALVO_OK;
    char type = field.type;
    if (type == 's' || type == 'r' || type == 'a')
        return write_text(percent, value, field, type != 's');
    if (type == 'c')
        return write_char(percent, value, field);
    bool integers = type && strchr("diuoxX", type);
    if (!integers && !(type && strchr("eEfFgG", type)))
        TRY(fail(SALVO_ERROR_FORMAT, "%%: unknown conversion '%c'", type ? type : '?'));
    if (value.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&value));
    if (!value_is_number(&value) || (type && strchr("oxX", type) && value.kind == VALUE_FLOAT))
        TRY(fail(SALVO_ERROR_FORMAT, "%%%c needs a number, not '%s'", type, value_type(&value)));
    if (integers) {
        if (!number_to_integer(&value, &value))
            TRY(fail(SALVO_ERROR_FORMAT, "%%%c: the number is not an integer", type));
        field.type = strchr("diu", type) ? 'd' : type;
    }
    TRY(write_number_field(percent->in, value, &field, &percent->text));

cleanup:
    return status;
}

static enum salvo_status convert(struct percent *percent)
{
    enum salvo_status status = SALVO_OK;
    struct field field = {.width = -1, .precision = -1};
    struct value value = {0};
    bool named = peek(percent) == '(';
    if (named)
        TRY(read_name(percent, &value));
    TRY(read_field(percent, &field));
    uint32_t type = peek(percent);
    percent->at++;
    if (type == '%') {
        TRY(text_char(&percent->text, '%'));
        goto cleanup;
    }
    if (!named)
        TRY(next_value(percent, &value));
    field.type = type < 0x80 ? (char)type : 0;
    TRY(write_conversion(percent, value, field));

cleanup:
    return status;
}

enum salvo_status format_percent(
    struct interpreter *in, struct string format, struct value value, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct percent percent = {.in = in, .format = format, .values = value, .text = {.heap = &in->heap}};
    TRY(spend(in, format.size));
    while (percent.at < format.size) {
        uint32_t character = format.chars[percent.at++];
        if (CHAR_CODE(character) != '%')
            TRY(text_char(&percent.text, character));
        else
            TRY(convert(&percent));
    }
    bool tuple = value_is_list(&value, LIST_TUPLE);
    bool has_items = value.kind == VALUE_DICT || value.kind == VALUE_UNDEFINED || value.kind == VALUE_LIST;
    bool all = tuple ? percent.used == value.list->count : percent.used == 1 || has_items;
    if (!all)
        TRY(fail(SALVO_ERROR_FORMAT, "%%: not all values are used by the format"));
    *out = value_string(text_take(&percent.text));

cleanup:
    return status;
}
