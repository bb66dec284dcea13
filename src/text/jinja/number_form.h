/* Numbers and strings laid out in a field, for "%" and format(). */
#ifndef TEXT_JINJA_NUMBER_FORM_H
#define TEXT_JINJA_NUMBER_FORM_H

#include "text/jinja/interpreter.h"

struct field {
    uint32_t fill;  /* 0: a blank */
    char align;     /* alignment '<', '>', '^' or '=' (padding after the sign); 0: the default of the type */
    char sign;      /* '+' or ' ': sign of numbers that are not negative; 0: no sign */
    char group;     /* ',' or '_' between thousands; 0: none */
    bool alternate; /* "0x" and the like */
    bool zeros;     /* fill with zeros behind the sign */
    int64_t width, precision; /* -1: none is given */
    char type;                /* 'd', 'x', 'f', ...; 0: by the value */
};

enum salvo_status write_number_field(
    struct interpreter *in, struct value value, const struct field *field, struct text *text);
enum salvo_status write_string_field(
    struct interpreter *in, struct string string, const struct field *field, struct text *text);

#endif
