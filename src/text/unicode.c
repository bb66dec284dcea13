#include "text/unicode.h"

#include "text/tokenizer.h"

#include <utf8proc.h>

#define L CLASS_LETTER
#define N CLASS_NUMBER
#define P CLASS_PUNCTUATION
#define S CLASS_SYMBOL
#define Z CLASS_SPACE
#define O CLASS_OTHER

/* clang-format off */
const uint8_t ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, Z, Z, Z, Z, Z, O, O,
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    Z, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P, /*   ! " # $ % & ' ( ) * + , - . / */
    N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P, /* 0 to 9 : ; < = > ? */
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, P, P, P, S, P, /* P to Z [ \ ] ^ _ */
    S, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, P, S, P, S, O, /* p to z { | } ~ */
};
/* clang-format on */

static const uint8_t class_of_category[] = {
    [UTF8PROC_CATEGORY_CN] = O,
    [UTF8PROC_CATEGORY_LU] = L,
    [UTF8PROC_CATEGORY_LL] = L,
    [UTF8PROC_CATEGORY_LT] = L,
    [UTF8PROC_CATEGORY_LM] = L,
    [UTF8PROC_CATEGORY_LO] = L,
    [UTF8PROC_CATEGORY_MN] = CLASS_MARK,
    [UTF8PROC_CATEGORY_MC] = CLASS_MARK,
    [UTF8PROC_CATEGORY_ME] = CLASS_MARK,
    [UTF8PROC_CATEGORY_ND] = N,
    [UTF8PROC_CATEGORY_NL] = N,
    [UTF8PROC_CATEGORY_NO] = N,
    [UTF8PROC_CATEGORY_PC] = P,
    [UTF8PROC_CATEGORY_PD] = P,
    [UTF8PROC_CATEGORY_PS] = P,
    [UTF8PROC_CATEGORY_PE] = P,
    [UTF8PROC_CATEGORY_PI] = P,
    [UTF8PROC_CATEGORY_PF] = P,
    [UTF8PROC_CATEGORY_PO] = P,
    [UTF8PROC_CATEGORY_SM] = S,
    [UTF8PROC_CATEGORY_SC] = S,
    [UTF8PROC_CATEGORY_SK] = S,
    [UTF8PROC_CATEGORY_SO] = S,
    [UTF8PROC_CATEGORY_ZS] = Z,
    [UTF8PROC_CATEGORY_ZL] = Z,
    [UTF8PROC_CATEGORY_ZP] = Z,
    [UTF8PROC_CATEGORY_CC] = O,
    [UTF8PROC_CATEGORY_CF] = O,
    [UTF8PROC_CATEGORY_CS] = O,
    [UTF8PROC_CATEGORY_CO] = O,
};

static uint8_t class_of(uint32_t code)
{
    if (code == 0x85) /* next line: white space although its category is control */
        return CLASS_SPACE;
    return class_of_category[utf8proc_category((utf8proc_int32_t)code)];
}

#undef L
#undef N
#undef P
#undef S
#undef Z
#undef O

/* How many bytes a character with this first byte has; 0 when none begins so. */
static size_t size_by_first_byte(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2)
        return 0;
    if (first < 0xe0)
        return 2;
    if (first < 0xf0)
        return 3;
    return first < 0xf5 ? 4 : 0;
}

/*
 * Whether `next` may follow `first`: continuation bytes, and no overlong forms, surrogates or too large
 * numbers.
 */
static bool second_byte_fits(unsigned char first, unsigned char next)
{
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return next >= low && next <= high;
}

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

struct character unicode_decode(const char *at, const char *end)
{
    const struct character invalid = {0xfffd, 1, CLASS_SYMBOL};
    const unsigned char *bytes = (const unsigned char *)at;
    size_t size = size_by_first_byte(bytes[0]);
    if (size < 2 || (size_t)(end - at) < size || !second_byte_fits(bytes[0], bytes[1]))
        return invalid;
    uint32_t code = bytes[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (!is_continuation(bytes[i]))
            return invalid;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    return (struct character){code, (uint8_t)size, class_of(code)};
}

size_t unicode_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | (code >> 12 & 0x0f));
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

size_t utf8_incomplete_tail(const char *text, size_t size)
{
    for (size_t tail = 1; tail <= 3 && tail <= size; tail++) {
        const unsigned char *bytes = (const unsigned char *)text + size - tail;
        if (is_continuation(bytes[0]))
            continue;
        bool begun =
            size_by_first_byte(bytes[0]) > tail && (tail == 1 || second_byte_fits(bytes[0], bytes[1]));
        return begun ? tail : 0;
    }
    return 0;
}
