/* Texts that tests in Python send to a tool and receive from it: the size in four bytes, little-endian, then
 * the bytes. */
#ifndef TESTS_SIZED_TEXT_H
#define TESTS_SIZED_TEXT_H

#include "base/buffer.h"

#include <stdbool.h>

/* The next text of standard input; false at its end. */
bool sized_text_read(struct buffer *out);
void sized_text_write(const char *data, size_t size);

#endif
