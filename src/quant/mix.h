/*
 * The type of each tensor in a named mix such as Q4_K_M: the same choice as llama.cpp's, so that files have
 * the size and quality that users expect from the name. Mixtures of experts are quantised as well, although
 * salvo does not run them.
 */
#ifndef QUANT_MIX_H
#define QUANT_MIX_H

#include "base/status.h"
#include "base/tensor_type.h"

struct mix;

struct mix_model {
    const char *architecture; /* general.architecture */
    uint32_t layers;
    uint32_t heads, kv_heads; /* 0 if the model has none */
    bool tied;                /* token_embd.weight is also the output matrix */
    uint32_t experts;         /* 0 for a dense model */
};

struct mix_tensor {
    const char *name;
    uint64_t columns; /* elements of the fastest dimension */
    uint64_t rows;    /* product of the other dimensions, so that a vector has 1 */
    uint32_t type;    /* of the source; tensors that are not quantised keep it */
    bool is_stack;    /* it has more than one matrix: one for each expert */
};

/* "Q4_K_M", case-insensitive, or "Q4_K" for the same. The error for an unknown name lists all names. */
enum salvo_status mix_find(const char *name, const struct mix **out);

/* The name, and the number for the key general.file_type. */
const char *mix_name(const struct mix *mix);
uint32_t mix_file_type(const struct mix *mix);

uint32_t mix_choose(const struct mix *mix, const struct mix_model *model, const struct mix_tensor *tensor);

/* One type for all quantised tensors: the one that the mix's name begins with. */
uint32_t mix_choose_pure(const struct mix *mix, const struct mix_tensor *tensor);

#endif
