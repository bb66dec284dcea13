#include "grammar/schema_negate.h"

const struct json_value *array_of_schemas(
    struct schema *schema, const struct json_value *node, const char *keyword)
{
    const struct json_value *list = tree_member(node, keyword);
    if (!list || (list->kind == VALUE_ARRAY && list->count > 0))
        return list;
    tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, list, "an array of schemas is expected");
    return NULL;
}

/* Whether the alternatives of oneOf certainly have no value of `types` in common. */
static bool alternatives_are_disjoint(struct schema *schema, const struct json_value *list, unsigned types)
{
    for (const struct json_value *a = list->first; a; a = a->next) {
        for (const struct json_value *b = a->next; b; b = b->next) {
            if (!schema_works(schema, 1) || !schemas_are_disjoint(schema, a, b, types, 0))
                return false;
        }
    }
    return true;
}

static const struct json_value *any_of(struct schema *schema, const struct json_value *list)
{
    struct json_value *object = made_value(schema, VALUE_OBJECT, list);
    made_member(schema, object, "anyOf", list);
    return object;
}

/* The schema whose additionalProperties is false, so that objects have the keys of `properties` alone; NULL
 * if the node is no such schema, and no reference to one. */
static const struct json_value *closed_schema(struct schema *schema, const struct json_value *node)
{
    const struct json_value *ref = schema_reference(schema, node);
    for (unsigned depth = 0; ref && (node->count == 1 || schema->ref_alone) && depth < 8; depth++) {
        node = schema_resolve(schema, ref);
        ref = node ? schema_reference(schema, node) : NULL;
        if (!node)
            return NULL;
    }
    const struct json_value *additional = tree_member(node, "additionalProperties"),
                            *properties = tree_member(node, "properties");
    const bool closed = !ref && additional && additional->kind == VALUE_FALSE && properties &&
                        properties->kind == VALUE_OBJECT && !tree_member(node, "patternProperties");
    return closed ? node : NULL;
}

/* The same schema without additionalProperties. */
static const struct json_value *opened(struct schema *schema, const struct json_value *node)
{
    const struct json_value *known = made_find(schema, node, MADE_OPEN),
                            *additional = tree_member(node, "additionalProperties");
    if (known)
        return known;
    struct json_value *open = made_value(schema, VALUE_OBJECT, node);
    for (const struct json_value *member = node->first; member; member = member->next) {
        if (member != additional)
            made_member_text(schema, open, member->key, member);
    }
    if (open)
        made_keep(schema, node, MADE_OPEN, open);
    return open;
}

/* A schema for the values that fit `a` and not `b`. */
static const struct json_value *unless(
    struct schema *schema, const struct json_value *a, const struct json_value *b)
{
    const struct json_value *one = closed_schema(schema, a), *other = closed_schema(schema, b);
    struct json_value *choice = made_value(schema, VALUE_ARRAY, b);
    if (schemas_are_disjoint(schema, a, b, TYPE_OBJECT, 0)) { /* no object fits both */
        struct json_value *others = made_value(schema, VALUE_TYPES, b);
        if (others)
            others->types = TYPE_ANY & ~(unsigned)TYPE_OBJECT;
        made_item(schema, choice, made_of_type(schema, "object", b));
        made_item(schema, choice, made_both(schema, others, made_not(schema, b)));
        return any_of(schema, choice);
    }
    if (!one || !other)
        return made_not(schema, b);
    /* An object of `a` has a key that `b` does not know, or does not fit the rest of `b`. */
    const struct json_value *known = tree_member(other, "properties"), *open = opened(schema, other);
    for (const struct json_value *member = tree_member(one, "properties")->first;
         member && schema_works(schema, 1); member = member->next) {
        if (!tree_member_text(known, member->key))
            made_item(schema, choice, made_requiring(schema, member->key, member));
    }
    if (open)
        made_item(schema, choice, made_not(schema, open));
    return any_of(schema, choice);
}

/* oneOf: if all alternatives exclude each other, it is anyOf. Otherwise an alternative holds if no
 * alternative that overlaps with it does. */
static const struct json_value *exclusive(struct schema *schema, const struct json_value *node)
{
    const unsigned types = schema_types(schema, node);
    const struct json_value *list = tree_member(node, "oneOf");
    if (alternatives_are_disjoint(schema, list, types))
        return list;
    struct json_value *choice = made_value(schema, VALUE_ARRAY, list);
    for (const struct json_value *a = list->first; a && schema->pool->status == SALVO_OK; a = a->next) {
        struct json_value *all = made_value(schema, VALUE_ARRAY, a),
                          *object = made_value(schema, VALUE_OBJECT, a);
        made_item(schema, all, a);
        for (const struct json_value *b = list->first; b && schema_works(schema, 1); b = b->next) {
            if (b != a && !schemas_are_disjoint(schema, a, b, types, 0))
                made_item(schema, all, unless(schema, a, b));
        }
        made_member(schema, object, "allOf", all);
        made_item(schema, choice, object);
    }
    return choice;
}

/* The only property of a condition that holds without it, as in {"properties": {"kind": {"const": "a"}}}. */
static const struct json_value *optional_property(const struct json_value *condition)
{
    const struct json_value *properties = tree_member(condition, "properties");
    const bool alone = properties && properties->kind == VALUE_OBJECT && properties->count == 1;
    return alone && condition->count == 1 ? properties->first : NULL;
}

static const struct json_value *condition(struct schema *schema, const struct json_value *node)
{
    const struct json_value *when = tree_member(node, "if"), *then = tree_member(node, "then"),
                            *otherwise = tree_member(node, "else");
    const struct json_value *property = optional_property(when);
    struct json_value *choice = made_value(schema, VALUE_ARRAY, when);
    if (property) {
        /* The case without the property is one of its own: several conditions on one property share it. */
        struct json_value *absent = made_value(schema, VALUE_OBJECT, when);
        made_property(schema, absent, property->key, made_value(schema, VALUE_FALSE, when));
        made_item(schema, choice, made_both(schema, absent, then));
        struct json_value *present = made_requiring(schema, property->key, when);
        made_property(schema, present, property->key, property);
        made_item(schema, choice, made_both(schema, present, then));
    } else {
        made_item(schema, choice, made_both(schema, when, then));
    }
    made_item(schema, choice, made_both(schema, made_not(schema, when), otherwise));
    return choice;
}

/* Objects without the key, or with what its entry requires. */
static const struct json_value *dependency(struct schema *schema, const struct json_value *entry)
{
    struct json_value *choice = made_value(schema, VALUE_ARRAY, entry);
    struct json_value *absent = made_value(schema, VALUE_OBJECT, entry);
    made_property(schema, absent, entry->key, made_value(schema, VALUE_FALSE, entry));
    made_item(schema, choice, absent);
    struct json_value *present = made_requiring(schema, entry->key, entry);
    if (entry->kind == VALUE_ARRAY) {
        struct json_value *names = made_value(schema, VALUE_OBJECT, entry);
        for (const struct json_value *name = entry->first; name; name = name->next) {
            if (name->kind != VALUE_STRING)
                tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, name, "a string is expected");
        }
        made_member(schema, names, "required", entry);
        made_item(schema, choice, made_both(schema, present, names));
    } else {
        made_item(schema, choice, made_both(schema, present, entry));
    }
    return choice;
}

/* The choice of a keyword, made once. */
static void add_choice(struct schema *schema, const struct json_value *keyword,
    const struct json_value *(*make)(struct schema *, const struct json_value *),
    const struct json_value *from, struct node_list *choices)
{
    const struct json_value *choice = made_find(schema, keyword, MADE_CHOICE);
    if (!choice && schema->pool->status == SALVO_OK) {
        choice = make(schema, from);
        if (schema->pool->status == SALVO_OK)
            made_keep(schema, keyword, MADE_CHOICE, choice);
    }
    node_list_add(schema->pool, choices, choice);
}

void schema_choices(struct schema *schema, const struct json_value *node, struct node_list *choices)
{
    static const char *const dependencies[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    const struct json_value *any = array_of_schemas(schema, node, "anyOf"),
                            *one = array_of_schemas(schema, node, "oneOf"), *when = tree_member(node, "if");
    if (any)
        node_list_add(schema->pool, choices, any);
    if (one)
        add_choice(schema, one, exclusive, node, choices);
    if (when && (tree_member(node, "then") || tree_member(node, "else")))
        add_choice(schema, when, condition, node, choices);
    for (size_t i = 0; i < sizeof dependencies / sizeof *dependencies; i++) {
        const struct json_value *entries = tree_member(node, dependencies[i]);
        if (entries && entries->kind != VALUE_OBJECT)
            tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, entries, "an object is expected");
        for (const struct json_value *entry = entries ? entries->first : NULL;
             entry && schema->pool->status == SALVO_OK; entry = entry->next) {
            if (entry->kind != VALUE_ARRAY || entry->count)
                add_choice(schema, entry, dependency, entry, choices);
        }
    }
}
