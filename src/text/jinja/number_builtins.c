/* Filters of numbers and of JSON. */
#include "text/jinja/builtins.h"
#include "text/jinja/json.h"
#include "text/jinja/literals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum salvo_status int_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value self = call->self;
    int64_t base = 10, integer;
    double number;
    if (self.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&self));
    if (call->given[1].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[1], "int", &base));
    if (self.kind == VALUE_STRING) {
        bool data = string_mark(self.string) != 0;
        TRY(spend(in, self.string.size));
        if (base >= 0 && base <= 36 && parse_integer(self.string, (int)base, &integer))
            self = value_int(integer);
        else if (parse_float(self.string, &number))
            self = value_float(number);
        self.data = data;
    } else if (self.kind == VALUE_FLOAT && isinf(self.number)) {
        TRY(fail(SALVO_ERROR_FORMAT, "int: cannot convert infinity to an integer"));
    }
    if (!number_to_integer(&self, out))
        *out = call->given[0].kind == VALUE_ABSENT ? value_int(0) : call->given[0];

cleanup:
    return status;
}

static enum salvo_status float_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    double number;
    *out = call->given[0].kind == VALUE_ABSENT ? value_float(0) : call->given[0];
    if (call->self.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&call->self));
    if (value_is_number(&call->self)) {
        *out = value_float(value_number(&call->self));
        out->data = call->self.data;
    } else if (call->self.kind == VALUE_STRING) {
        TRY(spend(in, call->self.string.size));
        if (parse_float(call->self.string, &number)) {
            *out = value_float(number);
            out->data = string_mark(call->self.string) != 0;
        }
    }

cleanup:
    return status;
}

static enum salvo_status abs_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    bool negative = value_is_number(&call->self) && value_number(&call->self) < 0;
    bool zero = call->self.kind == VALUE_FLOAT && call->self.number == 0;
    enum salvo_status status = value_negate(call->self, negative, out);
    if (status == SALVO_OK && zero)
        out->number = 0;
    return status;
}

/* To a number of decimals, halves to the even digit, as the exact value of the double has it. */
static double round_decimals(double number, int64_t precision)
{
    char digits[400];
    if (!isfinite(number) || precision > 320)
        return number;
    if (precision < -308)
        return 0;
    if (precision >= 0) {
        int size = snprintf(digits, sizeof digits, "%.*f", (int)(precision > 40 ? 40 : precision), number);
        if (precision > 40 || size >= (int)sizeof digits)
            return number;
        return strtod(digits, NULL);
    }
    double scale = pow(10, (double)-precision);
    return nearbyint(number / scale) * scale;
}

static enum salvo_status round_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    int64_t precision = 0;
    struct string method = {0};
    (void)in;
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[0], "round", &precision));
    if (call->given[1].kind != VALUE_ABSENT)
        TRY(want_string(&call->given[1], "round", &method));
    bool common = !method.size || string_is(method, "common"), up = string_is(method, "ceil");
    if (!common && !up && !string_is(method, "floor"))
        TRY(fail(SALVO_ERROR_FORMAT, "round: method must be 'common', 'ceil' or 'floor'"));
    TRY(value_negate(call->self, false, out)); /* a number, or an error */
    double number = value_number(&call->self);
    if (!common) {
        double scale = pow(10, (double)precision), scaled = number * scale;
        *out = value_float((up ? ceil(scaled) : floor(scaled)) / scale);
    } else if (value_is_integral(&call->self)) {
        if (precision < 0)
            *out = value_int((int64_t)round_decimals(number, precision));
    } else {
        *out = value_float(round_decimals(number, precision));
    }
    out->data = call->self.data;

cleanup:
    return status;
}

/* The string in UTF-8, with a NUL after it. */
static enum salvo_status encode_string(
    struct interpreter *in, struct string string, const char **out, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    char *bytes;
    size_t size = 0;
    TRY(spend(in, string.size));
    TRY(HEAP_NEW(&in->heap, &bytes, 4 * string.size + 1));
    for (size_t i = 0; i < string.size; i++)
        size += char_encode(string.chars[i], bytes + size);
    *out = bytes;
    *out_size = size;

cleanup:
    return status;
}

/* A separator or indentation of tojson. */
static enum salvo_status encode_separator(struct interpreter *in, const struct value *value, const char **out)
{
    enum salvo_status status = SALVO_OK;
    struct string string;
    size_t size;
    TRY(want_string(value, "tojson", &string));
    TRY(encode_string(in, string, out, &size));
    if (strlen(*out) != size)
        TRY(fail(SALVO_ERROR_FORMAT, "tojson: a separator contains a NUL character"));

cleanup:
    return status;
}

static enum salvo_status tojson(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct json_style style = {.item_separator = ", ",
        .key_separator = ": ",
        .ascii = value_true(&call->given[0]),
        .sorted = value_true(&call->given[3])};
    struct value indent = call->given[1], *separators;
    if (is_given(&indent)) {
        style.item_separator = ",";
        if (indent.kind != VALUE_STRING) {
            struct text blanks = {.heap = &in->heap};
            int64_t count;
            TRY(want_integer(&indent, "tojson", &count));
            TRY(spend(in, count > 0 ? (size_t)count : 0));
            TRY(text_repeat(&blanks, ' ', count > 0 ? (size_t)count : 0));
            indent = value_string(text_take(&blanks));
        }
        TRY(encode_separator(in, &indent, &style.indent));
    }
    if (is_given(&call->given[2])) {
        size_t count;
        TRY(value_items(in, call->given[2], &separators, &count));
        if (count != 2)
            TRY(fail(SALVO_ERROR_FORMAT, "tojson: separators has %zu items instead of 2", count));
        TRY(encode_separator(in, &separators[0], &style.item_separator));
        TRY(encode_separator(in, &separators[1], &style.key_separator));
    }
    TRY(value_to_json(in, call->self, &style, out));

cleanup:
    return status;
}

/* As Python's json.loads: the arguments of a tool call are a string of JSON. */
static enum salvo_status from_json(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string string;
    const char *json;
    size_t size;
    TRY(want_string(&call->self, "from_json", &string));
    TRY(encode_string(in, string, &json, &size));
    TRY(value_from_json(in, json, size, out));

cleanup:
    return status;
}

const struct builtin number_filters[] = {
    {"int", int_filter, "default base", 0},
    {"float", float_filter, "default", 0},
    {"abs", abs_filter, "", 0},
    {"round", round_filter, "precision method", 0},
    {"from_json", from_json, "", 0},
    {"fromjson", from_json, "", 0},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys", 0},
    {0},
};
