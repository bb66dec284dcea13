#include "base/memory.h"
#include "grammar/dfa.h"
#include "grammar/expr_memo.h"
#include "grammar/schema_flat.h"
#include "grammar/schema_keys.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_number.h"
#include "grammar/schema_string.h"

#include <string.h>

enum { MOST_PATTERNS = 20, MOST_SETS = 64, MOST_MEMBERS = 2000 };

/* ---- Objects ---- */

struct pattern {
    const struct json_value *node, *member; /* the schema, and its entry in patternProperties */
    const struct dfa *keys;                 /* insides of keys that match */
};

struct object_reader {
    struct schema *schema;
    const struct node_list *nodes;
    struct pattern patterns[MOST_PATTERNS];
    size_t pattern_count;
    struct node_list names; /* members of `properties` and items of `required`, each name once */
    const struct dfa *keys; /* insides of keys that propertyNames allows; NULL: all */
    struct layout_member *members;
};

static struct salvo_text name_of(const struct json_value *value)
{
    return value->parent->kind == VALUE_OBJECT ? value->key : value->text;
}

static void read_patterns(struct object_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *patterns =
            schema_member(reader->schema, reader->nodes->items[i], "patternProperties", VALUE_OBJECT);
        for (const struct json_value *entry = patterns ? patterns->first : NULL; entry; entry = entry->next) {
            if (reader->pattern_count == MOST_PATTERNS) {
                tree_complain(pool, SALVO_ERROR_UNSUPPORTED, entry,
                    "more than 20 patterns for one object are not supported");
                return;
            }
            const struct expr *expr = regex_read(pool, entry->key.data, entry->key.size, SPELL_JSON);
            reader->patterns[reader->pattern_count++] =
                (struct pattern){reader->nodes->items[i], entry, dfa_of(pool, expr)};
            if (pool->status != SALVO_OK)
                return;
        }
    }
}

/* The keys that propertyNames of all schemas allow. */
static void read_key_limits(struct object_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    for (size_t i = 0; i < reader->nodes->count && pool->status == SALVO_OK; i++) {
        const struct json_value *limit = tree_member(reader->nodes->items[i], "propertyNames");
        if (!limit || limit->kind == VALUE_TRUE)
            continue;
        const struct dfa *keys = schema_string_automaton(reader->schema, limit);
        reader->keys = reader->keys ? dfa_both(pool, reader->keys, keys) : keys;
    }
}

static void add_name(struct object_reader *reader, const struct json_value *name)
{
    for (size_t i = 0; i < reader->names.count; i++) {
        if (!schema_works(reader->schema, 1) ||
            texts_are_equal(name_of(reader->names.items[i]), name_of(name)))
            return;
    }
    node_list_add(reader->schema->pool, &reader->names, name);
    if (reader->names.count > MOST_MEMBERS)
        tree_complain(reader->schema->pool, SALVO_ERROR_UNSUPPORTED, name,
            "objects with more than 2000 members are not supported");
}

static void read_names(struct object_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *properties =
            schema_member(reader->schema, reader->nodes->items[i], "properties", VALUE_OBJECT);
        for (const struct json_value *member = properties ? properties->first : NULL;
             member && pool->status == SALVO_OK; member = member->next)
            add_name(reader, member);
    }
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *required =
            schema_member(reader->schema, reader->nodes->items[i], "required", VALUE_ARRAY);
        for (const struct json_value *item = required ? required->first : NULL;
             item && pool->status == SALVO_OK; item = item->next) {
            if (item->kind == VALUE_STRING)
                add_name(reader, item);
            else
                tree_complain(pool, SALVO_ERROR_ARGUMENT, item, "a string is expected");
        }
    }
}

/* The schema of a named member. */
static const struct expr *named_value(struct object_reader *reader, struct salvo_text name)
{
    struct node_list goal = {0};
    struct expr_pool *pool = reader->schema->pool;
    bool matches[MOST_PATTERNS] = {false};
    if (reader->keys && !string_matches(&reader->schema->layout, reader->keys, name))
        return expr_none();
    for (size_t i = 0; i < reader->pattern_count; i++)
        matches[i] = string_matches(&reader->schema->layout, reader->patterns[i].keys, name);
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *node = reader->nodes->items[i];
        const struct json_value *property = tree_member_text(tree_member(node, "properties"), name);
        bool found = property != NULL;
        if (property)
            node_list_add(pool, &goal, property);
        for (size_t k = 0; k < reader->pattern_count; k++) {
            if (reader->patterns[k].node == node && matches[k]) {
                node_list_add(pool, &goal, reader->patterns[k].member);
                found = true;
            }
        }
        const struct json_value *additional = tree_member(node, "additionalProperties");
        if (!found && additional)
            node_list_add(pool, &goal, additional);
    }
    const struct expr *expr = schema_goal(reader->schema, &goal);
    node_list_free(&goal);
    return expr;
}

static bool is_required(const struct object_reader *reader, struct salvo_text name)
{
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *required = tree_member(reader->nodes->items[i], "required");
        for (const struct json_value *item = required && required->kind == VALUE_ARRAY ? required->first
                                                                                       : NULL;
             item && schema_works(reader->schema, 1); item = item->next) {
            if (item->kind == VALUE_STRING && texts_are_equal(item->text, name))
                return true;
        }
    }
    return false;
}

/* Keys of an automaton that are no name of their own. Most names do not match the patterns of others. */
static const struct dfa *without_names(struct object_reader *reader, const struct dfa *keys)
{
    struct expr_pool *pool = reader->schema->pool;
    struct layout *layout = &reader->schema->layout;
    struct expr_list list = {0};
    for (size_t i = 0; i < reader->names.count && pool->status == SALVO_OK; i++) {
        const struct salvo_text name = name_of(reader->names.items[i]);
        if (string_matches(layout, keys, name))
            expr_list_add(pool, &list, layout_spelled(layout, name, true));
    }
    if (list.count)
        keys = dfa_without(pool, keys, dfa_of(pool, expr_either(pool, list.items, list.count)));
    expr_list_free(&list);
    return keys;
}

/* The schemas of members without a name whose keys match just the patterns of a set; false if one forbids
 * them.
 */
static bool schemas_of_set(struct object_reader *reader, unsigned set, struct node_list *goal)
{
    struct expr_pool *pool = reader->schema->pool;
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *node = reader->nodes->items[i];
        const struct json_value *additional = tree_member(node, "additionalProperties");
        bool found = false;
        for (size_t k = 0; k < reader->pattern_count; k++) {
            if (reader->patterns[k].node == node && (set >> k & 1)) {
                node_list_add(pool, goal, reader->patterns[k].member);
                found = true;
            }
        }
        if (!found && additional)
            node_list_add(pool, goal, additional);
    }
    for (size_t i = 0; i < goal->count; i++) {
        if (goal->items[i]->kind == VALUE_FALSE)
            return false;
    }
    return true;
}

/* The keys that match just those of the first `count` patterns that are in a set. */
static const struct dfa *keys_of_set(struct object_reader *reader, unsigned set, size_t count)
{
    struct expr_pool *pool = reader->schema->pool;
    struct layout *layout = &reader->schema->layout;
    const struct dfa *keys = reader->keys;
    for (size_t i = 0; i < count; i++) {
        const bool matches = set >> i & 1;
        if (!keys && !matches)
            keys = layout_any_text(layout);
        keys = keys ? (matches ? dfa_both : dfa_without)(pool, keys, reader->patterns[i].keys)
                    : reader->patterns[i].keys;
    }
    return keys ? keys : layout_any_text(layout);
}

/* Keys in quotes as a rule, which objects with the same patterns share. */
static const struct expr *key_rule(struct layout *layout, const struct dfa *keys)
{
    struct expr_pool *pool = layout->pool;
    const struct expr *known = memo_find(pool, MEMO_KEY, MEMO_SOURCE(keys));
    if (known || pool->status != SALVO_OK)
        return known ? known : expr_none();
    const struct expr *key = layout_quoted(layout, expr_dfa(pool, keys));
    const struct expr *rule = expr_rule(pool, rule_list_add(layout->rules, key));
    memo_keep(pool, MEMO_KEY, MEMO_SOURCE(keys), rule);
    return rule;
}

/* Members whose keys match just the patterns of a set, a bit for each, and have no name of their own. */
static const struct expr *members_of_set(struct object_reader *reader, unsigned set)
{
    struct layout *layout = &reader->schema->layout;
    struct node_list goal = {0};
    const struct dfa *keys = NULL;
    if (schemas_of_set(reader, set, &goal))
        keys = without_names(reader, keys_of_set(reader, set, reader->pattern_count));
    const struct expr *value = keys && !dfa_is_empty(keys) ? schema_goal(reader->schema, &goal) : expr_none();
    node_list_free(&goal);
    if (value->kind == EXPR_NONE)
        return value;
    return layout_pair(layout, key_rule(layout, keys), value);
}

/* Whether some schema forbids all members without a name. */
static bool is_closed(const struct object_reader *reader)
{
    for (size_t i = 0; i < reader->nodes->count; i++) {
        const struct json_value *additional = tree_member(reader->nodes->items[i], "additionalProperties");
        if (additional && additional->kind == VALUE_FALSE &&
            !tree_member(reader->nodes->items[i], "patternProperties"))
            return true;
    }
    return false;
}

/* Other members of an object without patterns, if all its names are plain; NULL if not. */
static const struct expr *plain_members(struct object_reader *reader)
{
    struct schema *schema = reader->schema;
    struct layout *layout = &schema->layout;
    struct salvo_text *names = NULL;
    struct node_list goal = {0};
    const struct expr *keys = NULL, *value = NULL;
    bool plain = reader->pattern_count == 0 && !reader->keys && (!layout->any || reader->names.count == 0);
    if (!plain)
        return NULL;
    if (schema->pool->status == SALVO_OK)
        schema->pool->status = NEW(&names, reader->names.count + 1);
    for (size_t i = 0; schema->pool->status == SALVO_OK && i < reader->names.count; i++) {
        names[i] = name_of(reader->names.items[i]);
        plain &= names[i].size <= KEYS_LONGEST;
    }
    if (schema->pool->status == SALVO_OK && plain && keys_are_plain(names, reader->names.count)) {
        for (size_t i = 0; i < reader->nodes->count; i++) {
            const struct json_value *additional =
                tree_member(reader->nodes->items[i], "additionalProperties");
            if (additional)
                node_list_add(schema->pool, &goal, additional);
        }
        keys = keys_without(layout, names, reader->names.count);
        value = schema_goal(schema, &goal);
    }
    memory_free(names);
    node_list_free(&goal);
    if (!keys || !value || value->kind == EXPR_NONE)
        return value;
    return expr_rule(
        schema->pool, rule_list_add(schema->rules, layout_pair(layout, layout_quoted(layout, keys), value)));
}

/* Adds the members of all sets of patterns that contain `set` and no other ones of the first `index`. */
static void add_sets(struct object_reader *reader, size_t index, unsigned set, struct expr_list *list)
{
    struct expr_pool *pool = reader->schema->pool;
    const struct dfa *keys = set ? keys_of_set(reader, set, index) : NULL;
    if (pool->status != SALVO_OK || (keys && dfa_is_empty(keys)))
        return;
    if (index < reader->pattern_count) {
        add_sets(reader, index + 1, set, list);
        add_sets(reader, index + 1, set | 1U << index, list);
        return;
    }
    const struct expr *members = members_of_set(reader, set);
    if (members->kind != EXPR_NONE)
        expr_list_add(pool, list, members);
    if (list->count > MOST_SETS && pool->status == SALVO_OK)
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, reader->patterns[0].member->parent,
            "keys that match several patterns in more than 64 ways are not supported");
}

static const struct expr *other_members(struct object_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    struct expr_list list = {0};
    if (is_closed(reader))
        return expr_none();
    const struct expr *plain = plain_members(reader);
    if (plain || pool->status != SALVO_OK)
        return plain ? plain : expr_none();
    add_sets(reader, 0, 0, &list);
    const struct expr *others = expr_either(pool, list.items, list.count);
    if (others->kind != EXPR_NONE)
        others = expr_rule(pool, rule_list_add(reader->schema->rules, others));
    expr_list_free(&list);
    return others;
}

const struct expr *schema_object(struct schema *schema, const struct node_list *nodes)
{
    struct object_reader reader = {.schema = schema, .nodes = nodes};
    struct expr_pool *pool = schema->pool;
    const struct expr *expr = expr_none();
    read_patterns(&reader);
    read_key_limits(&reader);
    read_names(&reader);
    if (pool->status == SALVO_OK)
        pool->status = NEW(&reader.members, reader.names.count + 1);
    struct layout_object object = {.members = reader.members,
        .count = reader.names.count,
        .others = expr_none(),
        .min = schema_largest(schema, nodes, "minProperties"),
        .max = schema_smallest(schema, nodes, "maxProperties")};
    for (size_t i = 0; i < reader.names.count && pool->status == SALVO_OK; i++) {
        struct salvo_text name = name_of(reader.names.items[i]);
        reader.members[i] = (struct layout_member){
            layout_string(&schema->layout, name), named_value(&reader, name), is_required(&reader, name)};
    }
    if (pool->status == SALVO_OK)
        object.others = other_members(&reader);
    if (pool->status == SALVO_OK && !layout_object(&schema->layout, &object, &expr)) {
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, nodes->count ? nodes->items[0] : schema->root,
            schema->layout.any
                ? "objects in any order with more than 10 required members, or with minProperties or "
                  "maxProperties above 200, are not supported"
                : "minProperties and maxProperties above 200 are not supported");
    }
    node_list_free(&reader.names);
    memory_free(reader.members);
    return expr;
}
