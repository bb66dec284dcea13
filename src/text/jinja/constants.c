/* Expressions whose value is known before a template is rendered. */
#include "text/jinja/builtins.h"

/* More than a template computes from constants, and little time. */
static const size_t MOST_BYTES = (size_t)1 << 20;
enum { MOST_WORK = 10000 };

static bool is_plain(const struct value *value)
{
    return value->kind != VALUE_UNDEFINED && value->kind != VALUE_FUNCTION && value->kind != VALUE_OBJECT;
}

bool constant_is(const struct node *node, bool truth, uint64_t *work_left)
{
    const uint64_t most_work = *work_left < MOST_WORK ? *work_left : MOST_WORK;
    struct interpreter in = {
        .heap.left = MOST_BYTES,
        .builtins = &builtin_tables,
        .work_left = most_work,
        .constants_only = true,
    };
    struct value value;
    const bool result =
        evaluate(&in, node, &value) == SALVO_OK && is_plain(&value) && value_true(&value) == truth;
    *work_left -= most_work - in.work_left;
    arena_free(&in.heap.arena);
    return result;
}
