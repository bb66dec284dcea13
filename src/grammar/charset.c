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
