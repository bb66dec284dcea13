/*
 * UTF-8 read one character at a time, and the few classes of characters that splitting text into words
 * needs.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/status.h"

/* Every character has exactly one of these; the end of the text has none. */
enum character_class {
    CLASS_LETTER = 1,
    CLASS_NUMBER = 2,
    CLASS_PUNCTUATION = 4,
    CLASS_SYMBOL = 8,
    CLASS_MARK = 16, /* combining: accents, vowel signs */
    CLASS_SPACE = 32,
    CLASS_OTHER = 64, /* control, format, private, unassigned */
};

struct character {
    uint32_t code;
    uint8_t size; /* bytes; 0 at the end of the text */
    uint8_t class;
};

extern const uint8_t ascii_class[128];

/* A character whose first byte is not ASCII. An invalid byte counts as the character U+FFFD. */
struct character unicode_decode(const char *at, const char *end);

static inline struct character unicode_at(const char *at, const char *end)
{
    if (at == end)
        return (struct character){0};
    unsigned char first = (unsigned char)*at;
    if (first < 0x80)
        return (struct character){first, 1, ascii_class[first]};
    return unicode_decode(at, end);
}

/* Writes a code point of up to 0xffff; returns its size, at most 3. */
size_t unicode_encode(uint32_t code, char *out);

#endif
