/* A GGUF file of a shape and a mixture of types, with random weights: the same seed gives the same bytes. */
#ifndef TOOLS_MODEL_WRITE_H
#define TOOLS_MODEL_WRITE_H

#include "model_mix.h"
#include "model_plan.h"

enum salvo_status model_write(
    const struct model_shape *shape, const struct model_mix *mix, const char *path, uint64_t seed);

#endif
