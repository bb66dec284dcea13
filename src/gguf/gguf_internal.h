/* An open GGUF model. Private to this folder. */
#ifndef GGUF_GGUF_INTERNAL_H
#define GGUF_GGUF_INTERNAL_H

#include "base/string_map.h"
#include "gguf/gguf.h"

struct gguf_part;

struct gguf {
    struct gguf_part *parts; /* [part_count]; the first has the model's metadata */
    uint32_t part_count;
    uint64_t file_size;
    struct gguf_tensor *tensors; /* [tensor_count], of all parts */
    size_t tensor_count;
    struct string_map names; /* of tensors */
};

/* Opens the other parts if the first says that the model is split. */
enum salvo_status gguf_open_other_parts(struct gguf *gguf);

#endif
