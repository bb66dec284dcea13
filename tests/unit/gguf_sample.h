/* GGUF files made byte by byte, right ones and wrong ones, for the tests of src/gguf. */
#ifndef TESTS_GGUF_SAMPLE_H
#define TESTS_GGUF_SAMPLE_H

#include "base/buffer.h"
#include "gguf/gguf.h"

/* Appending: test programs end when memory does. */
void put_number(struct buffer *file, uint64_t value, size_t width);
void put_text(struct buffer *file, const char *text);
void put_header(struct buffer *file, uint32_t version, uint64_t tensors, uint64_t entries);
void put_key(struct buffer *file, const char *key, uint32_t type);
void put_array(struct buffer *file, uint32_t item_type, uint64_t count);
void put_tensor(struct buffer *file, const char *name, uint32_t dimensions, const uint64_t *shape,
    uint32_t type, uint64_t offset);
void put_data(struct buffer *file, size_t alignment, size_t size); /* pads, then bytes that count up */

/* A valid file with every type of metadata and three tensors, that ends with the last byte of the last
 * tensor. */
void put_sample(struct buffer *file, uint32_t version);

enum { SAMPLE_ENTRIES = 17, SAMPLE_TENSORS = 3 };

/* Opens, reads everything that can be reached, closes. Returns the status of opening. */
enum salvo_status open_and_touch(const void *bytes, size_t size);

/* Looks at everything that can be reached; the sum has no meaning, but keeps the reads in the program. */
unsigned touch_all(const struct gguf *gguf);

#endif
