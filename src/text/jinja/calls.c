/* Calls: of macros, and of what templates have by itself. */
#include "text/jinja/builtins.h"

#include <string.h>

/* ---- Arguments --------------------------------------------------------------------------------------- */

/* Room for arguments that are not all known before they are evaluated. */
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

/* ---- What templates have by itself ------------------------------------------------------------------- */

const struct builtin *builtin_find(const struct builtin *const *tables, struct string name)
{
    for (; *tables; tables++) {
        for (const struct builtin *at = *tables; at->name; at++) {
            if (string_is(name, at->name))
                return at;
        }
    }
    return NULL;
}

enum salvo_status fail_unknown(const struct node *node)
{
    char shown[80];
    return fail(SALVO_ERROR_FORMAT, "unknown %s '%s'", node->kind == NODE_FILTER ? "filter" : "test",
        string_show(node->name, shown, sizeof shown));
}

/* The position of a name among the parameters; SIZE_MAX when it is none of them. */
static size_t parameter_index(const char *parameters, struct string name)
{
    char word[32];
    for (size_t index = 0; *parameters; index++) {
        size_t size = strcspn(parameters, " ");
        memcpy(word, parameters, size);
        word[size] = 0;
        if (string_is(name, word))
            return index;
        parameters += size + (parameters[size] == ' ');
    }
    return SIZE_MAX;
}

static size_t count_parameters(const char *parameters)
{
    size_t count = *parameters != 0;
    for (; *parameters; parameters++)
        count += *parameters == ' ';
    return count;
}

static enum salvo_status sort_arguments(
    const struct builtin *builtin, const struct arguments *arguments, struct value *given)
{
    size_t most = count_parameters(builtin->parameters);
    char shown[64];
    if (arguments->count > most)
        return fail(SALVO_ERROR_FORMAT, "%s takes at most %zu arguments, %zu given", builtin->name, most,
            arguments->count);
    for (size_t i = 0; i < arguments->count; i++)
        given[i] = arguments->values[i];
    for (size_t i = 0; i < arguments->named_count; i++) {
        size_t index = parameter_index(builtin->parameters, arguments->named[i].name);
        if (index == SIZE_MAX || given[index].kind != VALUE_ABSENT)
            return fail(SALVO_ERROR_FORMAT, "%s: unknown or repeated argument '%s'", builtin->name,
                string_show(arguments->named[i].name, shown, sizeof shown));
        given[index] = arguments->named[i].value;
    }
    for (size_t i = 0; i < builtin->required; i++) {
        if (given[i].kind == VALUE_ABSENT)
            return fail(
                SALVO_ERROR_FORMAT, "%s needs at least %u arguments", builtin->name, builtin->required);
    }
    return SALVO_OK;
}

enum salvo_status builtin_call(struct interpreter *in, const struct builtin *builtin, struct value self,
    const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct call call = {.self = self, .arguments = arguments};
    TRY(enter(in));
    *out = value_none();
    if (strcmp(builtin->parameters, "*") != 0)
        TRY(sort_arguments(builtin, arguments, call.given));
    TRY(builtin->run(in, &call, out));

cleanup:
    leave(in);
    return status;
}

/* ---- Macros ------------------------------------------------------------------------------------------ */

static bool is_parameter(const struct node *macro, struct string name)
{
    for (const struct node *item = macro->items; item; item = item->next) {
        if (string_equal(item->name, name))
            return true;
    }
    return false;
}

static const struct value *find_named(const struct arguments *arguments, struct string name)
{
    for (size_t i = 0; i < arguments->named_count; i++) {
        if (string_equal(arguments->named[i].name, name))
            return &arguments->named[i].value;
    }
    return NULL;
}

static enum salvo_status set_parameters(
    struct interpreter *in, const struct node *node, const struct arguments *arguments)
{
    enum salvo_status status = SALVO_OK;
    size_t index = 0;
    for (const struct node *item = node->items; item; item = item->next, index++) {
        const struct value *named = find_named(arguments, item->name);
        struct value value = value_undefined(UNDEFINED_PARAMETER, item->name);
        if (index < arguments->count)
            value = arguments->values[index];
        else if (named)
            value = *named;
        else if (item->left)
            TRY(evaluate(in, item->left, &value));
        TRY(scope_set(in, in->scope, item->name, value));
    }

cleanup:
    return status;
}

static enum salvo_status set_name(struct interpreter *in, const char *name, struct value value)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    TRY(text_ascii(&text, name, 0));
    TRY(scope_set(in, in->scope, text_take(&text), value));

cleanup:
    return status;
}

/* `varargs`, `kwargs` and `caller`: what was given beyond the parameters, where the body asks for it. */
static enum salvo_status set_extras(
    struct interpreter *in, const struct node *node, const struct arguments *arguments)
{
    enum salvo_status status = SALVO_OK;
    struct value values, named;
    size_t parameters = 0;
    char shown[64];
    for (const struct node *item = node->items; item; item = item->next)
        parameters++;
    if (arguments->count > parameters && !node->extras.values)
        TRY(fail(SALVO_ERROR_FORMAT, "macro '%s' takes at most %zu arguments, %zu given",
            string_show(node->name, shown, sizeof shown), parameters, arguments->count));
    TRY(list_new(&in->heap, LIST_TUPLE, arguments->count, &values));
    for (size_t i = parameters; i < arguments->count; i++)
        values.list->items[values.list->count++] = arguments->values[i];
    TRY(dict_new(&in->heap, 0, &named));
    for (size_t i = 0; i < arguments->named_count; i++) {
        const struct named_value *argument = &arguments->named[i];
        if (is_parameter(node, argument->name))
            continue;
        if (string_is(argument->name, "caller") && node->extras.caller)
            TRY(set_name(in, "caller", argument->value));
        else if (node->extras.named)
            TRY(dict_set(in, named.dict, value_string(argument->name), argument->value));
        else
            TRY(fail(SALVO_ERROR_FORMAT, "unknown macro parameter '%s'",
                string_show(argument->name, shown, sizeof shown)));
    }
    if (node->extras.values)
        TRY(set_name(in, "varargs", values));
    if (node->extras.named)
        TRY(set_name(in, "kwargs", named));

cleanup:
    return status;
}

enum salvo_status call_macro(
    struct interpreter *in, const struct macro *macro, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct scope *outer = in->scope;
    struct string string;
    TRY(scope_open(in, macro->scope, &in->scope));
    if (macro->node->extras.caller)
        TRY(set_name(in, "caller", value_undefined(UNDEFINED_PARAMETER, (struct string){0})));
    TRY(set_parameters(in, macro->node, arguments));
    TRY(set_extras(in, macro->node, arguments));
    TRY(run_captured(in, macro->node->body, &string));
    *out = value_string(string);

cleanup:
    in->scope = outer;
    return status;
}

enum salvo_status call_value(
    struct interpreter *in, struct value callee, const struct arguments *arguments, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(enter(in));
    switch ((enum value_kind)callee.kind) {
    case VALUE_MACRO:
        TRY(call_macro(in, callee.macro, arguments, out));
        break;
    case VALUE_FUNCTION:
        TRY(builtin_call(in, callee.function->builtin, callee.function->self, arguments, out));
        break;
    case VALUE_LOOP:
        TRY(loop_call(in, callee.loop, arguments, out));
        break;
    case VALUE_JOINER:
        *out = value_string(callee.joiner->used ? callee.joiner->separator : (struct string){0});
        callee.joiner->used = true;
        break;
    case VALUE_UNDEFINED:
        TRY(fail_undefined(&callee));
        break;
    default:
        TRY(fail(SALVO_ERROR_FORMAT, "'%s' is not callable", value_type(&callee)));
    }

cleanup:
    leave(in);
    return status;
}
