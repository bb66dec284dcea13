/* Arrays: items of their own, counts, contains and uniqueItems. */
#include "base/memory.h"
#include "grammar/schema_flat.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_made.h"

#include <string.h>

enum { MOST_FIRST = 2000, MOST_STATES = 2000, MOST_UNIQUE = 10 };

struct array_reader {
    struct schema *schema;
    const struct node_list *nodes;
    size_t first; /* items with schemas of their own */
    uint32_t min, max;
};

/* The schemas of the items at a place, or behind all first ones. */
static void items_of_node(
    struct schema *schema, const struct json_value *node, size_t index, struct node_list *goal)
{
    const struct json_value *first = schema_member(schema, node, "prefixItems", VALUE_ARRAY);
    const struct json_value *items = tree_member(node, "items"), *rest = items;
    if (items && items->kind == VALUE_ARRAY) { /* up to 2019-09 */
        first = items;
        rest = tree_member(node, "additionalItems");
    }
    const struct json_value *item = first ? tree_item(first, index) : NULL;
    if (item)
        node_list_add(schema->pool, goal, item);
    else if (rest)
        node_list_add(schema->pool, goal, rest);
}

/* The goal of an item, and of one more schema if that is not NULL. */
static const struct expr *item_goal(struct array_reader *reader, size_t index, const struct json_value *also)
{
    struct node_list goal = {0};
    for (size_t i = 0; i < reader->nodes->count; i++)
        items_of_node(reader->schema, reader->nodes->items[i], index, &goal);
    if (also)
        node_list_add(reader->schema->pool, &goal, also);
    const struct expr *expr = schema_goal(reader->schema, &goal);
    node_list_free(&goal);
    return expr;
}

/* ---- contains ---- */

/* Arrays by how many items they have so far, and how many of them fit `contains`; both counts end at a cap.
 */
struct contains_writer {
    struct array_reader *reader;
    const struct json_value *node; /* contains */
    uint32_t min, max;             /* items that fit */
    uint32_t item_cap, fit_cap;
    const struct expr **known, *separator;
};

static const struct expr *after_item(
    struct contains_writer *writer, uint32_t items, bool fits, const struct expr *rest)
{
    const struct json_value *also = fits ? writer->node
                                    : writer->max == REPEAT_UNLIMITED
                                        ? NULL
                                        : made_not(writer->reader->schema, writer->node);
    const struct expr *item = item_goal(writer->reader, items, also);
    struct expr_pool *pool = writer->reader->schema->pool;
    if (item->kind == EXPR_NONE || rest->kind == EXPR_NONE)
        return expr_none();
    return EXPR_SEQUENCE_OF(pool, items ? writer->separator : expr_empty(), item, rest);
}

/* The rest of the array after `items` items, of which `fits` fit. */
static const struct expr *write_contains(struct contains_writer *writer, uint32_t items, uint32_t fits)
{
    struct expr_pool *pool = writer->reader->schema->pool;
    const bool repeats = items == writer->item_cap && writer->reader->max == REPEAT_UNLIMITED;
    const size_t row = (size_t)writer->fit_cap + 1;
    struct expr_list list = {0};
    if (items >= writer->reader->min && fits >= writer->min)
        expr_list_add(pool, &list, expr_empty());
    if (items < writer->reader->max) {
        const uint32_t next = items < writer->item_cap ? items + 1 : items;
        if (fits < writer->fit_cap)
            expr_list_add(pool, &list, after_item(writer, items, true, writer->known[next * row + fits + 1]));
        if (!repeats)
            expr_list_add(pool, &list, after_item(writer, items, false, writer->known[next * row + fits]));
    }
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++) {
        if (list.items[i]->kind != EXPR_NONE)
            list.items[kept++] = list.items[i];
    }
    const struct expr *expr = expr_either(pool, list.items, kept);
    expr_list_free(&list);
    if (repeats) {
        const struct expr *others = after_item(writer, items, false, expr_empty());
        if (others->kind != EXPR_NONE && expr->kind != EXPR_NONE)
            expr = EXPR_SEQUENCE_OF(pool, expr_repeat(pool, others, 0, REPEAT_UNLIMITED), expr);
    }
    return expr->kind == EXPR_NONE ? expr : expr_shared(pool, expr);
}

static const struct expr *with_contains(struct array_reader *reader, const struct json_value *owner)
{
    struct schema *schema = reader->schema;
    struct expr_pool *pool = schema->pool;
    const struct node_list alone = {&owner, 1, 1};
    struct contains_writer writer = {.reader = reader,
        .node = tree_member(owner, "contains"),
        .min = tree_member(owner, "minContains") ? schema_largest(schema, &alone, "minContains") : 1,
        .max = schema_smallest(schema, &alone, "maxContains"),
        .separator = layout_comma(&schema->layout)};
    uint32_t least = reader->min > reader->first ? reader->min : (uint32_t)reader->first;
    writer.item_cap = reader->max != REPEAT_UNLIMITED ? reader->max : least > 1 ? least : 1;
    writer.fit_cap = writer.max != REPEAT_UNLIMITED ? writer.max : writer.min;
    const uint64_t states = ((uint64_t)writer.item_cap + 1) * ((uint64_t)writer.fit_cap + 1);
    if (states > MOST_STATES)
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, writer.node,
            "contains with counts whose product is above 2000 is not supported");
    if (pool->status == SALVO_OK)
        pool->status = NEW(&writer.known, states);
    if (pool->status != SALVO_OK)
        return expr_none();
    for (uint32_t items = writer.item_cap + 1; items-- > 0;) {
        for (uint32_t fits = writer.fit_cap + 1; fits-- > 0 && pool->status == SALVO_OK;)
            writer.known[(size_t)items * (writer.fit_cap + 1) + fits] = write_contains(&writer, items, fits);
    }
    const struct expr *inside = pool->status == SALVO_OK ? writer.known[0] : expr_none();
    memory_free(writer.known);
    return inside->kind == EXPR_NONE ? inside : layout_brackets(&schema->layout, "[", inside, "]");
}

/* ---- uniqueItems ---- */

/* Adds the values of a schema that has few; false if it has others. */
static bool few_values(
    struct schema *schema, const struct json_value *node, struct node_list *out, unsigned depth)
{
    const struct json_value *one = tree_member(node, "const"), *list = tree_member(node, "enum");
    const struct json_value *ref = schema_reference(schema, node);
    if (one || (list && list->kind == VALUE_ARRAY)) {
        for (const struct json_value *value = one ? one : list->first; value;
             value = one ? NULL : value->next) {
            bool known = false;
            for (size_t i = 0; i < out->count && !known; i++)
                known = trees_are_equal(out->items[i], value);
            if (!known)
                node_list_add(schema->pool, out, value);
            if (out->count > MOST_UNIQUE || !schema_works(schema, 1))
                return false;
        }
        return true;
    }
    if (tree_member(node, "type") && !(schema_types(schema, node) & ~(TYPE_NULL | TYPE_BOOLEAN))) {
        static const enum value_kind kinds[] = {VALUE_NULL, VALUE_FALSE, VALUE_TRUE};
        for (size_t i = 0; i < 3; i++)
            node_list_add(schema->pool, out, made_value(schema, kinds[i], node));
        return schema->pool->status == SALVO_OK;
    }
    const struct json_value *any =
        tree_member(node, "anyOf") ? tree_member(node, "anyOf") : tree_member(node, "oneOf");
    bool few = any && any->kind == VALUE_ARRAY && any->count > 0 && depth < 8;
    for (const struct json_value *item = few ? any->first : NULL; item && few; item = item->next)
        few = few_values(schema, item, out, depth + 1);
    if (few || !ref || depth >= 8)
        return few;
    const struct json_value *target = schema_resolve(schema, ref);
    return target && few_values(schema, target, out, depth + 1);
}

/* The values that items can have; false if there are many. */
static bool few_items(struct array_reader *reader, struct node_list *out)
{
    struct node_list goal = {0};
    bool few = false;
    for (size_t i = 0; i < reader->nodes->count; i++)
        items_of_node(reader->schema, reader->nodes->items[i], 0, &goal);
    for (size_t i = 0; i < goal.count && !few; i++) {
        out->count = 0;
        few = few_values(reader->schema, goal.items[i], out, 0);
    }
    node_list_free(&goal);
    return few;
}

/* Sets of the values that are written so far, a bit for each: what follows. */
static const struct expr *with_unique_items(struct array_reader *reader, const struct json_value *keyword)
{
    struct schema *schema = reader->schema;
    struct expr_pool *pool = schema->pool;
    struct node_list values = {0};
    const struct expr *items[MOST_UNIQUE] = {NULL}, **known = NULL, *inside = expr_none();
    if (reader->first > 0 || !few_items(reader, &values)) {
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, keyword,
            "uniqueItems can be enforced only for items with at most 10 values, which enum, const or boolean "
            "list");
        goto cleanup;
    }
    for (size_t i = 0; i < values.count; i++) {
        struct json_value *exactly = made_value(schema, VALUE_OBJECT, values.items[i]);
        made_member(schema, exactly, "const", values.items[i]);
        items[i] = exactly ? item_goal(reader, 0, exactly) : expr_none();
    }
    const uint32_t sets = 1U << values.count;
    if (pool->status == SALVO_OK)
        pool->status = NEW(&known, sets);
    const struct expr *separator = layout_comma(&schema->layout);
    for (uint32_t set = sets; set-- > 0 && pool->status == SALVO_OK;) {
        struct expr_list list = {0};
        const uint32_t count = (uint32_t)__builtin_popcount(set);
        if (count >= reader->min && count <= reader->max)
            expr_list_add(pool, &list, expr_empty());
        for (size_t i = 0; i < values.count && count < reader->max; i++) {
            if (set >> i & 1 || known[set | 1U << i]->kind == EXPR_NONE || items[i]->kind == EXPR_NONE)
                continue;
            expr_list_add(pool, &list,
                EXPR_SEQUENCE_OF(pool, set ? separator : expr_empty(), items[i], known[set | 1U << i]));
        }
        known[set] = expr_either(pool, list.items, list.count);
        if (known[set]->kind != EXPR_NONE)
            known[set] = expr_shared(pool, known[set]);
        expr_list_free(&list);
    }
    inside = pool->status == SALVO_OK ? known[0] : expr_none();
cleanup:
    memory_free(known);
    node_list_free(&values);
    return inside->kind == EXPR_NONE ? inside : layout_brackets(&schema->layout, "[", inside, "]");
}

/* ---- All arrays ---- */

/* Items in order, each of its own or as all others. */
static const struct expr *plain_array(struct array_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    struct expr_list first = {0};
    for (size_t index = 0; index < reader->first && pool->status == SALVO_OK; index++)
        expr_list_add(pool, &first, item_goal(reader, index, NULL));
    const struct layout_array array = {
        first.items, first.count, item_goal(reader, reader->first, NULL), reader->min, reader->max};
    const struct expr *expr =
        pool->status == SALVO_OK ? layout_array(&reader->schema->layout, &array) : expr_none();
    expr_list_free(&first);
    return expr;
}

const struct expr *schema_array(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct array_reader reader = {.schema = schema,
        .nodes = nodes,
        .min = schema_largest(schema, nodes, "minItems"),
        .max = schema_smallest(schema, nodes, "maxItems")};
    const struct json_value *owner = NULL, *unique = NULL; /* of contains; uniqueItems */
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *node = nodes->items[i];
        const struct json_value *prefix = tree_member(node, "prefixItems");
        const struct json_value *items = tree_member(node, "items"),
                                *unlike = tree_member(node, "uniqueItems"),
                                *contains = tree_member(node, "contains");
        if (items && items->kind == VALUE_ARRAY)
            prefix = items;
        if (prefix && prefix->kind == VALUE_ARRAY && prefix->count > reader.first)
            reader.first = prefix->count;
        if (unlike && unlike->kind != VALUE_FALSE && reader.max > 1)
            unique = unlike;
        if (contains && (owner || unique))
            tree_complain(pool, SALVO_ERROR_UNSUPPORTED, contains,
                "contains beside another contains or uniqueItems is not supported");
        owner = contains ? node : owner;
    }
    if (reader.first > MOST_FIRST)
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, nodes->items[0],
            "arrays with more than 2000 first items are not supported");
    if (unique && owner)
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, unique, "uniqueItems beside contains is not supported");
    if (pool->status != SALVO_OK)
        return expr_none();
    return unique  ? with_unique_items(&reader, unique)
           : owner ? with_contains(&reader, owner)
                   : plain_array(&reader);
}
