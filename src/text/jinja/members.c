/* a.b, a[b] and a[b:c:d], with the rules of jinja2's sandbox: methods that would change their object are
 * undefined, but for list_changes.c. */
#include "text/jinja/builtins.h"

#include <string.h>

/* ---- Attributes -------------------------------------------------------------------------------------- */

static bool is_among(struct string name, const char *const *names)
{
    for (; *names; names++) {
        if (string_is(name, *names))
            return true;
    }
    return false;
}

static bool changes_object(const struct value *owner, struct string name)
{
    static const char *const of_lists[] = {
        "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL};
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    return (value_is_list(owner, LIST_LIST) && is_among(name, of_lists)) ||
           (owner->kind == VALUE_DICT && is_among(name, of_dicts));
}

static const struct builtin *find_method(
    const struct builtin_tables *builtins, const struct value *owner, struct string name)
{
    switch ((enum value_kind)owner->kind) {
    case VALUE_STRING:
        return builtin_find(builtins->string_methods, name);
    case VALUE_LIST:
        return owner->list->kind <= LIST_RANGE ? builtin_find(builtins->list_methods, name) : NULL;
    case VALUE_DICT:
        return builtin_find(builtins->dict_methods, name);
    default:
        return NULL;
    }
}

/* As Python's getattr(): *out stays undefined when the attribute is missing. */
static enum salvo_status python_attribute(
    struct interpreter *in, struct value owner, struct string name, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct builtin *method = find_method(in->builtins, &owner, name);
    if (value_is_list(&owner, LIST_LIST) && owner.list->own && !method)
        method = builtin_find(in->builtins->list_changes, name);
    if (name.size && CHAR_CODE(name.chars[0]) == '_')
        *out = value_undefined(UNDEFINED_MEMBER, name);
    else if (method)
        TRY(builtin_bind(in, method, owner, out));
    else if (changes_object(&owner, name))
        *out = value_undefined(UNDEFINED_UNSAFE, name);
    else if (owner.kind == VALUE_OBJECT && owner.object->type->attribute)
        TRY(owner.object->type->attribute(in, owner.object, name, out));
    else if (value_is_list(&owner, LIST_TUPLE) && owner.list->group && string_is(name, "grouper"))
        *out = owner.list->items[0];
    else if (value_is_list(&owner, LIST_TUPLE) && owner.list->group && string_is(name, "list"))
        *out = owner.list->items[1];

cleanup:
    return status;
}

static bool is_found(const struct value *value)
{
    return value->kind != VALUE_UNDEFINED || value->reason == UNDEFINED_UNSAFE;
}

/* ---- Items ------------------------------------------------------------------------------------------- */

/* As Python's owner[key]: *out stays undefined when the item is missing. */
static enum salvo_status python_item(
    struct interpreter *in, struct value owner, struct value key, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    bool in_dict = owner.kind == VALUE_DICT || owner.kind == VALUE_NAMESPACE;
    bool in_row = owner.kind == VALUE_STRING || (owner.kind == VALUE_LIST && owner.list->kind <= LIST_RANGE);
    if (in_dict) {
        struct value *found = NULL;
        if (key.kind != VALUE_DICT && !value_is_list(&key, LIST_LIST))
            TRY(dict_find(in, owner.dict, key, &found));
        if (found)
            *out = *found;
    } else if (in_row && value_is_integral(&key)) {
        size_t count = owner.kind == VALUE_STRING ? owner.string.size : owner.list->count;
        int64_t index = value_integer(&key);
        index += index < 0 ? (int64_t)count : 0;
        if (index >= 0 && (uint64_t)index < count) {
            size_t at = (size_t)index;
            *out = owner.kind == VALUE_LIST ? owner.list->items[at]
                                            : value_string(string_part(owner.string, at, at + 1));
        }
    }

cleanup:
    return status;
}

enum salvo_status value_item(struct interpreter *in, struct value owner, struct value key, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string name = key.kind == VALUE_STRING ? key.string : (struct string){0};
    if (owner.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&owner));
    *out = value_undefined(UNDEFINED_MEMBER, name);
    TRY(python_item(in, owner, key, out));
    if (key.kind == VALUE_STRING && !is_found(out))
        TRY(python_attribute(in, owner, name, out));

cleanup:
    return status;
}

enum salvo_status value_own_attribute(
    struct interpreter *in, struct value owner, struct string name, struct value *out)
{
    if (owner.kind == VALUE_UNDEFINED)
        return fail_undefined(&owner);
    *out = value_undefined(UNDEFINED_MEMBER, name);
    return python_attribute(in, owner, name, out);
}

enum salvo_status value_attribute(
    struct interpreter *in, struct value owner, struct string name, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(value_own_attribute(in, owner, name, out));
    if (!is_found(out))
        TRY(python_item(in, owner, value_string(name), out));

cleanup:
    return status;
}

/* ---- Slices ------------------------------------------------------------------------------------------ */

static enum salvo_status slice_bound(const struct value *bound, int64_t absent, int64_t *out)
{
    *out = absent;
    return is_given(bound) ? want_integer(bound, "slice", out) : SALVO_OK;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

enum salvo_status value_slice(
    struct interpreter *in, struct value owner, const struct value bounds[3], struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    int64_t begin, end, step;
    bool row = owner.kind == VALUE_LIST && owner.list->kind <= LIST_RANGE;
    if (owner.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&owner));
    if (owner.kind != VALUE_STRING && !row)
        TRY(fail(SALVO_ERROR_FORMAT, "'%s' cannot be sliced", value_type(&owner)));
    int64_t count = (int64_t)(row ? owner.list->count : owner.string.size);
    TRY(slice_bound(&bounds[2], 1, &step));
    if (step == 0)
        TRY(fail(SALVO_ERROR_FORMAT, "the slice step is 0"));
    step = clamp(step, -INT64_MAX, INT64_MAX);
    bool forward = step > 0;
    TRY(slice_bound(&bounds[0], forward ? 0 : INT64_MAX, &begin));
    TRY(slice_bound(&bounds[1], forward ? INT64_MAX : INT64_MIN, &end));
    bool whole = !is_given(&bounds[1]);
    begin += begin < 0 ? count : 0;
    end += end < 0 && !whole ? count : 0;
    begin = clamp(begin, forward ? 0 : -1, forward ? count : count - 1);
    end = clamp(end, forward ? 0 : -1, forward ? count : count - 1);
    size_t size = 0;
    if (forward && begin < end)
        size = (size_t)((end - begin - 1) / step + 1);
    else if (!forward && begin > end)
        size = (size_t)((begin - end - 1) / -step + 1);
    TRY(spend(in, size));

    if (row) {
        TRY(list_new(&in->heap, owner.list->kind, size, out));
        if (owner.list->kind == LIST_RANGE) {
            out->list->begin = owner.list->begin + begin * owner.list->step;
            out->list->end = owner.list->begin + end * owner.list->step;
            out->list->step = owner.list->step * step;
        }
        for (size_t i = 0; i < size; i++)
            out->list->items[out->list->count++] = owner.list->items[begin + (int64_t)i * step];
    } else if (step == 1) {
        *out = owner;
        out->string = string_part(owner.string, (size_t)begin, (size_t)begin + size);
    } else {
        TRY(text_reserve(&text, size));
        for (size_t i = 0; i < size; i++)
            text.chars[text.size++] = owner.string.chars[begin + (int64_t)i * step];
        *out = owner;
        out->string = text_take(&text);
    }

cleanup:
    return status;
}
