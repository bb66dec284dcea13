/* unevaluatedProperties and unevaluatedItems of schemas whose applicable keywords do not depend on the
 * value. */
#include "grammar/schema_keywords.h"
#include "grammar/schema_negate.h"

enum { MOST_DEPTH = 16 };

/* Members and items that the keywords of a schema evaluate, and of the schemas that apply to the same value.
 */
struct evaluated {
    struct schema *schema;
    struct node_list names, patterns; /* members of properties and of patternProperties */
    bool all_members, all_items;
    size_t first_items;
    const struct json_value *unknown; /* a keyword whose schemas may apply, and evaluate more; NULL: none */
};

static bool has_key(const struct node_list *list, struct salvo_text key)
{
    for (size_t i = 0; i < list->count; i++) {
        if (texts_are_equal(list->items[i]->key, key))
            return true;
    }
    return false;
}

static void add_keys(struct evaluated *evaluated, const struct json_value *members, struct node_list *out)
{
    for (const struct json_value *member = members && members->kind == VALUE_OBJECT ? members->first : NULL;
         member && schema_works(evaluated->schema, 1 + out->count); member = member->next) {
        if (!has_key(out, member->key))
            node_list_add(evaluated->schema->pool, out, member);
    }
}

static void add_items(struct evaluated *evaluated, const struct json_value *node)
{
    const struct json_value *first = tree_member(node, "prefixItems"), *items = tree_member(node, "items"),
                            *contains = tree_member(node, "contains");
    evaluated->all_items |= items && items->kind != VALUE_ARRAY;
    if (items && items->kind == VALUE_ARRAY) { /* 2019-09 */
        first = items;
        evaluated->all_items |= tree_member(node, "additionalItems") != NULL;
    }
    if (first && first->count > evaluated->first_items)
        evaluated->first_items = first->count;
    if (contains)
        evaluated->unknown = contains;
}

static void evaluate(struct evaluated *evaluated, const struct json_value *node, unsigned depth);

/* Keywords whose schemas apply to some values: they must not evaluate more than the others. */
static void evaluate_choices(struct evaluated *evaluated, const struct json_value *node, unsigned depth)
{
    static const char *const keywords[] = {
        "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"};
    struct expr_pool *pool = evaluated->schema->pool;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const struct json_value *keyword = tree_member(node, keywords[i]);
        const bool is_one = i >= 2 && i <= 4;
        for (const struct json_value *item = !keyword ? NULL
                                             : is_one ? keyword
                                                      : keyword->first;
             item && pool->status == SALVO_OK; item = is_one ? NULL : item->next) {
            struct evaluated more = *evaluated;
            more.names = more.patterns = (struct node_list){0};
            if (item->kind == VALUE_OBJECT)
                evaluate(&more, item, depth + 1);
            bool same = more.all_members == evaluated->all_members &&
                        more.all_items == evaluated->all_items &&
                        more.first_items == evaluated->first_items && more.unknown == evaluated->unknown;
            for (size_t k = 0; k < more.names.count && !evaluated->all_members; k++)
                same = same && has_key(&evaluated->names, more.names.items[k]->key);
            for (size_t k = 0; k < more.patterns.count && !evaluated->all_members; k++)
                same = same && has_key(&evaluated->patterns, more.patterns.items[k]->key);
            if (!same)
                evaluated->unknown = keyword;
            node_list_free(&more.names);
            node_list_free(&more.patterns);
        }
    }
}

static void evaluate(struct evaluated *evaluated, const struct json_value *node, unsigned depth)
{
    struct schema *schema = evaluated->schema;
    if (node->kind != VALUE_OBJECT || !schema_works(schema, 1))
        return;
    if (depth > MOST_DEPTH) {
        evaluated->unknown = node;
        return;
    }
    add_keys(evaluated, tree_member(node, "properties"), &evaluated->names);
    add_keys(evaluated, tree_member(node, "patternProperties"), &evaluated->patterns);
    evaluated->all_members |= tree_member(node, "additionalProperties") != NULL;
    add_items(evaluated, node);
    if (depth > 0) {
        evaluated->all_members |= tree_member(node, "unevaluatedProperties") != NULL;
        evaluated->all_items |= tree_member(node, "unevaluatedItems") != NULL;
    }
    const struct json_value *ref = schema_reference(schema, node);
    const struct json_value *target = ref ? schema_resolve(schema, ref) : NULL;
    if (target)
        evaluate(evaluated, target, depth + 1);
    const struct json_value *all = array_of_schemas(schema, node, "allOf");
    for (const struct json_value *item = all ? all->first : NULL; item; item = item->next)
        evaluate(evaluated, item, depth + 1);
    evaluate_choices(evaluated, node, depth);
}

/* {KEY: true, ...} */
static struct json_value *allow_keys(
    struct schema *schema, const struct node_list *list, const struct json_value *place)
{
    struct json_value *object = made_value(schema, VALUE_OBJECT, place);
    for (size_t i = 0; i < list->count; i++)
        made_member_text(schema, object, list->items[i]->key, made_value(schema, VALUE_TRUE, place));
    return object;
}

static const struct json_value *made_rest(
    struct schema *schema, const struct evaluated *evaluated, const struct json_value *keyword, bool items)
{
    struct json_value *rest = made_value(schema, VALUE_OBJECT, keyword);
    if (items) {
        struct json_value *first = made_value(schema, VALUE_ARRAY, keyword);
        for (size_t i = 0; i < evaluated->first_items && schema_works(schema, 1); i++)
            made_item(schema, first, made_value(schema, VALUE_TRUE, keyword));
        made_member(schema, rest, "prefixItems", first);
        made_member(schema, rest, "items", keyword);
    } else {
        made_member(schema, rest, "properties", allow_keys(schema, &evaluated->names, keyword));
        if (evaluated->patterns.count)
            made_member(schema, rest, "patternProperties", allow_keys(schema, &evaluated->patterns, keyword));
        made_member(schema, rest, "additionalProperties", keyword);
    }
    return rest;
}

const struct json_value *schema_unevaluated(
    struct schema *schema, const struct json_value *node, const struct json_value *keyword, bool items)
{
    const struct json_value *known = made_find(schema, keyword, MADE_REST);
    if (known || schema->pool->status != SALVO_OK)
        return known;
    struct evaluated evaluated = {.schema = schema};
    const struct json_value *rest = NULL;
    evaluate(&evaluated, node, 0);
    if (evaluated.unknown && !(items ? evaluated.all_items : evaluated.all_members)) {
        tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, keyword,
            "this keyword cannot be enforced: the properties or items that other keywords evaluate depend on "
            "the value");
    }
    if (schema->pool->status == SALVO_OK) {
        const bool all = items ? evaluated.all_items : evaluated.all_members;
        rest = all ? made_value(schema, VALUE_TRUE, keyword) : made_rest(schema, &evaluated, keyword, items);
    }
    if (schema->pool->status == SALVO_OK)
        made_keep(schema, keyword, MADE_REST, rest);
    node_list_free(&evaluated.names);
    node_list_free(&evaluated.patterns);
    return rest;
}
