/* One GGUF file, checked by itself. A split model has several. */
#ifndef GGUF_GGUF_PART_H
#define GGUF_GGUF_PART_H

#include "base/mapped_file.h"
#include "base/string_map.h"
#include "gguf/gguf.h"

struct gguf_part {
    struct mapped_file file; /* not open when the bytes came from memory */
    char *name;              /* the path, or the caller's name for the bytes */
    const uint8_t *bytes;
    size_t size;

    uint32_t version;
    struct gguf_entry *entries; /* [entry_count] */
    size_t entry_count;
    struct string_map keys;
    struct gguf_tensor *tensors; /* [tensor_count] */
    size_t tensor_count;
};

enum salvo_status gguf_part_open(const char *path, struct gguf_part *out);
enum salvo_status gguf_part_open_memory(
    const void *bytes, size_t size, const char *name, struct gguf_part *out);
void gguf_part_close(struct gguf_part *part);

const struct salvo_value *gguf_part_find(const struct gguf_part *part, const char *key);

/* As gguf_get_u32. */
enum salvo_status gguf_part_get_u32(
    const struct gguf_part *part, const char *key, uint32_t *out, bool *found);

#endif
