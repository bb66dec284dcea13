/* JSON to values and back. */
#ifndef TEXT_JINJA_JSON_H
#define TEXT_JINJA_JSON_H

#include "text/jinja/interpreter.h"

struct json_style {
    bool ascii; /* other characters are escaped */
    bool sorted, indented, separated;
    struct string indent;                        /* of each level, where `indented` */
    struct string item_separator, key_separator; /* where `separated` */
};

/* As Python's json.dumps writes it. */
enum salvo_status json_write(
    struct interpreter *in, struct value value, const struct json_style *style, struct text *text);

/* One value and nothing else; everything in it is marked as data. Errors say where. */
enum salvo_status json_read(struct interpreter *in, const char *json, size_t size, struct value *out);

#endif
