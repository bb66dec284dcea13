/* for, and the variable `loop`. */
#include "text/jinja/builtins.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct loop {
    const struct node *node;
    struct scope *scope; /* around the loop */
    const struct value *items;
    size_t count, at;
    unsigned depth;            /* of a recursive loop, from 0 */
    const struct list *latest; /* the last arguments of loop.changed; NULL: none yet */
};

static const uint32_t loop_name[] = {'l', 'o', 'o', 'p'};

/* Only the items that the condition holds for. */
static enum salvo_status select_items(struct interpreter *in, const struct node *node,
    const struct value *items, size_t *count, struct value **out)
{
    enum salvo_status status = SALVO_OK;
    struct scope *outer = in->scope;
    size_t kept = 0;
    TRY(HEAP_NEW(&in->heap, out, *count));
    for (size_t i = 0; i < *count; i++) {
        struct value holds;
        TRY(scope_open(in, outer, &in->scope));
        TRY(assign(in, node->left, items[i]));
        TRY(evaluate(in, node->condition, &holds));
        if (value_true(&holds))
            (*out)[kept++] = items[i];
    }
    *count = kept;

cleanup:
    in->scope = outer;
    return status;
}

/* `completed`: some iteration came to its end. jinja2 takes "else" otherwise, also after a break in the first
 * one. */
static enum salvo_status run_iterations(struct interpreter *in, struct loop *loop, bool *completed)
{
    enum salvo_status status = SALVO_OK;
    const struct string name = {loop_name, sizeof loop_name / sizeof *loop_name};
    for (loop->at = 0; loop->at < loop->count; loop->at++) {
        TRY(spend(in, 1));
        TRY(scope_open(in, loop->scope, &in->scope));
        TRY(scope_set(in, in->scope, name, (struct value){.kind = VALUE_LOOP, .loop = loop}));
        TRY(assign(in, loop->node->left, loop->items[loop->at]));
        TRY(run_body(in, loop->node->body));
        enum flow flow = in->flow;
        in->flow = FLOW_ON;
        *completed = *completed || flow == FLOW_ON;
        if (flow == FLOW_BREAK)
            break;
    }

cleanup:
    return status;
}

static enum salvo_status run_loop(
    struct interpreter *in, const struct node *node, struct scope *scope, struct value over, unsigned depth)
{
    enum salvo_status status = SALVO_OK;
    struct scope *outer = in->scope;
    struct value *items;
    struct loop *loop;
    size_t count;
    bool completed = false;
    TRY(enter(in));
    TRY(value_items(in, over, &items, &count));
    in->scope = scope;
    if (node->condition)
        TRY(select_items(in, node, items, &count, &items));
    TRY(HEAP_NEW(&in->heap, &loop, 1));
    *loop = (struct loop){.node = node, .scope = scope, .items = items, .count = count, .depth = depth};
    TRY(run_iterations(in, loop, &completed));
    if (!completed) {
        TRY(scope_open(in, scope, &in->scope));
        TRY(run_body(in, node->otherwise));
    }

cleanup:
    in->scope = outer;
    leave(in);
    return status;
}

enum salvo_status run_for(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value over;
    TRY(evaluate(in, node->right, &over));
    TRY(run_loop(in, node, in->scope, over, 0));

cleanup:
    return status;
}

/* loop(items), in a recursive loop: what it writes for these. */
enum salvo_status loop_call(
    struct interpreter *in, struct loop *loop, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text *outer = in->output, text = {.heap = &in->heap};
    if (!loop->node->recursive || arguments->count != 1)
        TRY(fail(SALVO_ERROR_FORMAT, "loop() takes one argument and needs a 'recursive' loop"));
    in->output = &text;
    status = run_loop(in, loop->node, loop->scope, arguments->values[0], loop->depth + 1);
    in->output = outer;
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

/* ---- loop.* ------------------------------------------------------------------------------------------ */

static enum salvo_status loop_cycle(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    if (!call->arguments->count)
        return fail(SALVO_ERROR_FORMAT, "loop.cycle needs at least one item");
    *out = call->arguments->values[call->self.loop->at % call->arguments->count];
    return SALVO_OK;
}

static enum salvo_status loop_changed(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct loop *loop = call->self.loop;
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
    struct interpreter *in, struct loop *loop, struct string name, struct value *out)
{
    static const struct builtin methods[] = {
        {"cycle", loop_cycle, "*", 0}, {"changed", loop_changed, "*", 0}, {0}};
    static const struct builtin *const tables[] = {methods, NULL};
    enum salvo_status status = SALVO_OK;
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
            goto cleanup;
        }
    }
    const struct builtin *method = builtin_find(tables, name);
    if (method) {
        struct function *function;
        TRY(HEAP_NEW(&in->heap, &function, 1));
        *function = (struct function){method, {.kind = VALUE_LOOP, .loop = loop}};
        *out = (struct value){.kind = VALUE_FUNCTION, .function = function};
    }

cleanup:
    return status;
}

enum salvo_status loop_write(const struct loop *loop, struct text *text)
{
    char shown[80];
    snprintf(shown, sizeof shown, "<LoopContext %zu/%zu>", loop->at + 1, loop->count);
    return text_ascii(text, shown, 0);
}
