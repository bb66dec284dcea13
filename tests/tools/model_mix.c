#include "model_mix.h"

const struct model_mix model_mixes[] = {
    {"F32", 0, TYPE_F32, false},
    {"F16", 1, TYPE_F16, false},
    {"BF16", 32, TYPE_BF16, false},
    {"Q4_0", 2, TYPE_Q4_0, false},
    {"Q4_1", 3, TYPE_Q4_1, false},
    {"Q5_0", 8, TYPE_Q5_0, false},
    {"Q5_1", 9, TYPE_Q5_1, false},
    {"Q8_0", 7, TYPE_Q8_0, false},
    {"Q2_K", 10, TYPE_Q2_K, false},
    {"Q3_K", 12, TYPE_Q3_K, false},
    {"Q4_K", 15, TYPE_Q4_K, false},
    {"Q5_K", 17, TYPE_Q5_K, false},
    {"Q6_K", 18, TYPE_Q6_K, false},
    {"IQ4_NL", 25, TYPE_IQ4_NL, false},
    {"IQ4_XS", 30, TYPE_IQ4_XS, false},
    {"MXFP4", 38, TYPE_MXFP4, false},
    {"Q3_K_M", 12, TYPE_Q3_K, true},
    {"Q4_K_S", 14, TYPE_Q4_K, true},
    {"Q4_K_M", 15, TYPE_Q4_K, true},
    {"Q5_K_S", 16, TYPE_Q5_K, true},
    {"Q5_K_M", 17, TYPE_Q5_K, true},
    {0},
};

enum { FILE_Q3_K_M = 12, FILE_Q4_K_S = 14, FILE_Q4_K_M = 15, FILE_Q5_K_M = 17 };

/* The first and the last eighth of the layers, and every third in between. */
static bool use_more_bits(uint32_t layer, uint32_t layers)
{
    uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static enum tensor_type mixed_type(
    const struct model_mix *mix, const struct model_shape *shape, const struct plan_tensor *tensor)
{
    bool more = use_more_bits(tensor->layer, shape->layers);
    switch (tensor->role) {
    case ROLE_OUTPUT:
        return TYPE_Q6_K;
    case ROLE_ATTENTION_VALUE:
        if (mix->file_type == FILE_Q3_K_M)
            return tensor->layer < 2 ? TYPE_Q5_K : TYPE_Q4_K;
        if (mix->file_type == FILE_Q4_K_S && tensor->layer < 4)
            return TYPE_Q5_K;
        if ((mix->file_type == FILE_Q4_K_M || mix->file_type == FILE_Q5_K_M) && more)
            return TYPE_Q6_K;
        return mix->type;
    case ROLE_FEED_FORWARD_DOWN:
        if (mix->file_type == FILE_Q3_K_M)
            return tensor->layer < shape->layers / 16 ? TYPE_Q5_K : TYPE_Q4_K;
        if (mix->file_type == FILE_Q4_K_S && tensor->layer < shape->layers / 8)
            return TYPE_Q5_K;
        if ((mix->file_type == FILE_Q4_K_M || mix->file_type == FILE_Q5_K_M) && more)
            return TYPE_Q6_K;
        return mix->type;
    case ROLE_ATTENTION_OUTPUT:
        return mix->file_type == FILE_Q3_K_M ? TYPE_Q4_K : mix->type;
    default:
        return mix->type;
    }
}

/* llama.cpp's substitute for rows with an incomplete block of 256, and then for rows with an incomplete block
 * of 32. */
static enum tensor_type fitting_type(enum tensor_type type, uint64_t columns)
{
    if (columns % tensor_type_info(type)->block_elements == 0)
        return type;
    switch (type) {
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_IQ4_XS:
        type = TYPE_IQ4_NL;
        break;
    case TYPE_Q4_K:
        type = TYPE_Q5_0;
        break;
    case TYPE_Q5_K:
        type = TYPE_Q5_1;
        break;
    case TYPE_Q6_K:
        type = TYPE_Q8_0;
        break;
    default:
        break;
    }
    return columns % tensor_type_info(type)->block_elements == 0 ? type : TYPE_F16;
}

enum tensor_type model_mix_type(
    const struct model_mix *mix, const struct model_shape *shape, const struct plan_tensor *tensor)
{
    enum tensor_type type = mix->type;
    bool plain = tensor_type_info(type)->block_elements == 1;
    if (tensor->role == ROLE_SMALL)
        return TYPE_F32;
    if (mix->mixed)
        type = mixed_type(mix, shape, tensor);
    else if (!plain && (tensor->role == ROLE_EMBEDDING || tensor->role == ROLE_OUTPUT))
        type = TYPE_Q8_0;
    return fitting_type(type, tensor->shape[0]);
}
