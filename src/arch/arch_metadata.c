#include "arch/arch_metadata.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Names and keys are constants of this program, and short. */
struct key {
    char text[128];
};

static struct key full_key(const struct arch_metadata *metadata, const char *key)
{
    struct key full;
    snprintf(full.text, sizeof full.text, "%s.%s", metadata->arch, key);
    return full;
}

void metadata_refuse(struct arch_metadata *metadata, enum salvo_status status, const char *format, ...)
{
    if (metadata->status != SALVO_OK)
        return;
    char message[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    metadata->status = fail(status, "%s: %s", gguf_path(metadata->gguf), message);
}

bool metadata_has(const struct arch_metadata *metadata, const char *key)
{
    return gguf_find(metadata->gguf, full_key(metadata, key).text) != NULL;
}

static void refuse_missing(struct arch_metadata *metadata, const char *key)
{
    metadata_refuse(metadata, SALVO_ERROR_FORMAT, "key '%s' is missing", full_key(metadata, key).text);
}

static bool take_integer(const struct salvo_value *value, uint32_t *out)
{
    switch (value->type) {
    case SALVO_U8:
    case SALVO_U16:
    case SALVO_U32:
    case SALVO_U64:
        *out = (uint32_t)value->u;
        return value->u <= UINT32_MAX;
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        *out = (uint32_t)value->i;
        return value->i >= 0 && value->i <= (int64_t)UINT32_MAX;
    default:
        return false;
    }
}

/* One number per layer; all must be equal. */
static uint32_t read_uniform(
    struct arch_metadata *metadata, const char *full, struct salvo_value array, uint32_t fallback)
{
    struct salvo_value item;
    uint32_t first = fallback, number = fallback;
    if (!array.array.count)
        metadata_refuse(metadata, SALVO_ERROR_FORMAT, "key '%s' is an empty array", full);
    for (bool begins = true; metadata->status == SALVO_OK && salvo_array_next(&array, &item);
         begins = false) {
        if (!take_integer(&item, &number)) {
            metadata_refuse(metadata, SALVO_ERROR_FORMAT,
                "key '%s' has an item that is not a number from 0 to %u", full, UINT32_MAX);
        } else if (begins) {
            first = number;
        } else if (number != first) {
            metadata_refuse(metadata, SALVO_ERROR_UNSUPPORTED,
                "key '%s' differs between layers (%u and %u), which is not supported", full, first, number);
        }
    }
    return first;
}

uint32_t metadata_u32_or(
    struct arch_metadata *metadata, const char *key, uint32_t fallback, uint32_t least, uint32_t most)
{
    if (metadata->status != SALVO_OK)
        return fallback;
    struct key full = full_key(metadata, key);
    const struct salvo_value *value = gguf_find(metadata->gguf, full.text);
    uint32_t number = fallback;
    if (!value)
        return fallback;
    if (value->type == SALVO_ARRAY)
        number = read_uniform(metadata, full.text, *value, fallback);
    else
        metadata->status = gguf_get_u32(metadata->gguf, full.text, &number, NULL);
    if (metadata->status == SALVO_OK && (number < least || number > most))
        metadata_refuse(metadata, SALVO_ERROR_FORMAT, "key '%s' is %u, it must be from %u to %u", full.text,
            number, least, most);
    return metadata->status == SALVO_OK ? number : fallback;
}

uint32_t metadata_u32(struct arch_metadata *metadata, const char *key, uint32_t least, uint32_t most)
{
    if (!metadata_has(metadata, key))
        refuse_missing(metadata, key);
    return metadata_u32_or(metadata, key, least, least, most);
}

float metadata_f32_or(
    struct arch_metadata *metadata, const char *key, float fallback, float least, float most)
{
    if (metadata->status != SALVO_OK)
        return fallback;
    struct key full = full_key(metadata, key);
    float number = fallback;
    bool found;
    metadata->status = gguf_get_f32(metadata->gguf, full.text, &number, &found);
    if (found && !(number >= least && number <= most))
        metadata_refuse(metadata, SALVO_ERROR_FORMAT, "key '%s' is %g, it must be from %g to %g", full.text,
            (double)number, (double)least, (double)most);
    return metadata->status == SALVO_OK ? number : fallback;
}

float metadata_f32(struct arch_metadata *metadata, const char *key, float least, float most)
{
    if (!metadata_has(metadata, key))
        refuse_missing(metadata, key);
    return metadata_f32_or(metadata, key, least, least, most);
}

struct salvo_text metadata_text_or(
    struct arch_metadata *metadata, const char *key, struct salvo_text fallback)
{
    if (metadata->status == SALVO_OK)
        metadata->status = gguf_get_text(metadata->gguf, full_key(metadata, key).text, &fallback, NULL);
    return fallback;
}

uint64_t metadata_vocabulary(struct arch_metadata *metadata)
{
    const struct gguf_tensor *table = gguf_find_tensor(metadata->gguf, "token_embd.weight");
    const struct salvo_value *tokens = gguf_find(metadata->gguf, "tokenizer.ggml.tokens");
    if (!table)
        return 1; /* the builder reports it */
    uint64_t rows = table->shape[1];
    uint64_t known = tokens && tokens->type == SALVO_ARRAY
                         ? tokens->array.count
                         : metadata_u32_or(metadata, "vocab_size", (uint32_t)rows, 1, INT32_MAX);
    if (known != rows) {
        metadata_refuse(metadata, SALVO_ERROR_FORMAT,
            "the vocabulary has %" PRIu64 " tokens, tensor 'token_embd.weight' has %" PRIu64 " rows", known,
            rows);
    }
    return rows;
}
