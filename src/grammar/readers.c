#include "grammar/readers.h"

#include "base/memory.h"

uint32_t rule_list_add(struct rule_list *rules, const struct expr *expr)
{
    if (rules->pool.status != SALVO_OK)
        return 0;
    if (rules->count == rules->capacity) {
        size_t capacity = rules->capacity ? rules->capacity * 2 : 32;
        rules->pool.status = RESIZE(&rules->items, capacity);
        if (rules->pool.status != SALVO_OK)
            return 0;
        rules->capacity = capacity;
    }
    rules->items[rules->count] = expr;
    return (uint32_t)rules->count++;
}

void rule_list_free(struct rule_list *rules)
{
    expr_pool_free(&rules->pool);
    memory_free(rules->items);
    *rules = (struct rule_list){0};
}
