/* Evaluates expressions. */
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

#include <string.h>

/* ---- Names and literals
 * ---------------------------------------------------------------------------------------- */

static enum salvo_status evaluate_name(struct interpreter *in, struct string name, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct variable *variable;
    if (in->constants_only)
        TRY(fail(SALVO_ERROR_FORMAT, "not a constant"));
    TRY(scope_find(in, name, &variable));
    const struct builtin *builtin = variable ? NULL : builtin_find(in->builtins->functions, name);
    if (variable)
        *out = variable->value;
    else if (builtin)
        TRY(builtin_bind(in, builtin, (struct value){0}, out));
    else
        *out = value_undefined(UNDEFINED_VARIABLE, name);

cleanup:
    return status;
}

static size_t count_nodes(const struct node *node)
{
    size_t count = 0;
    for (; node; node = node->next)
        count++;
    return count;
}

static enum salvo_status evaluate_row(
    struct interpreter *in, const struct node *node, enum list_kind kind, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(list_new(&in->heap, kind, count_nodes(node->items), out));
    out->list->own = kind == LIST_LIST;
    for (const struct node *item = node->items; item; item = item->next) {
        TRY(evaluate(in, item, &out->list->items[out->list->count]));
        out->list->count++;
    }

cleanup:
    return status;
}

static enum salvo_status evaluate_dict(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(dict_new(&in->heap, count_nodes(node->items) / 2, out));
    for (const struct node *item = node->items; item; item = item->next->next) {
        struct value key, value;
        TRY(evaluate(in, item, &key));
        TRY(evaluate(in, item->next, &value));
        TRY(dict_set(in, out->dict, key, value));
    }

cleanup:
    return status;
}

/* ---- Operators --------------------------------------------------------------------------------------- */

static enum salvo_status compare_once(
    struct interpreter *in, uint32_t sign, struct value left, struct value right, bool *out)
{
    enum salvo_status status = SALVO_OK;
    int order;
    if (sign == OPERATOR2('=', '=') || sign == OPERATOR2('!', '=')) {
        TRY(value_equal(in, left, right, out));
        *out = *out == (sign == OPERATOR2('=', '='));
    } else if (sign == SIGN_IN || sign == SIGN_NOT_IN) {
        TRY(value_contains(in, right, left, out));
        *out = *out == (sign == SIGN_IN);
    } else {
        TRY(value_compare(in, left, right, &order));
        bool less = order == -1, equal = order == 0, greater = order == 1;
        bool wants_less = (sign & 0xff) == '<', wants_equal = sign >> 8;
        *out = (wants_equal && equal) || (wants_less ? less : greater);
    }

cleanup:
    return status;
}

/* "a < b < c" is "a < b and b < c", with b computed once. */
static enum salvo_status evaluate_comparison(
    struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value left, right;
    bool holds = true;
    TRY(evaluate(in, node->left, &left));
    for (const struct node *item = node->items; item && holds; item = item->next) {
        TRY(evaluate(in, item->left, &right));
        TRY(compare_once(in, item->sign, left, right, &holds));
        left = right;
    }
    *out = value_bool(holds);

cleanup:
    return status;
}

static enum salvo_status evaluate_concat(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    for (const struct node *item = node->items; item; item = item->next) {
        struct value value;
        TRY(evaluate(in, item, &value));
        TRY(value_write(in, value, &text));
    }
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

static enum salvo_status evaluate_binary(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value left, right;
    TRY(evaluate(in, node->left, &left));
    TRY(evaluate(in, node->right, &right));
    TRY(value_binary(in, node->sign, left, right, out));

cleanup:
    return status;
}

/* "and" and "or" give the operand that decided. */
static enum salvo_status evaluate_logic(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(evaluate(in, node->left, out));
    if (value_true(out) == (node->kind == NODE_AND))
        TRY(evaluate(in, node->right, out));

cleanup:
    return status;
}

static enum salvo_status evaluate_condition(
    struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value condition;
    TRY(evaluate(in, node->condition, &condition));
    if (value_true(&condition))
        TRY(evaluate(in, node->left, out));
    else if (node->right)
        TRY(evaluate(in, node->right, out));
    else
        *out = value_undefined(UNDEFINED_ELSE, (struct string){0});

cleanup:
    return status;
}

/* ---- Arguments --------------------------------------------------------------------------------------- */

/* Arguments so far; spread ones add an unknown number. */
struct gathering {
    struct interpreter *in;
    struct value *values;
    size_t count, capacity;
    struct named_value *named;
    size_t named_count, named_capacity;
};

static enum salvo_status add_value(struct gathering *all, struct value value)
{
    enum salvo_status status = SALVO_OK;
    if (all->count == all->capacity) {
        struct value *larger;
        size_t capacity = all->capacity ? 2 * all->capacity : 4;
        TRY(HEAP_NEW(&all->in->heap, &larger, capacity));
        if (all->count)
            memcpy(larger, all->values, all->count * sizeof *larger);
        all->values = larger;
        all->capacity = capacity;
    }
    all->values[all->count++] = value;

cleanup:
    return status;
}

static enum salvo_status add_named(struct gathering *all, struct string name, struct value value)
{
    enum salvo_status status = SALVO_OK;
    char shown[64];
    for (size_t i = 0; i < all->named_count; i++) {
        if (string_equal(all->named[i].name, name))
            TRY(fail(
                SALVO_ERROR_FORMAT, "argument '%s' is given twice", string_show(name, shown, sizeof shown)));
    }
    TRY(spend(all->in, all->named_count));
    if (all->named_count == all->named_capacity) {
        struct named_value *larger;
        size_t capacity = all->named_capacity ? 2 * all->named_capacity : 4;
        TRY(HEAP_NEW(&all->in->heap, &larger, capacity));
        if (all->named_count)
            memcpy(larger, all->named, all->named_count * sizeof *larger);
        all->named = larger;
        all->named_capacity = capacity;
    }
    all->named[all->named_count++] = (struct named_value){name, value};

cleanup:
    return status;
}

static enum salvo_status add_spread(struct gathering *all, struct value value, bool named)
{
    enum salvo_status status = SALVO_OK;
    struct value *items;
    size_t count;
    if (!named) {
        TRY(value_items(all->in, value, &items, &count));
        for (size_t i = 0; i < count; i++)
            TRY(add_value(all, items[i]));
        goto cleanup;
    }
    if (value.kind != VALUE_DICT)
        TRY(fail(SALVO_ERROR_FORMAT, "** needs a dict, not '%s'", value_type(&value)));
    for (size_t i = 0; i < value.dict->count; i++) {
        struct string name;
        TRY(want_string(&value.dict->pairs[i].key, "an argument name", &name));
        TRY(add_named(all, name, value.dict->pairs[i].value));
    }

cleanup:
    return status;
}

enum salvo_status gather_arguments(struct interpreter *in, const struct node *items, struct arguments *out)
{
    enum salvo_status status = SALVO_OK;
    struct gathering all = {.in = in};
    for (const struct node *item = items; item; item = item->next) {
        struct value value;
        TRY(evaluate(in, item->left, &value));
        if (item->kind == NODE_ARGUMENT)
            TRY(add_value(&all, value));
        else if (item->kind == NODE_NAMED_ARGUMENT)
            TRY(add_named(&all, item->name, value));
        else
            TRY(add_spread(&all, value, item->kind == NODE_NAMED_SPREAD));
    }

cleanup:
    *out = (struct arguments){all.values, all.count, all.named, all.named_count};
    return status;
}

/* ---- Members, filters, calls ------------------------------------------------------------------------- */

static enum salvo_status evaluate_slice(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value owner, bounds[3] = {{0}};
    TRY(evaluate(in, node->left, &owner));
    const struct node *item = node->items;
    for (int i = 0; i < 3; i++, item = item->next) {
        if (item->kind != NODE_NOTHING)
            TRY(evaluate(in, item, &bounds[i]));
    }
    TRY(value_slice(in, owner, bounds, out));

cleanup:
    return status;
}

static enum salvo_status evaluate_member(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value owner, key;
    TRY(evaluate(in, node->left, &owner));
    if (node->kind == NODE_ATTRIBUTE) {
        TRY(value_attribute(in, owner, node->name, out));
    } else {
        TRY(evaluate(in, node->right, &key));
        TRY(value_item(in, owner, key, out));
    }

cleanup:
    return status;
}

/* jinja2 gives these filters the variables of the template. */
static bool reads_context(const struct builtin *builtin)
{
    const struct builtin *at = choice_filters;
    while (at->name && at != builtin)
        at++;
    return at->name;
}

static enum salvo_status evaluate_builtin(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value self;
    struct arguments arguments;
    TRY(evaluate(in, node->left, &self));
    TRY(gather_arguments(in, node->items, &arguments));
    if (!node->builtin)
        TRY(fail_unknown(node));
    if (in->constants_only && reads_context(node->builtin))
        TRY(fail(SALVO_ERROR_FORMAT, "not a constant"));
    TRY(builtin_call(in, node->builtin, self, &arguments, out));

cleanup:
    return status;
}

enum salvo_status call_value(
    struct interpreter *in, struct value callee, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(enter(in));
    if (callee.kind == VALUE_FUNCTION)
        TRY(builtin_call(in, callee.function->builtin, callee.function->self, arguments, out));
    else if (callee.kind == VALUE_OBJECT && callee.object->type->call)
        TRY(callee.object->type->call(in, callee.object, arguments, out));
    else if (callee.kind == VALUE_UNDEFINED)
        TRY(fail_undefined(&callee));
    else
        TRY(fail(SALVO_ERROR_FORMAT, "'%s' is not callable", value_type(&callee)));

cleanup:
    leave(in);
    return status;
}

static enum salvo_status evaluate_call(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value callee;
    struct arguments arguments;
    if (in->constants_only)
        TRY(fail(SALVO_ERROR_FORMAT, "not a constant"));
    TRY(evaluate(in, node->left, &callee));
    TRY(gather_arguments(in, node->items, &arguments));
    TRY(call_value(in, callee, &arguments, out));

cleanup:
    return status;
}

static enum salvo_status evaluate_unary(struct interpreter *in, const struct node *node, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value value;
    TRY(evaluate(in, node->left, &value));
    if (node->kind == NODE_NOT)
        *out = value_bool(!value_true(&value));
    else
        TRY(value_negate(value, node->kind == NODE_NEGATIVE, out));

cleanup:
    return status;
}

static enum salvo_status evaluate_node(struct interpreter *in, const struct node *node, struct value *out)
{
    switch (node->kind) {
    case NODE_CONSTANT:
        *out = node->constant;
        return SALVO_OK;
    case NODE_NAME:
        return evaluate_name(in, node->name, out);
    case NODE_LIST:
        return evaluate_row(in, node, LIST_LIST, out);
    case NODE_TUPLE:
        return evaluate_row(in, node, LIST_TUPLE, out);
    case NODE_DICT:
        return evaluate_dict(in, node, out);
    case NODE_ATTRIBUTE:
    case NODE_ITEM:
        return evaluate_member(in, node, out);
    case NODE_SLICE:
        return evaluate_slice(in, node, out);
    case NODE_CALL:
        return evaluate_call(in, node, out);
    case NODE_FILTER:
    case NODE_TEST:
        return evaluate_builtin(in, node, out);
    case NODE_NOT:
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return evaluate_unary(in, node, out);
    case NODE_BINARY:
        return evaluate_binary(in, node, out);
    case NODE_AND:
    case NODE_OR:
        return evaluate_logic(in, node, out);
    case NODE_COMPARE:
        return evaluate_comparison(in, node, out);
    case NODE_CONCAT:
        return evaluate_concat(in, node, out);
    case NODE_CONDITION:
        return evaluate_condition(in, node, out);
    default:
        return fail(SALVO_ERROR_FORMAT, "not an expression");
    }
}

enum salvo_status evaluate(struct interpreter *in, const struct node *node, struct value *out)
{
    *out = value_none();
    enum salvo_status status = enter(in);
    if (status == SALVO_OK)
        status = evaluate_node(in, node, out);
    leave(in);
    if (status != SALVO_OK && !in->placed) {
        in->placed = true;
        fail_within(status, "chat template: line %u, column %u: ", node->line, node->column);
    }
    return status;
}
