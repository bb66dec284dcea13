/* Embeddings of texts from their hidden rows, which arrive in parts. */
#ifndef ENGINE_POOLING_H
#define ENGINE_POOLING_H

#include "engine/model.h"

#include <salvo/embed.h>

/* Checks the options, and replaces SALVO_POOLING_MODEL by the pooling that the model's metadata names. */
enum salvo_status pooling_resolve(struct salvo_model *model, struct salvo_embed_options *options);

struct pool {
    struct salvo_embed_options options; /* resolved */
    uint32_t width;
    uint64_t rows; /* so far */
    double *sums;  /* [width], the caller's memory */
};

/* Adds the hidden rows, [count][width], of the next tokens. */
void pool_add(struct pool *pool, const float *rows, uint32_t count);

/* Writes the embedding of the rows so far, [width]. */
enum salvo_status pool_finish(const struct pool *pool, float *out);

#endif
