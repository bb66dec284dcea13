/*
 * A GGUF file, mapped and checked. All sizes and offsets were checked against the file's size when it was
 * opened, so callers may read through every pointer.
 */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/status.h"
#include "base/tensor_type.h"

enum { GGUF_MAX_DIMENSIONS = 4 };

struct gguf_entry {
    struct salvo_text key;
    struct salvo_value value;
};

struct gguf_tensor {
    struct salvo_text name;
    uint32_t type; /* enum tensor_type, or an unknown number */
    uint32_t dimensions;
    uint64_t shape[GGUF_MAX_DIMENSIONS]; /* fastest first; 1 beyond `dimensions` */
    uint64_t elements;
    uint64_t size;       /* bytes; 0 when the type is unknown */
    uint64_t offset;     /* of the data, in its file */
    const uint8_t *data; /* in the mapped file; NULL when the type is unknown */
    uint32_t part;       /* which file of a split model */
};

struct gguf;

/* Opens the file, or all files of a split model when `path` is the first of them. */
enum salvo_status gguf_open(const char *path, struct gguf **out);

/* As gguf_open, for bytes in memory with malloc's alignment; they must outlive the result. */
enum salvo_status gguf_open_memory(const void *bytes, size_t size, const char *name, struct gguf **out);
void gguf_close(struct gguf *gguf);

const char *gguf_path(const struct gguf *gguf);
uint32_t gguf_version(const struct gguf *gguf);
uint64_t gguf_file_size(const struct gguf *gguf); /* of all parts */

/* An error if any of its files has been truncated since it was mapped. */
enum salvo_status gguf_check(const struct gguf *gguf);

/* Whether `path` is one of its files. */
bool gguf_is_at(const struct gguf *gguf, const char *path);

/* The status of work on the files: gguf_check's error if there is one, since truncation explains other
 * errors; else `status`. */
enum salvo_status gguf_check_after(const struct gguf *gguf, enum salvo_status status);

/* Releases a tensor's mapped pages once a backend has its own copy. */
void gguf_release(const struct gguf *gguf, const struct gguf_tensor *tensor);

size_t gguf_entry_count(const struct gguf *gguf);
const struct gguf_entry *gguf_entry_at(const struct gguf *gguf, size_t index);
size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index);

/* NULL when absent. */
const struct salvo_value *gguf_find(const struct gguf *gguf, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);

/*
 * Typed look-ups. *found (may be NULL) tells whether the key exists; if not, *out keeps its value. A key of
 * another type, or a number that does not fit, is an error that names the key. An integer may have any
 * integer type, a float any number type.
 */
enum salvo_status gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, bool *found);
enum salvo_status gguf_get_f32(const struct gguf *gguf, const char *key, float *out, bool *found);
enum salvo_status gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, bool *found);
enum salvo_status gguf_get_text(
    const struct gguf *gguf, const char *key, struct salvo_text *out, bool *found);

/* An array whose items have the type `item_type`. */
enum salvo_status gguf_get_array(const struct gguf *gguf, const char *key, enum salvo_type item_type,
    struct salvo_value *out, bool *found);

#endif
