#include "grammar/regex_ends.h"

static const struct expr *shortest_sequence(struct expr_pool *pool, const struct expr *expr, bool first)
{
    const struct expr *const *items = expr->items;
    size_t count = expr->count;
    while (count > 0) {
        const struct expr *end = expr_shortest_end(pool, items[first ? 0 : count - 1], first);
        if (end->kind != EXPR_EMPTY) {
            const struct expr *rest = expr_sequence(pool, first ? items + 1 : items, count - 1);
            return first ? EXPR_SEQUENCE_OF(pool, end, rest) : EXPR_SEQUENCE_OF(pool, rest, end);
        }
        items += first;
        count--;
    }
    return expr_empty();
}

static const struct expr *shortest_either(struct expr_pool *pool, const struct expr *expr, bool first)
{
    struct expr_list list = {0};
    bool empty = false;
    for (size_t i = 0; i < expr->count && !empty; i++) {
        const struct expr *item = expr_shortest_end(pool, expr->items[i], first);
        empty = item->kind == EXPR_EMPTY;
        expr_list_add(pool, &list, item);
    }
    const struct expr *either = empty ? expr_empty() : expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return either;
}

const struct expr *expr_shortest_end(struct expr_pool *pool, const struct expr *expr, bool first)
{
    if (expr->is_character || pool->status != SALVO_OK)
        return expr;
    switch (expr->kind) {
    case EXPR_SEQUENCE:
        return shortest_sequence(pool, expr, first);
    case EXPR_EITHER:
        return shortest_either(pool, expr, first);
    case EXPR_REPEAT:
        break;
    default:
        return expr;
    }
    const struct expr *item = expr->items[0];
    const struct expr *end = expr->min ? expr_shortest_end(pool, item, first) : expr_empty();
    if (end->kind == EXPR_EMPTY)
        return end;
    const struct expr *rest =
        expr->min > 1 ? expr_repeat(pool, item, expr->min - 1, expr->min - 1) : expr_empty();
    return first ? EXPR_SEQUENCE_OF(pool, end, rest) : EXPR_SEQUENCE_OF(pool, rest, end);
}

static uint64_t limited_sum(uint64_t left, uint64_t right)
{
    return left > LENGTH_UNKNOWN - right ? LENGTH_UNKNOWN : left + right;
}

static uint64_t limited_product(uint64_t length, uint32_t count)
{
    if (length == 0 || count == 0)
        return 0;
    return count == REPEAT_UNLIMITED || length > LENGTH_UNKNOWN / count ? LENGTH_UNKNOWN : length * count;
}

struct length_range expr_lengths(const struct expr *expr)
{
    struct length_range range = {0, 0}, item;
    if (expr->is_character)
        return (struct length_range){1, 1};
    switch (expr->kind) {
    case EXPR_EMPTY:
        return range;
    case EXPR_REPEAT:
        item = expr_lengths(expr->items[0]);
        return (struct length_range){
            limited_product(item.min, expr->min), limited_product(item.max, expr->max)};
    case EXPR_SEQUENCE:
        for (size_t i = 0; i < expr->count; i++) {
            item = expr_lengths(expr->items[i]);
            range = (struct length_range){limited_sum(range.min, item.min), limited_sum(range.max, item.max)};
        }
        return range;
    case EXPR_EITHER:
        range = expr_lengths(expr->items[0]);
        for (size_t i = 1; i < expr->count; i++) {
            item = expr_lengths(expr->items[i]);
            range.min = item.min < range.min ? item.min : range.min;
            range.max = item.max > range.max ? item.max : range.max;
        }
        return range;
    default:
        return (struct length_range){0, LENGTH_UNKNOWN};
    }
}
