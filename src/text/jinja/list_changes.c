/*
 * Methods that change a list. jinja2's sandbox has none; llama.cpp's interpreter has them, and published
 * templates queue the ids of calls with them. Only a list that the template has written as [...] changes,
 * never one of the conversation. Its new items are no lists and no dicts, so that no list contains itself.
 * The items are a new array, because a loop may hold the old one.
 */
#include "text/jinja/builtins.h"

#include <string.h>

/* The items in a new array with room for at least one, and for all of them. */
static enum salvo_status copy_items(
    struct interpreter *in, const struct list *list, size_t room, struct value **out)
{
    enum salvo_status status = SALVO_OK;
    TRY(HEAP_NEW(&in->heap, out, room));
    if (list->count)
        memcpy(*out, list->items, list->count * sizeof **out);

cleanup:
    return status;
}

static enum salvo_status append(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct list *list = call->self.list;
    const struct value item = call->given[0];
    struct value *items;
    if (item.kind != VALUE_NONE && item.kind != VALUE_BOOL && item.kind != VALUE_INT &&
        item.kind != VALUE_FLOAT && item.kind != VALUE_STRING)
        TRY(fail(SALVO_ERROR_FORMAT, "append: expected text, a number, a boolean or none, not %s",
            value_type(&item)));
    TRY(copy_items(in, list, list->count + 1, &items));
    items[list->count++] = item;
    list->items = items;
    *out = value_none();

cleanup:
    return status;
}

static enum salvo_status pop(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct list *list = call->self.list;
    struct value *items;
    int64_t at = -1;
    if (is_given(&call->given[0])) {
        if (!value_is_integral(&call->given[0]))
            TRY(fail(SALVO_ERROR_FORMAT, "pop: expected a number, not %s", value_type(&call->given[0])));
        at = value_integer(&call->given[0]);
    }
    at += at < 0 ? (int64_t)list->count : 0;
    if (at < 0 || (uint64_t)at >= list->count)
        TRY(fail(SALVO_ERROR_FORMAT, "pop: the list of %zu items has none at this place", list->count));
    const struct value item = list->items[at];
    TRY(copy_items(in, list, list->count, &items));
    list->count--;
    memmove(items + at, items + at + 1, (list->count - (size_t)at) * sizeof *items);
    list->items = items;
    *out = item;

cleanup:
    return status;
}

const struct builtin list_changes[] = {
    {"append", append, "object", 1},
    {"pop", pop, "index", 0},
    {0},
};
