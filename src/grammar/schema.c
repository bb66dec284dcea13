/* JSON Schema to rules: references, allOf, anyOf and oneOf become goals with alternatives of flat schemas. */
#include "base/memory.h"
#include "grammar/schema_flat.h"
#include "grammar/schema_presence.h"

#include <string.h>

enum { MOST_ALTERNATIVES = 500, MOST_DEPTH = 100 };

/* Keywords that change which values fit and cannot be enforced. Keywords that are not known are annotations,
 * as the specification says. */
static const char *const refused[] = {"not", "if", "then", "else", "dependentRequired", "dependentSchemas",
    "dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contains", "minContains",
    "maxContains", "uniqueItems", "$dynamicRef", "$recursiveRef", "disallow", "extends", "divisibleBy"};

/* Keywords that become choices between other schemas, where they are simple enough. */
static bool becomes_choices(
    struct schema *schema, const struct json_value *keyword, struct node_list *choices)
{
    const struct salvo_text key = keyword->key;
    if (texts_are_equal(key, (struct salvo_text){"not", 3}))
        return presence_not(schema, keyword, choices);
    if (texts_are_equal(key, (struct salvo_text){"dependentRequired", 17}) ||
        texts_are_equal(key, (struct salvo_text){"dependencies", 12}))
        return presence_dependent(schema, keyword, choices);
    return false;
}

static void check_keywords(struct schema *schema, const struct json_value *node, struct node_list *choices)
{
    if (node->kind != VALUE_OBJECT) {
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, node, "a schema is an object, true or false");
        return;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct json_value *member = tree_member(node, refused[i]);
        bool harmless = member && member->kind == VALUE_FALSE &&
                        (strcmp(refused[i], "uniqueItems") == 0 || strcmp(refused[i], "not") == 0);
        if (member && !harmless && !becomes_choices(schema, member, choices))
            tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, member, "this keyword cannot be enforced");
    }
}

/* One way through the alternatives of a goal. */
struct way {
    struct node_list pending; /* schemas that are still to be looked at */
    struct node_list seen;
    struct node_list flat;    /* schemas that hold */
    struct node_list choices; /* lists of which one schema each must hold */
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

static const struct json_value *array_member(
    struct schema *schema, const struct json_value *node, const char *keyword)
{
    const struct json_value *list = tree_member(node, keyword);
    if (!list || (list->kind == VALUE_ARRAY && list->count > 0))
        return list;
    tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, list, "an array of schemas is expected");
    return NULL;
}

/* Alternatives of oneOf must exclude each other: then any of them is one of them. */
static void check_one_of(struct schema *schema, const struct json_value *list)
{
    for (const struct json_value *a = list->first; a; a = a->next) {
        for (const struct json_value *b = a->next; b && schema->pool->status == SALVO_OK; b = b->next) {
            if (!schemas_are_disjoint(schema, a, b, 0))
                tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, b,
                    "oneOf cannot be enforced: this alternative may allow values of an earlier one");
        }
    }
}

/* A chain of references that never reaches anything else allows nothing and everything. */
static void check_chain(struct schema *schema, const struct json_value *node)
{
    for (unsigned length = 0; node && node->kind == VALUE_OBJECT; length++) {
        const struct json_value *ref = tree_member(node, "$ref");
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

/* Adds a schema to the way; false if it allows nothing. */
static bool take_node(struct schema *schema, struct way *way, const struct json_value *node)
{
    struct expr_pool *pool = schema->pool;
    if (node->kind == VALUE_TRUE || node->kind == VALUE_FALSE || node_list_has(&way->seen, node))
        return node->kind != VALUE_FALSE;
    node_list_add(pool, &way->seen, node);
    const struct json_value *alone =
        node->kind == VALUE_OBJECT && schema->ref_alone ? tree_member(node, "$ref") : NULL;
    if (!alone)
        check_keywords(schema, node, &way->choices);
    const struct json_value *ref = pool->status == SALVO_OK ? tree_member(node, "$ref") : NULL;
    if (ref) {
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
    const struct json_value *all = array_member(schema, node, "allOf"),
                            *any = array_member(schema, node, "anyOf"),
                            *one = array_member(schema, node, "oneOf");
    for (const struct json_value *item = all ? all->first : NULL; item; item = item->next)
        node_list_add(pool, &way->pending, item);
    const struct json_value *exclusive = one ? presence_one_of(schema, one) : NULL;
    if (exclusive)
        one = exclusive;
    else if (one)
        check_one_of(schema, one);
    if (any)
        node_list_add(pool, &way->choices, any);
    if (one)
        node_list_add(pool, &way->choices, one);
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
        struct way branch = {0};
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
    struct way way = {0};
    uint32_t rule = schema->goals[index].rule;
    add_all(schema->pool, &way.pending, &schema->goals[index].nodes, 0);
    follow_way(schema, &way, 0, &alternatives);
    const struct expr *expr = expr_either(schema->pool, alternatives.items, alternatives.count);
    if (schema->pool->status == SALVO_OK)
        schema->rules->items[rule] = expr;
    way_free(&way);
    expr_list_free(&alternatives);
}

static bool is_old_draft(const struct json_value *root)
{
    static const char *const drafts[] = {"draft-03/", "draft-04/", "draft-06/", "draft-07/"};
    const struct json_value *version = tree_member(root, "$schema");
    for (size_t i = 0; version && version->kind == VALUE_STRING && i < sizeof drafts / sizeof *drafts; i++) {
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
        schema.ref_alone = is_old_draft(schema.root);
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
