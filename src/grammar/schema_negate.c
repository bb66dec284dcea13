#include "grammar/schema_negate.h"

#include "grammar/schema_keywords.h"
#include "grammar/schema_string.h"

#include <string.h>

/* ---- Parts ---- */

struct json_value *made_of_type(struct schema *schema, const char *type, const struct json_value *place)
{
    struct json_value *object = made_value(schema, VALUE_OBJECT, place);
    made_member(schema, object, "type", made_string(schema, type, place));
    return object;
}

static struct json_value *made_string_text(
    struct schema *schema, struct salvo_text text, const struct json_value *place)
{
    struct json_value *value = made_value(schema, VALUE_STRING, place);
    if (value)
        value->text = text;
    return value;
}

struct json_value *made_requiring(
    struct schema *schema, struct salvo_text key, const struct json_value *place)
{
    struct json_value *object = made_of_type(schema, "object", place);
    struct json_value *required = made_value(schema, VALUE_ARRAY, place);
    struct json_value *name = made_string_text(schema, key, place);
    if (name)
        name->parent = required;
    made_item(schema, required, name);
    made_member(schema, object, "required", required);
    return object;
}

void made_property(
    struct schema *schema, struct json_value *object, struct salvo_text key, const struct json_value *value)
{
    struct json_value *properties = object ? made_value(schema, VALUE_OBJECT, object) : NULL;
    made_member_text(schema, properties, key, value);
    if (properties && properties->first)
        properties->first->parent = properties;
    made_member(schema, object, "properties", properties);
}

/* ---- Keywords ---- */

struct negation {
    struct schema *schema;
    const struct json_value *node;
    struct json_value *out;
};

static void add(struct negation *negation, const struct json_value *alternative)
{
    made_item(negation->schema, negation->out, alternative);
}

static bool allows_all(const struct json_value *node)
{
    return node->kind == VALUE_TRUE || (node->kind == VALUE_OBJECT && node->count == 0);
}

/* A schema of one type with one more keyword. */
static void add_limit(
    struct negation *negation, const char *type, const char *keyword, const struct json_value *value)
{
    struct json_value *object = made_of_type(negation->schema, type, value);
    made_member(negation->schema, object, keyword, value);
    add(negation, object);
}

/* A negation that no schema expresses: an error, unless other keywords exclude values of the type. */
static void add_refused(struct negation *negation, const char *type, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    const struct json_value *refused = made_value(schema, VALUE_REFUSED, keyword);
    const struct json_value *typed = type ? made_of_type(schema, type, keyword) : NULL;
    add(negation, typed ? made_both(schema, typed, refused) : refused);
}

static void negate_type(struct negation *negation, const struct json_value *keyword)
{
    struct json_value *value = made_value(negation->schema, VALUE_TYPES, keyword);
    if (value)
        value->types = TYPE_ANY & ~schema_types(negation->schema, negation->node);
    if (value && value->types)
        add(negation, value);
}

static void negate_values(struct negation *negation, const struct json_value *keyword)
{
    add(negation, made_value(negation->schema, VALUE_EXCEPT, keyword));
}

static void negate_ref(struct negation *negation, const struct json_value *keyword)
{
    const struct json_value *target = schema_resolve(negation->schema, keyword);
    if (target)
        add(negation, made_not(negation->schema, target));
}

static void negate_all_of(struct negation *negation, const struct json_value *keyword)
{
    for (const struct json_value *item = keyword->first; item; item = item->next)
        add(negation, made_not(negation->schema, item));
}

static void negate_any_of(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    struct json_value *all = made_value(schema, VALUE_ARRAY, keyword),
                      *object = made_value(schema, VALUE_OBJECT, keyword);
    for (const struct json_value *item = keyword->first; item; item = item->next)
        made_item(schema, all, made_not(schema, item));
    made_member(schema, object, "allOf", all);
    add(negation, object);
}

/* None, or two of the alternatives. */
static void negate_one_of(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    negate_any_of(negation, keyword);
    for (const struct json_value *a = keyword->first; a; a = a->next) {
        for (const struct json_value *b = a->next; b && schema_works(schema, 1); b = b->next) {
            if (!schemas_are_disjoint(schema, a, b, TYPE_ANY, 0))
                add(negation, made_both(schema, a, b));
        }
    }
}

static void negate_not(struct negation *negation, const struct json_value *keyword)
{
    add(negation, keyword);
}

static void negate_if(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    const struct json_value *then = tree_member(negation->node, "then");
    const struct json_value *otherwise = tree_member(negation->node, "else");
    if (then)
        add(negation, made_both(schema, keyword, made_not(schema, then)));
    if (otherwise)
        add(negation, made_both(schema, made_not(schema, keyword), made_not(schema, otherwise)));
}

/* A lower limit of a count becomes an upper one, and the other way round. */
static void negate_count(struct negation *negation, const struct json_value *keyword)
{
    static const struct {
        const char *keyword, *type, *opposite;
        bool lower;
    } counts[] = {{"minLength", "string", "maxLength", true}, {"maxLength", "string", "minLength", false},
        {"minItems", "array", "maxItems", true}, {"maxItems", "array", "minItems", false},
        {"minProperties", "object", "maxProperties", true},
        {"maxProperties", "object", "minProperties", false}};
    uint32_t count = 0;
    size_t i = 0;
    while (strlen(counts[i].keyword) != keyword->key.size ||
           memcmp(counts[i].keyword, keyword->key.data, keyword->key.size) != 0)
        i++;
    if (!tree_count(keyword, SCHEMA_MOST_COUNT, &count)) {
        add_refused(negation, counts[i].type, keyword);
        return;
    }
    if (count > 0 || !counts[i].lower)
        add_limit(negation, counts[i].type, counts[i].opposite,
            made_count(negation->schema, counts[i].lower ? count - 1 : count + 1, keyword));
}

static void negate_limit(struct negation *negation, const struct json_value *keyword)
{
    const struct json_value *node = negation->node;
    const bool lower =
        keyword == tree_member(node, "minimum") || keyword == tree_member(node, "exclusiveMinimum");
    const struct json_value *strict = tree_member(node, lower ? "exclusiveMinimum" : "exclusiveMaximum");
    if (keyword->kind != VALUE_NUMBER)
        return; /* true or false of draft 4 */
    const bool excluded = keyword == strict || (strict && strict->kind == VALUE_TRUE);
    add_limit(negation, "number",
        lower ? (excluded ? "maximum" : "exclusiveMaximum") : (excluded ? "minimum" : "exclusiveMinimum"),
        keyword);
}

static void negate_pattern(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    const char *regex;
    const bool is_format = keyword == tree_member(negation->node, "format");
    if (!is_format || keyword->kind != VALUE_STRING || string_format(keyword->text, &regex))
        add(negation, made_both(schema, made_of_type(schema, "string", keyword),
                          made_value(schema, VALUE_UNLIKE, keyword)));
}

static void negate_items(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    if (allows_all(keyword))
        return;
    if (keyword->kind == VALUE_ARRAY || tree_member(negation->node, "prefixItems"))
        add_refused(negation, "array", keyword);
    else
        add_limit(negation, "array", "contains", made_not(schema, keyword));
}

static void negate_contains(struct negation *negation, const struct json_value *keyword)
{
    if (tree_member(negation->node, "minContains") || tree_member(negation->node, "maxContains"))
        add_refused(negation, "array", keyword);
    else
        add_limit(negation, "array", "items", made_not(negation->schema, keyword));
}

static void negate_properties(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    for (const struct json_value *member = keyword->first; member; member = member->next) {
        if (allows_all(member))
            continue;
        struct json_value *object = made_requiring(schema, member->key, member);
        made_property(schema, object, member->key, made_not(schema, member));
        add(negation, object);
    }
}

static void negate_required(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    for (const struct json_value *name = keyword->first; name; name = name->next) {
        struct json_value *object = made_of_type(schema, "object", name);
        if (name->kind == VALUE_STRING)
            made_property(schema, object, name->text, made_value(schema, VALUE_FALSE, name));
        add(negation, object);
    }
}

/* dependentRequired, dependentSchemas and dependencies. */
static void negate_dependent(struct negation *negation, const struct json_value *keyword)
{
    struct schema *schema = negation->schema;
    for (const struct json_value *entry = keyword->first; entry; entry = entry->next) {
        for (const struct json_value *name = entry->kind == VALUE_ARRAY ? entry->first : NULL; name;
             name = name->next) {
            struct json_value *object = made_requiring(schema, entry->key, name);
            if (name->kind == VALUE_STRING)
                made_property(schema, object, name->text, made_value(schema, VALUE_FALSE, name));
            add(negation, object);
        }
        if (entry->kind != VALUE_ARRAY)
            add(negation,
                made_both(schema, made_requiring(schema, entry->key, entry), made_not(schema, entry)));
    }
}

static void refuse_object(struct negation *negation, const struct json_value *keyword)
{
    if (!allows_all(keyword))
        add_refused(negation, "object", keyword);
}

static void refuse_array(struct negation *negation, const struct json_value *keyword)
{
    if (keyword->kind != VALUE_FALSE || keyword != tree_member(negation->node, "uniqueItems"))
        add_refused(negation, "array", keyword);
}

static void refuse_number(struct negation *negation, const struct json_value *keyword)
{
    add_refused(negation, "number", keyword);
}

static void refuse(struct negation *negation, const struct json_value *keyword)
{
    add_refused(negation, NULL, keyword);
}

static const struct {
    const char *name;
    void (*negate)(struct negation *negation, const struct json_value *keyword);
    enum value_kind kind; /* that the value must have; VALUE_NULL: any */
} keywords[] = {{"type", negate_type, VALUE_NULL}, {"const", negate_values, VALUE_NULL},
    {"enum", negate_values, VALUE_ARRAY}, {"$ref", negate_ref, VALUE_NULL},
    {"allOf", negate_all_of, VALUE_ARRAY}, {"anyOf", negate_any_of, VALUE_ARRAY},
    {"oneOf", negate_one_of, VALUE_ARRAY}, {"not", negate_not, VALUE_NULL}, {"if", negate_if, VALUE_NULL},
    {"minLength", negate_count, VALUE_NULL}, {"maxLength", negate_count, VALUE_NULL},
    {"minItems", negate_count, VALUE_NULL}, {"maxItems", negate_count, VALUE_NULL},
    {"minProperties", negate_count, VALUE_NULL}, {"maxProperties", negate_count, VALUE_NULL},
    {"minimum", negate_limit, VALUE_NULL}, {"maximum", negate_limit, VALUE_NULL},
    {"exclusiveMinimum", negate_limit, VALUE_NULL}, {"exclusiveMaximum", negate_limit, VALUE_NULL},
    {"pattern", negate_pattern, VALUE_STRING}, {"format", negate_pattern, VALUE_STRING},
    {"items", negate_items, VALUE_NULL}, {"contains", negate_contains, VALUE_NULL},
    {"properties", negate_properties, VALUE_OBJECT}, {"required", negate_required, VALUE_ARRAY},
    {"dependentRequired", negate_dependent, VALUE_OBJECT},
    {"dependentSchemas", negate_dependent, VALUE_OBJECT}, {"dependencies", negate_dependent, VALUE_OBJECT},
    {"additionalProperties", refuse_object, VALUE_NULL}, {"patternProperties", refuse_object, VALUE_NULL},
    {"propertyNames", refuse_object, VALUE_NULL}, {"unevaluatedProperties", refuse_object, VALUE_NULL},
    {"prefixItems", refuse_array, VALUE_NULL}, {"uniqueItems", refuse_array, VALUE_NULL},
    {"unevaluatedItems", refuse_array, VALUE_NULL}, {"multipleOf", refuse_number, VALUE_NULL},
    {"divisibleBy", refuse_number, VALUE_NULL}, {"$dynamicRef", refuse, VALUE_NULL},
    {"$recursiveRef", refuse, VALUE_NULL}, {"disallow", refuse, VALUE_NULL}, {"extends", refuse, VALUE_NULL}};

const struct json_value *schema_negation(struct schema *schema, const struct json_value *node)
{
    const struct json_value *known = made_find(schema, node, MADE_NEGATION);
    if (known)
        return known;
    struct negation negation = {schema, node, made_value(schema, VALUE_ARRAY, node)};
    const struct json_value *alone = schema->ref_alone ? tree_member(node, "$ref") : NULL;
    if (node->kind != VALUE_OBJECT)
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, node, "a schema is an object, true or false");
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords && schema->pool->status == SALVO_OK; i++) {
        const struct json_value *keyword = tree_member(node, keywords[i].name);
        if (!keyword || (alone && keyword != alone))
            continue;
        if (keywords[i].kind != VALUE_NULL && keyword->kind != keywords[i].kind)
            add_refused(&negation, NULL, keyword);
        else
            keywords[i].negate(&negation, keyword);
    }
    if (schema->pool->status != SALVO_OK)
        return NULL;
    made_keep(schema, node, MADE_NEGATION, negation.out);
    return negation.out;
}
