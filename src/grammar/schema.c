/* JSON Schema to rules: references, allOf, anyOf and oneOf become goals with alternatives of flat schemas. */
#include "base/memory.h"
#include "grammar/schema_flat.h"
#include "grammar/schema_negate.h"

#include <string.h>

enum { MOST_ALTERNATIVES = 500, MOST_DEPTH = 300, MOST_CHECKED = 64 };

/* Keywords that change which values fit and cannot be enforced. Keywords that are not known are annotations,
 * as the specification says. */
static const char *const refused[] = {"disallow", "extends", "divisibleBy"};

static void check_keywords(struct schema *schema, const struct json_value *node)
{
    if (node->kind != VALUE_OBJECT) {
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, node, "a schema is an object, true or false");
        return;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct json_value *member = tree_member(node, refused[i]);
        if (member && member->kind != VALUE_TRUE)
            tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, member, "this keyword cannot be enforced");
    }
}

/* One way through the alternatives of a goal. */
struct way {
    struct node_list pending; /* schemas that are still to be looked at */
    struct node_list seen;
    struct node_list flat;    /* schemas that hold */
    struct node_list choices; /* lists of which one schema each must hold */
    unsigned types;           /* that all schemas allow */
};

static void way_free(struct way *way)
{
    node_list_free(&way->pending);
    node_list_free(&way->seen);
    node_list_free(&way->flat);
    node_list_free(&way->choices);
}

static void add_all(struct expr_pool *pool, struct node_list *to, const struct node_list *from, size_t first)
{
    for (size_t i = first; i < from->count; i++)
        node_list_add(pool, to, from->items[i]);
}

/* A chain of references that never reaches anything else allows nothing and everything. */
static void check_chain(struct schema *schema, const struct json_value *node)
{
    for (unsigned length = 0; node && node->kind == VALUE_OBJECT; length++) {
        const struct json_value *ref = schema_reference(schema, node);
        if (!ref || schema->pool->status != SALVO_OK)
            return;
        if (length == MOST_DEPTH) {
            tree_complain(
                schema->pool, SALVO_ERROR_ARGUMENT, ref, "the reference leads back to itself or is too long");
            return;
        }
        node = schema_resolve(schema, ref);
    }
}

/* Whether a key that objects must have has no value that fits. */
static bool key_is_impossible(struct schema *schema, const struct way *way, struct salvo_text key)
{
    enum { MOST_COMPARED = 8 };
    const struct json_value *values[MOST_COMPARED];
    size_t count = 0;
    bool required = false, never = false;
    for (size_t i = 0; i < way->flat.count; i++) {
        const struct json_value *node = way->flat.items[i];
        const struct json_value *value = tree_member_text(tree_member(node, "properties"), key);
        required = required || schema_requires(node, key);
        never = never || (value && value->kind == VALUE_FALSE);
        if (value && count < MOST_COMPARED && schema_works(schema, 1))
            values[count++] = value;
    }
    for (size_t i = 0; required && i < count && !never; i++) {
        for (size_t k = i + 1; k < count && !never; k++)
            never = schemas_are_disjoint(schema, values[i], values[k], TYPE_ANY, 0);
    }
    return required && never;
}

/* Whether a schema that was just added excludes all objects, while only these are possible. Then the way
 * ends: conditions on one property do not multiply. */
static bool objects_are_impossible(
    struct schema *schema, const struct way *way, const struct json_value *node)
{
    const struct json_value *required = tree_member(node, "required"),
                            *properties = tree_member(node, "properties");
    if (way->types != TYPE_OBJECT || way->flat.count < 2 || (required && required->count > MOST_CHECKED) ||
        (properties && properties->count > MOST_CHECKED))
        return false;
    for (const struct json_value *name = required && required->kind == VALUE_ARRAY ? required->first : NULL;
         name && schema->pool->status == SALVO_OK; name = name->next) {
        if (name->kind == VALUE_STRING && key_is_impossible(schema, way, name->text))
            return true;
    }
    for (const struct json_value *member = properties && properties->kind == VALUE_OBJECT ? properties->first
                                                                                          : NULL;
         member && schema->pool->status == SALVO_OK; member = member->next) {
        if (key_is_impossible(schema, way, member->key))
            return true;
    }
    return false;
}

/* A schema that was made from others. */
static bool take_made(struct schema *schema, struct way *way, const struct json_value *node)
{
    if (node->kind == VALUE_NOT) {
        const struct json_value *alternatives = schema_negation(schema, node->of);
        if (!alternatives || alternatives->count == 0)
            return false;
        node_list_add(schema->pool, alternatives->count == 1 ? &way->pending : &way->choices,
            alternatives->count == 1 ? alternatives->first : alternatives);
        return true;
    }
    if (node->kind == VALUE_REFUSED) {
        tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, node->of,
            "this keyword cannot be enforced within not, if or alternatives of oneOf that overlap");
        return false;
    }
    if (node->kind == VALUE_TYPES)
        way->types &= node->types;
    node_list_add(schema->pool, &way->flat, node);
    return way->types != 0;
}

/* Adds a schema to the way; false if it allows nothing. */
static bool take_node(struct schema *schema, struct way *way, const struct json_value *node)
{
    struct expr_pool *pool = schema->pool;
    if (node->kind == VALUE_TRUE || node->kind == VALUE_FALSE || node_list_has(&way->seen, node))
        return node->kind != VALUE_FALSE;
    node_list_add(pool, &way->seen, node);
    if (node->kind > VALUE_OBJECT)
        return take_made(schema, way, node);
    const struct json_value *ref = schema_reference(schema, node);
    if (!ref || !schema->ref_alone)
        check_keywords(schema, node);
    if (ref && pool->status == SALVO_OK) {
        check_chain(schema, node);
        const struct json_value *target = pool->status == SALVO_OK ? schema_resolve(schema, ref) : NULL;
        if (target)
            node_list_add(pool, &way->pending, target);
        if (schema->ref_alone)
            return true;
    }
    if (pool->status != SALVO_OK)
        return false;
    node_list_add(pool, &way->flat, node);
    way->types &= schema_possible_types(schema, node);
    if (pool->status != SALVO_OK || !way->types || objects_are_impossible(schema, way, node))
        return false;
    const struct json_value *all = array_of_schemas(schema, node, "allOf"), *not = tree_member(node, "not");
    for (const struct json_value *item = all ? all->first : NULL; item; item = item->next)
        node_list_add(pool, &way->pending, item);
    if (not )
        node_list_add(pool, &way->pending, made_not(schema, not ));
    if (!schema->ref_alone) { /* since 2019-09 */
        static const char *const keywords[] = {"unevaluatedProperties", "unevaluatedItems"};
        for (size_t i = 0; i < 2; i++) {
            const struct json_value *keyword = tree_member(node, keywords[i]);
            const struct json_value *rest =
                keyword ? schema_unevaluated(schema, node, keyword, i == 1) : NULL;
            if (rest)
                node_list_add(pool, &way->pending, rest);
        }
    }
    schema_choices(schema, node, &way->choices);
    return true;
}

static void follow_way(struct schema *schema, struct way *way, unsigned depth, struct expr_list *out)
{
    struct expr_pool *pool = schema->pool;
    for (size_t i = 0; i < way->pending.count; i++) {
        if (pool->status != SALVO_OK || !schema_works(schema, 1 + way->seen.count) ||
            !take_node(schema, way, way->pending.items[i]))
            return;
    }
    if (way->choices.count == 0) {
        expr_list_add(pool, out, schema_flat(schema, &way->flat));
        return;
    }
    const struct json_value *choice = way->choices.items[0];
    for (const struct json_value *item = choice->first; item && pool->status == SALVO_OK; item = item->next) {
        struct way branch = {.types = way->types};
        if (depth == MOST_DEPTH || out->count >= MOST_ALTERNATIVES) {
            tree_complain(
                pool, SALVO_ERROR_UNSUPPORTED, choice, "there are too many combinations of alternatives");
            return;
        }
        node_list_add(pool, &branch.pending, item);
        add_all(pool, &branch.seen, &way->seen, 0);
        add_all(pool, &branch.flat, &way->flat, 0);
        add_all(pool, &branch.choices, &way->choices, 1);
        follow_way(schema, &branch, depth + 1, out);
        way_free(&branch);
    }
}

static void build_goal(struct schema *schema, size_t index)
{
    struct expr_list alternatives = {0};
    struct way way = {.types = TYPE_ANY};
    uint32_t rule = schema->goals[index].rule;
    add_all(schema->pool, &way.pending, &schema->goals[index].nodes, 0);
    follow_way(schema, &way, 0, &alternatives);
    const struct expr *expr = expr_either(schema->pool, alternatives.items, alternatives.count);
    if (schema->pool->status == SALVO_OK)
        schema->rules->items[rule] = expr;
    way_free(&way);
    expr_list_free(&alternatives);
}

/* Whether $schema names one of the first `count` old drafts. */
static bool is_old_draft(const struct json_value *root, size_t count)
{
    static const char *const drafts[] = {"draft-03/", "draft-04/", "draft-06/", "draft-07/"};
    const struct json_value *version = tree_member(root, "$schema");
    for (size_t i = 0; version && version->kind == VALUE_STRING && i < count; i++) {
        if (memmem(version->text.data, version->text.size, drafts[i], strlen(drafts[i])))
            return true;
    }
    return false;
}

const struct expr *schema_rules(struct rule_list *rules, const char *text, size_t size, bool any_layout)
{
    struct schema schema = {.rules = rules, .pool = &rules->pool};
    struct node_list first = {0};
    const struct expr *expr = expr_none();
    if (tree_read(schema.pool, text, size, &schema.root) == SALVO_OK) {
        schema.ref_alone = is_old_draft(schema.root, 4);
        schema.old_ids = is_old_draft(schema.root, 2);
        layout_open(rules, any_layout, &schema.layout);
        node_list_add(schema.pool, &first, schema.root);
        const struct expr *root = schema_goal(&schema, &first);
        while (schema.pool->status == SALVO_OK && schema.goals_built < schema.goal_count)
            build_goal(&schema, schema.goals_built++);
        const struct expr *space = schema.layout.outer_space;
        expr = EXPR_SEQUENCE_OF(schema.pool, space, root, space);
    }
    node_list_free(&first);
    schema_goals_free(&schema);
    made_free(&schema);
    memory_free(schema.resources);
    memory_free(schema.strings);
    return expr;
}

enum salvo_status schema_read(const char *text, size_t size, bool any_layout, struct rule_list *out)
{
    *out = (struct rule_list){0};
    if (size > READER_MAX_BYTES)
        return fail(SALVO_ERROR_UNSUPPORTED, "schema: the text has %zu bytes; at most %d are possible", size,
            READER_MAX_BYTES);
    out->root = rule_list_add(out, schema_rules(out, text, size, any_layout));
    enum salvo_status status = out->pool.status;
    if (status != SALVO_OK)
        rule_list_free(out);
    return status;
}
