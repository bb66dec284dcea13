#include "grammar/schema_goals.h"

#include "base/memory.h"

#include <string.h>

void node_list_add(struct expr_pool *pool, struct node_list *list, const struct json_value *node)
{
    if (pool->status != SALVO_OK)
        return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        pool->status = RESIZE(&list->items, capacity);
        if (pool->status != SALVO_OK)
            return;
        list->capacity = capacity;
    }
    list->items[list->count++] = node;
}

bool node_list_has(const struct node_list *list, const struct json_value *node)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i] == node)
            return true;
    }
    return false;
}

void node_list_free(struct node_list *list)
{
    memory_free(list->items);
    *list = (struct node_list){0};
}

bool schema_works(struct schema *schema, size_t effort)
{
    schema->effort += effort;
    if (schema->effort > SCHEMA_MOST_EFFORT && schema->pool->status == SALVO_OK)
        schema->pool->status = fail(SALVO_ERROR_UNSUPPORTED, "schema: it has too many combinations");
    return schema->pool->status == SALVO_OK;
}

static size_t hash_nodes(const struct node_list *nodes)
{
    uint64_t hash = nodes->count;
    for (size_t i = 0; i < nodes->count; i++) /* independent of the order */
        hash += ((uintptr_t)nodes->items[i] >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash ^ hash >> 31);
}

static bool same_nodes(const struct node_list *left, const struct node_list *right)
{
    if (left->count != right->count)
        return false;
    for (size_t i = 0; i < left->count; i++) {
        if (!node_list_has(right, left->items[i]))
            return false;
    }
    return true;
}

static size_t find_goal(const struct schema *schema, const struct node_list *nodes)
{
    size_t slot = hash_nodes(nodes) & schema->mask;
    while (schema->slots[slot] && !same_nodes(&schema->goals[schema->slots[slot] - 1].nodes, nodes))
        slot = (slot + 1) & schema->mask;
    return slot;
}

static enum salvo_status grow_goals(struct schema *schema)
{
    enum salvo_status status = SALVO_OK;
    size_t capacity = schema->goal_capacity ? schema->goal_capacity * 2 : 64;
    uint32_t *slots = NULL;
    TRY(RESIZE(&schema->goals, capacity));
    TRY(NEW(&slots, capacity * 2));
    memory_free(schema->slots);
    schema->slots = slots;
    schema->mask = capacity * 2 - 1;
    schema->goal_capacity = capacity;
    for (size_t i = 0; i < schema->goal_count; i++)
        schema->slots[find_goal(schema, &schema->goals[i].nodes)] = (uint32_t)i + 1;
cleanup:
    return status;
}

const struct expr *schema_goal(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct node_list kept = {0};
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *node = nodes->items[i];
        if (node->kind == VALUE_FALSE) {
            node_list_free(&kept);
            return expr_none();
        }
        bool any = node->kind == VALUE_TRUE || (node->kind == VALUE_OBJECT && node->count == 0);
        if (!any && !node_list_has(&kept, node))
            node_list_add(pool, &kept, node);
    }
    if (pool->status == SALVO_OK && schema->goal_count == schema->goal_capacity)
        pool->status = grow_goals(schema);
    if (pool->status == SALVO_OK && schema->goal_count == SCHEMA_MOST_GOALS)
        pool->status = fail(SALVO_ERROR_UNSUPPORTED, "schema: it has more than %d parts", SCHEMA_MOST_GOALS);
    if (pool->status != SALVO_OK) {
        node_list_free(&kept);
        return expr_none();
    }
    size_t slot = find_goal(schema, &kept);
    if (schema->slots[slot]) {
        node_list_free(&kept);
        return expr_rule(pool, schema->goals[schema->slots[slot] - 1].rule);
    }
    struct goal *goal = &schema->goals[schema->goal_count++];
    *goal = (struct goal){kept, rule_list_add(schema->rules, expr_none())};
    schema->slots[slot] = (uint32_t)schema->goal_count;
    return expr_rule(pool, goal->rule);
}

void schema_goals_free(struct schema *schema)
{
    for (size_t i = 0; i < schema->goal_count; i++)
        node_list_free(&schema->goals[i].nodes);
    memory_free(schema->goals);
    memory_free(schema->slots);
}
