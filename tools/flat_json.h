/* Reads a small JSON object without nesting. */
#ifndef TOOLS_FLAT_JSON_H
#define TOOLS_FLAT_JSON_H

#include "base/json.h"

/* Calls `take` for each member; keys longer than 15 bytes are cut. False if the text is not JSON, or has a
 * string of more than `longest` bytes. */
bool flat_json_read(const char *text, size_t size, size_t longest,
    void (*take)(void *user, const char *key, const struct json_event *value), void *user);

#endif
