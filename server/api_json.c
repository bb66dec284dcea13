#include "api_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory of a document, freed at once. */
struct api_block {
    struct api_block *next;
    size_t size, used;
    _Alignas(16) char data[];
};

enum { BLOCK_SIZE = 16 * 1024 };

void *api_document_take(struct api_document *document, size_t size)
{
    struct api_block *block = document->blocks;
    size = (size + 15) & ~(size_t)15;
    if (!block || block->size - block->used < size) {
        const size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        *block = (struct api_block){.next = document->blocks, .size = room};
        document->blocks = block;
    }
    void *memory = block->data + block->used;
    block->used += size;
    return memory;
}

void api_document_free(struct api_document *document)
{
    while (document->blocks) {
        struct api_block *next = document->blocks->next;
        free(document->blocks);
        document->blocks = next;
    }
    document->root = NULL;
}

static bool copy_text(struct api_document *document, struct salvo_text text, struct salvo_text *out)
{
    char *copy = api_document_take(document, text.size + 1);
    if (!copy)
        return false;
    if (text.size)
        memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    *out = (struct salvo_text){copy, text.size};
    return true;
}

struct parser {
    struct api_document *document;
    struct json_reader reader;
    struct api_value *open[JSON_MAX_DEPTH + 1]; /* arrays and objects around the next value */
    struct api_value *last[JSON_MAX_DEPTH + 1]; /* their last members so far */
    size_t depth, values;
    struct salvo_text key;
};

static bool out_of_memory(struct api_error *error)
{
    return api_fail(error, 503, NULL, "not enough memory for the request");
}

static bool add_value(struct parser *parser, const struct json_event *event, struct api_error *error)
{
    struct api_value *value = api_document_take(parser->document, sizeof *value);
    if (++parser->values > API_MAX_VALUES)
        return api_fail(error, 400, NULL, "the request has more than %d values", (int)API_MAX_VALUES);
    if (!value)
        return out_of_memory(error);
    *value = (struct api_value){.kind = event->kind, .key = parser->key};
    parser->key = (struct salvo_text){0};
    if (event->kind == JSON_STRING) {
        if (!copy_text(parser->document, event->text, &value->text))
            return out_of_memory(error);
    } else if (event->kind == JSON_INTEGER || event->kind == JSON_NUMBER) {
        value->number = event->number;
        value->integer = event->integer;
    }

    if (parser->depth == 0) {
        parser->document->root = value;
    } else {
        struct api_value *around = parser->open[parser->depth - 1];
        struct api_value **last = &parser->last[parser->depth - 1];
        if (*last)
            (*last)->next = value;
        else
            around->first = value;
        *last = value;
        around->count++;
    }
    if (event->kind == JSON_ARRAY_BEGIN || event->kind == JSON_OBJECT_BEGIN) {
        parser->open[parser->depth] = value;
        parser->last[parser->depth] = NULL;
        parser->depth++;
    }
    return true;
}

static bool parse(struct parser *parser, struct api_error *error)
{
    struct json_event event;
    for (;;) {
        if (json_reader_next(&parser->reader, &event) != SALVO_OK)
            return api_fail(error, 400, NULL, "the body is not JSON: %s", salvo_error());
        switch (event.kind) {
        case JSON_MORE: /* cannot be: the only piece was the last one */
        case JSON_DONE:
            return true;
        case JSON_KEY:
            if (!copy_text(parser->document, event.text, &parser->key))
                return out_of_memory(error);
            break;
        case JSON_ARRAY_END:
        case JSON_OBJECT_END:
            parser->depth--;
            break;
        default:
            if (!add_value(parser, &event, error))
                return false;
        }
    }
}

bool api_document_parse(const char *data, size_t size, struct api_document *out, struct api_error *error)
{
    struct parser *parser = calloc(1, sizeof *parser);
    *out = (struct api_document){0};
    if (!parser)
        return out_of_memory(error);
    parser->document = out;
    parser->reader.longest = size;
    json_reader_feed(&parser->reader, data, size, true);
    const bool ok = parse(parser, error);
    json_reader_free(&parser->reader);
    free(parser);
    if (!ok)
        api_document_free(out);
    return ok;
}

const struct api_value *api_member(const struct api_value *object, const char *name)
{
    const struct api_value *found = NULL;
    const size_t size = strlen(name);
    if (!object || object->kind != JSON_OBJECT_BEGIN)
        return NULL;
    for (const struct api_value *value = object->first; value; value = value->next) {
        if (value->key.size == size && memcmp(value->key.data, name, size) == 0)
            found = value;
    }
    return found && found->kind != JSON_NULL ? found : NULL;
}

/* Recursion is bounded: the reader limits the depth. */
void api_write_value(struct json_writer *json, const struct api_value *value)
{
    switch (value->kind) {
    case JSON_FALSE:
    case JSON_TRUE:
        json_bool(json, value->kind == JSON_TRUE);
        break;
    case JSON_INTEGER:
        json_signed(json, value->integer);
        break;
    case JSON_NUMBER:
        json_float(json, value->number, false);
        break;
    case JSON_STRING:
        json_text(json, value->text);
        break;
    case JSON_ARRAY_BEGIN:
    case JSON_OBJECT_BEGIN:
        json_begin(json, value->kind == JSON_ARRAY_BEGIN ? '[' : '{');
        for (const struct api_value *item = value->first; item; item = item->next) {
            if (value->kind == JSON_OBJECT_BEGIN)
                json_key_text(json, item->key);
            api_write_value(json, item);
        }
        json_end(json, value->kind == JSON_ARRAY_BEGIN ? ']' : '}');
        break;
    default:
        json_null(json);
    }
}

bool api_get_bool(const struct api_value *object, const char *name, bool *out, struct api_error *error)
{
    const struct api_value *value = api_member(object, name);
    if (value && value->kind != JSON_TRUE && value->kind != JSON_FALSE)
        return api_fail(error, 400, name, "'%s': expected true or false", name);
    if (value)
        *out = value->kind == JSON_TRUE;
    return true;
}

/* Some clients write whole numbers as 5.0. */
static bool is_whole(const struct api_value *value, int64_t *out)
{
    if (value->kind == JSON_INTEGER) {
        *out = value->integer;
        return true;
    }
    if (value->kind != JSON_NUMBER || !(fabs(value->number) < 9e15) || floor(value->number) != value->number)
        return false;
    *out = (int64_t)value->number;
    return true;
}

bool api_get_integer(const struct api_value *object, const char *name, int64_t least, int64_t most,
    int64_t *out, struct api_error *error)
{
    const struct api_value *value = api_member(object, name);
    int64_t number;
    if (!value)
        return true;
    if (!is_whole(value, &number) || number < least || number > most) {
        if (most == INT64_MAX)
            return api_fail(error, 400, name, "'%s': expected an integer of at least %" PRId64, name, least);
        return api_fail(
            error, 400, name, "'%s': expected an integer from %" PRId64 " to %" PRId64, name, least, most);
    }
    *out = number;
    return true;
}

bool api_get_float(const struct api_value *object, const char *name, double least, double most, float *out,
    struct api_error *error)
{
    const struct api_value *value = api_member(object, name);
    if (!value)
        return true;
    if ((value->kind != JSON_INTEGER && value->kind != JSON_NUMBER) ||
        !(value->number >= least && value->number <= most)) {
        return api_fail(error, 400, name, "'%s': expected a number from %g to %g", name, least, most);
    }
    *out = (float)value->number;
    return true;
}

bool api_get_string(
    const struct api_value *object, const char *name, const char **out, struct api_error *error)
{
    const struct api_value *value = api_member(object, name);
    if (!value)
        return true;
    if (value->kind != JSON_STRING || strlen(value->text.data) != value->text.size)
        return api_fail(error, 400, name, "'%s': expected a string", name);
    *out = value->text.data;
    return true;
}

static enum salvo_status write_buffer(void *user, const char *data, size_t size)
{
    return buffer_append(user, data, size);
}

struct json_writer api_json(struct buffer *out)
{
    return (struct json_writer){.write = write_buffer, .user = out};
}
