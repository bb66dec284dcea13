#include "grammar/schema_goals.h"

#include "base/memory.h"
#include "grammar/schema_number.h"

#include <string.h>

void node_list_add(struct expr_pool *pool, struct node_list *list, const struct json_value *node)
{
    if (pool->status != SALVO_OK)
        return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        pool->status = RESIZE(&list->items, capacity);
        if (pool->status != SALVO_OK)
            return;
        list->capacity = capacity;
    }
    list->items[list->count++] = node;
}

bool node_list_has(const struct node_list *list, const struct json_value *node)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i] == node)
            return true;
    }
    return false;
}

void node_list_free(struct node_list *list)
{
    memory_free(list->items);
    *list = (struct node_list){0};
}

bool schema_works(struct schema *schema, size_t effort)
{
    schema->effort += effort;
    if (schema->effort > SCHEMA_MOST_EFFORT && schema->pool->status == SALVO_OK)
        schema->pool->status = fail(SALVO_ERROR_UNSUPPORTED, "schema: it has too many combinations");
    return schema->pool->status == SALVO_OK;
}

static size_t hash_nodes(const struct node_list *nodes)
{
    uint64_t hash = nodes->count;
    for (size_t i = 0; i < nodes->count; i++) /* independent of the order */
        hash += ((uintptr_t)nodes->items[i] >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash ^ hash >> 31);
}

static bool same_nodes(const struct node_list *left, const struct node_list *right)
{
    if (left->count != right->count)
        return false;
    for (size_t i = 0; i < left->count; i++) {
        if (!node_list_has(right, left->items[i]))
            return false;
    }
    return true;
}

static size_t find_goal(const struct schema *schema, const struct node_list *nodes)
{
    size_t slot = hash_nodes(nodes) & schema->mask;
    while (schema->slots[slot] && !same_nodes(&schema->goals[schema->slots[slot] - 1].nodes, nodes))
        slot = (slot + 1) & schema->mask;
    return slot;
}

static enum salvo_status grow_goals(struct schema *schema)
{
    enum salvo_status status = SALVO_OK;
    size_t capacity = schema->goal_capacity ? schema->goal_capacity * 2 : 64;
    uint32_t *slots = NULL;
    TRY(RESIZE(&schema->goals, capacity));
    TRY(NEW(&slots, capacity * 2));
    memory_free(schema->slots);
    schema->slots = slots;
    schema->mask = capacity * 2 - 1;
    schema->goal_capacity = capacity;
    for (size_t i = 0; i < schema->goal_count; i++)
        schema->slots[find_goal(schema, &schema->goals[i].nodes)] = (uint32_t)i + 1;
cleanup:
    return status;
}

const struct expr *schema_goal(struct schema *schema, const struct node_list *nodes)
{
    struct expr_pool *pool = schema->pool;
    struct node_list kept = {0};
    for (size_t i = 0; i < nodes->count; i++) {
        const struct json_value *node = nodes->items[i];
        if (node->kind == VALUE_FALSE) {
            node_list_free(&kept);
            return expr_none();
        }
        bool any = node->kind == VALUE_TRUE || (node->kind == VALUE_OBJECT && node->count == 0);
        if (!any && !node_list_has(&kept, node))
            node_list_add(pool, &kept, node);
    }
    if (pool->status == SALVO_OK && schema->goal_count == schema->goal_capacity)
        pool->status = grow_goals(schema);
    if (pool->status == SALVO_OK && schema->goal_count == SCHEMA_MOST_GOALS)
        pool->status = fail(SALVO_ERROR_UNSUPPORTED, "schema: it has more than %d parts", SCHEMA_MOST_GOALS);
    if (pool->status != SALVO_OK) {
        node_list_free(&kept);
        return expr_none();
    }
    size_t slot = find_goal(schema, &kept);
    if (schema->slots[slot]) {
        node_list_free(&kept);
        return expr_rule(pool, schema->goals[schema->slots[slot] - 1].rule);
    }
    struct goal *goal = &schema->goals[schema->goal_count++];
    *goal = (struct goal){kept, rule_list_add(schema->rules, expr_none())};
    schema->slots[slot] = (uint32_t)schema->goal_count;
    return expr_rule(pool, goal->rule);
}

void schema_goals_free(struct schema *schema)
{
    for (size_t i = 0; i < schema->goal_count; i++)
        node_list_free(&schema->goals[i].nodes);
    memory_free(schema->goals);
    memory_free(schema->slots);
}

/* ---- References ---- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Follows one part of a JSON pointer, with its escapes ~0, ~1 and %XX. */
static const struct json_value *follow_part(const struct json_value *from, struct salvo_text part)
{
    char key[256];
    size_t size = 0, index = 0;
    for (size_t i = 0; i < part.size; i++) {
        char c = part.data[i];
        if (size == sizeof key)
            return NULL;
        if (c == '%' && i + 2 < part.size && hex_value(part.data[i + 1]) >= 0 &&
            hex_value(part.data[i + 2]) >= 0) {
            c = (char)(hex_value(part.data[i + 1]) * 16 + hex_value(part.data[i + 2]));
            i += 2;
        }
        key[size++] = c;
    }
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool escape = key[i] == '~' && i + 1 < size && (key[i + 1] == '0' || key[i + 1] == '1');
        key[kept++] = !escape ? key[i] : key[i + 1] == '0' ? '~' : '/';
        i += escape;
    }
    if (from->kind == VALUE_OBJECT)
        return tree_member_text(from, (struct salvo_text){key, kept});
    for (size_t i = 0; i < kept; i++) {
        if (key[i] < '0' || key[i] > '9' || i > 8)
            return NULL;
        index = index * 10 + (size_t)(key[i] - '0');
    }
    return kept ? tree_item(from, index) : NULL;
}

/* The schema in the tree, but not `except`, that has `text` as its $id or $anchor. */
static const struct json_value *find_named(struct schema *schema, const struct json_value *from,
    const char *keyword, struct salvo_text text, const struct json_value *except)
{
    if (!from || !schema_works(schema, 1))
        return NULL;
    const struct json_value *name = tree_member(from, keyword);
    if (name && name->kind == VALUE_STRING && texts_are_equal(name->text, text) && from != except)
        return from;
    for (const struct json_value *item = from->first; item; item = item->next) {
        const struct json_value *found = tree_is_string(item, "") || item->count == 0
                                             ? NULL
                                             : find_named(schema, item, keyword, text, except);
        if (found)
            return found;
    }
    return NULL;
}

/* The document that a place belongs to: a schema with its own $id is one. */
static const struct json_value *document_of(const struct schema *schema, const struct json_value *place)
{
    for (; place->parent; place = place->parent) {
        const struct json_value *id = tree_member(place, "$id");
        if (id && id->kind == VALUE_STRING && id->text.size && id->text.data[0] != '#')
            return place;
    }
    return schema->root;
}

const struct json_value *schema_resolve(struct schema *schema, const struct json_value *ref)
{
    if (ref->kind != VALUE_STRING) {
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, ref, "a string is expected");
        return NULL;
    }
    const char *hash = ref->text.size ? memchr(ref->text.data, '#', ref->text.size) : NULL;
    size_t before = hash ? (size_t)(hash - ref->text.data) : ref->text.size;
    const struct json_value *found = document_of(schema, ref);
    if (before > 0)
        found = find_named(schema, schema->root, "$id", (struct salvo_text){ref->text.data, before}, NULL);
    if (!found && schema->pool->status == SALVO_OK) {
        tree_complain(
            schema->pool, SALVO_ERROR_UNSUPPORTED, ref, "references to other documents are not supported");
        return NULL;
    }
    struct salvo_text rest = {hash ? hash + 1 : NULL, hash ? ref->text.size - before - 1 : 0};
    if (found && rest.size && rest.data[0] != '/') {
        const struct json_value *document = found;
        found = find_named(schema, document, "$anchor", rest, NULL);
        if (found && find_named(schema, document, "$anchor", rest, found)) {
            tree_complain(schema->pool, SALVO_ERROR_UNSUPPORTED, ref, "several places have this $anchor");
            return NULL;
        }
        if (!found)
            found = find_named(schema, document, "$id", (struct salvo_text){hash, rest.size + 1}, NULL);
    }
    while (found && rest.size && rest.data[0] == '/') {
        const char *end = memchr(rest.data + 1, '/', rest.size - 1);
        size_t size = end ? (size_t)(end - rest.data) : rest.size;
        found = follow_part(found, (struct salvo_text){rest.data + 1, size - 1});
        rest = (struct salvo_text){rest.data + size, rest.size - size};
    }
    if (!found)
        tree_complain(schema->pool, SALVO_ERROR_ARGUMENT, ref, "there is no such place in the schema");
    return found;
}

/* ---- Types, and schemas that exclude each other ---- */

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
    if (!type)
        return TYPE_ANY;
    if (type->kind != VALUE_ARRAY)
        return named_type(schema, type);
    for (const struct json_value *item = type->first; item; item = item->next)
        types |= named_type(schema, item);
    return types;
}

/* The values that const or enum list: *out_first and those after it, or just one; false without them. */
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

static unsigned possible_types(struct schema *schema, const struct json_value *node)
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

static bool requires_key(const struct json_value *node, struct salvo_text key)
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
        if (a && b && requires_key(right, item->text) && schemas_are_disjoint(schema, a, b, depth + 1))
            return true;
    }
    return false;
}

bool schemas_are_disjoint(
    struct schema *schema, const struct json_value *left, const struct json_value *right, unsigned depth)
{
    static const char *const choices[] = {"anyOf", "oneOf"};
    if (left->kind == VALUE_FALSE || right->kind == VALUE_FALSE)
        return true;
    if (left->kind != VALUE_OBJECT || right->kind != VALUE_OBJECT || depth > 8 || !schema_works(schema, 1))
        return false;
    const struct json_value *ref = tree_member(left, "$ref");
    const struct json_value *target = ref ? schema_resolve(schema, ref) : NULL;
    if (target && schemas_are_disjoint(schema, target, right, depth + 1))
        return true;
    ref = tree_member(right, "$ref");
    target = ref ? schema_resolve(schema, ref) : NULL;
    if (target && schemas_are_disjoint(schema, left, target, depth + 1))
        return true;
    unsigned common = possible_types(schema, left) & possible_types(schema, right);
    if (common == 0 || lists_are_disjoint(schema, left, right))
        return true;
    if (common == TYPE_OBJECT && (objects_are_disjoint(schema, left, right, depth) ||
                                     objects_are_disjoint(schema, right, left, depth)))
        return true;
    for (size_t i = 0; i < 4; i++) {
        const struct json_value *list = tree_member(i < 2 ? left : right, choices[i % 2]);
        bool all = list && list->kind == VALUE_ARRAY;
        for (const struct json_value *item = all ? list->first : NULL; item && all; item = item->next)
            all = schemas_are_disjoint(schema, item, i < 2 ? right : left, depth + 1);
        if (all)
            return true;
    }
    return false;
}
