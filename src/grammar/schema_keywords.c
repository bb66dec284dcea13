#include "grammar/schema_keywords.h"

#include "grammar/expr_memo.h"
#include "grammar/schema_string.h"

#include <string.h>

enum { NO_LIMIT_DIGITS = 7 };

static uint32_t read_count(struct schema *schema, const struct json_value *value)
{
    uint32_t count = 0;
    if (!tree_count(value, SCHEMA_MOST_COUNT, &count))
        tree_complain(
            schema->pool, SALVO_ERROR_UNSUPPORTED, value, "a whole number from 0 to 999999 is expected");
    return count;
}

uint32_t schema_largest(struct schema *schema, const struct node_list *nodes, const char *keyword)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *value = tree_member(nodes->items[i], keyword);
        uint32_t count = value ? read_count(schema, value) : 0;
        largest = count > largest ? count : largest;
    }
    return largest;
}

/* A maximum of a million or more is ignored: no answer reaches it. */
static bool is_beyond_answers(const struct json_value *value)
{
    struct decimal_number number;
    return value->kind == VALUE_NUMBER && number_read(value->text, &number) && number_is_whole(&number) &&
           !number.negative && number.whole_size >= NO_LIMIT_DIGITS;
}

uint32_t schema_smallest(struct schema *schema, const struct node_list *nodes, const char *keyword)
{
    uint32_t smallest = REPEAT_UNLIMITED;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *value = tree_member(nodes->items[i], keyword);
        const bool limited = value && !is_beyond_answers(value);
        uint32_t count = limited ? read_count(schema, value) : REPEAT_UNLIMITED;
        smallest = count < smallest ? count : smallest;
    }
    return smallest;
}

const struct json_value *schema_member(
    struct schema *schema, const struct json_value *node, const char *keyword, enum value_kind kind)
{
    const struct json_value *value = tree_member(node, keyword);
    if (value && value->kind != kind) {
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, value,
            kind == VALUE_OBJECT ? "an object is expected" : "an array is expected");
        return NULL;
    }
    return value;
}

/* ---- Numbers ---- */

bool schema_number(struct schema *schema, const struct json_value *value, struct decimal_number *out)
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
    if (!value || !schema_number(schema, value, &number))
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

static uint64_t power_of_10(size_t exponent)
{
    uint64_t power = 1;
    while (exponent-- > 0)
        power *= 10;
    return power;
}

/* multipleOf as factor / 10^places. Multiples of several numbers are the multiples of their least common
 * multiple. */
static void add_multiple(struct schema *schema, const struct json_value *value, struct number_limits *limits)
{
    enum { MOST_DIGITS = 9 };
    struct decimal_number number;
    uint64_t factor = 0, places = limits->places;
    if (!schema_number(schema, value, &number))
        return;
    if (number.whole_size + number.fraction_size <= MOST_DIGITS && !number.negative) {
        for (size_t i = 0; i < number.whole_size; i++)
            factor = factor * 10 + (uint64_t)(number.whole[i] - '0');
        for (size_t i = 0; i < number.fraction_size; i++)
            factor = factor * 10 + (uint64_t)(number.fraction[i] - '0');
    }
    if (factor && limits->factor) {
        uint64_t other = limits->factor, a, b;
        places = number.fraction_size > places ? number.fraction_size : places;
        factor *= power_of_10(places - number.fraction_size);
        other *= power_of_10(places - limits->places);
        for (a = factor, b = other; b;) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        factor = factor / a * other;
    } else {
        places = number.fraction_size;
    }
    if (factor == 0 || factor * (places + 1) > NUMBER_MOST_FACTOR) {
        tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, value,
            "only multipleOf of numbers with digits up to 5000 is supported");
        return;
    }
    limits->factor = (uint32_t)factor;
    limits->places = (uint32_t)places;
}

/* Whether a number is a multiple of the limits' factor. */
static bool is_multiple(const struct decimal_number *number, const struct number_limits *limits)
{
    uint64_t rest = 0;
    if (limits->factor == 0)
        return true;
    for (size_t i = 0; i < number->whole_size; i++)
        rest = (rest * 10 + (uint64_t)(number->whole[i] - '0')) % limits->factor;
    for (size_t i = 0; i < limits->places; i++)
        rest = (rest * 10 + (i < number->fraction_size ? (uint64_t)(number->fraction[i] - '0') : 0)) %
               limits->factor;
    return rest == 0 && number->fraction_size <= limits->places;
}

void schema_limits(struct schema *schema, const struct node_list *nodes, struct number_limits *limits)
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

const struct json_value *schema_excluded(const struct json_value *node, bool *out_one)
{
    *out_one = node->kind != VALUE_EXCEPT || !texts_are_equal(node->of->key, (struct salvo_text){"enum", 4});
    return node->kind != VALUE_EXCEPT ? NULL : *out_one ? node->of : node->of->first;
}

/* ---- Strings ---- */

static const struct expr *read_format(struct expr_pool *pool, struct salvo_text name, const char *regex)
{
    const struct expr *leap = string_leap_seconds(pool, name),
                      *usual = regex_read(pool, regex, strlen(regex), SPELL_JSON);
    const struct expr *expr = leap ? EXPR_EITHER_OF(pool, usual, leap) : usual;
    memo_keep(pool, MEMO_FORMAT, name, expr);
    return expr;
}

/* The expression of `pattern` or `format`; NULL for a format that is an annotation, or after an error. */
static const struct expr *read_pattern(struct schema *schema, const struct json_value *value)
{
    struct expr_pool *pool = schema->pool;
    const char *regex = NULL;
    if (value->kind != VALUE_STRING) {
        tree_complain(pool, SALVO_ERROR_ARGUMENT, value, "a string is expected");
    } else if (texts_are_equal(value->key, (struct salvo_text){"pattern", 7})) {
        char pointer[300];
        const struct expr *expr = regex_read(pool, value->text.data, value->text.size, SPELL_JSON);
        if (pool->status == SALVO_OK)
            return expr;
        tree_pointer(value, pointer, sizeof pointer);
        fail_within(pool->status, "schema: %s: ", pointer);
    } else if (string_format(value->text, &regex)) {
        const struct expr *known = memo_find(pool, MEMO_FORMAT, value->text);
        if (regex)
            return known ? known : read_format(pool, value->text, regex);
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, value, "this format is not supported");
    }
    return NULL;
}

/* All strings except the strings of an expression. */
static const struct expr *string_without(struct schema *schema, const struct expr *expr)
{
    struct expr_pool *pool = schema->pool;
    const struct dfa *dfa = dfa_without(pool, layout_any_text(&schema->layout), dfa_of(pool, expr));
    return dfa ? expr_dfa(pool, dfa) : expr_none();
}

/* The expressions that strings must match: `pattern`, `format`, and complements of negated ones. */
void schema_patterns(struct schema *schema, const struct node_list *nodes, struct expr_list *out)
{
    struct expr_pool *pool = schema->pool;
    for (size_t i = 0; i < nodes->count && pool->status == SALVO_OK; i++) {
        const struct json_value *node = nodes->items[i], *pattern = tree_member(node, "pattern"),
                                *format = tree_member(node, "format");
        const struct expr *like = pattern ? read_pattern(schema, pattern) : NULL,
                          *formed = format ? read_pattern(schema, format) : NULL,
                          *unlike = node->kind == VALUE_UNLIKE ? read_pattern(schema, node->of) : NULL;
        if (like)
            expr_list_add(pool, out, like);
        if (formed)
            expr_list_add(pool, out, formed);
        if (unlike)
            expr_list_add(pool, out, string_without(schema, unlike));
    }
}

void schema_not_excluded(struct schema *schema, const struct node_list *nodes, struct expr_list *out)
{
    struct expr_pool *pool = schema->pool;
    for (size_t i = 0; i < nodes->count && pool->status == SALVO_OK; i++) {
        const struct json_value *node = nodes->items[i];
        const struct expr *expr = memo_find(pool, MEMO_EXCEPT, MEMO_SOURCE(node));
        struct expr_list list = {0};
        bool one;
        for (const struct json_value *value = expr ? NULL : schema_excluded(node, &one); value;
             value = one ? NULL : value->next) {
            if (value->kind == VALUE_STRING && schema_works(schema, 1))
                expr_list_add(pool, &list, layout_spelled(&schema->layout, value->text, true));
        }
        if (list.count) {
            expr = string_without(schema, expr_either(pool, list.items, list.count));
            memo_keep(pool, MEMO_EXCEPT, MEMO_SOURCE(node), expr);
        }
        if (expr)
            expr_list_add(pool, out, expr);
        expr_list_free(&list);
    }
}

/* ---- Values of const and enum ---- */

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
    schema_limits(schema, nodes, &limits);
    if (!schema_number(schema, value, &number) || !is_multiple(&number, &limits))
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
    schema_patterns(schema, nodes, &patterns);
    for (size_t i = 0; fits && i < patterns.count && schema->pool->status == SALVO_OK; i++)
        fits = string_matches(&schema->layout, dfa_of(schema->pool, patterns.items[i]), value->text);
    expr_list_free(&patterns);
    return fits;
}

bool schema_value_fits(struct schema *schema, const struct node_list *nodes, const struct json_value *value)
{
    static const char *const array_keywords[] = {
        "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"};
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

static const struct dfa *either(struct expr_pool *pool, const struct dfa *left, const struct dfa *right)
{
    if (!left || !right)
        return NULL;
    return dfa_of(pool, EXPR_EITHER_OF(pool, expr_dfa(pool, left), expr_dfa(pool, right)));
}

static const struct dfa *string_automaton_at(
    struct schema *schema, const struct json_value *node, unsigned level);

/* The strings of an automaton that fit anyOf, oneOf, allOf and not of a schema, too. */
static const struct dfa *with_choices(
    struct schema *schema, const struct json_value *node, const struct dfa *dfa, unsigned level)
{
    static const char *const keywords[] = {"anyOf", "oneOf", "allOf"};
    struct expr_pool *pool = schema->pool;
    const struct json_value *not = tree_member(node, "not");
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const struct json_value *list = schema_member(schema, node, keywords[i], VALUE_ARRAY);
        const struct dfa *any = dfa_of(pool, expr_none()), *twice = any;
        for (const struct json_value *item = list ? list->first : NULL; item && pool->status == SALVO_OK;
             item = item->next) {
            const struct dfa *one = string_automaton_at(schema, item, level + 1);
            if (i == 2) {
                dfa = dfa_both(pool, dfa, one);
                continue;
            }
            twice = either(pool, twice, dfa_both(pool, any, one));
            any = either(pool, any, one);
        }
        if (list && i < 2)
            dfa = dfa_both(pool, dfa, i == 1 ? dfa_without(pool, any, twice) : any);
    }
    return not ? dfa_without(pool, dfa, string_automaton_at(schema, not, level + 1)) : dfa;
}

static const struct dfa *string_automaton_at(
    struct schema *schema, const struct json_value *node, unsigned level)
{
    enum { MOST_NESTED = 8, EFFORT = 1000 }; /* of a schema, which is not made once */
    static const char *const refused[] = {"if", "$ref", "$dynamicRef"};
    struct expr_pool *pool = schema->pool;
    if (level > MOST_NESTED) {
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, node,
            "more than 8 nested schemas in propertyNames are not supported");
        return NULL;
    }
    if (!schema_works(schema, EFFORT))
        return NULL;
    const struct json_value *ref = schema_reference(schema, node);
    for (unsigned depth = 0; ref && node->count == 1 && depth < 8; depth++) {
        node = schema_resolve(schema, ref);
        ref = node ? schema_reference(schema, node) : NULL;
        if (!node)
            return NULL;
    }
    if (node->kind == VALUE_TRUE)
        return layout_any_text(&schema->layout);
    if (node->kind == VALUE_FALSE || !(schema_types(schema, node) & TYPE_STRING))
        return dfa_of(pool, expr_none());
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct json_value *keyword = tree_member(node, refused[i]);
        if (keyword)
            tree_complain(pool, SALVO_ERROR_UNSUPPORTED, keyword,
                "this keyword cannot be enforced within propertyNames");
    }
    const struct node_list nodes = {&node, 1, 1};
    const struct json_value *one = tree_member(node, "const"), *list = tree_member(node, "enum");
    struct expr_list exprs = {0};
    const struct dfa *dfa = NULL;
    if (one || (list && list->kind == VALUE_ARRAY)) {
        for (const struct json_value *value = one ? one : list->first; value && pool->status == SALVO_OK;
             value = one ? NULL : value->next) {
            if (value->kind == VALUE_STRING && schema_value_fits(schema, &nodes, value))
                expr_list_add(
                    pool, &exprs, layout_spelled(&schema->layout, value->text, schema->layout.any || level));
        }
        dfa = dfa_of(pool, expr_either(pool, exprs.items, exprs.count));
    } else {
        schema_patterns(schema, &nodes, &exprs);
        schema_not_excluded(schema, &nodes, &exprs);
        const struct string_limits limits = {schema_largest(schema, &nodes, "minLength"),
            schema_smallest(schema, &nodes, "maxLength"), exprs.items, exprs.count};
        dfa = string_automaton(&schema->layout, &limits);
    }
    expr_list_free(&exprs);
    return with_choices(schema, node, dfa, level);
}

const struct dfa *schema_string_automaton(struct schema *schema, const struct json_value *node)
{
    return string_automaton_at(schema, node, 0);
}
