/* Expressions whose value is known before a template is rendered. */
#include "text/jinja/builtins.h"

/* More than a template computes from constants, and little time. */
static const size_t MOST_BYTES = (size_t)1 << 20;
enum { MOST_WORK = 10000 };

static bool is_plain(const struct value *value)
{
    return value->kind != VALUE_UNDEFINED && value->kind != VALUE_FUNCTION && value->kind != VALUE_OBJECT;
}

bool constant_is(const struct node *node, bool truth)
{
    struct interpreter in = {
        .heap.left = MOST_BYTES,
        .builtins = &builtin_tables,
        .work_left = MOST_WORK,
        .constants_only = true,
    };
    struct value value;
    const bool result =
        evaluate(&in, node, &value) == SALVO_OK && is_plain(&value) && value_true(&value) == truth;
    arena_free(&in.heap.arena);
    return result;
}
