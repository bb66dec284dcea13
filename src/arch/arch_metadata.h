/*
 * The metadata of one architecture; keys are given without its name. The first mistake is kept in `status`,
 * with a message that names the key and the numbers; after it every function returns its fallback or least
 * value, so that callers check `status` once.
 */
#ifndef ARCH_ARCH_METADATA_H
#define ARCH_ARCH_METADATA_H

#include "gguf/gguf.h"

struct arch_metadata {
    const struct gguf *gguf;
    const char *arch; /* prefix of the keys */
    enum salvo_status status;
};

void metadata_refuse(struct arch_metadata *metadata, enum salvo_status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

bool metadata_has(const struct arch_metadata *metadata, const char *key);

/* A number from `least` to `most`. An array with a number per layer is accepted if all are equal. */
uint32_t metadata_u32(struct arch_metadata *metadata, const char *key, uint32_t least, uint32_t most);
uint32_t metadata_u32_or(
    struct arch_metadata *metadata, const char *key, uint32_t fallback, uint32_t least, uint32_t most);

/* A number from `least` to `most`. */
float metadata_f32(struct arch_metadata *metadata, const char *key, float least, float most);
float metadata_f32_or(
    struct arch_metadata *metadata, const char *key, float fallback, float least, float most);

struct salvo_text metadata_text_or(
    struct arch_metadata *metadata, const char *key, struct salvo_text fallback);

/* The number of token ids: rows of the tensor 'token_embd.weight'. The tokenizer must not have more. */
uint64_t metadata_vocabulary(struct arch_metadata *metadata);

#endif
