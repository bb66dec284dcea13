#include "grammar/unique.h"

#include "base/memory.h"
#include "grammar/schema_json.h"
#include "grammar/schema_number.h"

#include <string.h>

enum { LONGEST_BEGINNING = 1000 }; /* so that long texts need no long time */

void unique_free(struct unique_text *text)
{
    buffer_free(&text->text);
    memory_free(text->frames);
    memory_free(text->items);
    memory_free(text->steps);
    *text = (struct unique_text){0};
}

enum salvo_status unique_copy(const struct unique_text *from, struct unique_text *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct unique_text){.place = from->place,
        .frame_count = from->frame_count,
        .frame_capacity = from->frame_count,
        .item_count = from->item_count,
        .item_capacity = from->item_count,
        .step_count = from->step_count,
        .step_capacity = from->step_count};
    TRY(buffer_append(&out->text, from->text.data, from->text.size));
    TRY(NEW(&out->frames, from->frame_count));
    TRY(NEW(&out->items, from->item_count));
    TRY(NEW(&out->steps, from->step_count));
    for (size_t i = 0; i < from->frame_count; i++)
        out->frames[i] = from->frames[i];
    for (size_t i = 0; i < from->item_count; i++)
        out->items[i] = from->items[i];
    for (size_t i = 0; i < from->step_count; i++)
        out->steps[i] = from->steps[i];
cleanup:
    if (status != SALVO_OK)
        unique_free(out);
    return status;
}

/* ---- Steps ---- */

enum salvo_status unique_keep(struct unique_text *text)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&text->steps, text->step_count, &text->step_capacity));
    text->steps[text->step_count++] =
        (struct unique_step){text->place, text->text.size, text->frame_count, text->item_count};
cleanup:
    return status;
}

void unique_return(struct unique_text *text)
{
    struct unique_step step = {0};
    if (text->step_count)
        step = text->steps[text->step_count - 1];
    text->place = step.place;
    text->text.size = step.text_size;
    text->frame_count = step.frame_count;
    text->item_count = step.item_count;
}

void unique_go_back(struct unique_text *text, size_t count)
{
    text->step_count = count;
    unique_return(text);
}

/* ---- Values ---- */

static uint64_t hash_bytes(uint64_t hash, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * UINT64_C(0x100000001B3);
    return hash ^ hash >> 29;
}

static uint64_t hash_text(enum value_kind kind, struct salvo_text text)
{
    return hash_bytes(UINT64_C(0xCBF29CE484222325) + (uint64_t)kind, text.data, text.size);
}

static uint64_t hash_number(struct salvo_text text)
{
    struct decimal_number number;
    if (!number_read(text, &number))
        return VALUE_NUMBER;
    uint64_t hash = hash_text(VALUE_NUMBER, (struct salvo_text){number.whole, number.whole_size});
    return hash_bytes(hash + number.negative, number.fraction, number.fraction_size);
}

/* The order of members does not count. */
static uint64_t hash_tree(const struct json_value *value)
{
    uint64_t hash = (uint64_t)value->kind + 1;
    if (value->kind == VALUE_STRING)
        return hash_text(VALUE_STRING, value->text);
    if (value->kind == VALUE_NUMBER)
        return hash_number(value->text);
    for (const struct json_value *item = value->first; item; item = item->next) {
        if (value->kind == VALUE_OBJECT)
            hash += (hash_text(VALUE_OBJECT, item->key) ^ hash_tree(item)) * UINT64_C(0x9E3779B97F4A7C15);
        else
            hash = (hash ^ hash_tree(item)) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    }
    return hash;
}

static enum salvo_status hash_value(struct salvo_text text, uint64_t *out)
{
    struct expr_pool pool = {0};
    const struct json_value *tree = NULL;
    const char first = text.data[0];
    if (first == '"' && !memchr(text.data, '\\', text.size)) {
        *out = hash_text(VALUE_STRING, (struct salvo_text){text.data + 1, text.size - 2});
        return SALVO_OK;
    }
    if (first == '-' || (first >= '0' && first <= '9')) {
        *out = hash_number(text);
        return SALVO_OK;
    }
    enum salvo_status status = tree_read(&pool, text.data, text.size, &tree);
    if (status == SALVO_OK)
        *out = hash_tree(tree);
    expr_pool_free(&pool);
    return status;
}

static enum salvo_status values_are_equal(struct salvo_text left, struct salvo_text right, bool *out)
{
    enum salvo_status status = SALVO_OK;
    struct expr_pool pool = {0};
    const struct json_value *a, *b;
    *out = texts_are_equal(left, right);
    if (*out)
        return SALVO_OK;
    TRY(tree_read(&pool, left.data, left.size, &a));
    TRY(tree_read(&pool, right.data, right.size, &b));
    *out = trees_are_equal(a, b);
cleanup:
    expr_pool_free(&pool);
    return status;
}

/* ---- Items ---- */

static struct salvo_text item_text(const struct unique_text *text, const struct unique_item *item)
{
    return (struct salvo_text){text->text.data + item->start, item->end - item->start};
}

/* The text of the current item so far, without space behind it. */
static struct salvo_text current_item(const struct unique_text *text)
{
    size_t end = text->text.size;
    while (end > text->place.start && unique_is_space((unsigned char)text->text.data[end - 1]))
        end--;
    return (struct salvo_text){text->text.data + text->place.start, end - text->place.start};
}

enum salvo_status unique_is_repeated(const struct unique_text *text, bool *out)
{
    enum salvo_status status = SALVO_OK;
    uint64_t hash;
    *out = false;
    if (!text->place.last)
        return SALVO_OK;
    const struct salvo_text value = current_item(text);
    TRY(hash_value(value, &hash));
    for (uint32_t i = text->place.last; i && !*out; i = text->items[i - 1].previous) {
        const struct unique_item *item = &text->items[i - 1];
        if (item->hash == hash)
            TRY(values_are_equal(item_text(text, item), value, out));
    }
cleanup:
    return status;
}

size_t unique_begun_alike(
    const struct unique_text *text, struct salvo_text out[UNIQUE_MOST_COMPARED], bool *out_all)
{
    const struct unique_place *place = &text->place;
    struct salvo_text begun = {0};
    size_t count = 0, looked = 0;
    if (place->begun)
        begun = (struct salvo_text){text->text.data + place->start, text->text.size - place->start};
    *out_all = begun.size <= LONGEST_BEGINNING;
    for (uint32_t i = place->unique && *out_all ? place->last : 0; i; i = text->items[i - 1].previous) {
        const struct salvo_text item = item_text(text, &text->items[i - 1]);
        const bool alike =
            item.size >= begun.size && (!begun.size || memcmp(item.data, begun.data, begun.size) == 0);
        *out_all = looked++ < UNIQUE_MOST_COMPARED;
        if (!*out_all)
            break;
        if (alike)
            out[count++] = (struct salvo_text){item.data + begun.size, item.size - begun.size};
    }
    return count;
}

static enum salvo_status end_item(struct unique_text *text)
{
    enum salvo_status status = SALVO_OK;
    struct unique_place *place = &text->place;
    if (place->unique) {
        const struct salvo_text value = current_item(text);
        struct unique_item item = {
            .start = place->start, .end = place->start + (uint32_t)value.size, .previous = place->last};
        TRY(hash_value(value, &item.hash));
        TRY(GROW(&text->items, text->item_count, &text->item_capacity));
        text->items[text->item_count++] = item;
        place->last = (uint32_t)text->item_count;
    }
    place->begun = false;
cleanup:
    return status;
}

static enum salvo_status open_value(struct unique_text *text, enum unique_kind kind, bool unique)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&text->frames, text->frame_count, &text->frame_capacity));
    text->frames[text->frame_count++] = text->place;
    text->place = (struct unique_place){
        .kind = (uint8_t)kind, .unique = unique, .enclosing = (uint32_t)text->frame_count};
cleanup:
    return status;
}

enum salvo_status unique_push(struct unique_text *text, unsigned char byte, bool opens)
{
    enum salvo_status status = SALVO_OK;
    struct unique_place *place = &text->place;
    if (place->kind == UNIQUE_OUTSIDE && !opens)
        return SALVO_OK;
    if (text->text.size >= UINT32_MAX - 1)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "an array with unique items is longer than 4 GB"));
    if (!place->in_string && byte == ',' && place->kind == UNIQUE_ARRAY)
        TRY(end_item(text));
    TRY(buffer_append(&text->text, &byte, 1));
    if (place->in_string) {
        place->in_string = place->escape || byte != '"';
        place->escape = !place->escape && byte == '\\';
        return SALVO_OK;
    }
    if (byte == ']' || byte == '}') {
        text->place = place->enclosing ? text->frames[place->enclosing - 1] : (struct unique_place){0};
        return SALVO_OK;
    }
    if (place->kind != UNIQUE_OUTSIDE && byte != ',' && !place->begun && !unique_is_space(byte)) {
        place->begun = true;
        place->start = (uint32_t)text->text.size - 1;
    }
    place->in_string = byte == '"';
    if (byte == '[' || byte == '{')
        TRY(open_value(text, byte == '[' ? UNIQUE_ARRAY : UNIQUE_OBJECT, opens));
cleanup:
    return status;
}
