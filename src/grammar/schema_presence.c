#include "grammar/schema_presence.h"

#include <string.h>

enum { MOST_CHOICES = 64, MOST_LISTS = 40, MOST_STEPS = 5000 };

/* Names that `required` of a schema without other keywords lists; NULL: it has others. */
static const struct json_value *required_alone(const struct json_value *node)
{
    static const char *const annotations[] = {"title", "description", "$comment", "examples"};
    const struct json_value *required = tree_member(node, "required");
    if (!required || required->kind != VALUE_ARRAY || required->count == 0)
        return NULL;
    for (const struct json_value *item = required->first; item; item = item->next) {
        if (item->kind != VALUE_STRING)
            return NULL;
    }
    size_t known = 1;
    for (size_t i = 0; i < sizeof annotations / sizeof *annotations; i++)
        known += tree_member(node, annotations[i]) != NULL;
    const struct json_value *type = tree_member(node, "type");
    known += type && tree_is_string(type, "object");
    return node->count == known ? required : NULL;
}

static bool lists_name(const struct json_value *names, struct salvo_text name)
{
    for (const struct json_value *item = names->first; item; item = item->next) {
        if (texts_are_equal(item->text, name))
            return true;
    }
    return false;
}

/* ---- New schemas ---- */

/* The pool keeps errors, so the writer goes on. */
struct schema_text {
    struct expr_pool *pool;
    struct buffer text;
};

static enum salvo_status append(void *user, const char *data, size_t size)
{
    struct schema_text *out = user;
    if (out->pool->status == SALVO_OK)
        out->pool->status = buffer_append(&out->text, data, size);
    return out->pool->status;
}

static const struct json_value *read_text(struct schema_text *text)
{
    const struct json_value *tree = NULL;
    char *copy = expr_pool_new(text->pool, text->text.size + 1);
    if (copy) {
        memcpy(copy, text->text.data, text->text.size);
        if (tree_read(text->pool, copy, text->text.size, &tree) != SALVO_OK)
            tree = NULL;
    }
    buffer_free(&text->text);
    return tree;
}

/* {"type": "object", "required": [...], "properties": {"absent": false}} */
static void write_object(struct json_writer *json, const struct json_value *required,
    const struct json_value *const *absent, size_t count)
{
    json_begin(json, '{');
    json_key(json, "type");
    json_string(json, "object");
    if (required) {
        json_key(json, "required");
        json_begin(json, '[');
        for (const struct json_value *item = required->first; item; item = item->next)
            json_text(json, item->text);
        json_end(json, ']');
    }
    json_key(json, "properties");
    json_begin(json, '{');
    for (size_t i = 0; i < count; i++) {
        json_key_text(json, absent[i]->text);
        json_bool(json, false);
    }
    json_end(json, '}');
    json_end(json, '}');
}

/* ---- oneOf ---- */

struct exclusion {
    struct json_writer json;
    const struct json_value *lists[MOST_LISTS];
    size_t count, written, steps;
};

/* Objects with the names of list `chosen`, and without one name of each other list. `absent` has those of the
 * lists before `next`. */
static void exclude(struct exclusion *exclusion, size_t chosen, size_t next,
    const struct json_value *absent[MOST_LISTS], size_t count)
{
    if (exclusion->written > MOST_CHOICES || exclusion->steps++ > MOST_STEPS)
        return;
    if (next == exclusion->count) {
        write_object(&exclusion->json, exclusion->lists[chosen], absent, count);
        exclusion->written++;
        return;
    }
    if (next == chosen) {
        exclude(exclusion, chosen, next + 1, absent, count);
        return;
    }
    for (const struct json_value *name = exclusion->lists[next]->first; name; name = name->next) {
        absent[count] = name;
        if (!lists_name(exclusion->lists[chosen], name->text))
            exclude(exclusion, chosen, next + 1, absent, count + 1);
    }
}

const struct json_value *presence_one_of(struct schema *schema, const struct json_value *list)
{
    struct schema_text text = {.pool = schema->pool};
    struct exclusion exclusion = {.json = {.write = append, .user = &text}};
    const struct json_value *absent[MOST_LISTS];
    for (const struct json_value *item = list->first; item; item = item->next) {
        const struct json_value *required = required_alone(item);
        if (!required || exclusion.count == MOST_LISTS)
            return NULL;
        exclusion.lists[exclusion.count++] = required;
    }
    json_begin(&exclusion.json, '[');
    for (size_t i = 0; i < exclusion.count; i++)
        exclude(&exclusion, i, 0, absent, 0);
    json_end(&exclusion.json, ']');
    if (exclusion.written > MOST_CHOICES || exclusion.written == 0 || exclusion.steps > MOST_STEPS) {
        buffer_free(&text.text);
        return NULL;
    }
    return read_text(&text);
}

/* ---- not ---- */

/* Objects without one of the names. */
static void deny(struct schema *schema, const struct json_value *required, struct node_list *choices)
{
    struct schema_text text = {.pool = schema->pool};
    struct json_writer json = {.write = append, .user = &text};
    json_begin(&json, '[');
    for (const struct json_value *name = required->first; name; name = name->next)
        write_object(&json, NULL, &name, 1);
    json_end(&json, ']');
    const struct json_value *choice = read_text(&text);
    if (choice)
        node_list_add(schema->pool, choices, choice);
}

bool presence_not(struct schema *schema, const struct json_value *node, struct node_list *choices)
{
    const struct json_value *any = tree_member(node, "anyOf"), *required = required_alone(node);
    if (required) {
        deny(schema, required, choices);
        return true;
    }
    if (!any || any->kind != VALUE_ARRAY || any->count == 0 || node->count != 1)
        return false;
    for (const struct json_value *item = any->first; item; item = item->next) {
        if (!required_alone(item))
            return false;
    }
    for (const struct json_value *item = any->first; item; item = item->next)
        deny(schema, required_alone(item), choices);
    return true;
}

/* ---- dependentRequired ---- */

bool presence_dependent(struct schema *schema, const struct json_value *entries, struct node_list *choices)
{
    for (const struct json_value *entry = entries->first; entry; entry = entry->next) {
        if (entries->kind != VALUE_OBJECT || entry->kind != VALUE_ARRAY)
            return false;
        for (const struct json_value *name = entry->first; name; name = name->next) {
            if (name->kind != VALUE_STRING)
                return false;
        }
    }
    for (const struct json_value *entry = entries->first; entry; entry = entry->next) {
        struct schema_text text = {.pool = schema->pool};
        struct json_writer json = {.write = append, .user = &text};
        json_begin(&json, '[');
        json_begin(&json, '{');
        json_key(&json, "properties");
        json_begin(&json, '{');
        json_key_text(&json, entry->key);
        json_bool(&json, false);
        json_end(&json, '}');
        json_end(&json, '}');
        json_begin(&json, '{');
        json_key(&json, "required");
        json_begin(&json, '[');
        for (const struct json_value *name = entry->first; name; name = name->next)
            json_text(&json, name->text);
        json_end(&json, ']');
        json_end(&json, '}');
        json_end(&json, ']');
        const struct json_value *choice = entry->count ? read_text(&text) : NULL;
        buffer_free(&text.text);
        if (choice)
            node_list_add(schema->pool, choices, choice);
    }
    return true;
}
