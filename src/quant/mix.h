/*
 * Which tensor of a model gets which type when a file is made in a named mix such as Q4_K_M: the same choice
 * as llama.cpp makes, so that files are of the size and quality that people expect from the name.
 *
 * Models are dense: the exceptions for mixtures of experts are not followed.
 */
#ifndef QUANT_MIX_H
#define QUANT_MIX_H

#include "base/status.h"
#include "base/tensor_type.h"

struct mix;

struct mix_model {
    const char *architecture; /* general.architecture */
    uint32_t layers;
    uint32_t heads, kv_heads; /* 0 where a model has none */
    bool tied;                /* token_embd.weight is also the output matrix */
};

struct mix_tensor {
    const char *name;
    uint64_t columns,
        rows;      /* elements of the fastest dimension; product of the others, so that a vector has 1 */
    uint32_t type; /* as it is now: what is not to be quantised keeps it */
};

/* "Q4_K_M", in any case, or "Q4_K" for the same; an error that lists the names when there is no such mix. */
enum salvo_status mix_find(const char *name, const struct mix **out);

/* The name, and the number for the key general.file_type. */
const char *mix_name(const struct mix *mix);
uint32_t mix_file_type(const struct mix *mix);

uint32_t mix_choose(const struct mix *mix, const struct mix_model *model, const struct mix_tensor *tensor);

/* One type for all that is quantised: the one that the mix's name begins with. */
uint32_t mix_choose_pure(const struct mix *mix, const struct mix_tensor *tensor);

#endif
