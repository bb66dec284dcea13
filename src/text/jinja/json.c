#include "text/jinja/json.h"

#include "base/json.h"
#include "text/jinja/builtins.h"
#include "text/jinja/literals.h"

#include <math.h>
#include <string.h>

/* ---- Reading ----------------------------------------------------------------------------------------- */

struct source {
    struct interpreter *in;
    struct json_reader reader;
    struct json_event event; /* the last one */
};

static enum salvo_status next_event(struct source *source)
{
    return json_reader_next(&source->reader, &source->event);
}

static enum salvo_status read_value(struct source *source, struct value *out);

static enum salvo_status read_string(struct source *source, struct value *out)
{
    struct text text = {.heap = &source->in->heap};
    enum salvo_status status = text_utf8(&text, source->event.text.data, source->event.text.size, CHAR_DATA);
    *out = value_string(text_take(&text));
    return status;
}

static enum salvo_status read_array(struct source *source, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct heap *heap = &source->in->heap;
    size_t capacity = 0;
    TRY(list_new(heap, LIST_LIST, 0, out));
    struct list *list = out->list;
    for (;;) {
        TRY(next_event(source));
        if (source->event.kind == JSON_ARRAY_END)
            break;
        if (list->count == capacity) {
            struct value *larger;
            capacity = capacity ? 2 * capacity : 8;
            TRY(HEAP_NEW(heap, &larger, capacity));
            if (list->count)
                memcpy(larger, list->items, list->count * sizeof *larger);
            list->items = larger;
        }
        TRY(read_value(source, &list->items[list->count]));
        list->count++;
    }

cleanup:
    return status;
}

static enum salvo_status read_object(struct source *source, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value key, value;
    TRY(dict_new(&source->in->heap, 0, out));
    for (;;) {
        TRY(next_event(source));
        if (source->event.kind == JSON_OBJECT_END)
            break;
        TRY(read_string(source, &key));
        TRY(next_event(source));
        TRY(read_value(source, &value));
        TRY(dict_set(source->in, out->dict, key, value));
    }

cleanup:
    return status;
}

/* The value that begins with the last event. */
static enum salvo_status read_value(struct source *source, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct json_event *event = &source->event;
    TRY(enter(source->in));
    if (event->kind == JSON_STRING)
        TRY(read_string(source, out));
    else if (event->kind == JSON_ARRAY_BEGIN)
        TRY(read_array(source, out));
    else if (event->kind == JSON_OBJECT_BEGIN)
        TRY(read_object(source, out));
    else if (event->kind == JSON_INTEGER)
        *out = value_int(event->integer);
    else if (event->kind == JSON_NUMBER)
        *out = value_float(event->number);
    else
        *out = event->kind == JSON_NULL ? value_none() : value_bool(event->kind == JSON_TRUE);
    out->data = true;

cleanup:
    leave(source->in);
    return status;
}

enum salvo_status value_from_json(struct interpreter *in, const char *json, size_t size, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct source source = {.in = in, .reader.longest = size};
    *out = value_none();
    json_reader_feed(&source.reader, json, size, true);
    TRY(next_event(&source));
    TRY(read_value(&source, out));
    TRY(next_event(&source)); /* JSON_DONE, or an error: more text follows */

cleanup:
    json_reader_free(&source.reader);
    return status;
}

/* ---- Writing ----------------------------------------------------------------------------------------- */

struct target {
    struct interpreter *in;
    struct text text;
    uint32_t mark; /* of what is written next */
    bool sorted;
    struct json_writer writer;
};

static enum salvo_status write_text(void *user, const char *data, size_t size)
{
    struct target *target = user;
    enum salvo_status status = spend(target->in, size / 4 + 1);
    return status == SALVO_OK ? text_utf8(&target->text, data, size, target->mark) : status;
}

/* Each character keeps its mark, so runs of equal marks are written one after the other. */
static void write_string(struct target *target, struct string string, bool is_key)
{
    char bytes[256];
    json_string_begin(&target->writer);
    for (size_t i = 0; i < string.size && target->writer.status == SALVO_OK;) {
        size_t size = 0;
        target->mark = string.chars[i] & CHAR_DATA;
        for (; i < string.size && (string.chars[i] & CHAR_DATA) == target->mark && size + 4 < sizeof bytes;
             i++)
            size += char_encode(string.chars[i], bytes + size);
        json_string_part(&target->writer, (struct salvo_text){bytes, size});
    }
    target->mark = CHAR_DATA;
    json_string_end(&target->writer, is_key);
}

static void write_number(struct target *target, const struct value *value)
{
    char shown[40];
    if (value->kind == VALUE_INT)
        json_signed(&target->writer, value->integer);
    else if (isfinite(value->number))
        json_raw(&target->writer, show_float(value->number, shown));
    else if (isnan(value->number))
        json_raw(&target->writer, "NaN");
    else
        json_raw(&target->writer, value->number < 0 ? "-Infinity" : "Infinity");
}

static enum salvo_status write_value(struct target *target, struct value value);

/* Keys that are no strings are written as strings of their JSON: {1: 2} as {"1": 2}. */
static enum salvo_status write_key(struct target *target, struct value key)
{
    enum salvo_status status = SALVO_OK;
    const struct json_style style = {0};
    struct value quoted = key;
    if (key.kind >= VALUE_NONE && key.kind <= VALUE_FLOAT)
        TRY(value_to_json(target->in, key, &style, &quoted));
    if (quoted.kind != VALUE_STRING)
        TRY(fail(SALVO_ERROR_FORMAT, "tojson: '%s' cannot be a key", value_type(&key)));
    write_string(target, quoted.string, true);

cleanup:
    return status;
}

/* The same pairs, in the order of their keys. */
static enum salvo_status sort_keys(struct interpreter *in, struct value *dict)
{
    static const uint32_t name[] = {'d', 'i', 'c', 't', 's', 'o', 'r', 't'};
    enum salvo_status status = SALVO_OK;
    const struct value case_matters = value_bool(true);
    const struct arguments arguments = {.values = &case_matters, .count = 1};
    const struct builtin *dictsort = builtin_find(in->builtins->filters, (struct string){name, 8});
    struct value pairs = {0}, sorted;
    TRY(builtin_call(in, dictsort, *dict, &arguments, &pairs));
    TRY(dict_new(&in->heap, dict->dict->count, &sorted));
    for (size_t i = 0; i < dict->dict->count; i++) {
        const struct value *pair = pairs.list->items[i].list->items;
        sorted.dict->pairs[sorted.dict->count++] = (struct pair){pair[0], pair[1]};
    }
    *dict = sorted;

cleanup:
    return status;
}

static enum salvo_status write_dict(struct target *target, struct value value)
{
    enum salvo_status status = SALVO_OK;
    if (target->sorted)
        TRY(sort_keys(target->in, &value));
    json_begin(&target->writer, '{');
    for (size_t i = 0; i < value.dict->count; i++) {
        TRY(write_key(target, value.dict->pairs[i].key));
        TRY(write_value(target, value.dict->pairs[i].value));
    }
    json_end(&target->writer, '}');

cleanup:
    return status;
}

static enum salvo_status write_list(struct target *target, const struct list *list)
{
    enum salvo_status status = SALVO_OK;
    json_begin(&target->writer, '[');
    for (size_t i = 0; i < list->count; i++)
        TRY(write_value(target, list->items[i]));
    json_end(&target->writer, ']');

cleanup:
    return status;
}

static enum salvo_status write_value(struct target *target, struct value value)
{
    enum salvo_status status = SALVO_OK;
    const bool is_array = value.kind == VALUE_LIST && value.list->kind <= LIST_TUPLE;
    TRY(enter(target->in));
    if (value.kind == VALUE_STRING)
        write_string(target, value.string, false);
    else if (value.kind == VALUE_NONE)
        json_null(&target->writer);
    else if (value.kind == VALUE_BOOL)
        json_bool(&target->writer, value.boolean);
    else if (value_is_number(&value))
        write_number(target, &value);
    else if (value.kind == VALUE_DICT)
        TRY(write_dict(target, value));
    else if (is_array)
        TRY(write_list(target, value.list));
    else
        TRY(fail(SALVO_ERROR_FORMAT, "tojson: JSON has no type for '%s'", value_type(&value)));
    TRY(target->writer.status);

cleanup:
    leave(target->in);
    return status;
}

enum salvo_status value_to_json(
    struct interpreter *in, struct value value, const struct json_style *style, struct value *out)
{
    struct target target = {
        .in = in, .text = {.heap = &in->heap}, .mark = CHAR_DATA, .sorted = style->sorted};
    target.writer = (struct json_writer){.write = write_text,
        .user = &target,
        .indent = style->indent,
        .item_separator = style->item_separator,
        .key_separator = style->key_separator,
        .ascii = style->ascii};
    enum salvo_status status = write_value(&target, value);
    *out = value_string(text_take(&target.text));
    return status;
}
