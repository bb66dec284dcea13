/* Parts of a JSON document as slices of its text, without a tree. */
#ifndef BASE_JSON_SLICE_H
#define BASE_JSON_SLICE_H

#include "base/buffer.h"

/* Whether the text is one JSON value. */
bool json_slice_is_valid(struct salvo_text text);

/* The size of the array, object or string that begins the text; 0: it does not end in the text, or another
 * kind of value begins it. Its contents need not be valid. */
size_t json_slice_end(struct salvo_text text);

/* The member of a valid object, the last one of this name; false: it is no object or has no such member. */
bool json_slice_member(struct salvo_text object, const char *key, struct salvo_text *out);

/* The member of a valid object at *at, which begins as 0 and goes on to the next; the name is a JSON string.
 * False: there is none. */
bool json_slice_pair(
    struct salvo_text object, size_t *at, struct salvo_text *out_name, struct salvo_text *out_value);

/* The item of a valid array at *at, which begins as 0 and goes on to the next; false: there is none. */
bool json_slice_item(struct salvo_text array, size_t *at, struct salvo_text *out);

/* Appends the text of a valid string; false: it is no string. */
enum salvo_status json_slice_string(struct salvo_text string, bool *out_is_string, struct buffer *out);

#endif
