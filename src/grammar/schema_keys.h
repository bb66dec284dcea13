/* Keys of members that have no name in a schema. */
#ifndef GRAMMAR_SCHEMA_KEYS_H
#define GRAMMAR_SCHEMA_KEYS_H

#include "grammar/schema_layout.h"

enum { KEYS_LONGEST = 1000 }; /* bytes of a name for keys_without, which recurses */

/* Whether all names are ASCII that JSON writes without escapes. */
bool keys_are_plain(const struct salvo_text *names, size_t count);

/* The inside of every key but the names, which are plain and are sorted by the call. A character of a key
 * that begins like a name is not written as an escape where it could be written plainly. */
const struct expr *keys_without(struct layout *layout, struct salvo_text *names, size_t count);

#endif
