/* What an open GGUF model consists of; for the files of this folder. */
#ifndef GGUF_GGUF_INTERNAL_H
#define GGUF_GGUF_INTERNAL_H

#include "base/string_map.h"
#include "gguf/gguf.h"

struct gguf_part;

struct gguf {
    struct gguf_part *parts; /* [part_count]; metadata is that of the first */
    uint32_t part_count;
    uint64_t file_size;
    struct gguf_tensor *tensors; /* [tensor_count], of all parts */
    size_t tensor_count;
    struct string_map names; /* of tensors */
};

/* Opens the parts that follow the first when that says it is split. */
enum salvo_status gguf_open_other_parts(struct gguf *gguf);

#endif
