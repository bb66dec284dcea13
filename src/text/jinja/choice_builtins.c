/* Filters that apply a filter or a test to each item: map, select, reject and their like. */
#include "text/jinja/builtins.h"

/* The arguments without the first `count`. */
static struct arguments without_first(const struct arguments *arguments, size_t count)
{
    struct arguments rest = *arguments;
    rest.values = rest.count > count ? rest.values + count : NULL;
    rest.count -= count;
    return rest;
}

static enum salvo_status find_by_name(
    struct value name, const struct builtin *const *tables, const char *what, const struct builtin **out)
{
    enum salvo_status status = SALVO_OK;
    struct string string;
    char shown[64];
    TRY(want_string(&name, what, &string));
    *out = builtin_find(tables, string);
    if (!*out)
        TRY(fail(SALVO_ERROR_FORMAT, "unknown %s '%s'", what, string_show(string, shown, sizeof shown)));

cleanup:
    return status;
}

/* map(attribute=..., default=...) */
static enum salvo_status map_attribute(
    struct interpreter *in, const struct arguments *arguments, struct value item, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value path = {0}, fallback = {0};
    char shown[64];
    for (size_t i = 0; i < arguments->named_count; i++) {
        const struct named_value *named = &arguments->named[i];
        if (string_is(named->name, "attribute"))
            path = named->value;
        else if (string_is(named->name, "default"))
            fallback = named->value;
        else
            TRY(fail(SALVO_ERROR_FORMAT, "map: unexpected argument '%s'",
                string_show(named->name, shown, sizeof shown)));
    }
    if (path.kind == VALUE_ABSENT)
        TRY(fail(SALVO_ERROR_FORMAT, "map needs a filter or an attribute"));
    TRY(path_value(in, item, path, fallback, out));

cleanup:
    return status;
}

/* A value that is false, such as none or 0, counts as an empty sequence. */
static bool is_empty(
    const struct call *call, struct interpreter *in, enum salvo_status *status, struct value *out)
{
    bool empty = !value_true(&call->self);
    if (empty)
        *status = list_new(&in->heap, LIST_GENERATOR, 0, out);
    return empty;
}

static enum salvo_status map(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct builtin *filter = NULL;
    struct arguments rest = {0};
    struct value *items;
    size_t count;
    if (is_empty(call, in, &status, out))
        goto cleanup;
    if (call->arguments->count) {
        TRY(find_by_name(call->arguments->values[0], in->builtins->filters, "filter", &filter));
        rest = without_first(call->arguments, 1);
    }
    TRY(value_items(in, call->self, &items, &count));
    TRY(list_new(&in->heap, LIST_GENERATOR, count, out));
    for (size_t i = 0; i < count; i++) {
        struct value *item = &out->list->items[i];
        if (filter)
            TRY(builtin_call(in, filter, items[i], &rest, item));
        else
            TRY(map_attribute(in, call->arguments, items[i], item));
        out->list->count++;
    }

cleanup:
    return status;
}

/* `by_path`: the first argument says which part of an item is tested. */
static enum salvo_status choose(
    struct interpreter *in, const struct call *call, bool by_path, bool wanted, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct arguments *arguments = call->arguments;
    const struct builtin *test = NULL;
    struct arguments rest = {0};
    struct value *items, path = {0};
    size_t count, used = by_path;
    if (is_empty(call, in, &status, out))
        goto cleanup;
    if (by_path && !arguments->count)
        TRY(fail(SALVO_ERROR_FORMAT, "selectattr and rejectattr need an attribute"));
    if (by_path)
        path = arguments->values[0];
    if (arguments->count > used) {
        TRY(find_by_name(arguments->values[used], in->builtins->tests, "test", &test));
        rest = without_first(arguments, used + 1);
    }
    TRY(value_items(in, call->self, &items, &count));
    TRY(list_new(&in->heap, LIST_GENERATOR, count, out));
    for (size_t i = 0; i < count; i++) {
        struct value value, holds;
        TRY(path_value(in, items[i], path, (struct value){0}, &value));
        holds = value;
        if (test)
            TRY(builtin_call(in, test, value, &rest, &holds));
        if (value_true(&holds) == wanted)
            out->list->items[out->list->count++] = items[i];
    }

cleanup:
    return status;
}

static enum salvo_status select_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    return choose(in, call, false, true, out);
}

static enum salvo_status reject(struct interpreter *in, const struct call *call, struct value *out)
{
    return choose(in, call, false, false, out);
}

static enum salvo_status selectattr(struct interpreter *in, const struct call *call, struct value *out)
{
    return choose(in, call, true, true, out);
}

static enum salvo_status rejectattr(struct interpreter *in, const struct call *call, struct value *out)
{
    return choose(in, call, true, false, out);
}

const struct builtin choice_filters[] = {
    {"map", map, "*", 0},
    {"select", select_filter, "*", 0},
    {"reject", reject, "*", 0},
    {"selectattr", selectattr, "*", 0},
    {"rejectattr", rejectattr, "*", 0},
    {0},
};
