/* The table of tensors of one file, and the area of their data. */
#ifndef GGUF_GGUF_TENSORS_H
#define GGUF_GGUF_TENSORS_H

#include "gguf/cursor.h"
#include "gguf/gguf.h"

#define GGUF_ALIGNMENT_KEY "general.alignment"

enum {
    GGUF_DEFAULT_ALIGNMENT = 32,
    /* The smallest row of the table: a name of one byte with its length, no dimension, type, offset. */
    GGUF_MIN_TENSOR_SIZE = 8 + 1 + 4 + 4 + 8,
};

/* Tensor data begins at `start` in the file; offsets count from there. */
struct gguf_tensor_area {
    const uint8_t *bytes;
    size_t size, start;
    uint32_t alignment;
};

enum salvo_status gguf_check_alignment(const struct salvo_value *value);

/* Fills in type, shape (1 beyond `dimensions`), elements and bytes; refuses rows of incomplete blocks and
 * sizes that overflow. */
enum salvo_status gguf_shape_tensor(
    uint32_t type, uint32_t dimensions, const uint64_t *shape, struct gguf_tensor *out);

/*
 * Reads `count` rows of the table. With an area, each tensor also gets its data, which must be inside;
 * without one, only the table is checked. `tensors` may be NULL.
 */
enum salvo_status gguf_take_tensors(
    struct cursor *cursor, uint64_t count, const struct gguf_tensor_area *area, struct gguf_tensor *tensors);

/* Refuses tensors of one file that share bytes. */
enum salvo_status gguf_check_overlap(const struct gguf_tensor *tensors, size_t count);

#endif
