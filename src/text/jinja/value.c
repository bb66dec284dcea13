#include "text/jinja/value.h"

#include "base/checked.h"
#include "text/unicode.h"

#include <stdio.h>
#include <string.h>

/* ---- Memory ------------------------------------------------------------------------------------------ */

enum salvo_status heap_new(struct heap *heap, void *out_pointer, size_t count, size_t size)
{
    size_t bytes;
    void *none = NULL;
    memcpy(out_pointer, &none, sizeof none);
    if (!checked_mul(count, size, &bytes) || bytes > heap->left)
        return fail(SALVO_ERROR_FORMAT, "the template needs too much memory");
    heap->left -= bytes;
    return arena_new(&heap->arena, out_pointer, count, size);
}

/* ---- Growing text ------------------------------------------------------------------------------------ */

enum salvo_status text_reserve(struct text *text, size_t more)
{
    enum salvo_status status = SALVO_OK;
    uint32_t *larger;
    if (more <= text->capacity - text->size)
        goto cleanup;
    size_t needed = text->size + more, capacity = text->capacity ? 2 * text->capacity : 32;
    if (needed < more || needed > SIZE_MAX / 8)
        TRY(fail(SALVO_ERROR_FORMAT, "the template needs too much memory"));
    while (capacity < needed)
        capacity *= 2;
    TRY(HEAP_NEW(text->heap, &larger, capacity));
    if (text->size)
        memcpy(larger, text->chars, text->size * sizeof *larger);
    text->chars = larger;
    text->capacity = capacity;

cleanup:
    return status;
}

enum salvo_status text_char(struct text *text, uint32_t character)
{
    enum salvo_status status = text_reserve(text, 1);
    if (status == SALVO_OK)
        text->chars[text->size++] = character;
    return status;
}

enum salvo_status text_string(struct text *text, struct string string)
{
    enum salvo_status status = text_reserve(text, string.size);
    if (status == SALVO_OK && string.size) {
        memcpy(text->chars + text->size, string.chars, string.size * sizeof *string.chars);
        text->size += string.size;
    }
    return status;
}

enum salvo_status text_repeat(struct text *text, uint32_t character, size_t count)
{
    enum salvo_status status = text_reserve(text, count);
    for (size_t i = 0; status == SALVO_OK && i < count; i++)
        text->chars[text->size++] = character;
    return status;
}

enum salvo_status text_ascii(struct text *text, const char *ascii, uint32_t mark)
{
    return text_utf8(text, ascii, strlen(ascii), mark);
}

enum salvo_status text_utf8(struct text *text, const char *bytes, size_t size, uint32_t mark)
{
    enum salvo_status status = text_reserve(text, size);
    const char *end = bytes + size;
    while (status == SALVO_OK && bytes < end) {
        struct character character = unicode_at(bytes, end);
        bool invalid = character.size == 1 && (unsigned char)*bytes >= 0x80;
        uint32_t code = invalid ? 0xdc00u + (unsigned char)*bytes : character.code;
        text->chars[text->size++] = code | mark;
        bytes += character.size;
    }
    return status;
}

struct string text_take(const struct text *text)
{
    return (struct string){text->chars, text->size};
}

/* ---- Strings ----------------------------------------------------------------------------------------- */

struct string string_part(struct string string, size_t begin, size_t end)
{
    return (struct string){begin ? string.chars + begin : string.chars, end - begin};
}

static bool same_chars(const uint32_t *left, const uint32_t *right, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (CHAR_CODE(left[i]) != CHAR_CODE(right[i]))
            return false;
    }
    return true;
}

bool string_equal(struct string left, struct string right)
{
    return left.size == right.size && same_chars(left.chars, right.chars, left.size);
}

bool string_is(struct string string, const char *ascii)
{
    if (string.size != strlen(ascii))
        return false;
    for (size_t i = 0; i < string.size; i++) {
        if (CHAR_CODE(string.chars[i]) != (unsigned char)ascii[i])
            return false;
    }
    return true;
}

int string_compare(struct string left, struct string right)
{
    size_t size = left.size < right.size ? left.size : right.size;
    for (size_t i = 0; i < size; i++) {
        uint32_t a = CHAR_CODE(left.chars[i]), b = CHAR_CODE(right.chars[i]);
        if (a != b)
            return a < b ? -1 : 1;
    }
    return left.size < right.size ? -1 : left.size > right.size;
}

bool string_starts(struct string string, struct string prefix)
{
    return string.size >= prefix.size && same_chars(string.chars, prefix.chars, prefix.size);
}

bool string_ends(struct string string, struct string suffix)
{
    return string.size >= suffix.size &&
           same_chars(string.chars + string.size - suffix.size, suffix.chars, suffix.size);
}

size_t string_find(struct string string, struct string part, size_t from)
{
    for (size_t i = from; i <= string.size && part.size <= string.size - i; i++) {
        if (same_chars(string.chars + i, part.chars, part.size))
            return i;
    }
    return SIZE_MAX;
}

size_t string_find_last(struct string string, struct string part, size_t before)
{
    if (part.size > before)
        return SIZE_MAX;
    for (size_t i = before - part.size + 1; i-- > 0;) {
        if (same_chars(string.chars + i, part.chars, part.size))
            return i;
    }
    return SIZE_MAX;
}

uint32_t string_mark(struct string string)
{
    uint32_t mark = 0;
    for (size_t i = 0; i < string.size; i++)
        mark |= string.chars[i] & CHAR_DATA;
    return mark;
}

size_t char_encode(uint32_t character, char *out)
{
    uint32_t code = CHAR_CODE(character);
    if (code >= 0xdc80 && code <= 0xdcff) {
        out[0] = (char)(code - 0xdc00);
        return 1;
    }
    if (code < 0x10000)
        return unicode_encode(code, out);
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

const char *string_show(struct string string, char *out, size_t room)
{
    size_t size = 0;
    for (size_t i = 0; i < string.size && size + 5 < room; i++)
        size += char_encode(string.chars[i], out + size);
    out[size] = 0;
    return out;
}

/* ---- Values ------------------------------------------------------------------------------------------ */

enum salvo_status list_new(struct heap *heap, enum list_kind kind, size_t count, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct list *list;
    TRY(HEAP_NEW(heap, &list, 1));
    list->kind = kind;
    if (count)
        TRY(HEAP_NEW(heap, &list->items, count));
    *out = (struct value){.kind = VALUE_LIST, .list = list};

cleanup:
    return status;
}

enum salvo_status dict_new(struct heap *heap, size_t capacity, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct dict *dict;
    TRY(HEAP_NEW(heap, &dict, 1));
    if (capacity)
        TRY(HEAP_NEW(heap, &dict->pairs, capacity));
    dict->capacity = capacity;
    *out = (struct value){.kind = VALUE_DICT, .dict = dict};

cleanup:
    return status;
}

const char *value_type(const struct value *value)
{
    static const char *const names[] = {
        [VALUE_ABSENT] = "absent",
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_STRING] = "str",
        [VALUE_LIST] = "list",
        [VALUE_DICT] = "dict",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_FUNCTION] = "function",
    };
    static const char *const lists[] = {
        [LIST_LIST] = "list",
        [LIST_TUPLE] = "tuple",
        [LIST_RANGE] = "range",
        [LIST_KEYS] = "dict_keys",
        [LIST_VALUES] = "dict_values",
        [LIST_ITEMS] = "dict_items",
        [LIST_GENERATOR] = "generator",
    };
    return value->kind == VALUE_LIST     ? lists[value->list->kind]
           : value->kind == VALUE_OBJECT ? value->object->type->name
                                         : names[value->kind];
}
