#include "escapes.h"

static int hex_digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    letter |= 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The byte of the escape with this letter; -1 for an unknown one. */
static int simple_escape(char letter)
{
    switch (letter) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case '\'':
    case '"':
    case '\\':
        return letter;
    default:
        return -1;
    }
}

size_t unescape(char *text, size_t size)
{
    size_t out = 0;
    for (size_t in = 0; in < size; in++) {
        size_t left = size - in;
        if (text[in] != '\\' || left < 2) {
            text[out++] = text[in];
            continue;
        }
        int byte = simple_escape(text[in + 1]);
        if (byte >= 0) {
            in += 1;
        } else if (text[in + 1] == 'x' && left >= 4 && hex_digit(text[in + 2]) >= 0 &&
                   hex_digit(text[in + 3]) >= 0) {
            byte = hex_digit(text[in + 2]) * 16 + hex_digit(text[in + 3]);
            in += 3;
        } else {
            byte = '\\';
        }
        text[out++] = (char)byte;
    }
    return out;
}
