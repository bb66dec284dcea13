/* Types of schemas, and schemas that exclude each other. */
#include "grammar/schema_goals.h"
#include "grammar/schema_number.h"

unsigned tree_type(const struct json_value *value)
{
    static const unsigned types[] = {[VALUE_NULL] = TYPE_NULL,
        [VALUE_FALSE] = TYPE_BOOLEAN,
        [VALUE_TRUE] = TYPE_BOOLEAN,
        [VALUE_STRING] = TYPE_STRING,
        [VALUE_ARRAY] = TYPE_ARRAY,
        [VALUE_OBJECT] = TYPE_OBJECT};
    struct decimal_number number;
    if (value->kind != VALUE_NUMBER)
        return types[value->kind];
    return number_read(value->text, &number) && number_is_whole(&number) ? TYPE_INTEGER : TYPE_FRACTION;
}

static unsigned named_type(struct schema *schema, const struct json_value *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", TYPE_NULL}, {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
        {"number", TYPE_INTEGER | TYPE_FRACTION}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
        {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (tree_is_string(name, types[i].name))
            return types[i].type;
    }
    tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, name, "this is no type of JSON Schema");
    return 0;
}

unsigned schema_types(struct schema *schema, const struct json_value *node)
{
    const struct json_value *type = tree_member(node, "type");
    unsigned types = 0;
    if (node->kind == VALUE_TYPES)
        return node->types;
    if (!type)
        return TYPE_ANY;
    if (type->kind != VALUE_ARRAY)
        return named_type(schema, type);
    for (const struct json_value *item = type->first; item; item = item->next)
        types |= named_type(schema, item);
    return types;
}

/* The values that const or enum list: *out_first and its successors, or just one; false without such a
 * keyword. */
static bool listed_values(const struct json_value *node, const struct json_value **out_first, bool *out_one)
{
    const struct json_value *list = tree_member(node, "const");
    *out_one = list != NULL;
    if (!list) {
        list = tree_member(node, "enum");
        list = list && list->kind == VALUE_ARRAY ? list->first : NULL;
    }
    *out_first = list;
    return list != NULL;
}

static bool lists_are_disjoint(
    struct schema *schema, const struct json_value *left, const struct json_value *right)
{
    const struct json_value *a, *b_first;
    bool a_one, b_one;
    if (!listed_values(left, &a, &a_one) || !listed_values(right, &b_first, &b_one))
        return false;
    for (; a; a = a_one ? NULL : a->next) {
        for (const struct json_value *b = b_first; b; b = b_one ? NULL : b->next) {
            if (!schema_works(schema, 1) || trees_are_equal(a, b))
                return false;
        }
    }
    return true;
}

unsigned schema_possible_types(struct schema *schema, const struct json_value *node)
{
    unsigned types = schema_types(schema, node), listed = 0;
    const struct json_value *value;
    bool one;
    if (!listed_values(node, &value, &one))
        return types;
    for (; value; value = one ? NULL : value->next)
        listed |= tree_type(value);
    return types & listed;
}

bool schema_requires(const struct json_value *node, struct salvo_text key)
{
    const struct json_value *required = tree_member(node, "required");
    for (const struct json_value *item = required && required->kind == VALUE_ARRAY ? required->first : NULL;
         item; item = item->next) {
        if (item->kind == VALUE_STRING && texts_are_equal(item->text, key))
            return true;
    }
    return false;
}

static bool forbids_key(const struct json_value *node, struct salvo_text key)
{
    const struct json_value *property = tree_member_text(tree_member(node, "properties"), key);
    const struct json_value *additional = tree_member(node, "additionalProperties");
    if (property)
        return property->kind == VALUE_FALSE;
    return additional && additional->kind == VALUE_FALSE && !tree_member(node, "patternProperties");
}

/* A key that one object requires and the other forbids, or whose values exclude each other. */
static bool objects_are_disjoint(
    struct schema *schema, const struct json_value *left, const struct json_value *right, unsigned depth)
{
    const struct json_value *required = tree_member(left, "required");
    for (const struct json_value *item = required && required->kind == VALUE_ARRAY ? required->first : NULL;
         item; item = item->next) {
        if (item->kind != VALUE_STRING || !schema_works(schema, 1))
            continue;
        if (forbids_key(right, item->text))
            return true;
        const struct json_value *a = tree_member_text(tree_member(left, "properties"), item->text);
        const struct json_value *b = tree_member_text(tree_member(right, "properties"), item->text);
        if (a && b && schema_requires(right, item->text) &&
            schemas_are_disjoint(schema, a, b, TYPE_ANY, depth + 1))
            return true;
    }
    return false;
}

/* Whether a schema has nothing but a type and a list of values, and whether it has a certain value. */
static bool is_plain_list(const struct json_value *node)
{
    static const char *const names[] = {"type", "const", "enum", "title", "description"};
    size_t known = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known += tree_member(node, names[i]) != NULL;
    return node->kind == VALUE_OBJECT && known == node->count;
}

static bool list_has(struct schema *schema, const struct json_value *node, const struct json_value *value)
{
    const struct json_value *item;
    bool one;
    if (!listed_values(node, &item, &one) || !(schema_types(schema, node) & tree_type(value)))
        return false;
    for (; item; item = one ? NULL : item->next) {
        if (schema_works(schema, 1) && trees_are_equal(item, value))
            return true;
    }
    return false;
}

/* Whether a negated schema lists all values of this schema. */
static bool is_within_list(
    struct schema *schema, const struct json_value *node, const struct json_value *negated)
{
    const struct json_value *value;
    bool one;
    if (!is_plain_list(negated) || !listed_values(node, &value, &one))
        return false;
    for (; value; value = one ? NULL : value->next) {
        if (!list_has(schema, negated, value))
            return false;
    }
    return true;
}

bool schemas_are_disjoint(struct schema *schema, const struct json_value *left,
    const struct json_value *right, unsigned types, unsigned depth)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    if (left->kind == VALUE_FALSE || right->kind == VALUE_FALSE)
        return true;
    if (left->kind == VALUE_NOT || right->kind == VALUE_NOT)
        return left->kind == VALUE_NOT ? is_within_list(schema, right, left->of)
                                       : is_within_list(schema, left, right->of);
    if (left->kind != VALUE_OBJECT || right->kind != VALUE_OBJECT || depth > 8 || !schema_works(schema, 1))
        return false;
    const struct json_value *ref = schema_reference(schema, left);
    const struct json_value *target = ref ? schema_resolve(schema, ref) : NULL;
    if (target && schemas_are_disjoint(schema, target, right, types, depth + 1))
        return true;
    ref = schema_reference(schema, right);
    target = ref ? schema_resolve(schema, ref) : NULL;
    if (target && schemas_are_disjoint(schema, left, target, types, depth + 1))
        return true;
    unsigned common = types & schema_possible_types(schema, left) & schema_possible_types(schema, right);
    if (common == 0 || lists_are_disjoint(schema, left, right))
        return true;
    if (common == TYPE_OBJECT && (objects_are_disjoint(schema, left, right, depth) ||
                                     objects_are_disjoint(schema, right, left, depth)))
        return true;
    for (size_t i = 0; i < 4; i++) {
        const struct json_value *list = tree_member(i < 2 ? left : right, choices[i % 2]);
        bool all = list && list->kind == VALUE_ARRAY;
        for (const struct json_value *item = all ? list->first : NULL; item && all; item = item->next)
            all = schemas_are_disjoint(schema, item, i < 2 ? right : left, types, depth + 1);
        if (all)
            return true;
    }
    return false;
}
