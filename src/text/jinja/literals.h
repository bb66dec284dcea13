/* Numbers and strings as Python writes them. */
#ifndef TEXT_JINJA_LITERALS_H
#define TEXT_JINJA_LITERALS_H

#include "text/jinja/value.h"

/* The size of the number at the beginning of `text`, in characters; 0 when there is none, or it does not fit.
 */
size_t integer_literal(struct string text, int64_t *out);
size_t float_literal(struct string text, double *out);

/* Resolves the escapes of a string literal; *problem describes an invalid one, or is NULL. */
enum salvo_status unescape_literal(
    struct heap *heap, struct string text, struct string *out, const char **problem);

/* As Python's int() and float(): spaces around the number and "_" between digits are allowed; false when the
 * string is not a number. `base` 0: by the prefix. */
bool parse_integer(struct string text, int base, int64_t *out);
bool parse_float(struct string text, double *out);

/* The shortest text that reads back as the same number, as repr() writes it; 40 bytes are enough. */
const char *show_float(double number, char *out);

#endif
