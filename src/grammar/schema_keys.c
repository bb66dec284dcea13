#include "grammar/schema_keys.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static bool is_plain(unsigned byte)
{
    return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\' && byte != '/';
}

bool keys_are_plain(const struct salvo_text *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < names[i].size; k++) {
            if (!is_plain((unsigned char)names[i].data[k]))
                return false;
        }
    }
    return true;
}

static int compare_names(const void *left, const void *right)
{
    const struct salvo_text *a = left, *b = right;
    size_t size = a->size < b->size ? a->size : b->size;
    int order = size ? memcmp(a->data, b->data, size) : 0;
    return order ? order : a->size < b->size ? -1 : a->size > b->size;
}

struct key_writer {
    struct expr_pool *pool;
    const struct expr *free;    /* any text */
    const struct expr *special; /* a character that no name has, then any text */
    struct byte_set plain;
};

/* A character that is not plain. Names have only plain characters, which are never written as escapes. */
static const struct expr *special_character(struct expr_pool *pool)
{
    static const struct char_range rest = {0x7F, UNICODE_LAST};
    struct char_range control = {0, 0x1F}, beyond = rest;
    const struct expr *escapes = charset_expr(pool, &(struct charset){&control, 1, 1}, SPELL_JSON);
    const struct expr *others = charset_expr(pool, &(struct charset){&beyond, 1, 1}, SPELL_JSON);
    struct byte_set slash = {{0}};
    byte_set_add(&slash, '/', '/');
    return EXPR_EITHER_OF(pool, escapes, others, expr_string(pool, "\\\""), expr_string(pool, "\\\\"),
        expr_string(pool, "\\/"), expr_set(pool, &slash));
}

/* The rests, after `depth` bytes, of keys that differ from names first..last, which share these bytes. */
static const struct expr *write_keys(
    struct key_writer *writer, const struct salvo_text *names, size_t first, size_t last, size_t depth)
{
    struct expr_pool *pool = writer->pool;
    struct expr_list list = {0};
    struct byte_set others = writer->plain;
    if (first < last && names[first].size == depth)
        first++;
    else
        expr_list_add(pool, &list, expr_empty());
    while (first < last && pool->status == SALVO_OK) {
        unsigned char byte = (unsigned char)names[first].data[depth];
        size_t end = first + 1;
        while (end < last && (unsigned char)names[end].data[depth] == byte)
            end++;
        others.words[byte / 64] &= ~(UINT64_C(1) << (byte % 64));
        expr_list_add(pool, &list,
            EXPR_SEQUENCE_OF(
                pool, expr_range(pool, byte, byte), write_keys(writer, names, first, end, depth + 1)));
        first = end;
    }
    expr_list_add(pool, &list, EXPR_SEQUENCE_OF(pool, expr_set(pool, &others), writer->free));
    expr_list_add(pool, &list, writer->special);
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

const struct expr *keys_without(struct layout *layout, struct salvo_text *names, size_t count)
{
    struct expr_pool *pool = layout->pool;
    const struct expr *any = expr_repeat(pool, layout->character, 0, REPEAT_UNLIMITED);
    if (count == 0)
        return any;
    qsort(names, count, sizeof *names, compare_names);
    if (!layout->special_character && pool->status == SALVO_OK)
        layout->special_character = expr_rule(pool, rule_list_add(layout->rules, special_character(pool)));
    struct key_writer writer = {.pool = pool, .free = expr_shared(pool, any)};
    for (unsigned byte = 0; byte < 128; byte++) {
        if (is_plain(byte))
            byte_set_add(&writer.plain, byte, byte);
    }
    if (pool->status == SALVO_OK)
        writer.special = expr_shared(pool, EXPR_SEQUENCE_OF(pool, layout->special_character, writer.free));
    return pool->status == SALVO_OK ? write_keys(&writer, names, 0, count, 0) : expr_none();
}
