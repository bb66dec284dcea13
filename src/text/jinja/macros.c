/* Macros as values, and the variables that a call of one sets. Their bodies are run by run.c. */
#include "text/jinja/builtins.h"

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

/* Sets `varargs`, `kwargs` and `caller`, the arguments beyond the parameters, if the body mentions them. */
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

enum salvo_status macro_bind(
    struct interpreter *in, const struct macro *macro, const struct arguments *arguments)
{
    enum salvo_status status = SALVO_OK;
    if (macro->node->extras.caller)
        TRY(set_name(in, "caller", value_undefined(UNDEFINED_PARAMETER, (struct string){0})));
    TRY(set_parameters(in, macro->node, arguments));
    TRY(set_extras(in, macro->node, arguments));

cleanup:
    return status;
}

enum salvo_status macro_attribute(
    struct interpreter *in, struct object *self, struct string name, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct node *node = ((const struct macro *)self)->node;
    size_t count = 0;
    for (const struct node *item = node->items; item; item = item->next)
        count++;
    if (string_is(name, "name")) {
        *out = value_string(node->name);
    } else if (string_is(name, "arguments")) {
        TRY(list_new(&in->heap, LIST_TUPLE, count, out));
        for (const struct node *item = node->items; item; item = item->next)
            out->list->items[out->list->count++] = value_string(item->name);
    }

cleanup:
    return status;
}

enum salvo_status macro_write(struct interpreter *in, const struct object *self, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    TRY(text_ascii(text, "<Macro ", 0));
    TRY(value_write_repr(in, value_string(((const struct macro *)self)->node->name), text));
    TRY(text_char(text, '>'));

cleanup:
    return status;
}
