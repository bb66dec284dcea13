/*
 * Writes a GGUF file, version 3: set metadata and add tensors, in any order; then write the data of the
 * tensors, in the order in which they were added; then commit. The file appears under its name on commit.
 */
#ifndef GGUF_GGUF_WRITER_H
#define GGUF_GGUF_WRITER_H

#include "base/buffer.h"
#include "gguf/gguf.h"

struct gguf_writer;

enum salvo_status gguf_writer_open(const char *path, struct gguf_writer **out);
enum salvo_status gguf_writer_open_new(const char *path, struct gguf_writer **out); /* replaces no file */

/* Removes the file unless it was committed. Accepts NULL. */
void gguf_writer_close(struct gguf_writer *writer);

/*
 * Metadata; an existing key gets the new value. gguf_writer_set accepts any value, also one of an open file.
 * `general.alignment` (U32) sets the alignment of the data.
 */
enum salvo_status gguf_writer_set(
    struct gguf_writer *writer, const char *key, const struct salvo_value *value);
enum salvo_status gguf_writer_set_u32(struct gguf_writer *writer, const char *key, uint32_t value);
enum salvo_status gguf_writer_set_f32(struct gguf_writer *writer, const char *key, float value);
enum salvo_status gguf_writer_set_bool(struct gguf_writer *writer, const char *key, bool value);
enum salvo_status gguf_writer_set_text(struct gguf_writer *writer, const char *key, const char *text);
enum salvo_status gguf_writer_copy(struct gguf_writer *writer, const struct gguf_entry *entry);

/*
 * An array that is being built: start with {.type = ...}, add items of that type, pass gguf_array_value to
 * gguf_writer_set or, for an array of arrays, to another gguf_array_add. The value is valid until the next
 * add or the free.
 */
struct gguf_array {
    enum salvo_type type;
    uint64_t count;
    struct buffer bytes;
};

enum salvo_status gguf_array_add(struct gguf_array *array, const struct salvo_value *item);
struct salvo_value gguf_array_value(const struct gguf_array *array);
void gguf_array_free(struct gguf_array *array);

/* `shape` has `dimensions` numbers, fastest first. */
enum salvo_status gguf_writer_add_tensor(struct gguf_writer *writer, struct salvo_text name, uint32_t type,
    uint32_t dimensions, const uint64_t *shape);

/* Writes the next bytes of the current tensor, in one piece or several. */
enum salvo_status gguf_writer_write(struct gguf_writer *writer, const void *data, size_t size);

/* Fails, without a file, unless the data of all tensors was written. gguf_writer_close is still needed. */
enum salvo_status gguf_writer_commit(struct gguf_writer *writer);

#endif
