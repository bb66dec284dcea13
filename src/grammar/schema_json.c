#include "grammar/schema_json.h"

#include "base/memory.h"
#include "grammar/schema_number.h"

#include <stdio.h>
#include <string.h>

static struct salvo_text copy_text(struct expr_pool *pool, struct salvo_text text)
{
    char *copy = expr_pool_new(pool, text.size + 1);
    if (!copy)
        return (struct salvo_text){0};
    if (text.size)
        memcpy(copy, text.data, text.size);
    return (struct salvo_text){copy, text.size};
}

bool texts_are_equal(struct salvo_text left, struct salvo_text right)
{
    return left.size == right.size && (left.size == 0 || memcmp(left.data, right.data, left.size) == 0);
}

struct tree_reader {
    struct expr_pool *pool;
    struct json_value *parents[JSON_MAX_DEPTH + 1], *last[JSON_MAX_DEPTH + 1];
    size_t depth;
    struct salvo_text key;
};

static struct json_value *add_value(struct tree_reader *reader, enum value_kind kind, struct salvo_text text)
{
    struct json_value *value = expr_pool_new(reader->pool, sizeof *value);
    if (!value)
        return NULL;
    value->kind = kind;
    value->key = reader->key;
    if (kind == VALUE_STRING || kind == VALUE_NUMBER)
        value->text = copy_text(reader->pool, text);
    reader->key = (struct salvo_text){0};
    struct json_value *parent = reader->depth > 0 ? reader->parents[reader->depth - 1] : NULL;
    if (parent) {
        value->parent = parent;
        value->index = parent->count++;
        if (reader->last[reader->depth - 1])
            reader->last[reader->depth - 1]->next = value;
        else
            parent->first = value;
        reader->last[reader->depth - 1] = value;
    }
    return value;
}

static size_t hash_key(struct salvo_text key)
{
    uint64_t hash = key.size;
    for (size_t i = 0; i < key.size; i++)
        hash = (hash ^ (unsigned char)key.data[i]) * UINT64_C(0x100000001B3);
    return (size_t)(hash ^ hash >> 29);
}

/* If a key is repeated, the last one counts, as for most readers of JSON. */
static void index_members(struct expr_pool *pool, struct json_value *object)
{
    size_t size = 16;
    if (object->count < 16)
        return;
    while (size < object->count * 2)
        size *= 2;
    object->slots = expr_pool_new(pool, size * sizeof *object->slots);
    object->mask = size - 1;
    for (struct json_value *member = object->first; object->slots && member; member = member->next) {
        size_t slot = hash_key(member->key) & object->mask;
        while (object->slots[slot] && !texts_are_equal(object->slots[slot]->key, member->key))
            slot = (slot + 1) & object->mask;
        object->slots[slot] = member;
    }
}

static void open_value(struct tree_reader *reader, struct json_value *value)
{
    reader->parents[reader->depth] = value;
    reader->last[reader->depth] = NULL;
    reader->depth++;
}

static void take_event(struct tree_reader *reader, const struct json_event *event, struct json_value **root)
{
    static const enum value_kind kinds[] = {[JSON_NULL] = VALUE_NULL,
        [JSON_FALSE] = VALUE_FALSE,
        [JSON_TRUE] = VALUE_TRUE,
        [JSON_INTEGER] = VALUE_NUMBER,
        [JSON_NUMBER] = VALUE_NUMBER,
        [JSON_STRING] = VALUE_STRING,
        [JSON_ARRAY_BEGIN] = VALUE_ARRAY,
        [JSON_OBJECT_BEGIN] = VALUE_OBJECT};
    if (event->kind == JSON_KEY) {
        reader->key = copy_text(reader->pool, event->text);
        return;
    }
    if (event->kind == JSON_ARRAY_END || event->kind == JSON_OBJECT_END) {
        reader->depth--;
        if (event->kind == JSON_OBJECT_END)
            index_members(reader->pool, reader->parents[reader->depth]);
        return;
    }
    struct json_value *value = add_value(reader, kinds[event->kind], event->text);
    if (!value)
        return;
    if (reader->depth == 0)
        *root = value;
    if (event->kind == JSON_ARRAY_BEGIN || event->kind == JSON_OBJECT_BEGIN)
        open_value(reader, value);
}

enum salvo_status tree_read(
    struct expr_pool *pool, const char *text, size_t size, const struct json_value **out)
{
    struct json_reader json = {.longest = size};
    struct tree_reader reader = {.pool = pool};
    struct json_event event = {.kind = JSON_MORE};
    struct json_value *root = NULL;
    json_reader_feed(&json, text, size, true);
    while (pool->status == SALVO_OK && event.kind != JSON_DONE) {
        pool->status = json_reader_next(&json, &event);
        if (pool->status != SALVO_OK)
            fail_within(pool->status, "schema: ");
        else if (event.kind != JSON_DONE && event.kind != JSON_MORE)
            take_event(&reader, &event, &root);
    }
    json_reader_free(&json);
    *out = root;
    return pool->status;
}

const struct json_value *tree_member_text(const struct json_value *object, struct salvo_text key)
{
    const struct json_value *found = NULL;
    if (!object || object->kind != VALUE_OBJECT)
        return NULL;
    if (object->slots) {
        size_t slot = hash_key(key) & object->mask;
        while (object->slots[slot] && !texts_are_equal(object->slots[slot]->key, key))
            slot = (slot + 1) & object->mask;
        return object->slots[slot];
    }
    for (const struct json_value *member = object->first; member; member = member->next) {
        if (texts_are_equal(member->key, key))
            found = member;
    }
    return found;
}

const struct json_value *tree_member(const struct json_value *object, const char *key)
{
    return tree_member_text(object, (struct salvo_text){key, strlen(key)});
}

const struct json_value *tree_item(const struct json_value *array, size_t index)
{
    const struct json_value *item = array && array->kind == VALUE_ARRAY ? array->first : NULL;
    while (item && index-- > 0)
        item = item->next;
    return item;
}

bool tree_is_string(const struct json_value *value, const char *text)
{
    return value && value->kind == VALUE_STRING &&
           texts_are_equal(value->text, (struct salvo_text){text, strlen(text)});
}

bool trees_are_equal(const struct json_value *left, const struct json_value *right)
{
    if (left->kind != right->kind || left->count != right->count)
        return false;
    if (left->kind == VALUE_STRING)
        return texts_are_equal(left->text, right->text);
    if (left->kind == VALUE_NUMBER)
        return numbers_are_equal(left->text, right->text);
    const struct json_value *other = right->first;
    for (const struct json_value *item = left->first; item; item = item->next) {
        if (left->kind == VALUE_OBJECT)
            other = tree_member_text(right, item->key);
        if (!other || !trees_are_equal(item, other))
            return false;
        other = other->next;
    }
    return true;
}

bool tree_count(const struct json_value *value, uint32_t most, uint32_t *out)
{
    struct decimal_number number;
    uint64_t count = 0;
    if (value->kind != VALUE_NUMBER || !number_read(value->text, &number) || number.negative ||
        number.fraction_size > 0 || number.whole_size > 15)
        return false;
    for (size_t i = 0; i < number.whole_size; i++)
        count = count * 10 + (uint64_t)(number.whole[i] - '0');
    if (count > most)
        return false;
    *out = (uint32_t)count;
    return true;
}

void tree_pointer(const struct json_value *value, char *out, size_t size)
{
    const struct json_value *path[16] = {NULL};
    size_t depth = 0, at = 0;
    bool cut = false;
    for (; value->parent; value = value->parent) {
        cut = depth == sizeof path / sizeof *path;
        if (cut)
            break;
        path[depth++] = value;
    }
    out[0] = 0;
    if (cut)
        at += (size_t)snprintf(out, size, "...");
    while (depth-- > 0 && at + 1 < size) {
        const struct json_value *part = path[depth];
        if (part->parent->kind == VALUE_ARRAY)
            at += (size_t)snprintf(out + at, size - at, "/%zu", part->index);
        else
            at += (size_t)snprintf(
                out + at, size - at, "/%.*s", part->key.size > 40 ? 40 : (int)part->key.size, part->key.data);
    }
}

void tree_complain(
    struct expr_pool *pool, enum salvo_status status, const struct json_value *place, const char *message)
{
    char pointer[300];
    if (pool->status != SALVO_OK)
        return;
    tree_pointer(place, pointer, sizeof pointer);
    pool->status = fail(status, "schema: %s: %s", *pointer ? pointer : "the root", message);
}
