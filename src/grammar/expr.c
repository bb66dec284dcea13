#include "grammar/expr.h"

#include "base/memory.h"

#include <string.h>

static const struct expr none = {.kind = EXPR_NONE}, empty = {.kind = EXPR_EMPTY};

void expr_pool_free(struct expr_pool *pool)
{
    arena_free(&pool->arena);
    pool->bytes = pool->memo_count = 0;
    pool->memo = NULL;
}

void *expr_pool_new(struct expr_pool *pool, size_t size)
{
    void *memory = NULL;
    if (pool->status != SALVO_OK)
        return NULL;
    if (size > EXPR_MAX_BYTES || pool->bytes + size > EXPR_MAX_BYTES) {
        pool->status = fail(SALVO_ERROR_UNSUPPORTED,
            "the grammar is too large: its expressions need more than %d MB", EXPR_MAX_BYTES >> 20);
    } else {
        pool->status = arena_new(&pool->arena, &memory, 1, size);
    }
    if (pool->status != SALVO_OK)
        return NULL;
    pool->bytes += size;
    return memory;
}

void expr_list_add(struct expr_pool *pool, struct expr_list *list, const struct expr *expr)
{
    if (pool->status != SALVO_OK)
        return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        pool->status = RESIZE(&list->items, capacity);
        if (pool->status != SALVO_OK)
            return;
        list->capacity = capacity;
    }
    list->items[list->count++] = expr;
}

void expr_list_free(struct expr_list *list)
{
    memory_free(list->items);
    *list = (struct expr_list){0};
}

const struct expr *expr_none(void)
{
    return &none;
}

const struct expr *expr_empty(void)
{
    return &empty;
}

static struct expr *new_expr(struct expr_pool *pool, enum expr_kind kind)
{
    struct expr *expr = expr_pool_new(pool, sizeof *expr);
    if (expr)
        expr->kind = kind;
    return expr;
}

const struct expr *expr_literal(struct expr_pool *pool, const char *data, size_t size)
{
    if (size == 0)
        return &empty;
    struct expr *expr = new_expr(pool, EXPR_LITERAL);
    char *copy = expr ? expr_pool_new(pool, size) : NULL;
    if (!copy)
        return &none;
    memcpy(copy, data, size);
    expr->bytes = (struct salvo_text){copy, size};
    return expr;
}

const struct expr *expr_string(struct expr_pool *pool, const char *text)
{
    return expr_literal(pool, text, strlen(text));
}

const struct expr *expr_set(struct expr_pool *pool, const struct byte_set *set)
{
    if (!(set->words[0] | set->words[1] | set->words[2] | set->words[3]))
        return &none;
    struct expr *expr = new_expr(pool, EXPR_SET);
    if (!expr)
        return &none;
    expr->set = *set;
    return expr;
}

const struct expr *expr_unique(struct expr_pool *pool, char byte)
{
    struct expr *expr = new_expr(pool, EXPR_SET);
    if (!expr)
        return &none;
    byte_set_add(&expr->set, (unsigned char)byte, (unsigned char)byte);
    expr->unique = true;
    return expr;
}

const struct expr *expr_range(struct expr_pool *pool, unsigned first, unsigned last)
{
    struct byte_set set = {{0}};
    byte_set_add(&set, first, last);
    return expr_set(pool, &set);
}

/* An expression with items, at most EXPR_MAX_DEPTH deep: functions that walk expressions recurse. */
static struct expr *new_parent(
    struct expr_pool *pool, enum expr_kind kind, const struct expr *const *items, size_t count)
{
    uint32_t depth = 0;
    for (size_t i = 0; i < count; i++)
        depth = items[i]->depth > depth ? items[i]->depth : depth;
    if (depth >= EXPR_MAX_DEPTH && pool->status == SALVO_OK)
        pool->status =
            fail(SALVO_ERROR_UNSUPPORTED, "the grammar nests deeper than %d levels", EXPR_MAX_DEPTH);
    struct expr *expr = new_expr(pool, kind);
    const struct expr **copy = expr ? expr_pool_new(pool, count * sizeof *copy) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, items, count * sizeof *copy);
    expr->items = copy;
    expr->count = count;
    expr->depth = depth + 1;
    return expr;
}

const struct expr *expr_sequence(struct expr_pool *pool, const struct expr *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i]->kind == EXPR_NONE)
            return &none;
    }
    if (count == 0)
        return &empty;
    if (count == 1)
        return items[0];
    const struct expr *expr = new_parent(pool, EXPR_SEQUENCE, items, count);
    return expr ? expr : &none;
}

const struct expr *expr_either(struct expr_pool *pool, const struct expr *const *items, size_t count)
{
    if (count == 0)
        return &none;
    if (count == 1)
        return items[0];
    const struct expr *expr = new_parent(pool, EXPR_EITHER, items, count);
    return expr ? expr : &none;
}

const struct expr *expr_repeat(struct expr_pool *pool, const struct expr *item, uint32_t min, uint32_t max)
{
    if (max < min || (item->kind == EXPR_NONE && min > 0))
        return &none;
    if (max == 0 || item->kind == EXPR_NONE || item->kind == EXPR_EMPTY)
        return &empty;
    if (min == 1 && max == 1)
        return item;
    struct expr *expr = new_parent(pool, EXPR_REPEAT, &item, 1);
    if (!expr)
        return &none;
    expr->min = min;
    expr->max = max;
    return expr;
}

const struct expr *expr_rule(struct expr_pool *pool, uint32_t rule)
{
    struct expr *expr = new_expr(pool, EXPR_RULE);
    if (!expr)
        return &none;
    expr->rule = rule;
    return expr;
}

static const struct expr *new_dfa_expr(struct expr_pool *pool, const struct dfa *dfa, bool free)
{
    struct expr *expr = new_expr(pool, EXPR_DFA);
    if (!expr)
        return &none;
    expr->dfa = dfa;
    expr->free = free;
    return expr;
}

const struct expr *expr_dfa(struct expr_pool *pool, const struct dfa *dfa)
{
    return new_dfa_expr(pool, dfa, false);
}

const struct expr *expr_counted(struct expr_pool *pool, const struct dfa *dfa, uint32_t min, uint32_t max)
{
    struct expr *expr = new_expr(pool, EXPR_COUNTED);
    if (!expr)
        return &none;
    expr->dfa = dfa;
    expr->min = min;
    expr->max = max;
    return expr;
}

const struct expr *expr_free_text(struct expr_pool *pool, const struct dfa *dfa)
{
    return new_dfa_expr(pool, dfa, true);
}

const struct expr *expr_shared(struct expr_pool *pool, const struct expr *item)
{
    if (item->kind == EXPR_NONE || item->kind == EXPR_EMPTY || item->kind == EXPR_SHARED)
        return item;
    const struct expr *expr = new_parent(pool, EXPR_SHARED, &item, 1);
    return expr ? expr : &none;
}

const struct expr *expr_as_character(struct expr_pool *pool, const struct expr *expr)
{
    struct expr *copy = expr->kind == EXPR_NONE ? NULL : expr_pool_new(pool, sizeof *copy);
    if (!copy)
        return expr;
    *copy = *expr;
    copy->is_character = true;
    return copy;
}
