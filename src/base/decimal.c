#include "base/decimal.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double decimal_parse(const char *text)
{
    char *end, copy[DECIMAL_PARSE + 16];
    double number = strtod(text, &end);
    if (*end != '.')
        return number;
    /* The locale has another decimal point. */
    snprintf(copy, sizeof copy, "%.*s%s%s", (int)(end - text), text, localeconv()->decimal_point, end + 1);
    return strtod(copy, NULL);
}

/* Replaces the decimal point of the locale, which may be several bytes, by '.'. */
static void use_point(char *text)
{
    char *point = text + strspn(text, "+-0123456789einfa");
    size_t size = strcspn(point, "0123456789");
    if (size) {
        *point = '.';
        memmove(point + 1, point + size, strlen(point + size) + 1);
    }
}

const char *decimal_format(double number, bool single, char out[DECIMAL_TEXT])
{
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(out, DECIMAL_TEXT, "%.*g", digits, number);
        use_point(out);
        double read = decimal_parse(out);
        if (single ? (float)read == (float)number : read == number)
            break;
    }
    return out;
}
