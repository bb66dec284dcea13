/* Filters of sequences and dicts, and their methods. */
#include "text/jinja/builtins.h"

#include <string.h>

enum salvo_status path_value(
    struct interpreter *in, struct value item, struct value path, struct value fallback, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    *out = item;
    if (!is_given(&path))
        goto cleanup;
    if (path.kind != VALUE_STRING) {
        TRY(value_item(in, item, path, out));
        if (out->kind == VALUE_UNDEFINED && is_given(&fallback))
            *out = fallback;
        goto cleanup;
    }
    for (size_t at = 0, end; at <= path.string.size; at = end + 1) {
        end = at;
        int64_t number = 0;
        bool digits = true;
        for (; end < path.string.size && CHAR_CODE(path.string.chars[end]) != '.'; end++) {
            uint32_t code = CHAR_CODE(path.string.chars[end]);
            digits = digits && code >= '0' && code <= '9' && number < INT32_MAX;
            number = digits ? number * 10 + (int64_t)(code - '0') : 0;
        }
        struct value key = value_string(string_part(path.string, at, end));
        TRY(value_item(in, *out, digits && end > at ? value_int(number) : key, out));
        if (out->kind == VALUE_UNDEFINED && is_given(&fallback))
            *out = fallback;
    }

cleanup:
    return status;
}

/* ---- One item, or how many --------------------------------------------------------------------------- */

static enum salvo_status first(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count, taken = call->self.kind == VALUE_LIST ? call->self.list->taken : 0;
    TRY(value_items(in, call->self, &items, &count));
    *out = count ? items[0] : value_undefined(UNDEFINED_EMPTY, (struct string){0});
    if (value_is_list(&call->self, LIST_GENERATOR) && count)
        call->self.list->taken = taken + 1;

cleanup:
    return status;
}

static enum salvo_status last(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count;
    if (value_is_list(&call->self, LIST_GENERATOR))
        TRY(fail(SALVO_ERROR_FORMAT, "last: a generator cannot be reversed; put '| list' before it"));
    TRY(value_items(in, call->self, &items, &count));
    *out = count ? items[count - 1] : value_undefined(UNDEFINED_EMPTY, (struct string){0});

cleanup:
    return status;
}

static enum salvo_status length(struct interpreter *in, const struct call *call, struct value *out)
{
    size_t count;
    enum salvo_status status = value_length(in, call->self, &count);
    *out = value_int((int64_t)count);
    return status;
}

static enum salvo_status default_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    bool lacking =
        call->self.kind == VALUE_UNDEFINED || (value_true(&call->given[1]) && !value_true(&call->self));
    *out = call->self;
    if (lacking)
        *out = call->given[0].kind == VALUE_ABSENT ? value_string((struct string){0}) : call->given[0];
    return SALVO_OK;
}

static enum salvo_status attr(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string name;
    TRY(want_string(&call->given[0], "attr", &name));
    TRY(value_own_attribute(in, call->self, name, out));

cleanup:
    return status;
}

/* ---- The same items in another form ------------------------------------------------------------------ */

static enum salvo_status list_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    return value_to_list(in, call->self, LIST_LIST, out);
}

static enum salvo_status reverse(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct value backwards[3] = {{0}, {0}, value_int(-1)};
    struct value *items;
    size_t count;
    if (call->self.kind == VALUE_STRING) {
        TRY(value_slice(in, call->self, backwards, out));
        goto cleanup;
    }
    bool generator = value_is_list(&call->self, LIST_GENERATOR);
    TRY(value_items(in, call->self, &items, &count));
    TRY(list_new(&in->heap, generator ? LIST_LIST : LIST_GENERATOR, count, out));
    for (size_t i = 0; i < count; i++)
        out->list->items[i] = items[count - 1 - i];
    out->list->count = count;

cleanup:
    return status;
}

static enum salvo_status join(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    struct string separator = {0};
    struct value *items, item;
    size_t count;
    TRY(value_items(in, call->self, &items, &count));
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(value_to_string(in, call->given[0], &separator));
    for (size_t i = 0; i < count; i++) {
        if (i)
            TRY(text_string(&text, separator));
        TRY(path_value(in, items[i], call->given[1], (struct value){0}, &item));
        TRY(value_write(in, item, &text));
    }
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

static enum salvo_status pair_up(
    struct interpreter *in, struct value key, struct value value, struct value *out)
{
    enum salvo_status status = list_new(&in->heap, LIST_TUPLE, 2, out);
    if (status == SALVO_OK) {
        out->list->items[0] = key;
        out->list->items[1] = value;
        out->list->count = 2;
    }
    return status;
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static enum salvo_status view_dict(
    struct interpreter *in, const struct dict *dict, enum view view, enum list_kind kind, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(spend(in, dict->count));
    TRY(list_new(&in->heap, kind, dict->count, out));
    for (size_t i = 0; i < dict->count; i++) {
        const struct pair *pair = &dict->pairs[i];
        struct value *item = &out->list->items[i];
        if (view == VIEW_ITEMS)
            TRY(pair_up(in, pair->key, pair->value, item));
        else
            *item = view == VIEW_KEYS ? pair->key : pair->value;
        out->list->count++;
    }

cleanup:
    return status;
}

static enum salvo_status items_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    if (call->self.kind == VALUE_UNDEFINED)
        return list_new(&in->heap, LIST_GENERATOR, 0, out);
    if (call->self.kind != VALUE_DICT)
        return fail(SALVO_ERROR_FORMAT, "items: expected a dict, not '%s'", value_type(&call->self));
    return view_dict(in, call->self.dict, VIEW_ITEMS, LIST_GENERATOR, out);
}

/* ---- Rows of rows ------------------------------------------------------------------------------------ */

/* Items [begin, end) as a list of its own, filled up to `size`. */
static enum salvo_status cut_row(struct interpreter *in, const struct value *items, size_t begin, size_t end,
    size_t size, struct value fill, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(spend(in, size + 1));
    TRY(list_new(&in->heap, LIST_LIST, size, out));
    for (size_t i = begin; i < end; i++)
        out->list->items[out->list->count++] = items[i];
    while (out->list->count < size)
        out->list->items[out->list->count++] = fill;

cleanup:
    return status;
}

static enum salvo_status batch(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count;
    int64_t size;
    TRY(want_integer(&call->given[0], "batch", &size));
    TRY(value_items(in, call->self, &items, &count));
    size_t step = size > 0 ? (size_t)size : count + 1;
    TRY(list_new(&in->heap, LIST_GENERATOR, count / step + 2, out));
    if (size == 0 && count) { /* jinja2 finds an empty row complete, once */
        TRY(cut_row(in, items, 0, 0, 0, call->given[1], &out->list->items[0]));
        out->list->count++;
    }
    for (size_t at = 0; at < count; at += step) {
        size_t end = count - at < step ? count : at + step;
        size_t wanted = is_given(&call->given[1]) && size > 0 ? step : end - at;
        TRY(cut_row(in, items, at, end, wanted, call->given[1], &out->list->items[out->list->count]));
        out->list->count++;
    }

cleanup:
    return status;
}

static enum salvo_status slice_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count, at = 0;
    int64_t slices;
    TRY(want_integer(&call->given[0], "slice", &slices));
    if (slices <= 0)
        TRY(fail(SALVO_ERROR_FORMAT, "slice: the number of slices must be positive"));
    TRY(value_items(in, call->self, &items, &count));
    TRY(spend(in, (size_t)slices));
    TRY(list_new(&in->heap, LIST_GENERATOR, (size_t)slices, out));
    size_t each = count / (size_t)slices, longer = count % (size_t)slices;
    for (size_t i = 0; i < (size_t)slices; i++) {
        size_t size = each + (i < longer), filled = size + (is_given(&call->given[1]) && i >= longer);
        TRY(cut_row(in, items, at, at + size, filled, call->given[1], &out->list->items[i]));
        out->list->count++;
        at += size;
    }

cleanup:
    return status;
}

const struct builtin sequence_filters[] = {
    {"first", first, "", 0},
    {"last", last, "", 0},
    {"length", length, "", 0},
    {"count", length, "", 0},
    {"default", default_filter, "default_value boolean", 0},
    {"d", default_filter, "default_value boolean", 0},
    {"attr", attr, "name", 1},
    {"list", list_filter, "", 0},
    {"reverse", reverse, "", 0},
    {"join", join, "d attribute", 0},
    {"items", items_filter, "", 0},
    {"batch", batch, "linecount fill_with", 1},
    {"slice", slice_filter, "slices fill_with", 1},
    {0},
};

/* ---- Methods ----------------------------------------------------------------------------------------- */

static enum salvo_status list_index(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    bool equal = false;
    const struct list *list = call->self.list;
    for (size_t i = 0; i < list->count && !equal; i++) {
        TRY(value_equal(in, list->items[i], call->given[0], &equal));
        *out = value_int((int64_t)i);
    }
    if (!equal)
        TRY(fail(SALVO_ERROR_FORMAT, "index: the value is not in the list"));

cleanup:
    return status;
}

static enum salvo_status list_count(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    int64_t count = 0;
    bool equal;
    for (size_t i = 0; i < call->self.list->count; i++) {
        TRY(value_equal(in, call->self.list->items[i], call->given[0], &equal));
        count += equal;
    }
    *out = value_int(count);

cleanup:
    return status;
}

static enum salvo_status dict_copy(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct dict *dict = call->self.dict;
    TRY(dict_new(&in->heap, dict->count, out));
    for (size_t i = 0; i < dict->count; i++)
        out->dict->pairs[out->dict->count++] = dict->pairs[i];

cleanup:
    return status;
}

static enum salvo_status dict_get(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *found;
    TRY(dict_find(in, call->self.dict, call->given[0], &found));
    *out = found ? *found : call->given[1].kind == VALUE_ABSENT ? value_none() : call->given[1];

cleanup:
    return status;
}

static enum salvo_status dict_keys(struct interpreter *in, const struct call *call, struct value *out)
{
    return view_dict(in, call->self.dict, VIEW_KEYS, LIST_KEYS, out);
}

static enum salvo_status dict_values(struct interpreter *in, const struct call *call, struct value *out)
{
    return view_dict(in, call->self.dict, VIEW_VALUES, LIST_VALUES, out);
}

static enum salvo_status dict_items(struct interpreter *in, const struct call *call, struct value *out)
{
    return view_dict(in, call->self.dict, VIEW_ITEMS, LIST_ITEMS, out);
}

const struct builtin list_methods[] = {
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
    {"copy", list_filter, "", 0},
    {0},
};

const struct builtin dict_methods[] = {
    {"get", dict_get, "key default", 1},
    {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},
    {"items", dict_items, "", 0},
    {"copy", dict_copy, "", 0},
    {0},
};
