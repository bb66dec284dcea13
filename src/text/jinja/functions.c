/* Functions of jinja2, and the two that transformers adds for chat templates. */
#include "text/jinja/builtins.h"

#include <stdio.h>
#include <time.h>

enum { LONGEST_RANGE = 100000 };

static enum salvo_status range(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    int64_t begin = 0, end, step = 1;
    bool one = call->given[1].kind == VALUE_ABSENT;
    TRY(want_integer(&call->given[one ? 0 : 1], "range", &end));
    if (!one)
        TRY(want_integer(&call->given[0], "range", &begin));
    if (call->given[2].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[2], "range", &step));
    if (step == 0)
        TRY(fail(SALVO_ERROR_FORMAT, "range: the step is 0"));
    TRY(list_new(&in->heap, LIST_RANGE, 0, out));
    struct list *list = out->list;
    list->begin = begin, list->end = end, list->step = step;
    size_t count = 0;
    int64_t at = begin;
    while (count <= LONGEST_RANGE && (step > 0 ? at < end : at > end)) {
        count++;
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    if (count > LONGEST_RANGE)
        TRY(fail(SALVO_ERROR_FORMAT, "range: more than %d items", LONGEST_RANGE));
    TRY(spend(in, count));
    TRY(HEAP_NEW(&in->heap, &list->items, count));
    for (; list->count < count; list->count++)
        list->items[list->count] = value_int(begin + (int64_t)list->count * step);

cleanup:
    return status;
}

/* A dict of another one or of pairs, and of arguments with names. */
static enum salvo_status dict_function(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct arguments *arguments = call->arguments;
    struct value *items, *pair;
    size_t count, size;
    TRY(dict_new(&in->heap, 0, out));
    struct dict *dict = out->dict;
    if (arguments->count > 1)
        TRY(fail(SALVO_ERROR_FORMAT, "dict takes at most one positional argument"));
    if (arguments->count && arguments->values[0].kind == VALUE_DICT) {
        const struct dict *other = arguments->values[0].dict;
        for (size_t i = 0; i < other->count; i++)
            TRY(dict_set(in, dict, other->pairs[i].key, other->pairs[i].value));
    } else if (arguments->count) {
        TRY(value_items(in, arguments->values[0], &items, &count));
        for (size_t i = 0; i < count; i++) {
            TRY(value_items(in, items[i], &pair, &size));
            if (size != 2)
                TRY(fail(SALVO_ERROR_FORMAT, "dict: expected pairs"));
            TRY(dict_set(in, dict, pair[0], pair[1]));
        }
    }
    for (size_t i = 0; i < arguments->named_count; i++)
        TRY(dict_set(in, dict, value_string(arguments->named[i].name), arguments->named[i].value));

cleanup:
    return status;
}

static enum salvo_status namespace_function(
    struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = dict_function(in, call, out);
    if (status == SALVO_OK)
        out->kind = VALUE_NAMESPACE;
    return status;
}

/* ---- Cyclers and joiners ----------------------------------------------------------------------------- */

struct cycler {
    struct object object;
    struct value *items;
    size_t count, at;
};

static enum salvo_status cycle_next(struct interpreter *in, const struct call *call, struct value *out)
{
    struct cycler *cycler = (struct cycler *)call->self.object;
    (void)in;
    *out = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->count;
    return SALVO_OK;
}

static enum salvo_status cycle_reset(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    ((struct cycler *)call->self.object)->at = 0;
    *out = value_none();
    return SALVO_OK;
}

static enum salvo_status cycler_attribute(
    struct interpreter *in, struct object *self, struct string name, struct value *out)
{
    static const struct builtin methods[] = {{"next", cycle_next, "", 0}, {"reset", cycle_reset, "", 0}, {0}};
    static const struct builtin *const tables[] = {methods, NULL};
    const struct cycler *cycler = (const struct cycler *)self;
    const struct builtin *method = builtin_find(tables, name);
    if (string_is(name, "current"))
        *out = cycler->items[cycler->at];
    return method ? builtin_bind(in, method, value_object(self), out) : SALVO_OK;
}

static enum salvo_status cycler(struct interpreter *in, const struct call *call, struct value *out)
{
    static const struct object_type type = {.name = "Cycler", .attribute = cycler_attribute};
    enum salvo_status status = SALVO_OK;
    struct cycler *cycler;
    if (!call->arguments->count)
        TRY(fail(SALVO_ERROR_FORMAT, "cycler needs at least one item"));
    TRY(HEAP_NEW(&in->heap, &cycler, 1));
    cycler->object.type = &type;
    TRY(HEAP_NEW(&in->heap, &cycler->items, call->arguments->count));
    for (; cycler->count < call->arguments->count; cycler->count++)
        cycler->items[cycler->count] = call->arguments->values[cycler->count];
    *out = value_object(&cycler->object);

cleanup:
    return status;
}

struct joiner {
    struct object object;
    struct string separator;
    bool used;
};

/* Empty the first time, then the separator. */
static enum salvo_status joiner_call(
    struct interpreter *in, struct object *self, const struct arguments *arguments, struct value *out)
{
    struct joiner *joiner = (struct joiner *)self;
    (void)in;
    (void)arguments;
    *out = value_string(joiner->used ? joiner->separator : (struct string){0});
    joiner->used = true;
    return SALVO_OK;
}

static enum salvo_status joiner(struct interpreter *in, const struct call *call, struct value *out)
{
    static const struct object_type type = {.name = "Joiner", .call = joiner_call};
    static const uint32_t comma[] = {',', ' '};
    enum salvo_status status = SALVO_OK;
    struct joiner *joiner;
    TRY(HEAP_NEW(&in->heap, &joiner, 1));
    *joiner = (struct joiner){.object.type = &type, .separator = {comma, 2}};
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(want_string(&call->given[0], "joiner", &joiner->separator));
    *out = value_object(&joiner->object);

cleanup:
    return status;
}

/* ---- Functions of chat templates --------------------------------------------------------------------- */

/* The template refuses the conversation, which is an error of the caller, not of the template. */
static enum salvo_status raise_exception(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string message;
    char shown[300];
    (void)out;
    TRY(value_to_string(in, call->given[0], &message));
    status = fail(SALVO_ERROR_ARGUMENT, "%s", string_show(message, shown, sizeof shown));

cleanup:
    return status;
}

static enum salvo_status strftime_now(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    struct string format;
    char shown[300], result[600];
    time_t now = time(NULL);
    struct tm parts;
    TRY(want_string(&call->given[0], "strftime_now", &format));
    if (format.size > sizeof shown / 4 - 2 || !localtime_r(&now, &parts))
        TRY(fail(SALVO_ERROR_FORMAT, "strftime_now: the format is too long"));
    string_show(format, shown, sizeof shown);
    size_t size = *shown ? strftime(result, sizeof result, shown, &parts) : 0;
    TRY(text_utf8(&text, result, size, string_mark(format)));
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

const struct builtin function_builtins[] = {
    {"range", range, "start stop step", 1},
    {"dict", dict_function, "*", 0},
    {"namespace", namespace_function, "*", 0},
    {"cycler", cycler, "*", 0},
    {"joiner", joiner, "sep", 0},
    {"raise_exception", raise_exception, "message", 1},
    {"strftime_now", strftime_now, "format", 1},
    {0},
};
