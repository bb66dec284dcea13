#include "base/checksum.h"
#include "engine/model.h"

#include <string.h>

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    uint64_t parts[] = {hash, checksum64(data, size)};
    return checksum64(parts, sizeof parts);
}

static uint64_t mix_entry(uint64_t hash, const struct gguf_entry *entry)
{
    const struct salvo_value *value = &entry->value;
    hash = mix(hash, entry->key.data, entry->key.size);
    hash = mix(hash, &value->type, sizeof value->type);
    switch (value->type) {
    case SALVO_STRING:
        return mix(hash, value->text.data, value->text.size);
    case SALVO_ARRAY:
        return mix(hash, value->array.bytes.data, value->array.bytes.size);
    case SALVO_BOOL:
        return mix(hash, &value->b, sizeof value->b);
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        return mix(hash, &value->i, sizeof value->i);
    case SALVO_F32:
    case SALVO_F64:
        return mix(hash, &value->f, sizeof value->f);
    default:
        return mix(hash, &value->u, sizeof value->u);
    }
}

/* A few bytes from the beginning, the middle and the end: they differ between different trainings, and are
 * read quickly from a file that is not in memory. */
static uint64_t mix_tensor(uint64_t hash, const struct gguf_tensor *tensor)
{
    enum { SAMPLE = 64 };
    const uint64_t directory[] = {
        tensor->type, tensor->shape[0], tensor->shape[1], tensor->shape[2], tensor->shape[3], tensor->size};
    const size_t size = tensor->size < SAMPLE ? (size_t)tensor->size : SAMPLE;
    hash = mix(hash, tensor->name.data, tensor->name.size);
    hash = mix(hash, directory, sizeof directory);
    for (uint64_t i = 0; tensor->data && i < 3; i++)
        hash = mix(hash, tensor->data + (tensor->size - size) / 2 * i, size);
    return hash;
}

uint64_t model_hash(const struct salvo_model *model)
{
    const struct gguf *gguf = model_gguf(model);
    uint64_t hash = 0;
    for (size_t i = 0; i < gguf_entry_count(gguf); i++)
        hash = mix_entry(hash, gguf_entry_at(gguf, i));
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++)
        hash = mix_tensor(hash, gguf_tensor_at(gguf, i));
    return hash;
}
