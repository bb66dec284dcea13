/* Statements: what they write, and what they set. */
#include "text/jinja/builtins.h"

/* ---- Scopes ------------------------------------------------------------------------------------------ */

enum salvo_status scope_open(struct interpreter *in, struct scope *parent, struct scope **out)
{
    enum salvo_status status = HEAP_NEW(&in->heap, out, 1);
    if (status == SALVO_OK)
        (*out)->parent = parent;
    return status;
}

enum salvo_status scope_set(
    struct interpreter *in, struct scope *scope, struct string name, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct variable *variable = scope->variables;
    for (; variable && !string_equal(variable->name, name); variable = variable->next)
        TRY(spend(in, 1));
    if (!variable) {
        TRY(HEAP_NEW(&in->heap, &variable, 1));
        variable->name = name;
        variable->next = scope->variables;
        scope->variables = variable;
    }
    variable->value = value;

cleanup:
    return status;
}

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

enum salvo_status assign(struct interpreter *in, const struct node *target, struct value value)
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

enum salvo_status run_captured(struct interpreter *in, const struct node *body, struct string *out)
{
    struct text *outer = in->output, text = {.heap = &in->heap};
    in->output = &text;
    enum salvo_status status = run_inside(in, body);
    in->output = outer;
    *out = text_take(&text);
    return status;
}

/* The value through a chain of filters, the innermost of which has no left side. */
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

static enum salvo_status make_macro(struct interpreter *in, const struct node *node, struct value *out)
{
    struct macro *macro;
    enum salvo_status status = HEAP_NEW(&in->heap, &macro, 1);
    if (status == SALVO_OK) {
        *macro = (struct macro){node, in->scope};
        *out = (struct value){.kind = VALUE_MACRO, .macro = macro};
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
