#include "grammar/schema_made.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

struct made_entry {
    const struct json_value *from, *made;
    enum made_role role;
};

static size_t entry_slot(const struct schema *schema, const struct json_value *from, enum made_role role)
{
    const uint64_t hash = ((uintptr_t)from >> 4) * UINT64_C(0x9E3779B97F4A7C15) + role;
    size_t slot = (size_t)(hash ^ hash >> 32) & schema->made_mask;
    while (schema->made[slot].from && (schema->made[slot].from != from || schema->made[slot].role != role))
        slot = (slot + 1) & schema->made_mask;
    return slot;
}

const struct json_value *made_find(
    const struct schema *schema, const struct json_value *from, enum made_role role)
{
    return schema->made ? schema->made[entry_slot(schema, from, role)].made : NULL;
}

static enum salvo_status grow(struct schema *schema)
{
    struct made_entry *old = schema->made;
    const size_t old_size = old ? schema->made_mask + 1 : 0, size = old ? old_size * 2 : 64;
    struct made_entry *entries = NULL;
    enum salvo_status status = NEW(&entries, size);
    if (status != SALVO_OK)
        return status;
    schema->made = entries;
    schema->made_mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].from)
            entries[entry_slot(schema, old[i].from, old[i].role)] = old[i];
    }
    memory_free(old);
    return SALVO_OK;
}

void made_keep(
    struct schema *schema, const struct json_value *from, enum made_role role, const struct json_value *made)
{
    if (schema->pool->status == SALVO_OK && schema->made_count * 2 >= schema->made_mask)
        schema->pool->status = grow(schema);
    if (schema->pool->status != SALVO_OK)
        return;
    schema->made[entry_slot(schema, from, role)] = (struct made_entry){from, made, role};
    schema->made_count++;
}

void made_free(struct schema *schema)
{
    memory_free(schema->made);
    schema->made = NULL;
}

struct json_value *made_value(struct schema *schema, enum value_kind kind, const struct json_value *place)
{
    struct json_value *value = expr_pool_new(schema->pool, sizeof *value);
    if (!value)
        return NULL;
    value->kind = kind;
    value->key = place->key;
    value->index = place->index;
    value->parent = place->parent;
    value->of = place;
    return value;
}

static void append(struct schema *schema, struct json_value *to, struct salvo_text key, bool has_key,
    const struct json_value *value)
{
    struct json_value *copy = to && value ? expr_pool_new(schema->pool, sizeof *copy) : NULL;
    if (!copy)
        return;
    *copy = *value;
    copy->next = NULL;
    if (has_key)
        copy->key = key;
    struct json_value **end = &to->first;
    while (*end)
        end = &(*end)->next;
    *end = copy;
    to->count++;
}

void made_member_text(
    struct schema *schema, struct json_value *object, struct salvo_text key, const struct json_value *value)
{
    append(schema, object, key, true, value);
}

void made_member(
    struct schema *schema, struct json_value *object, const char *key, const struct json_value *value)
{
    append(schema, object, (struct salvo_text){key, strlen(key)}, true, value);
}

void made_item(struct schema *schema, struct json_value *array, const struct json_value *value)
{
    append(schema, array, (struct salvo_text){0}, false, value);
}

const struct json_value *made_string(struct schema *schema, const char *text, const struct json_value *place)
{
    struct json_value *value = made_value(schema, VALUE_STRING, place);
    if (value)
        value->text = (struct salvo_text){text, strlen(text)};
    return value;
}

const struct json_value *made_count(struct schema *schema, uint32_t count, const struct json_value *place)
{
    enum { LONGEST = 16 };
    struct json_value *value = made_value(schema, VALUE_NUMBER, place);
    char *text = expr_pool_new(schema->pool, LONGEST);
    if (!value || !text)
        return NULL;
    value->text = (struct salvo_text){text, (size_t)snprintf(text, LONGEST, "%u", count)};
    return value;
}

const struct json_value *made_not(struct schema *schema, const struct json_value *node)
{
    const struct json_value *known = made_find(schema, node, MADE_NOT);
    if (known)
        return known;
    const struct json_value *value = node->kind == VALUE_NOT     ? node->of
                                     : node->kind == VALUE_FALSE ? made_value(schema, VALUE_TRUE, node)
                                     : node->kind == VALUE_TRUE  ? made_value(schema, VALUE_FALSE, node)
                                                                 : made_value(schema, VALUE_NOT, node);
    if (value)
        made_keep(schema, node, MADE_NOT, value);
    return value;
}

struct json_value *made_both(
    struct schema *schema, const struct json_value *first, const struct json_value *second)
{
    if (!first)
        return NULL;
    struct json_value *all = made_value(schema, VALUE_ARRAY, first),
                      *object = made_value(schema, VALUE_OBJECT, first);
    made_item(schema, all, first);
    made_item(schema, all, second);
    made_member(schema, object, "allOf", all);
    return object;
}
