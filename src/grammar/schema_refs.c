/* References inside one document: JSON pointers, anchors, and schemas with an $id of their own. */
#include "base/memory.h"
#include "grammar/schema_goals.h"

#include <string.h>

/* A schema with an $id is a document of its own. */
struct resource {
    const struct json_value *node;
    struct salvo_text uri; /* absolute as far as its parents say */
};

/* ---- URIs ---- */

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

/* Bytes up to the path: "https://host", "urn:" or nothing. */
static size_t before_path(struct salvo_text uri)
{
    size_t at = 0;
    while (at < uri.size && !is_one_of(uri.data[at], ":/?#"))
        at++;
    const bool has_scheme = at < uri.size && at > 0 && uri.data[at] == ':';
    at = has_scheme ? at + 1 : 0;
    if (uri.size - at >= 2 && memcmp(uri.data + at, "//", 2) == 0) {
        at += 2;
        while (at < uri.size && !is_one_of(uri.data[at], "/?#"))
            at++;
    }
    return at;
}

static bool has_scheme(struct salvo_text uri)
{
    const char *colon = uri.size ? memchr(uri.data, ':', uri.size) : NULL;
    const char *slash = uri.size ? memchr(uri.data, '/', uri.size) : NULL;
    return colon && (!slash || colon < slash);
}

/* Removes "." and ".." from a path in place; returns its new size. */
static size_t remove_dots(char *path, size_t size)
{
    size_t kept = 0, at = 0;
    while (at < size) {
        const char *end = memchr(path + at + 1, '/', size - at - 1);
        const size_t part = end ? (size_t)(end - path) - at : size - at; /* with its slash before */
        const bool slash = path[at] == '/', last = !end;
        const char *name = path + at + slash;
        const size_t length = part - slash;
        if (length == 2 && memcmp(name, "..", 2) == 0) {
            while (kept > 0 && path[--kept] != '/') {
            }
            if (last)
                path[kept++] = '/';
        } else if (length == 1 && *name == '.') {
            if (last)
                path[kept++] = '/';
        } else {
            memmove(path + kept, path + at, part);
            kept += part;
        }
        at += part;
    }
    return kept;
}

/* A reference without its fragment, as RFC 3986 resolves it. The text lives in the pool. */
static struct salvo_text resolve_uri(struct expr_pool *pool, struct salvo_text base, struct salvo_text ref)
{
    if (ref.size == 0)
        return base;
    if (base.size == 0 || has_scheme(ref))
        return ref;
    const size_t root = before_path(base);
    size_t kept = root;
    if (ref.size >= 2 && memcmp(ref.data, "//", 2) == 0) {
        const char *colon = memchr(base.data, ':', root);
        kept = colon ? (size_t)(colon - base.data) + 1 : 0;
    } else if (ref.data[0] == '?') {
        const char *query = memchr(base.data, '?', base.size);
        kept = query ? (size_t)(query - base.data) : base.size;
    } else if (ref.data[0] != '/') {
        kept = base.size;
        while (kept > root && base.data[kept - 1] != '/')
            kept--;
    }
    const bool needs_slash =
        kept == root && root > 0 && ref.data[0] != '/' && ref.data[0] != '?' && base.data[root - 1] != ':';
    char *text = expr_pool_new(pool, kept + ref.size + 1);
    if (!text)
        return (struct salvo_text){0};
    memcpy(text, base.data, kept);
    if (needs_slash)
        text[kept++] = '/';
    memcpy(text + kept, ref.data, ref.size);
    size_t size = kept + ref.size;
    if (size > root && ref.data[0] != '?')
        size = root + remove_dots(text + root, size - root);
    return (struct salvo_text){text, size};
}

/* ---- Documents ---- */

static struct salvo_text without_fragment(struct salvo_text uri)
{
    const char *hash = uri.size ? memchr(uri.data, '#', uri.size) : NULL;
    return (struct salvo_text){uri.data, hash ? (size_t)(hash - uri.data) : uri.size};
}

/* The $id of a schema that is a document of its own; empty if it has none. */
static struct salvo_text own_id(const struct schema *schema, const struct json_value *node)
{
    const struct json_value *id = tree_member(node, schema->old_ids ? "id" : "$id");
    if (!id || id->kind != VALUE_STRING || (schema->ref_alone && tree_member(node, "$ref")))
        return (struct salvo_text){0};
    return without_fragment(id->text);
}

static const struct json_value *document_of(const struct schema *schema, const struct json_value *place)
{
    for (; place->parent; place = place->parent) {
        if (own_id(schema, place).size)
            return place;
    }
    return schema->root;
}

static bool key_is_in(const struct json_value *value, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (texts_are_equal(value->key, (struct salvo_text){names[i], strlen(names[i])}))
            return true;
    }
    return false;
}

/* Whether a value is not a schema and contains none: the value of const or enum, or of an unknown keyword,
 * where it is certain that it is a keyword. */
static bool is_data(const struct json_value *value)
{
    static const char *const maps[] = {
        "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"};
    static const char *const lists[] = {"const", "enum"};
    static const char *const schemas[] = {"not", "if", "then", "else", "contains", "propertyNames",
        "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "items",
        "allOf", "anyOf", "oneOf", "prefixItems"};
    enum { MAPS = sizeof maps / sizeof *maps, SCHEMAS = sizeof schemas / sizeof *schemas };
    const struct json_value *parent = value->parent;
    if (!parent || parent->kind != VALUE_OBJECT || key_is_in(parent, maps, MAPS))
        return false;
    if (key_is_in(value, lists, 2))
        return true;
    const bool is_keyword = key_is_in(parent, schemas, SCHEMAS) && parent->parent &&
                            parent->parent->key.size && !key_is_in(parent->parent, maps, MAPS);
    return is_keyword && !key_is_in(value, maps, MAPS) && !key_is_in(value, schemas, SCHEMAS);
}

static void add_resources(struct schema *schema, const struct json_value *node, struct salvo_text base)
{
    struct expr_pool *pool = schema->pool;
    struct salvo_text id = own_id(schema, node);
    if (!schema_works(schema, 1) || is_data(node))
        return;
    if (id.size || !node->parent) {
        struct resource *resource;
        base = resolve_uri(pool, base, id);
        if (pool->status == SALVO_OK)
            pool->status = RESIZE(&schema->resources, schema->resource_count + 1);
        if (pool->status != SALVO_OK)
            return;
        resource = &schema->resources[schema->resource_count++];
        *resource = (struct resource){node, base};
    }
    for (const struct json_value *item = node->first; item; item = item->next) {
        if (item->count)
            add_resources(schema, item, base);
    }
}

static const struct resource *resource_of(const struct schema *schema, const struct json_value *node)
{
    for (size_t i = 0; i < schema->resource_count; i++) {
        if (schema->resources[i].node == node)
            return &schema->resources[i];
    }
    return NULL;
}

/* The document that a reference names before its fragment. */
static const struct json_value *named_document(
    struct schema *schema, const struct json_value *ref, struct salvo_text uri)
{
    const struct json_value *here = document_of(schema, ref);
    if (uri.size == 0)
        return here;
    if (schema->resource_count == 0)
        add_resources(schema, schema->root, (struct salvo_text){0});
    const struct resource *base = resource_of(schema, here);
    if (schema->pool->status != SALVO_OK || !base)
        return NULL;
    uri = resolve_uri(schema->pool, base->uri, uri);
    for (size_t i = 0; i < schema->resource_count && schema_works(schema, 1); i++) {
        if (texts_are_equal(schema->resources[i].uri, uri))
            return schema->resources[i].node;
    }
    return NULL;
}

/* ---- Fragments ---- */

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

struct anchor_search {
    struct schema *schema;
    const struct json_value *document, *found;
    struct salvo_text name; /* with its # before */
    size_t count;
};

static bool has_anchor(const struct json_value *node, const char *keyword, struct salvo_text name)
{
    const struct json_value *value = tree_member(node, keyword);
    return value && value->kind == VALUE_STRING && texts_are_equal(value->text, name);
}

/* Schemas of a document, without embedded documents, that have the anchor. */
static void find_anchor(struct anchor_search *search, const struct json_value *node)
{
    const struct salvo_text name = {search->name.data + 1, search->name.size - 1};
    if (!schema_works(search->schema, 1) || is_data(node) ||
        (node != search->document && own_id(search->schema, node).size))
        return;
    if (has_anchor(node, "$anchor", name) || has_anchor(node, "$dynamicAnchor", name) ||
        has_anchor(node, search->schema->old_ids ? "id" : "$id", search->name)) {
        search->found = node;
        search->count++;
    }
    for (const struct json_value *item = node->first; item; item = item->next) {
        if (item->count)
            find_anchor(search, item);
    }
}

static const struct json_value *follow_pointer(const struct json_value *from, struct salvo_text rest)
{
    while (from && rest.size) {
        const char *end = memchr(rest.data + 1, '/', rest.size - 1);
        size_t size = end ? (size_t)(end - rest.data) : rest.size;
        from = follow_part(from, (struct salvo_text){rest.data + 1, size - 1});
        rest = (struct salvo_text){rest.data + size, rest.size - size};
    }
    return from;
}

/* ---- References ---- */

const struct json_value *schema_reference(struct schema *schema, const struct json_value *node)
{
    static const char *const keywords[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const struct json_value *found = NULL;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const struct json_value *ref = tree_member(node, keywords[i]);
        if (ref && found && !schema->ref_alone)
            tree_complain(
                schema->pool, SALVO_ERROR_UNSUPPORTED, ref, "only one reference in one schema is supported");
        found = found ? found : ref;
    }
    return found;
}

/* Counts anchors of one name in all documents: with several, $dynamicRef depends on the way to it. */
static size_t count_dynamic(
    struct schema *schema, const struct json_value *node, const char *keyword, const struct json_value *name)
{
    if (!schema_works(schema, 1))
        return 0;
    const struct json_value *value = tree_member(node, keyword);
    size_t count = value && (name ? trees_are_equal(value, name) : value->kind == VALUE_TRUE);
    for (const struct json_value *item = node->first; item; item = item->next) {
        if (item->count)
            count += count_dynamic(schema, item, keyword, name);
    }
    return count;
}

/* A dynamic reference is a plain one where only one place can be meant. */
static bool is_static(struct schema *schema, const struct json_value *ref, const struct json_value *target)
{
    const struct json_value *anchor = tree_member(target, "$dynamicAnchor");
    const struct json_value *recursive = tree_member(target, "$recursiveAnchor");
    if (texts_are_equal(ref->key, (struct salvo_text){"$dynamicRef", 11}) && anchor)
        return count_dynamic(schema, schema->root, "$dynamicAnchor", anchor) == 1;
    if (texts_are_equal(ref->key, (struct salvo_text){"$recursiveRef", 13}) && recursive)
        return count_dynamic(schema, schema->root, "$recursiveAnchor", NULL) == 1;
    return true;
}

const struct json_value *schema_resolve(struct schema *schema, const struct json_value *ref)
{
    struct expr_pool *pool = schema->pool;
    if (ref->kind != VALUE_STRING) {
        tree_complain(pool, SALVO_ERROR_ARGUMENT, ref, "a string is expected");
        return NULL;
    }
    const struct salvo_text uri = without_fragment(ref->text);
    const struct salvo_text fragment = {
        ref->text.data + uri.size, ref->text.size - uri.size}; /* with its # */
    const struct json_value *found = named_document(schema, ref, uri);
    if (!found) {
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, ref, "references to other documents are not supported");
        return NULL;
    }
    if (fragment.size > 1 && fragment.data[1] == '/') {
        found = follow_pointer(found, (struct salvo_text){fragment.data + 1, fragment.size - 1});
    } else if (fragment.size > 1) {
        struct anchor_search search = {schema, found, NULL, fragment, 0};
        find_anchor(&search, found);
        found = search.found;
        if (search.count > 1)
            tree_complain(pool, SALVO_ERROR_UNSUPPORTED, ref, "several places have this $anchor");
    }
    if (!found)
        tree_complain(pool, SALVO_ERROR_ARGUMENT, ref, "there is no such place in the schema");
    else if (!is_static(schema, ref, found))
        tree_complain(pool, SALVO_ERROR_UNSUPPORTED, ref, "several places have this $dynamicAnchor");
    return pool->status == SALVO_OK ? found : NULL;
}
