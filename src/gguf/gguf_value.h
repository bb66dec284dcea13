/* Metadata values in a file: checked reading, and writing. */
#ifndef GGUF_GGUF_VALUE_H
#define GGUF_GGUF_VALUE_H

#include "base/buffer.h"
#include "base/status.h"
#include "gguf/cursor.h"

/* Deeper nested arrays are refused, so that reading needs a bounded stack. */
enum { GGUF_MAX_DEPTH = 8 };

/* For "%.*s" in messages: a name from a file, cut at a character so that the numbers after it still fit. */
#define SHOWN(text) gguf_shown_size(text), (text).data
int gguf_shown_size(struct salvo_text text);

/* "U32"; "unknown" for other numbers. */
const char *gguf_type_name(uint32_t type);

/* A length, followed by that many bytes. `what` is for messages. */
enum salvo_status gguf_take_text(struct cursor *cursor, const char *what, struct salvo_text *out);

/* Refuses NUL and invalid UTF-8. */
enum salvo_status gguf_check_text(struct salvo_text text, const char *what);

/* A value of type number `type`, with all its items checked. *out points into the file. */
enum salvo_status gguf_take_value(struct cursor *cursor, uint32_t type, struct salvo_value *out);

/* Appends the bytes of a value, without its type number. */
enum salvo_status gguf_append_unsigned(struct buffer *buffer, uint64_t value, size_t width);
enum salvo_status gguf_append_text(struct buffer *buffer, struct salvo_text text);
enum salvo_status gguf_append_value(struct buffer *buffer, const struct salvo_value *value);

#endif
