/* Variables by name. */
#include "text/jinja/interpreter.h"

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

enum salvo_status scope_find(struct interpreter *in, struct string name, const struct variable **out)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    for (const struct scope *scope = in->scope; scope; scope = scope->parent) {
        for (const struct variable *at = scope->variables; at; at = at->next) {
            TRY(spend(in, 1));
            if (string_equal(at->name, name)) {
                *out = at;
                goto cleanup;
            }
        }
    }

cleanup:
    return status;
}
