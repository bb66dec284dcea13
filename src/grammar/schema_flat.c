#include "grammar/schema_flat.h"

#include "base/memory.h"
#include "grammar/schema_number.h"
#include "grammar/schema_string.h"

#include <string.h>

/* ---- Numbers ---- */

static bool read_number(struct schema *schema, const struct json_value *value, struct decimal_number *out)
{
    if (value->kind == VALUE_NUMBER && number_read(value->text, out))
        return true;
    tree_complain(schema->pool, value->kind == VALUE_NUMBER ? SALVO_ERROR_UNSUPPORTED : SALVO_ERROR_ARGUMENT,
        value, "a number of at most 400 digits is expected");
    return false;
}

/* Narrows the lower or the upper limit. */
static void add_limit(struct schema *schema, const struct json_value *value, bool lower, bool excluded,
    struct number_limits *limits)
{
    struct decimal_number number, *limit = lower ? &limits->least : &limits->most;
    bool *has = lower ? &limits->has_least : &limits->has_most,
         *strict = lower ? &limits->above : &limits->below;
    if (!value || !read_number(schema, value, &number))
        return;
    int order = *has ? numbers_compare(&number, limit) : lower ? 1 : -1;
    if (*has && order == 0)
        *strict |= excluded;
    if (!*has || (lower ? order > 0 : order < 0)) {
        *limit = number;
        *has = true;
        *strict = excluded;
    }
}

/* multipleOf as factor / 10^places. */
static void add_multiple(struct schema *schema, const struct json_value *value, struct number_limits *limits)
{
    struct decimal_number number;
    uint64_t factor = 0;
    if (!read_number(schema, value, &number))
        return;
    if (number.whole_size + number.fraction_size <= 9) {
        for (size_t i = 0; i < number.whole_size; i++)
            factor = factor * 10 + (uint64_t)(number.whole[i] - '0');
        for (size_t i = 0; i < number.fraction_size; i++)
            factor = factor * 10 + (uint64_t)(number.fraction[i] - '0');
    }
    if (factor == 0 || number.negative || factor * (number.fraction_size + 1) > NUMBER_MOST_FACTOR ||
        limits->factor) {
        tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, value,
            "only one multipleOf, of a number with digits up to 5000, is supported");
    } else {
        *limits = (struct number_limits){limits->has_least, limits->has_most, limits->above, limits->below,
            limits->least, limits->most, limits->whole, (uint32_t)factor, (uint32_t)number.fraction_size,
            limits->any_spelling};
    }
}

static void read_limits(struct schema *schema, const struct node_list *nodes, struct number_limits *limits)
{
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *node = nodes->items[i];
        const struct json_value *least = tree_member(node, "minimum"), *most = tree_member(node, "maximum");
        const struct json_value *above = tree_member(node, "exclusiveMinimum"),
                                *below = tree_member(node, "exclusiveMaximum");
        /* In draft 4 these are true or false. */
        bool above_flag = above && above->kind == VALUE_TRUE, below_flag = below && below->kind == VALUE_TRUE;
        add_limit(schema, least, true, above_flag, limits);
        add_limit(schema, most, false, below_flag, limits);
        if (above && above->kind != VALUE_TRUE && above->kind != VALUE_FALSE)
            add_limit(schema, above, true, true, limits);
        if (below && below->kind != VALUE_TRUE && below->kind != VALUE_FALSE)
            add_limit(schema, below, false, true, limits);
        const struct json_value *multiple = tree_member(node, "multipleOf");
        if (multiple)
            add_multiple(schema, multiple, limits);
    }
}

/* ---- Strings ---- */

/* The expressions of `pattern` and `format`. */
static void read_patterns(struct schema *schema, const struct node_list *nodes, struct expr_list *out)
{
    struct expr_pool *pool = schema->pool;
    for (size_t i = 0; i < nodes->count && pool->status == SALVO_OK; i++) {
        const struct json_value *pattern = tree_member(nodes->items[i], "pattern");
        const struct json_value *format = tree_member(nodes->items[i], "format");
        if ((pattern && pattern->kind != VALUE_STRING) || (format && format->kind != VALUE_STRING)) {
            tree_complain(pool, SALVO_ERROR_ARGUMENT, pattern ? pattern : format, "a string is expected");
            return;
        }
        if (pattern) {
            char pointer[300];
            expr_list_add(pool, out, regex_read(pool, pattern->text.data, pattern->text.size, SPELL_JSON));
            tree_pointer(pattern, pointer, sizeof pointer);
            if (pool->status != SALVO_OK)
                fail_within(pool->status, "schema: %s: ", pointer);
        }
        const char *regex = NULL;
        if (format && string_format(format->text, &regex) && !regex)
            tree_complain(pool, SALVO_ERROR_UNSUPPORTED, format, "this format is not supported");
        if (regex)
            expr_list_add(pool, out, regex_read(pool, regex, strlen(regex), SPELL_JSON));
    }
}

static const struct expr *string_expr(struct schema *schema, const struct node_list *nodes)
{
    struct expr_list patterns = {0};
    read_patterns(schema, nodes, &patterns);
    const struct string_limits limits = {schema_largest(schema, nodes, "minLength"),
        schema_smallest(schema, nodes, "maxLength"), patterns.items, patterns.count};
    const struct expr *inside = expr_none();
    if (schema->pool->status == SALVO_OK)
        inside = string_inside(&schema->layout, &limits);
    expr_list_free(&patterns);
    return layout_quoted(&schema->layout, inside);
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
    case VALUE_OBJECT:
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

static size_t count_characters(struct salvo_text text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

static bool number_fits(struct schema *schema, const struct node_list *nodes, const struct json_value *value)
{
    struct number_limits limits = {0};
    struct decimal_number number;
    read_limits(schema, nodes, &limits);
    if (limits.factor)
        tree_complain(
            schema->pool, SALVO_ERROR_UNSUPPORTED, value, "multipleOf beside const or enum is not supported");
    if (!read_number(schema, value, &number))
        return false;
    int low = limits.has_least ? numbers_compare(&number, &limits.least) : 1;
    int high = limits.has_most ? numbers_compare(&number, &limits.most) : -1;
    return (low > 0 || (low == 0 && !limits.above)) && (high < 0 || (high == 0 && !limits.below));
}

static bool string_fits(struct schema *schema, const struct node_list *nodes, const struct json_value *value)
{
    struct expr_list patterns = {0};
    size_t length = count_characters(value->text);
    bool fits = length >= schema_largest(schema, nodes, "minLength") &&
                length <= schema_smallest(schema, nodes, "maxLength");
    read_patterns(schema, nodes, &patterns);
    for (size_t i = 0; fits && i < patterns.count && schema->pool->status == SALVO_OK; i++)
        fits = string_matches(&schema->layout, patterns.items[i], value->text);
    expr_list_free(&patterns);
    return fits;
}

/* Whether a value of const or enum fits the other keywords. */
static bool value_fits(struct schema *schema, const struct node_list *nodes, const struct json_value *value)
{
    static const char *const array_keywords[] = {
        "items", "prefixItems", "additionalItems", "minItems", "maxItems"};
    static const char *const object_keywords[] = {"properties", "required", "additionalProperties",
        "patternProperties", "minProperties", "maxProperties"};
    for (size_t i = 0; i < nodes->count; i++) {
        if (!(schema_types(schema, nodes->items[i]) & tree_type(value)))
            return false;
        bool is_array = value->kind == VALUE_ARRAY;
        size_t count = is_array                      ? sizeof array_keywords / sizeof *array_keywords
                       : value->kind == VALUE_OBJECT ? sizeof object_keywords / sizeof *object_keywords
                                                     : 0;
        for (size_t k = 0; k < count; k++) {
            const struct json_value *keyword =
                tree_member(nodes->items[i], is_array ? array_keywords[k] : object_keywords[k]);
            if (keyword)
                tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, keyword,
                    "this keyword beside const or enum with objects or arrays is not supported");
        }
    }
    if (value->kind == VALUE_NUMBER)
        return number_fits(schema, nodes, value);
    return value->kind != VALUE_STRING || string_fits(schema, nodes, value);
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
    }
    return true;
}

static const struct expr *values_expr(
    struct schema *schema, const struct node_list *nodes, const struct json_value *first, bool one)
{
    struct expr_list list = {0};
    for (const struct json_value *value = first; value && schema_works(schema, 1);
         value = one ? NULL : value->next) {
        if (is_in_all_lists(schema, nodes, value) && value_fits(schema, nodes, value))
            expr_list_add(schema->pool, &list, constant(schema, value));
    }
    const struct expr *expr = expr_either(schema->pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

/* ---- All types ---- */

const struct expr *schema_flat(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct expr_list list = {0};
    unsigned types = TYPE_ANY;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *one = tree_member(nodes->items[i], "const");
        const struct json_value *values = tree_member(nodes->items[i], "enum");
        if (values && values->kind != VALUE_ARRAY)
            tree_complain(pool, SALVO_ERROR_ARGUMENT, values, "an array is expected");
        else if (one || values)
            return values_expr(schema, nodes, one ? one : values->first, one != NULL);
        types &= schema_types(schema, nodes->items[i]);
    }
    if (types & TYPE_OBJECT)
        expr_list_add(pool, &list, schema_object(schema, nodes));
    if (types & TYPE_ARRAY)
        expr_list_add(pool, &list, schema_array(schema, nodes));
    if (types & TYPE_STRING)
        expr_list_add(pool, &list, string_expr(schema, nodes));
    if (types & (TYPE_INTEGER | TYPE_FRACTION)) {
        struct number_limits limits = {.whole = !(types & TYPE_FRACTION), .any_spelling = schema->layout.any};
        read_limits(schema, nodes, &limits);
        expr_list_add(pool, &list, pool->status == SALVO_OK ? number_expr(pool, &limits) : expr_none());
    }
    if (types & TYPE_BOOLEAN)
        expr_list_add(
            pool, &list, EXPR_EITHER_OF(pool, expr_string(pool, "true"), expr_string(pool, "false")));
    if (types & TYPE_NULL)
        expr_list_add(pool, &list, expr_string(pool, "null"));
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}
