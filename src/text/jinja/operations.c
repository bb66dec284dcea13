/* Operations on values of any type, as in Python: truth, equality, order, iteration; and dicts. */
#include "text/jinja/interpreter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Limits ------------------------------------------------------------------------------------------ */

enum { DEEPEST_RUN = 800 };

enum salvo_status spend(struct interpreter *in, size_t work)
{
    if (work >= in->work_left)
        return fail(SALVO_ERROR_FORMAT, "the template runs too long");
    in->work_left -= work;
    return SALVO_OK;
}

enum salvo_status spend_search(struct interpreter *in, struct string string, struct string part)
{
    size_t places = string.size >= part.size ? string.size - part.size + 1 : 0, compared;
    if (__builtin_mul_overflow(places, part.size + 1, &compared))
        compared = SIZE_MAX;
    return spend(in, compared / 4 + 1);
}

enum salvo_status enter(struct interpreter *in)
{
    if (++in->depth > DEEPEST_RUN)
        return fail(SALVO_ERROR_FORMAT, "calls or values are nested too deeply");
    return spend(in, 1);
}

void leave(struct interpreter *in)
{
    in->depth--;
}

/* ---- Errors ------------------------------------------------------------------------------------------ */

enum salvo_status fail_undefined(const struct value *value)
{
    static const char *const formats[] = {
        [UNDEFINED_VARIABLE] = "'%s' is undefined",
        [UNDEFINED_MEMBER] = "no member '%s'",
        [UNDEFINED_UNSAFE] = "'%s' is not allowed: templates cannot change their variables",
        [UNDEFINED_PARAMETER] = "parameter '%s' was not provided",
        [UNDEFINED_EMPTY] = "an item of an empty sequence is undefined%s",
        [UNDEFINED_ELSE] = "the condition of an 'if' without 'else' is false: the value is undefined%s",
    };
    char name[100];
    // NOLINTNEXTLINE(clang-diagnostic-format-nonliteral) ; all formats are above
    return fail(SALVO_ERROR_FORMAT, formats[value->reason], string_show(value->string, name, sizeof name));
}

enum salvo_status want_string(const struct value *value, const char *what, struct string *out)
{
    if (value->kind == VALUE_UNDEFINED)
        return fail_undefined(value);
    if (value->kind != VALUE_STRING)
        return fail(SALVO_ERROR_FORMAT, "%s: expected a string, not '%s'", what, value_type(value));
    *out = value->string;
    return SALVO_OK;
}

enum salvo_status want_integer(const struct value *value, const char *what, int64_t *out)
{
    if (value->kind == VALUE_UNDEFINED)
        return fail_undefined(value);
    if (!value_is_integral(value))
        return fail(SALVO_ERROR_FORMAT, "%s: expected an integer, not '%s'", what, value_type(value));
    *out = value_integer(value);
    return SALVO_OK;
}

/* ---- Truth, equality and order ----------------------------------------------------------------------- */

bool value_true(const struct value *value)
{
    switch ((enum value_kind)value->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value->boolean;
    case VALUE_INT:
        return value->integer != 0;
    case VALUE_FLOAT:
        return value->number != 0;
    case VALUE_STRING:
        return value->string.size != 0;
    case VALUE_LIST:
        return value->list->kind == LIST_GENERATOR || value->list->count != 0;
    case VALUE_DICT:
        return value->dict->count != 0;
    default:
        return true;
    }
}

/* Exact, also where a double cannot hold the integer. NaN: 2. */
static int compare_numbers(const struct value *left, const struct value *right)
{
    if (value_is_integral(left) && value_is_integral(right)) {
        int64_t a = value_integer(left), b = value_integer(right);
        return a < b ? -1 : a > b;
    }
    long double a = left->kind == VALUE_FLOAT ? left->number : (long double)value_integer(left);
    long double b = right->kind == VALUE_FLOAT ? right->number : (long double)value_integer(right);
    if (isnan(a) || isnan(b))
        return 2;
    return a < b ? -1 : a > b;
}

static enum salvo_status equal_lists(
    struct interpreter *in, const struct list *left, const struct list *right, bool *out)
{
    enum salvo_status status = SALVO_OK;
    *out = left == right;
    if (*out || left->kind != right->kind || left->kind == LIST_GENERATOR || left->count != right->count)
        goto cleanup;
    for (size_t i = 0; i < left->count; i++) {
        TRY(value_equal(in, left->items[i], right->items[i], out));
        if (!*out)
            goto cleanup;
    }
    *out = true;

cleanup:
    return status;
}

static enum salvo_status equal_dicts(
    struct interpreter *in, const struct dict *left, const struct dict *right, bool *out)
{
    enum salvo_status status = SALVO_OK;
    *out = false;
    if (left->count != right->count)
        goto cleanup;
    for (size_t i = 0; i < left->count; i++) {
        struct value *other;
        TRY(dict_find(in, right, left->pairs[i].key, &other));
        *out = false;
        if (!other)
            goto cleanup;
        TRY(value_equal(in, left->pairs[i].value, *other, out));
        if (!*out)
            goto cleanup;
    }
    *out = true;

cleanup:
    return status;
}

enum salvo_status value_equal(struct interpreter *in, struct value left, struct value right, bool *out)
{
    enum salvo_status status = SALVO_OK;
    *out = false;
    TRY(enter(in));
    if (value_is_number(&left) && value_is_number(&right)) {
        *out = compare_numbers(&left, &right) == 0;
    } else if (left.kind != right.kind) {
        *out = false;
    } else if (left.kind == VALUE_STRING) {
        TRY(spend(in, left.string.size / 8));
        *out = string_equal(left.string, right.string);
    } else if (left.kind == VALUE_LIST) {
        TRY(equal_lists(in, left.list, right.list, out));
    } else if (left.kind == VALUE_DICT) {
        TRY(equal_dicts(in, left.dict, right.dict, out));
    } else if (left.kind == VALUE_NONE || left.kind == VALUE_UNDEFINED) {
        *out = true;
    } else {
        *out = left.dict == right.dict; /* the same object; all others are pointers */
    }

cleanup:
    leave(in);
    return status;
}

static enum salvo_status compare_lists(
    struct interpreter *in, const struct list *left, const struct list *right, int *out)
{
    enum salvo_status status = SALVO_OK;
    size_t shared = left->count < right->count ? left->count : right->count;
    for (size_t i = 0; i < shared; i++) {
        bool equal;
        TRY(value_equal(in, left->items[i], right->items[i], &equal));
        if (!equal) {
            TRY(value_compare(in, left->items[i], right->items[i], out));
            goto cleanup;
        }
    }
    *out = left->count < right->count ? -1 : left->count > right->count;

cleanup:
    return status;
}

enum salvo_status value_compare(struct interpreter *in, struct value left, struct value right, int *out)
{
    enum salvo_status status = SALVO_OK;
    *out = 0;
    TRY(enter(in));
    if (left.kind == VALUE_UNDEFINED || right.kind == VALUE_UNDEFINED) {
        TRY(fail_undefined(left.kind == VALUE_UNDEFINED ? &left : &right));
    } else if (value_is_number(&left) && value_is_number(&right)) {
        *out = compare_numbers(&left, &right);
    } else if (left.kind == VALUE_STRING && right.kind == VALUE_STRING) {
        TRY(spend(in, left.string.size / 8));
        *out = string_compare(left.string, right.string);
    } else if (left.kind == VALUE_LIST && right.kind == VALUE_LIST && left.list->kind == right.list->kind &&
               left.list->kind <= LIST_TUPLE) {
        TRY(compare_lists(in, left.list, right.list, out));
    } else {
        TRY(fail(
            SALVO_ERROR_FORMAT, "'%s' and '%s' cannot be compared", value_type(&left), value_type(&right)));
    }

cleanup:
    leave(in);
    return status;
}

/* ---- Going through ----------------------------------------------------------------------------------- */

bool value_can_iterate(const struct value *value)
{
    return value->kind == VALUE_UNDEFINED || value->kind == VALUE_STRING || value->kind == VALUE_LIST ||
           value->kind == VALUE_DICT || (value->kind == VALUE_OBJECT && value->object->type->iterable);
}

enum salvo_status value_items(struct interpreter *in, struct value value, struct value **out, size_t *count)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    *count = 0;
    if (value.kind == VALUE_LIST) {
        *out = value.list->taken ? value.list->items + value.list->taken : value.list->items;
        *count = value.list->count - value.list->taken;
        if (value.list->kind == LIST_GENERATOR)
            value.list->taken = value.list->count;
    } else if (value.kind == VALUE_STRING) {
        *count = value.string.size;
        TRY(HEAP_NEW(&in->heap, out, *count));
        for (size_t i = 0; i < *count; i++)
            (*out)[i] = value_string(string_part(value.string, i, i + 1));
    } else if (value.kind == VALUE_DICT) {
        *count = value.dict->count;
        TRY(HEAP_NEW(&in->heap, out, *count));
        for (size_t i = 0; i < *count; i++)
            (*out)[i] = value.dict->pairs[i].key;
    } else if (value.kind != VALUE_UNDEFINED) {
        TRY(fail(SALVO_ERROR_FORMAT, "'%s' is not iterable", value_type(&value)));
    }
    TRY(spend(in, *count));

cleanup:
    return status;
}

enum salvo_status value_to_list(
    struct interpreter *in, struct value value, enum list_kind kind, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count;
    TRY(value_items(in, value, &items, &count));
    TRY(list_new(&in->heap, kind, 0, out));
    out->list->items = items;
    out->list->count = count;

cleanup:
    return status;
}

enum salvo_status value_length(struct interpreter *in, struct value value, size_t *out)
{
    (void)in;
    *out = 0;
    switch ((enum value_kind)value.kind) {
    case VALUE_UNDEFINED:
        return SALVO_OK;
    case VALUE_STRING:
        *out = value.string.size;
        return SALVO_OK;
    case VALUE_LIST:
        *out = value.list->count;
        if (value.list->kind != LIST_GENERATOR)
            return SALVO_OK;
        break;
    case VALUE_DICT:
        *out = value.dict->count;
        return SALVO_OK;
    default:
        break;
    }
    return fail(SALVO_ERROR_FORMAT, "'%s' has no length", value_type(&value));
}

enum salvo_status value_contains(struct interpreter *in, struct value where, struct value what, bool *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items, *found;
    struct string part;
    size_t count;
    *out = false;
    if (where.kind == VALUE_STRING) {
        TRY(want_string(&what, "'in' a string", &part));
        TRY(spend_search(in, where.string, part));
        *out = string_find(where.string, part, 0) != SIZE_MAX;
    } else if (where.kind == VALUE_DICT) {
        TRY(dict_find(in, where.dict, what, &found));
        *out = found != NULL;
    } else {
        TRY(value_items(in, where, &items, &count));
        for (size_t i = 0; i < count && !*out; i++)
            TRY(value_equal(in, items[i], what, out));
    }

cleanup:
    return status;
}

/* ---- Dicts ------------------------------------------------------------------------------------------- */

enum salvo_status value_check_key(const struct value *key)
{
    bool changes = key->kind == VALUE_DICT || value_is_list(key, LIST_LIST);
    return changes ? fail(SALVO_ERROR_FORMAT, "'%s' cannot be a dict key", value_type(key)) : SALVO_OK;
}

enum salvo_status dict_find(
    struct interpreter *in, const struct dict *dict, struct value key, struct value **out)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    TRY(value_check_key(&key));
    TRY(spend(in, dict->count / 4 + 1));
    for (size_t i = 0; i < dict->count; i++) {
        bool equal = false;
        if (key.kind == VALUE_STRING && dict->pairs[i].key.kind == VALUE_STRING)
            equal = string_equal(key.string, dict->pairs[i].key.string);
        else
            TRY(value_equal(in, key, dict->pairs[i].key, &equal));
        if (equal) {
            *out = &dict->pairs[i].value;
            break;
        }
    }

cleanup:
    return status;
}

enum salvo_status dict_set(struct interpreter *in, struct dict *dict, struct value key, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct value *older;
    TRY(dict_find(in, dict, key, &older));
    if (older) {
        *older = value;
        goto cleanup;
    }
    if (dict->count == dict->capacity) {
        struct pair *larger;
        size_t capacity = dict->capacity ? 2 * dict->capacity : 8;
        TRY(HEAP_NEW(&in->heap, &larger, capacity));
        if (dict->count)
            memcpy(larger, dict->pairs, dict->count * sizeof *larger);
        dict->pairs = larger;
        dict->capacity = capacity;
    }
    dict->pairs[dict->count++] = (struct pair){key, value};

cleanup:
    return status;
}

struct value *dict_find_name(const struct dict *dict, const char *name)
{
    for (size_t i = 0; i < dict->count; i++) {
        const struct value *key = &dict->pairs[i].key;
        if (key->kind == VALUE_STRING && string_is(key->string, name))
            return &dict->pairs[i].value;
    }
    return NULL;
}

enum salvo_status dict_set_name(
    struct interpreter *in, struct dict *dict, const char *name, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    TRY(text_ascii(&text, name, 0));
    TRY(dict_set(in, dict, value_string(text_take(&text)), value));

cleanup:
    return status;
}

bool number_to_integer(const struct value *value, struct value *out)
{
    const bool data = value->data;
    if (value->kind == VALUE_FLOAT && value->number >= (double)INT64_MIN &&
        value->number < -(double)INT64_MIN)
        *out = value_int((int64_t)value->number);
    else if (value_is_integral(value))
        *out = value_int(value_integer(value));
    else
        return false;
    out->data = data;
    return true;
}
