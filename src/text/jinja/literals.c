#include "text/jinja/literals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Integers ---------------------------------------------------------------------------------------- */

static int digit_value(uint32_t character, int base)
{
    uint32_t code = CHAR_CODE(character);
    int value = -1;
    if (code >= '0' && code <= '9')
        value = (int)(code - '0');
    else if ((code | 0x20) >= 'a' && (code | 0x20) <= 'z')
        value = (int)((code | 0x20) - 'a' + 10);
    return value < base ? value : -1;
}

/* The size of a prefix such as "0x", which sets *base; 0 if there is none. */
static size_t prefix_size(struct string text, int *base)
{
    if (text.size < 2 || CHAR_CODE(text.chars[0]) != '0')
        return 0;
    uint32_t letter = CHAR_CODE(text.chars[1]) | 0x20;
    int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (!named || (*base && *base != named))
        return 0;
    *base = named;
    return 2;
}

/* Digits with single "_" between them. Returns the size, 0 when there is none or it does not fit. */
static size_t read_digits(struct string text, size_t at, int base, int64_t *out)
{
    size_t end = 0;
    int64_t value = 0;
    bool fits = true;
    for (; at < text.size; at++) {
        int digit = digit_value(text.chars[at], base);
        if (digit < 0 && CHAR_CODE(text.chars[at]) == '_' && (end == at || at == 2) && at + 1 < text.size)
            digit = digit_value(text.chars[++at], base);
        if (digit < 0)
            break;
        fits = fits && !__builtin_mul_overflow(value, base, &value) &&
               !__builtin_add_overflow(value, digit, &value);
        end = at + 1;
    }
    *out = value;
    return fits ? end : 0;
}

size_t integer_literal(struct string text, int64_t *out)
{
    int base = 0;
    size_t prefix = prefix_size(text, &base);
    size_t size = prefix ? read_digits(text, prefix, base, out) : 0;
    bool zero = CHAR_CODE(text.chars[0]) == '0'; /* no other digit follows one */
    return size ? size : read_digits(text, 0, zero ? 1 : 10, out);
}

static struct string strip(struct string text)
{
    size_t begin = 0, end = text.size;
    while (begin < end && char_is_space(text.chars[begin]))
        begin++;
    while (end > begin && char_is_space(text.chars[end - 1]))
        end--;
    return string_part(text, begin, end);
}

bool parse_integer(struct string text, int base, int64_t *out)
{
    text = strip(text);
    bool negative = text.size && CHAR_CODE(text.chars[0]) == '-';
    size_t sign = text.size && (negative || CHAR_CODE(text.chars[0]) == '+');
    text = string_part(text, sign, text.size);
    size_t prefix = prefix_size(text, &base);
    int used = base ? base : 10;
    if (used < 2 || used > 36)
        return false;
    size_t size = read_digits(text, prefix, used, out);
    if (!size || size != text.size)
        return false;
    *out = negative ? -*out : *out;
    return true;
}

/* ---- Floats ------------------------------------------------------------------------------------------ */

static bool is_digit(struct string text, size_t at)
{
    return at < text.size && digit_value(text.chars[at], 10) >= 0;
}

/* Where digits, with "_" between them, end. */
static size_t skip_digits(struct string text, size_t at)
{
    while (is_digit(text, at) || (at > 0 && at < text.size && CHAR_CODE(text.chars[at]) == '_' &&
                                     is_digit(text, at - 1) && is_digit(text, at + 1))) {
        at++;
    }
    return at;
}

static size_t skip_exponent(struct string text, size_t at)
{
    if (at >= text.size || (CHAR_CODE(text.chars[at]) | 0x20) != 'e')
        return at;
    size_t digits = at + 1;
    if (digits < text.size && (CHAR_CODE(text.chars[digits]) == '+' || CHAR_CODE(text.chars[digits]) == '-'))
        digits++;
    return is_digit(text, digits) ? skip_digits(text, digits) : at;
}

/* The number in the first characters, which are ASCII. One of more than 500 digits is read from the first of
 * them.
 */
static double read_float(struct string text, size_t size)
{
    char digits[512];
    size_t count = 0;
    for (size_t i = 0; i < size && count + 1 < sizeof digits; i++) {
        if (CHAR_CODE(text.chars[i]) != '_')
            digits[count++] = (char)CHAR_CODE(text.chars[i]);
    }
    digits[count] = 0;
    return strtod(digits, NULL);
}

size_t float_literal(struct string text, double *out)
{
    size_t whole = skip_digits(text, 0), at = whole;
    if (at < text.size && CHAR_CODE(text.chars[at]) == '.' && is_digit(text, at + 1))
        at = skip_digits(text, at + 1);
    size_t end = skip_exponent(text, at);
    if (whole == 0 || end == whole)
        return 0;
    *out = read_float(text, end);
    return end;
}

static bool parse_special(struct string text, double *out)
{
    static const struct {
        const char *name;
        double value;
    } names[] = {{"inf", INFINITY}, {"infinity", INFINITY}, {"nan", NAN}};
    char lower[12];
    bool negative = text.size && CHAR_CODE(text.chars[0]) == '-';
    size_t sign = text.size && (negative || CHAR_CODE(text.chars[0]) == '+');
    if (text.size - sign >= sizeof lower)
        return false;
    for (size_t i = sign; i < text.size; i++) {
        uint32_t code = CHAR_CODE(text.chars[i]);
        lower[i - sign] = code < 0x80 ? (char)(code | 0x20) : '?';
    }
    lower[text.size - sign] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(lower, names[i].name) == 0) {
            *out = negative ? -names[i].value : names[i].value;
            return true;
        }
    }
    return false;
}

bool parse_float(struct string text, double *out)
{
    text = strip(text);
    if (parse_special(text, out))
        return true;
    size_t at = text.size && (CHAR_CODE(text.chars[0]) == '-' || CHAR_CODE(text.chars[0]) == '+');
    size_t whole = skip_digits(text, at);
    bool digits = whole > at;
    if (whole < text.size && CHAR_CODE(text.chars[whole]) == '.') {
        size_t fraction = skip_digits(text, whole + 1);
        digits = digits || fraction > whole + 1;
        whole = fraction;
    }
    if (!digits || skip_exponent(text, whole) != text.size)
        return false;
    *out = read_float(text, text.size);
    return true;
}

const char *show_float(double number, char *out)
{
    char digits[40];
    if (!isfinite(number)) {
        snprintf(out, 40, "%s", isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return out;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    char *mark = strchr(digits, 'e');
    int exponent = (int)strtol(mark + 1, NULL, 10);
    *mark = 0;
    int decimals = (int)strlen(digits) - (digits[0] == '-') - (strchr(digits, '.') ? 2 : 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, 40, "%.24se%+03d", digits, exponent);
    else
        snprintf(out, 40, "%.*f", decimals > exponent ? decimals - exponent : 1, number);
    return out;
}

/* ---- Strings ----------------------------------------------------------------------------------------- */

/* The value of exactly `count` hexadecimal digits; false when they are not there. */
static bool read_hex(struct string text, size_t at, size_t count, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < count; i++) {
        int digit = at + i < text.size ? digit_value(text.chars[at + i], 16) : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static const struct {
    char letter, meaning;
} simple_escapes[] = {{'\\', '\\'}, {'\'', '\''}, {'"', '"'}, {'a', '\a'}, {'b', '\b'}, {'f', '\f'},
    {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'v', '\v'}};

/* Reads the escape after the backslash at `at`. Returns its length, 0 when it is invalid. */
static size_t read_escape(struct string text, size_t at, uint32_t *code, const char **problem)
{
    uint32_t letter = text.chars[at];
    for (size_t i = 0; i < sizeof simple_escapes / sizeof *simple_escapes; i++) {
        if (letter == (unsigned char)simple_escapes[i].letter) {
            *code = (unsigned char)simple_escapes[i].meaning;
            return 1;
        }
    }
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits) {
        if (!read_hex(text, at + 1, digits, code) || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
            *problem = "invalid escape in a string";
        return digits + 1;
    }
    if (letter == 'N')
        *problem = "\\N{...} escapes are not supported";
    *code = 0;
    size_t size = 0;
    while (size < 3 && at + size < text.size && digit_value(text.chars[at + size], 8) >= 0)
        *code = *code << 3 | (uint32_t)digit_value(text.chars[at + size++], 8);
    return size;
}

enum salvo_status unescape_literal(
    struct heap *heap, struct string text, struct string *out, const char **problem)
{
    enum salvo_status status = SALVO_OK;
    struct text result = {.heap = heap};
    *problem = NULL;
    *out = text;
    bool plain = true;
    for (size_t i = 0; i < text.size; i++)
        plain = plain && text.chars[i] != '\\';
    if (plain)
        goto cleanup;
    for (size_t i = 0; i < text.size && !*problem; i++) {
        uint32_t code = text.chars[i];
        if (code != '\\' || i + 1 == text.size) {
            TRY(text_char(&result, code));
            continue;
        }
        if (text.chars[i + 1] == '\n') {
            i++;
            continue;
        }
        size_t size = read_escape(text, i + 1, &code, problem);
        TRY(text_char(&result, size ? code : '\\'));
        i += size;
    }
    *out = text_take(&result);

cleanup:
    return status;
}
