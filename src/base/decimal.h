/* Floating-point numbers as decimal text with '.' as the decimal point, whatever the locale of the host
 * program. */
#ifndef BASE_DECIMAL_H
#define BASE_DECIMAL_H

#include <stdbool.h>

enum {
    DECIMAL_TEXT = 40,   /* bytes that decimal_format writes at most, with the NUL */
    DECIMAL_PARSE = 1024 /* longest text that decimal_parse reads */
};

/* As strtod; the text is at most DECIMAL_PARSE bytes long. */
double decimal_parse(const char *text);

/* As "%g", with enough digits to read back the same float (`single`) or double. Returns `out`. */
const char *decimal_format(double number, bool single, char out[DECIMAL_TEXT]);

#endif
