/* JSON to values and back. */
#ifndef TEXT_JINJA_JSON_H
#define TEXT_JINJA_JSON_H

#include "text/jinja/interpreter.h"

struct json_style {
    const char *indent, *item_separator, *key_separator; /* as in struct json_writer */
    bool ascii, sorted;
};

/* As Python's json.dumps. */
enum salvo_status value_to_json(
    struct interpreter *in, struct value value, const struct json_style *style, struct value *out);

/* One value and nothing else; all of it is marked as data. */
enum salvo_status value_from_json(struct interpreter *in, const char *json, size_t size, struct value *out);

#endif
