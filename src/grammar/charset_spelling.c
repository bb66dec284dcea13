/*
 * The spelling of sets of characters as expressions over bytes: a tree of the digits of each character, where
 * digits that the same rests may follow are one set of bytes. So the classes of Unicode, which have hundreds
 * of ranges, stay small.
 */
#include "grammar/charset.h"

enum digit_kind { DIGIT_BYTE, DIGIT_HEX };

/* One digit of a character's number. */
struct digit {
    uint32_t size; /* characters for each value of the digit */
    uint8_t base;  /* byte or hexadecimal digit of the value 0 */
    uint8_t kind;  /* enum digit_kind */
    bool low;      /* begins the second \u of two surrogates */
};

/* Characters that have the same digits; characters of each set in between are left out. */
struct spelling_form {
    struct char_range window;
    uint32_t origin; /* the character whose digits all have the value 0 */
    const char *prefix;
    const struct digit *digits;
    unsigned count;
};

static const struct digit two_bytes[] = {{0x40, 0xC0, DIGIT_BYTE, false}, {1, 0x80, DIGIT_BYTE, false}};
static const struct digit three_bytes[] = {
    {0x1000, 0xE0, DIGIT_BYTE, false}, {0x40, 0x80, DIGIT_BYTE, false}, {1, 0x80, DIGIT_BYTE, false}};
static const struct digit four_bytes[] = {{0x40000, 0xF0, DIGIT_BYTE, false},
    {0x1000, 0x80, DIGIT_BYTE, false}, {0x40, 0x80, DIGIT_BYTE, false}, {1, 0x80, DIGIT_BYTE, false}};
static const struct digit escape[] = {{0x1000, 0, DIGIT_HEX, false}, {0x100, 0, DIGIT_HEX, false},
    {0x10, 0, DIGIT_HEX, false}, {1, 0, DIGIT_HEX, false}};
static const struct digit surrogates[] = {{0x40000, 8, DIGIT_HEX, false}, {0x4000, 0, DIGIT_HEX, false},
    {0x400, 0, DIGIT_HEX, false}, {0x100, 12, DIGIT_HEX, true}, {0x10, 0, DIGIT_HEX, false},
    {1, 0, DIGIT_HEX, false}};

static const struct spelling_form utf8_forms[] = {
    {{0x80, 0x7FF}, 0, "", two_bytes, 2},
    {{0x800, 0xD7FF}, 0, "", three_bytes, 3},
    {{0xE000, 0xFFFF}, 0, "", three_bytes, 3},
    {{0x10000, UNICODE_LAST}, 0, "", four_bytes, 4},
};

/* A lone surrogate is no character. */
static const struct spelling_form json_forms[] = {
    {{0, 0xD7FF}, 0, "\\u", escape, 4},
    {{0xE000, 0xFFFF}, 0, "\\u", escape, 4},
    {{0x10000, UNICODE_LAST}, 0x10000, "\\u", surrogates, 6},
};

/* The part of a set within a form. */
struct spelling_part {
    struct expr_pool *pool;
    const struct charset *set; /* normalized */
    const struct spelling_form *form;
};

/* The first range of the part from `from` to `last`, cut at both; false: there is none. */
static bool range_within(
    const struct spelling_part *part, uint32_t from, uint32_t last, struct char_range *out)
{
    const struct charset *set = part->set;
    const struct char_range *window = &part->form->window;
    size_t low = 0, high = set->count;
    from = from > window->first ? from : window->first;
    last = last < window->last ? last : window->last;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (set->ranges[middle].last < from)
            low = middle + 1;
        else
            high = middle;
    }
    if (from > last || low == set->count || set->ranges[low].first > last)
        return false;
    out->first = set->ranges[low].first > from ? set->ranges[low].first : from;
    out->last = set->ranges[low].last < last ? set->ranges[low].last : last;
    return true;
}

/* Whether the part has the same characters within two blocks, counted from their beginnings. */
static bool blocks_are_equal(const struct spelling_part *part, uint32_t left, uint32_t right, uint32_t size)
{
    struct char_range a, b;
    for (uint32_t at = 0; at < size; at = a.last - left + 1) {
        const bool more = range_within(part, left + at, left + size - 1, &a);
        if (more != range_within(part, right + at, right + size - 1, &b))
            return false;
        if (!more)
            break;
        if (a.first - left != b.first - right || a.last - left != b.last - right)
            return false;
    }
    return true;
}

static void add_hex_digit(struct byte_set *set, unsigned digit)
{
    byte_set_add(set, (unsigned)"0123456789abcdef"[digit], (unsigned)"0123456789abcdef"[digit]);
    byte_set_add(set, (unsigned)"0123456789ABCDEF"[digit], (unsigned)"0123456789ABCDEF"[digit]);
}

static const struct expr *surrogate_prefix(struct expr_pool *pool, const char *prefix)
{
    struct byte_set d = {{0}};
    add_hex_digit(&d, 13);
    return EXPR_SEQUENCE_OF(pool, expr_string(pool, prefix), expr_set(pool, &d));
}

/* The digits of a block from a level on. */
static const struct expr *block_expr(const struct spelling_part *part, uint32_t block, unsigned level)
{
    enum { MOST_DIGITS = 64 };
    const struct digit *digit = &part->form->digits[level];
    const uint32_t last = level ? block + part->form->digits[level - 1].size - 1 : UNICODE_LAST;
    struct byte_set bytes[MOST_DIGITS] = {{{0}}};
    uint32_t starts[MOST_DIGITS], count = 0;
    struct char_range range;
    for (uint32_t at = block; range_within(part, at, last, &range);) {
        const uint32_t value = (range.first - block) / digit->size, start = block + value * digit->size;
        uint32_t group = 0;
        while (group < count && !blocks_are_equal(part, starts[group], start, digit->size))
            group++;
        if (group == count)
            starts[count++] = start;
        if (digit->kind == DIGIT_HEX)
            add_hex_digit(&bytes[group], digit->base + value);
        else
            byte_set_add(&bytes[group], digit->base + value, digit->base + value);
        at = start + digit->size;
    }
    const struct expr *groups[MOST_DIGITS];
    for (uint32_t i = 0; i < count; i++) {
        groups[i] = expr_set(part->pool, &bytes[i]);
        if (level + 1 < part->form->count)
            groups[i] = EXPR_SEQUENCE_OF(part->pool, groups[i], block_expr(part, starts[i], level + 1));
    }
    const struct expr *expr = expr_either(part->pool, groups, count);
    return digit->low ? EXPR_SEQUENCE_OF(part->pool, surrogate_prefix(part->pool, part->form->prefix), expr)
                      : expr;
}

static void add_forms(struct expr_pool *pool, const struct charset *set, const struct spelling_form *forms,
    size_t count, struct expr_list *list)
{
    struct char_range range;
    for (size_t i = 0; i < count; i++) {
        const struct spelling_part part = {pool, set, &forms[i]};
        if (!range_within(&part, 0, UNICODE_LAST, &range))
            continue;
        const struct expr *prefix = forms[i].digits == surrogates ? surrogate_prefix(pool, forms[i].prefix)
                                                                  : expr_string(pool, forms[i].prefix);
        expr_list_add(pool, list, EXPR_SEQUENCE_OF(pool, prefix, block_expr(&part, forms[i].origin, 0)));
    }
}

/* Characters that JSON escapes with one letter. */
static const struct expr *short_escapes(struct expr_pool *pool, const struct charset *set)
{
    static const char escapes[][2] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'\b', 'b'}, {'\f', 'f'},
        {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    struct byte_set letters = {{0}};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        for (size_t k = 0; k < set->count; k++) {
            if ((uint32_t)escapes[i][0] >= set->ranges[k].first &&
                (uint32_t)escapes[i][0] <= set->ranges[k].last)
                byte_set_add(&letters, (unsigned)escapes[i][1], (unsigned)escapes[i][1]);
        }
    }
    const struct expr *letter = expr_set(pool, &letters);
    return letter->kind == EXPR_NONE ? letter : EXPR_SEQUENCE_OF(pool, expr_string(pool, "\\"), letter);
}

const struct expr *charset_expr(struct expr_pool *pool, struct charset *set, enum spelling spelling)
{
    struct expr_list list = {0};
    struct byte_set ascii = {{0}};
    charset_normalize(set);
    for (size_t i = 0; i < set->count; i++) {
        for (uint32_t c = set->ranges[i].first; c <= set->ranges[i].last && c < 0x80; c++) {
            if (spelling == SPELL_UTF8 || (c >= 0x20 && c != '"' && c != '\\'))
                byte_set_add(&ascii, c, c);
        }
    }
    const struct expr *one = expr_set(pool, &ascii);
    if (one->kind != EXPR_NONE)
        expr_list_add(pool, &list, one);
    add_forms(pool, set, utf8_forms, sizeof utf8_forms / sizeof *utf8_forms, &list);
    if (spelling == SPELL_JSON) {
        const struct expr *escapes = short_escapes(pool, set);
        if (escapes->kind != EXPR_NONE)
            expr_list_add(pool, &list, escapes);
        add_forms(pool, set, json_forms, sizeof json_forms / sizeof *json_forms, &list);
    }
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
