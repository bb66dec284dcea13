/* Finds and calls filters, tests, methods and functions. */
#include "text/jinja/builtins.h"

#include <string.h>

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

enum salvo_status builtin_bind(
    struct interpreter *in, const struct builtin *builtin, struct value self, struct value *out)
{
    struct function *function;
    enum salvo_status status = HEAP_NEW(&in->heap, &function, 1);
    if (status == SALVO_OK) {
        *function = (struct function){builtin, self};
        *out = (struct value){.kind = VALUE_FUNCTION, .function = function};
    }
    return status;
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
