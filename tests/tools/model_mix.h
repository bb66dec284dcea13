/* Which tensor of a model gets which type: all one type, or one of llama.cpp's mixtures of K types. */
#ifndef TOOLS_MODEL_MIX_H
#define TOOLS_MODEL_MIX_H

#include "base/tensor_type.h"
#include "model_plan.h"

struct model_mix {
    const char *name;      /* "Q4_K_M" */
    uint32_t file_type;    /* the number of `general.file_type` */
    enum tensor_type type; /* of matrices that no rule names */
    bool mixed; /* by llama.cpp's rules; otherwise embedding and output are Q8_0 when `type` is smaller */
};

/* All mixtures, ended by one without a name. */
extern const struct model_mix model_mixes[];

enum tensor_type model_mix_type(
    const struct model_mix *mix, const struct model_shape *shape, const struct plan_tensor *tensor);

#endif
