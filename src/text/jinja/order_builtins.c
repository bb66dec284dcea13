/* Filters that compare items: sorting, grouping, the smallest and the largest, sums. */
#include "text/jinja/builtins.h"
#include "text/jinja/letters.h"

#include <string.h>

static const struct value none = {0};

struct keyed {
    struct value key, item;
};

static enum salvo_status ignore_case(struct interpreter *in, bool case_matters, struct value *value)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    if (case_matters || value->kind != VALUE_STRING)
        goto cleanup;
    TRY(spend(in, value->string.size));
    TRY(text_in_case(&text, value->string, CASE_LOWER));
    *value = value_string(text_take(&text));

cleanup:
    return status;
}

/* The key of an item. */
static enum salvo_status make_key(struct interpreter *in, struct value item, struct value path,
    struct value fallback, bool case_matters, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(path_value(in, item, path, fallback, out));
    TRY(ignore_case(in, case_matters, out));

cleanup:
    return status;
}

/* A list of the keys at "a,b"; lists are compared item by item. */
static enum salvo_status make_keys(
    struct interpreter *in, struct value item, struct value path, bool case_matters, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    size_t parts = 1;
    for (size_t i = 0; path.kind == VALUE_STRING && i < path.string.size; i++)
        parts += CHAR_CODE(path.string.chars[i]) == ',';
    TRY(list_new(&in->heap, LIST_LIST, parts, out));
    struct value *keys = out->list->items;
    out->list->count = parts;
    if (path.kind != VALUE_STRING) {
        TRY(make_key(in, item, path, none, case_matters, keys));
        goto cleanup;
    }
    for (size_t at = 0, end; at <= path.string.size; at = end + 1, keys++) {
        for (end = at; end < path.string.size && CHAR_CODE(path.string.chars[end]) != ','; end++)
            continue;
        TRY(make_key(in, item, value_string(string_part(path.string, at, end)), none, case_matters, keys));
    }

cleanup:
    return status;
}

static enum salvo_status key_items(struct interpreter *in, struct value self, struct value path,
    struct value fallback, bool case_matters, struct keyed **out, size_t *count)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    TRY(value_items(in, self, &items, count));
    TRY(HEAP_NEW(&in->heap, out, *count));
    for (size_t i = 0; i < *count; i++) {
        (*out)[i].item = items[i];
        TRY(make_key(in, items[i], path, fallback, case_matters, &(*out)[i].key));
    }

cleanup:
    return status;
}

static enum salvo_status is_less(
    struct interpreter *in, const struct keyed *left, const struct keyed *right, bool *out)
{
    int order;
    enum salvo_status status = value_compare(in, left->key, right->key, &order);
    *out = order == -1;
    return status;
}

/* Merges the runs [begin, middle) and [middle, end) of `from` into `to`; equal ones stay in order. */
static enum salvo_status merge_runs(struct interpreter *in, const struct keyed *from, struct keyed *to,
    size_t begin, size_t middle, size_t end, bool reversed)
{
    enum salvo_status status = SALVO_OK;
    size_t left = begin, right = middle;
    for (size_t at = begin; at < end; at++) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
            if (reversed)
                TRY(is_less(in, &from[left], &from[right], &take_right));
            else
                TRY(is_less(in, &from[right], &from[left], &take_right));
        }
        to[at] = take_right ? from[right++] : from[left++];
    }

cleanup:
    return status;
}

static enum salvo_status sort_items(struct interpreter *in, struct keyed **items, size_t count, bool reversed)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *from = *items, *to;
    TRY(HEAP_NEW(&in->heap, &to, count));
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * run) {
            size_t middle = count - begin < run ? count : begin + run;
            size_t end = count - middle < run ? count : middle + run;
            TRY(merge_runs(in, from, to, begin, middle, end, reversed));
        }
        struct keyed *sorted = to;
        to = from;
        from = sorted;
    }
    *items = from;

cleanup:
    return status;
}

static enum salvo_status list_of_items(
    struct interpreter *in, const struct keyed *items, size_t count, struct value *out)
{
    enum salvo_status status = list_new(&in->heap, LIST_LIST, count, out);
    for (size_t i = 0; status == SALVO_OK && i < count; i++)
        out->list->items[out->list->count++] = items[i].item;
    return status;
}

static enum salvo_status sort(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *items;
    size_t count;
    TRY(key_items(in, call->self, none, none, true, &items, &count));
    for (size_t i = 0; i < count; i++)
        TRY(make_keys(in, items[i].item, call->given[2], value_true(&call->given[1]), &items[i].key));
    TRY(sort_items(in, &items, count, value_true(&call->given[0])));
    TRY(list_of_items(in, items, count, out));

cleanup:
    return status;
}

static enum salvo_status dictsort(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *items;
    const struct value *by = &call->given[1];
    bool by_value = by->kind == VALUE_STRING && string_is(by->string, "value");
    if (call->self.kind != VALUE_DICT)
        TRY(fail(SALVO_ERROR_FORMAT, "dictsort: expected a dict, not '%s'", value_type(&call->self)));
    if (by->kind != VALUE_ABSENT && !by_value && !(by->kind == VALUE_STRING && string_is(by->string, "key")))
        TRY(fail(SALVO_ERROR_FORMAT, "dictsort: by must be 'key' or 'value'"));
    size_t count = call->self.dict->count;
    TRY(HEAP_NEW(&in->heap, &items, count));
    for (size_t i = 0; i < count; i++) {
        const struct pair *pair = &call->self.dict->pairs[i];
        items[i].key = by_value ? pair->value : pair->key;
        TRY(ignore_case(in, value_true(&call->given[0]), &items[i].key));
        TRY(list_new(&in->heap, LIST_TUPLE, 2, &items[i].item));
        items[i].item.list->items[0] = pair->key;
        items[i].item.list->items[1] = pair->value;
        items[i].item.list->count = 2;
    }
    TRY(sort_items(in, &items, count, value_true(&call->given[2])));
    TRY(list_of_items(in, items, count, out));

cleanup:
    return status;
}

static enum salvo_status unique(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *items;
    size_t count, kept = 0;
    TRY(key_items(in, call->self, call->given[1], none, value_true(&call->given[0]), &items, &count));
    for (size_t i = 0; i < count; i++) {
        bool seen = false;
        TRY(value_check_key(&items[i].key));
        for (size_t k = 0; k < kept && !seen; k++)
            TRY(value_equal(in, items[k].key, items[i].key, &seen));
        if (!seen)
            items[kept++] = items[i];
    }
    TRY(list_of_items(in, items, kept, out));
    out->list->kind = LIST_GENERATOR;

cleanup:
    return status;
}

static enum salvo_status groupby(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *items;
    size_t count;
    bool case_matters = value_true(&call->given[2]);
    TRY(key_items(in, call->self, call->given[0], call->given[1], case_matters, &items, &count));
    TRY(sort_items(in, &items, count, false));
    TRY(list_new(&in->heap, LIST_LIST, count, out));
    for (size_t begin = 0, end; begin < count; begin = end) {
        bool same = true;
        for (end = begin + 1; end < count && same; end += same)
            TRY(value_equal(in, items[begin].key, items[end].key, &same));
        struct value *group = &out->list->items[out->list->count++];
        TRY(list_new(&in->heap, LIST_TUPLE, 2, group));
        group->list->group = true;
        group->list->count = 2;
        TRY(path_value(in, items[begin].item, call->given[0], call->given[1], &group->list->items[0]));
        TRY(list_of_items(in, items + begin, end - begin, &group->list->items[1]));
    }

cleanup:
    return status;
}

static enum salvo_status extreme(
    struct interpreter *in, const struct call *call, bool largest, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct keyed *items;
    size_t count, best = 0;
    TRY(key_items(in, call->self, call->given[1], none, value_true(&call->given[0]), &items, &count));
    for (size_t i = 1; i < count; i++) {
        bool better;
        if (largest)
            TRY(is_less(in, &items[best], &items[i], &better));
        else
            TRY(is_less(in, &items[i], &items[best], &better));
        best = better ? i : best;
    }
    *out = count ? items[best].item : value_undefined(UNDEFINED_EMPTY, (struct string){0});

cleanup:
    return status;
}

static enum salvo_status min(struct interpreter *in, const struct call *call, struct value *out)
{
    return extreme(in, call, false, out);
}

static enum salvo_status max(struct interpreter *in, const struct call *call, struct value *out)
{
    return extreme(in, call, true, out);
}

static enum salvo_status sum(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value *items, item;
    size_t count;
    *out = call->given[1].kind == VALUE_ABSENT ? value_int(0) : call->given[1];
    if (out->kind == VALUE_STRING)
        TRY(fail(SALVO_ERROR_FORMAT, "sum: cannot add strings; use join"));
    TRY(value_items(in, call->self, &items, &count));
    for (size_t i = 0; i < count; i++) {
        TRY(path_value(in, items[i], call->given[0], none, &item));
        TRY(value_binary(in, '+', *out, item, out));
    }

cleanup:
    return status;
}

const struct builtin order_filters[] = {
    {"sort", sort, "reverse case_sensitive attribute", 0},
    {"dictsort", dictsort, "case_sensitive by reverse", 0},
    {"unique", unique, "case_sensitive attribute", 0},
    {"groupby", groupby, "attribute default case_sensitive", 1},
    {"min", min, "case_sensitive attribute", 0},
    {"max", max, "case_sensitive attribute", 0},
    {"sum", sum, "attribute start", 0},
    {0},
};
