/* Arrays: items of their own, counts, contains and uniqueItems (unique.h). */
#include "base/memory.h"
#include "grammar/schema_flat.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_made.h"

#include <string.h>

enum { MOST_FIRST = 2000, MOST_STATES = 2000 };

struct array_reader {
    struct schema *schema;
    const struct node_list *nodes;
    size_t first; /* items with schemas of their own */
    uint32_t min, max;
    bool unique;
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
        .separator = layout_item_comma(&schema->layout, reader->unique)};
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
    return inside->kind == EXPR_NONE ? inside : layout_item_brackets(&schema->layout, inside, reader->unique);
}

/* ---- All arrays ---- */

/* Items in order, each of its own or as all others. */
static const struct expr *plain_array(struct array_reader *reader)
{
    struct expr_pool *pool = reader->schema->pool;
    struct expr_list first = {0};
    for (size_t index = 0; index < reader->first && pool->status == SALVO_OK; index++)
        expr_list_add(pool, &first, item_goal(reader, index, NULL));
    const struct layout_array array = {first.items, first.count, item_goal(reader, reader->first, NULL),
        reader->min, reader->max, reader->unique};
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
    const struct json_value *owner = NULL; /* of contains */
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
        if (unlike && unlike->kind != VALUE_TRUE && unlike->kind != VALUE_FALSE)
            tree_complain(pool, SALVO_ERROR_ARGUMENT, unlike, "true or false is expected");
        reader.unique |= unlike && unlike->kind == VALUE_TRUE && reader.max > 1;
        if (contains && owner)
            tree_complain(
                pool, SALVO_ERROR_UNSUPPORTED, contains, "contains beside another contains is not supported");
        owner = contains ? node : owner;
    }
    if (reader.first > MOST_FIRST)
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, nodes->items[0],
            "arrays with more than 2000 first items are not supported");
    if (pool->status != SALVO_OK)
        return expr_none();
    return owner ? with_contains(&reader, owner) : plain_array(&reader);
}
