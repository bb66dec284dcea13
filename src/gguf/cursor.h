/*
 * A cursor over untrusted bytes. Each take returns true and advances, or returns false and does not move.
 * Numbers are little-endian, at any alignment.
 */
#ifndef GGUF_CURSOR_H
#define GGUF_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The end of a message about missing bytes. */
#define GGUF_CUT "; incomplete download?"

struct cursor {
    const uint8_t *at, *end;
};

static inline size_t cursor_left(const struct cursor *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* `width` is 1, 2, 4 or 8 bytes. */
static inline uint64_t load_unsigned(const uint8_t *bytes, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static inline bool take_bytes(struct cursor *cursor, uint64_t size, const uint8_t **out)
{
    *out = NULL;
    if (size > cursor_left(cursor))
        return false;
    *out = cursor->at;
    cursor->at += (size_t)size;
    return true;
}

static inline bool take_u64(struct cursor *cursor, uint64_t *out)
{
    const uint8_t *bytes;
    *out = 0;
    if (!take_bytes(cursor, 8, &bytes))
        return false;
    *out = load_unsigned(bytes, 8);
    return true;
}

static inline bool take_u32(struct cursor *cursor, uint32_t *out)
{
    const uint8_t *bytes;
    *out = 0;
    if (!take_bytes(cursor, 4, &bytes))
        return false;
    *out = (uint32_t)load_unsigned(bytes, 4);
    return true;
}

#endif
