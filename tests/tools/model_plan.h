/* The shapes that make-model knows, and which tensors a model of that shape has. */
#ifndef TOOLS_MODEL_PLAN_H
#define TOOLS_MODEL_PLAN_H

#include "base/status.h"

enum architecture { LLAMA, RWKV7, ARWKV7 };

struct model_shape {
    const char *name;
    enum architecture architecture;
    uint32_t layers, width, feed_forward, vocabulary, context;

    uint32_t head_size; /* 0 for Llama: width / heads */

    /* Llama */
    const char *family; /* its architecture's name in files; NULL: "llama" */
    uint32_t heads, kv_heads;
    bool tied; /* the embedding is the output matrix too */
    float rope_base;
    float rope_factor;        /* how far Llama 3 stretches its context; 0: not */
    uint32_t rope_dimensions; /* of a head that are rotated; 0: all */
    bool qkv_bias, qk_norm, post_norms, fused_qkv, fused_gate_up;
    bool biases;     /* of every matrix that may have one, beside q, k and v */
    uint32_t window; /* 0: the metadata does not say */
    float attention_cap, output_cap;

    /* RWKV-7, and ARWKV-7, which has the layers' other half from Llama */
    uint32_t decay_rank, iclr_rank, value_rank;
    uint32_t gate_rank; /* 0: there is no gate */
};

/* The role of a tensor decides its type. */
enum tensor_role {
    ROLE_SMALL, /* stays F32: vectors, and RWKV's pairs of thin matrices, as usual quantisers have it */
    ROLE_MATRIX,
    ROLE_EMBEDDING,
    ROLE_OUTPUT, /* the output matrix, or the embedding when it is both */
    ROLE_ATTENTION_VALUE,
    ROLE_ATTENTION_OUTPUT,
    ROLE_FEED_FORWARD_DOWN,
};

struct plan_tensor {
    char name[64];
    enum tensor_role role;
    uint32_t layer;
    uint32_t dimensions;
    uint64_t shape[4];  /* fastest first */
    float mean, spread; /* of its values */
    bool rope_factors;  /* its values are computed */
};

struct model_plan {
    struct plan_tensor *tensors; /* [count] */
    size_t count;
};

/* Columns of a head. */
/* A Llama of one layer, 16 wide. */
struct model_shape smallest_llama(uint32_t vocabulary, uint32_t context);

uint32_t model_head_size(const struct model_shape *shape);

/* All shapes, ended by one without a name. */
extern const struct model_shape model_shapes[];

enum salvo_status model_plan_make(const struct model_shape *shape, struct model_plan *out);
void model_plan_free(struct model_plan *plan);

#endif
