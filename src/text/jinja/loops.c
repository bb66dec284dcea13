/* The variable `loop` of a for loop, which run.c runs. */
#include "text/jinja/builtins.h"

#include <stdio.h>

static enum salvo_status loop_cycle(struct interpreter *in, const struct call *call, struct value *out)
{
    const struct loop *loop = (const struct loop *)call->self.object;
    (void)in;
    if (!call->arguments->count)
        return fail(SALVO_ERROR_FORMAT, "loop.cycle needs at least one item");
    *out = call->arguments->values[loop->at % call->arguments->count];
    return SALVO_OK;
}

static enum salvo_status loop_changed(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct loop *loop = (struct loop *)call->self.object;
    struct value now;
    bool equal = false;
    TRY(list_new(&in->heap, LIST_TUPLE, call->arguments->count, &now));
    for (size_t i = 0; i < call->arguments->count; i++)
        now.list->items[now.list->count++] = call->arguments->values[i];
    if (loop->latest) {
        struct list before = *loop->latest;
        TRY(value_equal(in, (struct value){.kind = VALUE_LIST, .list = &before}, now, &equal));
    }
    loop->latest = now.list;
    *out = value_bool(!equal);

cleanup:
    return status;
}

enum salvo_status loop_attribute(
    struct interpreter *in, struct object *self, struct string name, struct value *out)
{
    static const struct builtin methods[] = {
        {"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};
    static const struct builtin *const tables[] = {methods, NULL};
    const struct loop *loop = (const struct loop *)self;
    const struct {
        const char *name;
        struct value value;
    } members[] = {
        {"index", value_int((int64_t)loop->at + 1)},
        {"index0", value_int((int64_t)loop->at)},
        {"revindex", value_int((int64_t)(loop->count - loop->at))},
        {"revindex0", value_int((int64_t)(loop->count - loop->at) - 1)},
        {"first", value_bool(loop->at == 0)},
        {"last", value_bool(loop->at + 1 == loop->count)},
        {"length", value_int((int64_t)loop->count)},
        {"depth", value_int((int64_t)loop->depth + 1)},
        {"depth0", value_int(loop->depth)},
        {"previtem",
            loop->at > 0 ? loop->items[loop->at - 1] : value_undefined(UNDEFINED_EMPTY, (struct string){0})},
        {"nextitem", loop->at + 1 < loop->count ? loop->items[loop->at + 1]
                                                : value_undefined(UNDEFINED_EMPTY, (struct string){0})},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (string_is(name, members[i].name)) {
            *out = members[i].value;
            return SALVO_OK;
        }
    }
    const struct builtin *method = builtin_find(tables, name);
    return method ? builtin_bind(in, method, value_object(self), out) : SALVO_OK;
}

enum salvo_status loop_write(struct interpreter *in, const struct object *self, struct text *text)
{
    const struct loop *loop = (const struct loop *)self;
    char shown[80];
    (void)in;
    snprintf(shown, sizeof shown, "<LoopContext %zu/%zu>", loop->at + 1, loop->count);
    return text_ascii(text, shown, 0);
}
