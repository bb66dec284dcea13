/*
 * Makes generated text safe for a terminal: only complete UTF-8 characters and no control characters except
 * line breaks and tabs, so that it cannot move the cursor, change the title or inject input.
 */
#ifndef TOOLS_SAFE_TEXT_H
#define TOOLS_SAFE_TEXT_H

#include <stddef.h>

/* Starts as zeros; keeps an incomplete sequence for the next piece. */
struct safe_text {
    unsigned char held[4];
    unsigned count, wanted; /* bytes of the character so far, and in all */
};

/* Largest output of `size` bytes: each may become U+FFFD, and the bytes kept from before one more. */
#define SAFE_TEXT_ROOM(size) ((size)*3 + 3)

/* Writes the printable text to `out` and returns its size. */
size_t safe_text_pass(struct safe_text *safe, const char *text, size_t size, char *out);

#endif
