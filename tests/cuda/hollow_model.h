/* Models of any size without their weights: a directory of tensors in front of memory that is reserved and
 * never touched, so that programs can be built and planned. */
#ifndef TESTS_CUDA_HOLLOW_MODEL_H
#define TESTS_CUDA_HOLLOW_MODEL_H

#include "gguf/gguf.h"
#include "model_mix.h"

struct hollow_model {
    struct gguf *gguf;
    void *memory;
    size_t size;
};

/* Tests end when memory does. */
void hollow_model_open(
    const struct model_shape *shape, const struct model_mix *mix, struct hollow_model *out);
void hollow_model_close(struct hollow_model *model);

const struct model_shape *find_shape(const char *name);
const struct model_mix *find_mix(const char *name);

#endif
