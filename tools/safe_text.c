#include "safe_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The size of a UTF-8 character by its first byte; 0: not a first byte. */
static unsigned character_size(unsigned char first)
{
    return first < 0x80                    ? 1
           : first >= 0xc2 && first < 0xe0 ? 2
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xf0 && first < 0xf5 ? 4
                                           : 0;
}

/* Whether the bytes are one valid UTF-8 character: not overlong, no surrogate. */
static bool is_character(const unsigned char *bytes, unsigned count, uint32_t *out_point)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t point = count == 1 ? bytes[0] : bytes[0] & (0xffu >> (count + 1));
    for (unsigned i = 1; i < count; i++)
        point = point << 6 | (bytes[i] & 0x3fu);
    *out_point = point;
    return point >= lowest[count] && point <= 0x10ffff && !(point >= 0xd800 && point < 0xe000);
}

static bool is_harmless(uint32_t point)
{
    return point == '\n' || point == '\t' || (point >= 0x20 && point < 0x7f) || point >= 0xa0;
}

static size_t write_replacement(char *out)
{
    static const char bytes[] = {'\xef', '\xbf', '\xbd'};
    memcpy(out, bytes, sizeof bytes);
    return sizeof bytes;
}

size_t safe_text_pass(struct safe_text *safe, const char *text, size_t size, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool continues = (byte & 0xc0) == 0x80;
        if (safe->count && !continues) { /* the character is incomplete */
            written += write_replacement(out + written);
            safe->count = 0;
        }
        if (safe->count == 0)
            safe->wanted = character_size(byte);
        if (safe->wanted == 0) {
            written += write_replacement(out + written);
            continue;
        }
        safe->held[safe->count++] = byte;
        if (safe->count < safe->wanted)
            continue;
        uint32_t point;
        if (!is_character(safe->held, safe->count, &point)) {
            written += write_replacement(out + written);
        } else if (is_harmless(point)) {
            memcpy(out + written, safe->held, safe->count);
            written += safe->count;
        }
        safe->count = 0;
    }
    return written;
}
