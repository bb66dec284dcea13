/* + - * / // % **, of numbers as Python counts, and of strings and lists. */
#include "text/jinja/escape.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"

#include <math.h>
#include <string.h>

static enum salvo_status fail_operands(uint32_t sign, const struct value *left, const struct value *right)
{
    if (left->kind == VALUE_UNDEFINED || right->kind == VALUE_UNDEFINED)
        return fail_undefined(left->kind == VALUE_UNDEFINED ? left : right);
    char shown[3] = {(char)(sign & 0xff), (char)(sign >> 8), 0};
    return fail(SALVO_ERROR_FORMAT, "unsupported operand types for %s: '%s' and '%s'", shown,
        value_type(left), value_type(right));
}

/* ---- Numbers ----------------------------------------------------------------------------------------- */

static enum salvo_status fail_overflow(void)
{
    return fail(SALVO_ERROR_FORMAT, "integer overflow");
}

static enum salvo_status fail_zero(void)
{
    return fail(SALVO_ERROR_FORMAT, "division by zero");
}

static int64_t floor_divide(int64_t left, int64_t right)
{
    int64_t quotient = left / right;
    return quotient - (left % right != 0 && (left < 0) != (right < 0));
}

static enum salvo_status integer_power(int64_t base, int64_t exponent, struct value *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return fail_zero();
        *out = value_float(pow((double)base, (double)exponent));
        return SALVO_OK;
    }
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return fail_overflow();
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return fail_overflow();
    }
    *out = value_int(result);
    return SALVO_OK;
}

static enum salvo_status integer_binary(uint32_t sign, int64_t left, int64_t right, struct value *out)
{
    int64_t result = 0;
    bool overflow = false;
    bool divides = sign == '/' || sign == OPERATOR2('/', '/') || sign == '%';
    if (divides && right == 0)
        return fail_zero();
    switch (sign) {
    case '+':
        overflow = __builtin_add_overflow(left, right, &result);
        break;
    case '-':
        overflow = __builtin_sub_overflow(left, right, &result);
        break;
    case '*':
        overflow = __builtin_mul_overflow(left, right, &result);
        break;
    case '/':
        *out = value_float((double)left / (double)right);
        return SALVO_OK;
    case OPERATOR2('*', '*'):
        return integer_power(left, right, out);
    default:
        overflow = left == INT64_MIN && right == -1;
        if (!overflow)
            result = sign == '%' ? left - floor_divide(left, right) * right : floor_divide(left, right);
    }
    if (overflow)
        return fail_overflow();
    *out = value_int(result);
    return SALVO_OK;
}

static double float_modulo(double left, double right)
{
    double rest = fmod(left, right);
    if (rest != 0 && (rest < 0) != (right < 0))
        return rest + right;
    return rest == 0 ? copysign(0.0, right) : rest;
}

static double float_floor_divide(double left, double right)
{
    double rest = fmod(left, right), quotient = (left - rest) / right;
    if (rest != 0 && (rest < 0) != (right < 0))
        quotient -= 1;
    if (quotient == 0)
        return copysign(0.0, left / right);
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static enum salvo_status float_binary(uint32_t sign, double left, double right, struct value *out)
{
    bool divides = sign == '/' || sign == OPERATOR2('/', '/') || sign == '%';
    if (divides && right == 0)
        return fail_zero();
    switch (sign) {
    case '+':
        *out = value_float(left + right);
        break;
    case '-':
        *out = value_float(left - right);
        break;
    case '*':
        *out = value_float(left * right);
        break;
    case '/':
        *out = value_float(left / right);
        break;
    case '%':
        *out = value_float(float_modulo(left, right));
        break;
    case OPERATOR2('*', '*'):
        if (left == 0 && right < 0)
            return fail_zero();
        if (left < 0 && floor(right) != right)
            return fail(SALVO_ERROR_FORMAT, "the result of ** is not a real number");
        *out = value_float(pow(left, right));
        if (isinf(out->number) && isfinite(left) && isfinite(right))
            return fail(SALVO_ERROR_FORMAT, "the result of ** is too large");
        break;
    default:
        *out = value_float(float_floor_divide(left, right));
    }
    return SALVO_OK;
}

/* ---- Rows -------------------------------------------------------------------------------------------- */

static enum salvo_status join_strings(
    struct interpreter *in, struct value left, struct value right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    bool markup = left.markup || right.markup;
    TRY(spend(in, (left.string.size + right.string.size) / 8));
    TRY(text_reserve(&text, left.string.size + right.string.size));
    TRY(markup && !left.markup ? text_escaped(&text, left.string) : text_string(&text, left.string));
    TRY(markup && !right.markup ? text_escaped(&text, right.string) : text_string(&text, right.string));
    *out = value_string(text_take(&text));
    out->markup = markup;

cleanup:
    return status;
}

static enum salvo_status join_lists(
    struct interpreter *in, const struct list *left, const struct list *right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(spend(in, left->count + right->count));
    TRY(list_new(&in->heap, left->kind, left->count + right->count, out));
    if (left->count)
        memcpy(out->list->items, left->items, left->count * sizeof *left->items);
    if (right->count)
        memcpy(out->list->items + left->count, right->items, right->count * sizeof *right->items);
    out->list->count = left->count + right->count;

cleanup:
    return status;
}

static enum salvo_status repeat(struct interpreter *in, struct value row, int64_t times, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    size_t size = row.kind == VALUE_STRING ? row.string.size : row.list->count, total;
    size_t count = times > 0 ? (size_t)times : 0;
    if (__builtin_mul_overflow(size, count, &total))
        TRY(fail(SALVO_ERROR_FORMAT, "the template needs too much memory"));
    TRY(spend(in, total));
    count = size ? count : 0;
    if (row.kind == VALUE_STRING) {
        TRY(text_reserve(&text, total));
        for (size_t i = 0; i < count; i++)
            TRY(text_string(&text, row.string));
        *out = row;
        out->string = text_take(&text);
    } else {
        TRY(list_new(&in->heap, row.list->kind, total, out));
        for (size_t i = 0; i < count; i++)
            memcpy(out->list->items + i * size, row.list->items, size * sizeof *row.list->items);
        out->list->count = total;
    }

cleanup:
    return status;
}

/* ---- All --------------------------------------------------------------------------------------------- */

static bool is_row(const struct value *value)
{
    return value->kind == VALUE_STRING || value_is_list(value, LIST_LIST) || value_is_list(value, LIST_TUPLE);
}

enum salvo_status value_binary(
    struct interpreter *in, uint32_t sign, struct value left, struct value right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    bool lists = left.kind == VALUE_LIST && right.kind == VALUE_LIST && left.list->kind == right.list->kind &&
                 left.list->kind <= LIST_TUPLE;
    if (value_is_number(&left) && value_is_number(&right)) {
        if (value_is_integral(&left) && value_is_integral(&right))
            TRY(integer_binary(sign, value_integer(&left), value_integer(&right), out));
        else
            TRY(float_binary(sign, value_number(&left), value_number(&right), out));
        out->data = left.data || right.data;
    } else if (sign == '+' && left.kind == VALUE_STRING && right.kind == VALUE_STRING) {
        TRY(join_strings(in, left, right, out));
    } else if (sign == '+' && lists) {
        TRY(join_lists(in, left.list, right.list, out));
    } else if (sign == '*' && is_row(&left) && value_is_integral(&right)) {
        TRY(repeat(in, left, value_integer(&right), out));
    } else if (sign == '*' && value_is_integral(&left) && is_row(&right)) {
        TRY(repeat(in, right, value_integer(&left), out));
    } else if (sign == '%' && left.kind == VALUE_STRING) {
        TRY(format_percent(in, left.string, right, out));
    } else {
        TRY(fail_operands(sign, &left, &right));
    }

cleanup:
    return status;
}

enum salvo_status value_negate(struct value value, bool negative, struct value *out)
{
    if (value.kind == VALUE_UNDEFINED)
        return fail_undefined(&value);
    if (!value_is_number(&value))
        return fail(SALVO_ERROR_FORMAT, "bad operand type for unary + or -: '%s'", value_type(&value));
    if (value.kind == VALUE_FLOAT)
        *out = value_float(negative ? -value.number : value.number);
    else if (negative && value_integer(&value) == INT64_MIN)
        return fail_overflow();
    else
        *out = value_int(negative ? -value_integer(&value) : value_integer(&value));
    out->data = value.data;
    return SALVO_OK;
}
