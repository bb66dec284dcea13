/* Runs statements: output, assignments, loops, macros. */
#include "text/jinja/builtins.h"

/* ---- Assignments ------------------------------------------------------------------------------------------
 */

static enum salvo_status assign_member(struct interpreter *in, const struct node *target, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct value owner;
    TRY(evaluate(in, target->left, &owner));
    if (owner.kind != VALUE_NAMESPACE)
        TRY(fail(SALVO_ERROR_FORMAT, "cannot set a member of '%s': only of a namespace", value_type(&owner)));
    TRY(dict_set(in, owner.dict, value_string(target->name), value));

cleanup:
    return status;
}

static enum salvo_status assign(struct interpreter *in, const struct node *target, struct value value);

static enum salvo_status assign_tuple(struct interpreter *in, const struct node *target, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count, at = 0, wanted = 0;
    for (const struct node *item = target->items; item; item = item->next)
        wanted++;
    TRY(value_items(in, value, &items, &count));
    if (count != wanted)
        TRY(fail(SALVO_ERROR_FORMAT, "cannot unpack %zu values into %zu names", count, wanted));
    for (const struct node *item = target->items; item; item = item->next)
        TRY(assign(in, item, items[at++]));

cleanup:
    return status;
}

static enum salvo_status assign(struct interpreter *in, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME)
        return scope_set(in, in->scope, target->name, value);
    if (target->kind == NODE_MEMBER)
        return assign_member(in, target, value);
    enum salvo_status status = enter(in);
    if (status == SALVO_OK)
        status = assign_tuple(in, target, value);
    leave(in);
    return status;
}

/* ---- Bodies ------------------------------------------------------------------------------------------ */

/* Runs a body in a scope of its own. */
static enum salvo_status run_inside(struct interpreter *in, const struct node *body)
{
    enum salvo_status status = SALVO_OK;
    struct scope *outer = in->scope;
    TRY(scope_open(in, outer, &in->scope));
    TRY(run_body(in, body));

cleanup:
    in->scope = outer;
    return status;
}

static enum salvo_status run_captured(struct interpreter *in, const struct node *body, struct string *out)
{
    struct text *outer = in->output, text = {.heap = &in->heap};
    in->output = &text;
    enum salvo_status status = run_inside(in, body);
    in->output = outer;
    *out = text_take(&text);
    return status;
}

/* Applies a chain of filters to the value; the innermost filter has no left side. */
static enum salvo_status filter_value(
    struct interpreter *in, const struct node *filter, struct value value, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct arguments arguments;
    TRY(enter(in));
    if (filter->left)
        TRY(filter_value(in, filter->left, value, &value));
    TRY(gather_arguments(in, filter->items, &arguments));
    TRY(builtin_call(in, filter->builtin, value, &arguments, out));

cleanup:
    leave(in);
    return status;
}

static enum salvo_status run_filtered(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string string;
    TRY(run_captured(in, node->body, &string));
    *out = value_string(string);
    if (node->right && in->flow == FLOW_ON)
        TRY(filter_value(in, node->right, *out, out));

cleanup:
    return status;
}

/* ---- Loops ----------------------------------------------------------------------------------------- */

static const struct object_type loop_type;

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

/* `completed`: at least one iteration reached its end. Otherwise jinja2 runs "else", also after a break in
 * the first iteration. */
static enum salvo_status run_iterations(struct interpreter *in, struct loop *loop, bool *completed)
{
    enum salvo_status status = SALVO_OK;
    const struct string name = {loop_name, sizeof loop_name / sizeof *loop_name};
    for (loop->at = 0; loop->at < loop->count; loop->at++) {
        TRY(spend(in, 1));
        TRY(scope_open(in, loop->scope, &in->scope));
        TRY(scope_set(in, in->scope, name, value_object(&loop->object)));
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
    *loop = (struct loop){.object.type = &loop_type,
        .node = node,
        .scope = scope,
        .items = items,
        .count = count,
        .depth = depth};
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

/* loop(items) in a recursive loop: the output of its body for these items. */
static enum salvo_status loop_call(
    struct interpreter *in, struct object *self, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct loop *loop = (struct loop *)self;
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

static const struct object_type loop_type = {.name = "LoopContext",
    .iterable = true,
    .call = loop_call,
    .attribute = loop_attribute,
    .write = loop_write};

static enum salvo_status run_for(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value over;
    TRY(evaluate(in, node->right, &over));
    TRY(run_loop(in, node, in->scope, over, 0));

cleanup:
    return status;
}

/* ---- Statements -------------------------------------------------------------------------------------- */

static enum salvo_status run_if(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    for (;;) {
        struct value condition;
        TRY(evaluate(in, node->condition, &condition));
        if (value_true(&condition)) {
            TRY(run_body(in, node->body));
            break;
        }
        const struct node *otherwise = node->otherwise;
        bool is_elif = otherwise && otherwise->kind == NODE_IF && !otherwise->next;
        if (!is_elif) {
            TRY(run_body(in, otherwise));
            break;
        }
        node = otherwise;
    }

cleanup:
    return status;
}

static enum salvo_status run_with(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct scope *outer = in->scope, *inner;
    TRY(scope_open(in, outer, &inner));
    for (const struct node *pair = node->items; pair; pair = pair->next) {
        struct value value;
        in->scope = outer; /* values do not see each other */
        TRY(evaluate(in, pair->right, &value));
        in->scope = inner;
        TRY(assign(in, pair->left, value));
    }
    in->scope = inner;
    TRY(run_body(in, node->body));

cleanup:
    in->scope = outer;
    return status;
}

/* ---- Macros ------------------------------------------------------------------------------------------ */

static enum salvo_status macro_call(
    struct interpreter *in, struct object *self, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct macro *macro = (const struct macro *)self;
    struct scope *outer = in->scope;
    struct string string;
    TRY(scope_open(in, macro->scope, &in->scope));
    TRY(macro_bind(in, macro, arguments));
    TRY(run_captured(in, macro->node->body, &string));
    *out = value_string(string);

cleanup:
    in->scope = outer;
    return status;
}

static enum salvo_status make_macro(struct interpreter *in, const struct node *node, struct value *out)
{
    static const struct object_type type = {
        .name = "Macro", .call = macro_call, .attribute = macro_attribute, .write = macro_write};
    struct macro *macro;
    enum salvo_status status = HEAP_NEW(&in->heap, &macro, 1);
    if (status == SALVO_OK) {
        *macro = (struct macro){{&type}, node, in->scope};
        *out = value_object(&macro->object);
    }
    return status;
}

static enum salvo_status run_call_block(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value callee, caller, result;
    struct arguments arguments;
    struct named_value *named;
    TRY(make_macro(in, node->right, &caller));
    TRY(evaluate(in, node->left->left, &callee));
    TRY(gather_arguments(in, node->left->items, &arguments));
    TRY(HEAP_NEW(&in->heap, &named, arguments.named_count + 1));
    for (size_t i = 0; i < arguments.named_count; i++)
        named[i] = arguments.named[i];
    named[arguments.named_count++] = (struct named_value){node->right->name, caller};
    arguments.named = named;
    TRY(call_value(in, callee, &arguments, &result));
    TRY(value_write(in, result, in->output));

cleanup:
    return status;
}

static enum salvo_status run_set(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value value;
    if (node->kind == NODE_SET)
        TRY(evaluate(in, node->right, &value));
    else
        TRY(run_filtered(in, node, &value));
    if (in->flow == FLOW_ON)
        TRY(assign(in, node->left, value));

cleanup:
    return status;
}

static enum salvo_status run_print(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value value;
    if (node->kind == NODE_PRINT)
        TRY(evaluate(in, node->left, &value));
    else
        TRY(run_filtered(in, node, &value));
    TRY(value_write(in, value, in->output));

cleanup:
    return status;
}

static enum salvo_status run_statement(struct interpreter *in, const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct value macro;
    switch (node->kind) {
    case NODE_TEXT:
        TRY(text_string(in->output, node->name));
        break;
    case NODE_PRINT:
    case NODE_FILTER_BLOCK:
        TRY(run_print(in, node));
        break;
    case NODE_IF:
        TRY(run_if(in, node));
        break;
    case NODE_FOR:
        TRY(run_for(in, node));
        break;
    case NODE_SET:
    case NODE_SET_BLOCK:
        TRY(run_set(in, node));
        break;
    case NODE_MACRO:
        TRY(make_macro(in, node, &macro));
        TRY(scope_set(in, in->scope, node->name, macro));
        break;
    case NODE_CALL_BLOCK:
        TRY(run_call_block(in, node));
        break;
    case NODE_WITH:
        TRY(run_with(in, node));
        break;
    case NODE_BREAK:
        in->flow = FLOW_BREAK;
        break;
    case NODE_CONTINUE:
        in->flow = FLOW_CONTINUE;
        break;
    default:
        TRY(run_inside(in, node->body));
    }

cleanup:
    return status;
}

enum salvo_status run_body(struct interpreter *in, const struct node *body)
{
    enum salvo_status status = enter(in);
    for (const struct node *node = body; node && status == SALVO_OK && in->flow == FLOW_ON;
         node = node->next) {
        status = spend(in, 1);
        if (status == SALVO_OK)
            status = run_statement(in, node);
        if (status != SALVO_OK && !in->placed) {
            in->placed = true;
            fail_within(status, "chat template: line %u, column %u: ", node->line, node->column);
        }
    }
    leave(in);
    return status;
}
