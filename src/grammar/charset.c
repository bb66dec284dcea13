#include "grammar/charset.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void charset_add(struct expr_pool *pool, struct charset *set, uint32_t first, uint32_t last)
{
    if (pool->status != SALVO_OK)
        return;
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 8;
        pool->status = RESIZE(&set->ranges, capacity);
        if (pool->status != SALVO_OK)
            return;
        set->capacity = capacity;
    }
    set->ranges[set->count++] = (struct char_range){first, last};
}

void charset_free(struct charset *set)
{
    memory_free(set->ranges);
    *set = (struct charset){0};
}

static int compare_ranges(const void *left, const void *right)
{
    const struct char_range *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

void charset_normalize(struct charset *set)
{
    size_t kept = 0;
    if (set->count == 0)
        return;
    qsort(set->ranges, set->count, sizeof *set->ranges, compare_ranges);
    for (size_t i = 1; i < set->count; i++) {
        struct char_range *last = &set->ranges[kept];
        if (set->ranges[i].first <= last->last + 1)
            last->last = set->ranges[i].last > last->last ? set->ranges[i].last : last->last;
        else
            set->ranges[++kept] = set->ranges[i];
    }
    set->count = kept + 1;
}

void charset_invert(struct expr_pool *pool, struct charset *set)
{
    struct charset inverse = {0};
    uint32_t next = 0;
    charset_normalize(set);
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].first > next)
            charset_add(pool, &inverse, next, set->ranges[i].first - 1);
        next = set->ranges[i].last + 1;
    }
    if (next <= UNICODE_LAST)
        charset_add(pool, &inverse, next, UNICODE_LAST);
    charset_free(set);
    *set = inverse;
}

size_t utf8_write(uint32_t character, char out[4])
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    size_t size = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    static const unsigned leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = size; --i > 0; character >>= 6)
        out[i] = (char)(0x80 | (character & 0x3F));
    out[0] = (char)(leads[size] | character);
    return size;
}

size_t utf8_read(const char *text, size_t size, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0)
        return 0;
    unsigned lead = (unsigned char)text[0];
    if (lead < 0x80) {
        *out = lead;
        return 1;
    }
    size_t length = lead >= 0xF0 && lead < 0xF8   ? 4
                    : lead >= 0xE0 && lead < 0xF0 ? 3
                    : lead >= 0xC0 && lead < 0xE0 ? 2
                                                  : 0;
    if (length == 0 || length > size)
        return 0;
    uint32_t character = lead & (0x7FU >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned byte = (unsigned char)text[i];
        if ((byte & 0xC0) != 0x80)
            return 0;
        character = character << 6 | (byte & 0x3F);
    }
    if (character < least[length] || character > UNICODE_LAST || (character >= 0xD800 && character <= 0xDFFF))
        return 0;
    *out = character;
    return length;
}

/* Adds the UTF-8 of a range whose first and last character have equally many bytes: the range is divided
 * until each byte position is one range of bytes. */
static void add_same_length(
    struct expr_pool *pool, uint32_t first, uint32_t last, unsigned length, struct expr_list *list)
{
    for (unsigned i = 1; i < length; i++) {
        uint32_t low = (UINT32_C(1) << (6 * i)) - 1;
        if ((first & ~low) == (last & ~low))
            continue;
        if (first & low) {
            add_same_length(pool, first, first | low, length, list);
            add_same_length(pool, (first | low) + 1, last, length, list);
            return;
        }
        if ((last & low) != low) {
            add_same_length(pool, first, (last & ~low) - 1, length, list);
            add_same_length(pool, last & ~low, last, length, list);
            return;
        }
    }
    char begin[4], end[4];
    const struct expr *bytes[4];
    utf8_write(first, begin);
    utf8_write(last, end);
    for (unsigned i = 0; i < length; i++)
        bytes[i] = expr_range(pool, (unsigned char)begin[i], (unsigned char)end[i]);
    expr_list_add(pool, list, expr_sequence(pool, bytes, length));
}

static void add_utf8(struct expr_pool *pool, uint32_t first, uint32_t last, struct expr_list *list)
{
    static const struct char_range lengths[] = {
        {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, UNICODE_LAST}};
    static const unsigned bytes[] = {2, 3, 3, 4};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t low = first > lengths[i].first ? first : lengths[i].first;
        uint32_t high = last < lengths[i].last ? last : lengths[i].last;
        if (low <= high)
            add_same_length(pool, low, high, bytes[i], list);
    }
}

static const struct expr *hex_digits(struct expr_pool *pool, unsigned first, unsigned last)
{
    struct byte_set set = {{0}};
    for (unsigned digit = first; digit <= last; digit++) {
        byte_set_add(&set, (unsigned)"0123456789abcdef"[digit], (unsigned)"0123456789abcdef"[digit]);
        byte_set_add(&set, (unsigned)"0123456789ABCDEF"[digit], (unsigned)"0123456789ABCDEF"[digit]);
    }
    return expr_set(pool, &set);
}

/* Adds the `digits` hexadecimal digits of the numbers in a range, divided as in add_same_length. */
static void add_hex(struct expr_pool *pool, uint32_t first, uint32_t last, struct expr_list *list)
{
    for (unsigned i = 1; i < 4; i++) {
        uint32_t low = (UINT32_C(1) << (4 * i)) - 1;
        if ((first & ~low) == (last & ~low))
            continue;
        if (first & low) {
            add_hex(pool, first, first | low, list);
            add_hex(pool, (first | low) + 1, last, list);
            return;
        }
        if ((last & low) != low) {
            add_hex(pool, first, (last & ~low) - 1, list);
            add_hex(pool, last & ~low, last, list);
            return;
        }
    }
    const struct expr *digits[4];
    for (unsigned i = 0; i < 4; i++)
        digits[i] = hex_digits(pool, first >> (12 - 4 * i) & 15, last >> (12 - 4 * i) & 15);
    expr_list_add(pool, list, expr_sequence(pool, digits, 4));
}

static const struct expr *hex_range(struct expr_pool *pool, uint32_t first, uint32_t last)
{
    struct expr_list list = {0};
    add_hex(pool, first, last, &list);
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

/* Adds \uXXXX\uXXXX for characters beyond 0xFFFF. */
static void add_surrogates(struct expr_pool *pool, uint32_t first, uint32_t last, struct expr_list *list)
{
    uint32_t high_first = (first - 0x10000) >> 10, high_last = (last - 0x10000) >> 10;
    if (high_first != high_last && (first & 0x3FF) != 0) {
        add_surrogates(pool, first, first | 0x3FF, list);
        add_surrogates(pool, (first | 0x3FF) + 1, last, list);
        return;
    }
    if (high_first != high_last && (last & 0x3FF) != 0x3FF) {
        add_surrogates(pool, first, (last & ~0x3FFU) - 1, list);
        add_surrogates(pool, last & ~0x3FFU, last, list);
        return;
    }
    const struct expr *escape = expr_string(pool, "\\u");
    expr_list_add(pool, list,
        EXPR_SEQUENCE_OF(pool, escape, hex_range(pool, 0xD800 + high_first, 0xD800 + high_last), escape,
            hex_range(pool, 0xDC00 + (first & 0x3FF), 0xDC00 + (last & 0x3FF))));
}

static void add_json_escapes(
    struct expr_pool *pool, uint32_t first, uint32_t last, struct byte_set *letters, struct expr_list *list)
{
    static const char escapes[][2] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'\b', 'b'}, {'\f', 'f'},
        {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if ((uint32_t)escapes[i][0] >= first && (uint32_t)escapes[i][0] <= last)
            byte_set_add(letters, (unsigned)escapes[i][1], (unsigned)escapes[i][1]);
    }
    /* A lone surrogate is no character. */
    static const struct char_range parts[] = {{0, 0xD7FF}, {0xE000, 0xFFFF}};
    for (size_t i = 0; i < 2; i++) {
        uint32_t low = first > parts[i].first ? first : parts[i].first;
        uint32_t high = last < parts[i].last ? last : parts[i].last;
        if (low <= high)
            expr_list_add(
                pool, list, EXPR_SEQUENCE_OF(pool, expr_string(pool, "\\u"), hex_range(pool, low, high)));
    }
    if (last >= 0x10000)
        add_surrogates(pool, first > 0x10000 ? first : 0x10000, last, list);
}

const struct expr *charset_expr(struct expr_pool *pool, struct charset *set, enum spelling spelling)
{
    struct expr_list list = {0};
    struct byte_set ascii = {{0}}, letters = {{0}};
    charset_normalize(set);
    for (size_t i = 0; i < set->count; i++) {
        uint32_t first = set->ranges[i].first, last = set->ranges[i].last;
        for (uint32_t c = first; c <= last && c < 0x80; c++) {
            if (spelling == SPELL_UTF8 || (c >= 0x20 && c != '"' && c != '\\'))
                byte_set_add(&ascii, c, c);
        }
        if (last >= 0x80)
            add_utf8(pool, first, last, &list);
        if (spelling == SPELL_JSON)
            add_json_escapes(pool, first, last, &letters, &list);
    }
    const struct expr *one = expr_set(pool, &ascii), *short_escape = expr_set(pool, &letters);
    if (one->kind != EXPR_NONE)
        expr_list_add(pool, &list, one);
    if (short_escape->kind != EXPR_NONE)
        expr_list_add(pool, &list, EXPR_SEQUENCE_OF(pool, expr_string(pool, "\\"), short_escape));
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return spelling == SPELL_JSON ? expr_as_character(pool, expr) : expr;
}

const struct expr *char_expr(struct expr_pool *pool, uint32_t character, enum spelling spelling)
{
    if (spelling == SPELL_UTF8 && (character < 0xD800 || character > 0xDFFF)) {
        char bytes[4];
        return expr_literal(pool, bytes, utf8_write(character, bytes));
    }
    struct char_range range = {character, character};
    struct charset set = {&range, 1, 1};
    return charset_expr(pool, &set, spelling);
}
