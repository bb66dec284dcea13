#include "grammar/schema_flat.h"

#include "base/memory.h"
#include "grammar/dfa.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_string.h"

#include <string.h>

/* ---- Strings ---- */

/* Strings with the same patterns and lengths are one rule: large schemas repeat them. */
struct string_rule {
    struct salvo_text pattern, format;
    uint32_t min, max, rule;
};

/* Finds the one pattern and the one format of the schemas; false if there are more, or none. */
static bool find_patterns(const struct node_list *nodes, struct string_rule *out)
{
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *node = nodes->items[i], *pattern = tree_member(node, "pattern"),
                                *format = tree_member(node, "format");
        if (node->kind == VALUE_UNLIKE || node->kind == VALUE_EXCEPT || (pattern && out->pattern.data) ||
            (format && out->format.data))
            return false;
        if (pattern && pattern->kind == VALUE_STRING)
            out->pattern = pattern->text;
        if (format && format->kind == VALUE_STRING)
            out->format = format->text;
    }
    return out->pattern.data || out->format.data;
}

static const struct string_rule *find_string(struct schema *schema, const struct string_rule *wanted)
{
    for (size_t i = 0; i < schema->string_count && schema_works(schema, 1); i++) {
        const struct string_rule *known = &schema->strings[i];
        if (known->min == wanted->min && known->max == wanted->max &&
            texts_are_equal(known->pattern, wanted->pattern) &&
            texts_are_equal(known->format, wanted->format))
            return known;
    }
    return NULL;
}

static const struct expr *new_string(
    struct schema *schema, const struct node_list *nodes, uint32_t min, uint32_t max)
{
    struct expr_list patterns = {0};
    schema_patterns(schema, nodes, &patterns);
    schema_not_excluded(schema, nodes, &patterns);
    const struct string_limits limits = {min, max, patterns.items, patterns.count};
    const struct expr *inside = expr_none();
    if (schema->pool->status == SALVO_OK)
        inside = string_inside(&schema->layout, &limits);
    expr_list_free(&patterns);
    return layout_quoted(&schema->layout, inside);
}

static const struct expr *string_expr(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct string_rule string = {.min = schema_largest(schema, nodes, "minLength"),
        .max = schema_smallest(schema, nodes, "maxLength")};
    if (!find_patterns(nodes, &string))
        return new_string(schema, nodes, string.min, string.max);
    const struct string_rule *known = find_string(schema, &string);
    if (known)
        return expr_rule(pool, known->rule);
    const struct expr *expr = new_string(schema, nodes, string.min, string.max);
    if (expr->kind == EXPR_NONE || pool->status != SALVO_OK)
        return expr;
    string.rule = rule_list_add(schema->rules, expr);
    if (pool->status == SALVO_OK)
        pool->status = RESIZE(&schema->strings, schema->string_count + 1);
    if (pool->status == SALVO_OK)
        schema->strings[schema->string_count++] = string;
    return expr_rule(pool, string.rule);
}

/* ---- Values of const and enum ---- */

static const struct expr *constant(struct schema *schema, const struct json_value *value)
{
    struct layout *layout = &schema->layout;
    struct expr_pool *pool = schema->pool;
    const struct expr *expr = expr_none();
    struct expr_list items = {0};
    struct layout_member *members = NULL;
    switch (value->kind) {
    case VALUE_NULL:
        return expr_string(pool, "null");
    case VALUE_FALSE:
        return expr_string(pool, "false");
    case VALUE_TRUE:
        return expr_string(pool, "true");
    case VALUE_NUMBER:
        return number_constant(pool, value->text, layout->any);
    case VALUE_STRING:
        return layout_string(layout, value->text);
    case VALUE_ARRAY:
        for (const struct json_value *item = value->first; item; item = item->next)
            expr_list_add(pool, &items, constant(schema, item));
        if (pool->status == SALVO_OK)
            expr = layout_array(layout, &(struct layout_array){items.items, items.count, expr_none(),
                                            (uint32_t)items.count, (uint32_t)items.count});
        expr_list_free(&items);
        return expr;
    default: /* an object */
        break;
    }
    if (pool->status == SALVO_OK)
        pool->status = NEW(&members, value->count + 1);
    size_t count = 0;
    for (const struct json_value *member = value->first; member && pool->status == SALVO_OK;
         member = member->next)
        members[count++] =
            (struct layout_member){layout_string(layout, member->key), constant(schema, member), true};
    const struct layout_object object = {members, count, expr_none(), 0, REPEAT_UNLIMITED};
    if (pool->status == SALVO_OK && !layout_object(layout, &object, &expr))
        tree_complain(
            pool, SALVO_ERROR_UNSUPPORTED, value, "objects with more than 10 members are not supported here");
    memory_free(members);
    return expr;
}

static bool is_listed(struct schema *schema, const struct json_value *list, const struct json_value *value)
{
    for (const struct json_value *item = list->first; item; item = item->next) {
        if (schema_works(schema, 1) && trees_are_equal(item, value))
            return true;
    }
    return false;
}

/* Whether a value is in every const and enum of the schemas. */
static bool is_in_all_lists(
    struct schema *schema, const struct node_list *nodes, const struct json_value *value)
{
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *one = tree_member(nodes->items[i], "const");
        const struct json_value *list = tree_member(nodes->items[i], "enum");
        if ((one && one != value && !trees_are_equal(one, value)) ||
            (list && list != value->parent && !is_listed(schema, list, value)))
            return false;
        bool only;
        for (const struct json_value *excluded = schema_excluded(nodes->items[i], &only); excluded;
             excluded = only ? NULL : excluded->next) {
            if (!schema_works(schema, 1) || trees_are_equal(excluded, value))
                return false;
        }
    }
    return true;
}

static const struct expr *values_expr(
    struct schema *schema, const struct node_list *nodes, const struct json_value *first, bool one)
{
    struct expr_list list = {0};
    for (const struct json_value *value = first; value && schema_works(schema, 1);
         value = one ? NULL : value->next) {
        if (is_in_all_lists(schema, nodes, value) && schema_value_fits(schema, nodes, value))
            expr_list_add(schema->pool, &list, constant(schema, value));
    }
    const struct expr *expr = expr_either(schema->pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

/* ---- All types ---- */

/* The numbers within limits, without the numbers that const or enum of a negated schema list, or its
 * integers. */
static const struct expr *number_without(
    struct schema *schema, const struct node_list *nodes, bool no_integers, struct number_limits *limits)
{
    static const char integers[] = "-?(0|[1-9][0-9]*)(\\.0+)?";
    struct expr_pool *pool = schema->pool;
    struct expr_list list = {0};
    if (no_integers)
        expr_list_add(pool, &list, regex_read(pool, integers, strlen(integers), SPELL_UTF8));
    for (size_t i = 0; i < nodes->count; i++) {
        bool one;
        for (const struct json_value *value = schema_excluded(nodes->items[i], &one); value;
             value = one ? NULL : value->next) {
            struct decimal_number number;
            if (value->kind == VALUE_NUMBER && schema_works(schema, 1) &&
                schema_number(schema, value, &number))
                expr_list_add(pool, &list, number_constant(pool, value->text, true));
        }
    }
    limits->no_exponent = list.count > 0;
    const struct expr *expr = pool->status == SALVO_OK ? number_expr(pool, limits) : expr_none();
    if (list.count) {
        const struct expr *excluded = expr_either(pool, list.items, list.count);
        const struct dfa *dfa = dfa_without(pool, dfa_of(pool, expr), dfa_of(pool, excluded));
        expr = dfa && !dfa_is_empty(dfa) ? expr_dfa(pool, dfa) : expr_none();
    }
    expr_list_free(&list);
    return expr;
}

/* Types that remain, and excluded values of types that are written as one text. */
struct simple_values {
    unsigned types;
    bool no_true, no_false;
};

static void exclude_simple(struct schema *schema, const struct json_value *node, struct simple_values *values)
{
    bool one;
    for (const struct json_value *value = schema_excluded(node, &one); value;
         value = one ? NULL : value->next) {
        if (value->kind == VALUE_NULL)
            values->types &= ~(unsigned)TYPE_NULL;
        values->no_true |= value->kind == VALUE_TRUE;
        values->no_false |= value->kind == VALUE_FALSE;
        if ((value->kind == VALUE_ARRAY || value->kind == VALUE_OBJECT) && (values->types & tree_type(value)))
            tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, value,
                "this value cannot be excluded by not, if or alternatives of oneOf that overlap");
    }
}

const struct expr *schema_flat(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct expr_list list = {0};
    struct simple_values values = {.types = TYPE_ANY};
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *one = tree_member(nodes->items[i], "const");
        const struct json_value *listed = tree_member(nodes->items[i], "enum");
        if (listed && listed->kind != VALUE_ARRAY)
            tree_complain(pool, SALVO_ERROR_ARGUMENT, listed, "an array is expected");
        else if (one || listed)
            return values_expr(schema, nodes, one ? one : listed->first, one != NULL);
        values.types &= schema_types(schema, nodes->items[i]);
    }
    for (size_t i = 0; i < nodes->count; i++)
        exclude_simple(schema, nodes->items[i], &values);
    const unsigned types = values.types;
    if (types & TYPE_OBJECT)
        expr_list_add(pool, &list, schema_object(schema, nodes));
    if (types & TYPE_ARRAY)
        expr_list_add(pool, &list, schema_array(schema, nodes));
    if (types & TYPE_STRING)
        expr_list_add(pool, &list, string_expr(schema, nodes));
    if (types & (TYPE_INTEGER | TYPE_FRACTION)) {
        struct number_limits limits = {.whole = !(types & TYPE_FRACTION), .any_spelling = schema->layout.any};
        schema_limits(schema, nodes, &limits);
        expr_list_add(pool, &list, number_without(schema, nodes, !(types & TYPE_INTEGER), &limits));
    }
    if (types & TYPE_BOOLEAN && !values.no_true)
        expr_list_add(pool, &list, expr_string(pool, "true"));
    if (types & TYPE_BOOLEAN && !values.no_false)
        expr_list_add(pool, &list, expr_string(pool, "false"));
    if (types & TYPE_NULL)
        expr_list_add(pool, &list, expr_string(pool, "null"));
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}
