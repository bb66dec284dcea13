/*
 * Sets of Unicode characters, and their spelling in bytes: UTF-8, or UTF-8 inside a JSON string, where each
 * character also has its escapes.
 */
#ifndef GRAMMAR_CHARSET_H
#define GRAMMAR_CHARSET_H

#include "grammar/expr.h"

enum { UNICODE_LAST = 0x10FFFF };

struct char_range {
    uint32_t first, last;
};

/* Zeroed, it is empty. Ranges are in any order until charset_normalize sorts and joins them. */
struct charset {
    struct char_range *ranges;
    size_t count, capacity;
};

/* Errors go to the pool. */
void charset_add(struct expr_pool *pool, struct charset *set, uint32_t first, uint32_t last);
void charset_normalize(struct charset *set);
void charset_invert(struct expr_pool *pool, struct charset *set); /* also normalizes */
void charset_free(struct charset *set);

/* Adds the characters of a property of Unicode, such as Lu, Letter or General_Category=Letter; false: it is
 * not known. */
bool charset_add_property(struct expr_pool *pool, struct charset *set, struct salvo_text name);

enum spelling { SPELL_UTF8, SPELL_JSON };

/* One character of the set. Surrogates, which UTF-8 cannot spell, are left out. */
const struct expr *charset_expr(struct expr_pool *pool, struct charset *set, enum spelling spelling);
const struct expr *char_expr(struct expr_pool *pool, uint32_t character, enum spelling spelling);

/* Stores the UTF-8 of a character and returns its bytes, 1 to 4. */
size_t utf8_write(uint32_t character, char out[4]);

/* Reads one character of valid UTF-8 and returns its bytes; 0 where the bytes are not valid. */
size_t utf8_read(const char *text, size_t size, uint32_t *out);

#endif
