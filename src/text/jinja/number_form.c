#include "text/jinja/number_form.h"

#include "text/jinja/literals.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 400 };

static enum salvo_status write_padding(struct interpreter *in, uint32_t fill, size_t count, struct text *text)
{
    enum salvo_status status = spend(in, count);
    return status == SALVO_OK ? text_repeat(text, fill ? fill : ' ', count) : status;
}

static size_t missing(const struct field *field, size_t size)
{
    return field->width > 0 && (uint64_t)field->width > size ? (size_t)field->width - size : 0;
}

enum salvo_status write_string_field(
    struct interpreter *in, struct string string, const struct field *field, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    if (field->precision >= 0 && (uint64_t)field->precision < string.size)
        string.size = (size_t)field->precision;
    size_t padding = missing(field, string.size);
    size_t before = field->align == '>' ? padding : field->align == '^' ? padding / 2 : 0;
    TRY(write_padding(in, field->fill, before, text));
    TRY(text_string(text, string));
    TRY(write_padding(in, field->fill, padding - before, text));

cleanup:
    return status;
}

/* ---- Digits ------------------------------------------------------------------------------------------ */

/* Digits of a magnitude in a base; returns where they begin in `out`, which they fill from its end. */
static char *integer_digits(uint64_t magnitude, unsigned base, bool upper, char *out, size_t room)
{
    char *at = out + room - 1;
    *at = 0;
    do {
        *--at = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[magnitude % base];
        magnitude /= base;
    } while (magnitude);
    return at;
}

static void group_digits(const char *digits, char mark, unsigned each, char *out, size_t room)
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), size = 0;
    for (size_t i = 0; digits[i] && size + 2 < room; i++) {
        if (i && i < whole && (whole - i) % each == 0)
            out[size++] = mark;
        out[size++] = digits[i];
    }
    out[size] = 0;
}

/* Sign, prefix and digits of an integer. */
static void integer_form(const struct field *field, int64_t integer, const char **prefix, char *digits)
{
    char room[80];
    char type = field->type;
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    const char *plain = integer_digits(magnitude, base, type == 'X', room, sizeof room);
    int zeros = 0;
    if (field->precision > (int64_t)strlen(plain)) /* "%.5d" */
        zeros = (int)(field->precision - (int64_t)strlen(plain));
    *prefix = "";
    if (field->alternate)
        *prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : type == 'b' ? "0b" : "";
    if (field->group)
        group_digits(plain, field->group, base == 10 ? 3 : 4, digits, MOST_DIGITS);
    else
        snprintf(digits, MOST_DIGITS, "%.*s%s", zeros > 300 ? 300 : zeros,
            "0000000000000000000000000000000000000000000000000000000000000000", plain);
}

static enum salvo_status float_form(const struct field *field, double number, char *digits)
{
    char plain[MOST_DIGITS], shown[40];
    double magnitude = fabs(number);
    char type = field->type;
    int precision = field->precision < 0 ? 6 : field->precision > 300 ? 301 : (int)field->precision;
    if (precision > 300)
        return fail(SALVO_ERROR_FORMAT, "a number has too many digits");
    if (!isfinite(magnitude)) {
        bool upper = type == 'F' || type == 'E' || type == 'G';
        snprintf(
            digits, MOST_DIGITS, "%s", isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
        return SALVO_OK;
    }
    if (!type && field->precision < 0) {
        snprintf(plain, sizeof plain, "%s", show_float(magnitude, shown));
    } else if (!type) {
        int size = snprintf(plain, sizeof plain, "%.*g", precision ? precision : 1, magnitude);
        if (!strpbrk(plain, ".e"))
            snprintf(plain + size, sizeof plain - (size_t)size, ".0");
    } else {
        char format[] = {'%', field->alternate ? '#' : '.', '.', '*', type, 0};
        char *used = format;
        if (!field->alternate) {
            format[1] = '%';
            used = format + 1;
        }
        if (type == '%') {
            magnitude *= 100;
            format[4] = 'f';
        }
        // NOLINTNEXTLINE(clang-diagnostic-format-nonliteral) ; %.*f or the like, made above
        int size = snprintf(plain, sizeof plain, used, precision, magnitude);
        if (size + 2 >= (int)sizeof plain)
            return fail(SALVO_ERROR_FORMAT, "a number has too many digits");
        if (type == '%')
            plain[size] = '%', plain[size + 1] = 0;
    }
    if (field->group)
        group_digits(plain, field->group, 3, digits, MOST_DIGITS);
    else
        snprintf(digits, MOST_DIGITS, "%s", plain);
    return SALVO_OK;
}

enum salvo_status write_number_field(
    struct interpreter *in, struct value value, const struct field *field, struct text *text)
{
    enum salvo_status status = SALVO_OK;
    char digits[MOST_DIGITS];
    const char *prefix = "";
    uint32_t mark = value_mark(&value);
    bool floats = value.kind == VALUE_FLOAT || (field->type && strchr("eEfFgG%", field->type));
    if (floats)
        TRY(float_form(field, value_number(&value), digits));
    else
        integer_form(field, value_integer(&value), &prefix, digits);
    bool negative =
        floats ? signbit(value_number(&value)) && !isnan(value_number(&value)) : value_integer(&value) < 0;
    char sign[2] = {negative ? '-' : field->sign, 0};
    char align = field->align ? field->align : field->zeros ? '=' : '>';
    uint32_t fill = field->fill ? field->fill : field->zeros ? '0' : ' ';
    size_t padding = missing(field, strlen(sign) + strlen(prefix) + strlen(digits));
    size_t before = align == '>' ? padding : align == '^' ? padding / 2 : 0;
    TRY(write_padding(in, fill, before, text));
    TRY(text_ascii(text, sign, mark));
    TRY(text_ascii(text, prefix, mark));
    TRY(write_padding(in, fill, align == '=' ? padding : 0, text));
    TRY(text_ascii(text, digits, mark));
    TRY(write_padding(in, fill, align == '=' ? 0 : padding - before, text));

cleanup:
    return status;
}
