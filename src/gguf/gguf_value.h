/* Metadata values as they lie in a file: reading with every check, and writing. */
#ifndef GGUF_GGUF_VALUE_H
#define GGUF_GGUF_VALUE_H

#include "base/buffer.h"
#include "base/status.h"
#include "gguf/cursor.h"

/* Arrays of arrays of ... : deeper ones are refused, so that reading needs a bounded stack. */
enum { GGUF_MAX_DEPTH = 8 };

/* For "%.*s" in messages: a name from a file, cut at a character so that the numbers after it still fit. */
#define SHOWN(text) gguf_shown_size(text), (text).data
int gguf_shown_size(struct salvo_text text);

/* "U32"; "unknown" for a number that is none of the format's types. */
const char *gguf_type_name(uint32_t type);

/* A length and that many bytes. `what` is for messages. */
enum salvo_status gguf_take_text(struct cursor *cursor, const char *what, struct salvo_text *out);

/* Refuses NUL and whatever is not UTF-8. */
enum salvo_status gguf_check_text(struct salvo_text text, const char *what);

/* A value of the type that `type` numbers, all its items checked. What *out points at stays in the file. */
enum salvo_status gguf_take_value(struct cursor *cursor, uint32_t type, struct salvo_value *out);

/* The bytes of a value, without the number of its own type. */
enum salvo_status gguf_append_unsigned(struct buffer *buffer, uint64_t value, size_t width);
enum salvo_status gguf_append_text(struct buffer *buffer, struct salvo_text text);
enum salvo_status gguf_append_value(struct buffer *buffer, const struct salvo_value *value);

#endif
