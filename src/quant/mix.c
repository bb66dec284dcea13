#include "quant/mix.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- The mixes ---- */

/* The layers that get the first of a rule's two types. */
enum layers {
    NO_LAYER, /* no layer: every layer gets the mix's own type */
    EVERY_LAYER,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_SIXTEENTH,
    FIRST_EIGHTH,
    OUTER_AND_EVERY_THIRD,  /* the first and last eighth, and every third between them */
    EVERY_LAYER_OF_FEW_KVS, /* of a model where at least four heads share their keys and values */
};

struct rule {
    enum layers layers;
    uint32_t type, otherwise;
};

struct mix {
    const char *name;
    uint32_t file_type;
    uint32_t type;
    struct rule attention_value, feed_forward_down, attention_output;
    bool raises_mixtral_output; /* Q5_K for the attention output of a model with eight experts */
};

/* clang-format off */
static const struct mix mixes[] = {
    {"F32", 0, TYPE_F32},
    {"F16", 1, TYPE_F16},
    {"BF16", 32, TYPE_BF16},
    {"Q4_0", 2, TYPE_Q4_0},
    {"Q4_1", 3, TYPE_Q4_1},
    {"Q5_0", 8, TYPE_Q5_0},
    {"Q5_1", 9, TYPE_Q5_1},
    {"Q8_0", 7, TYPE_Q8_0},
    {"Q2_K", 10, TYPE_Q2_K,
        {EVERY_LAYER_OF_FEW_KVS, TYPE_Q4_K, TYPE_Q3_K},
        {EVERY_LAYER, TYPE_Q3_K},
        {EVERY_LAYER, TYPE_Q3_K}, .raises_mixtral_output = true},
    {"Q2_K_S", 21, TYPE_Q2_K,
        {EVERY_LAYER_OF_FEW_KVS, TYPE_Q4_K, TYPE_Q2_K},
        {FIRST_EIGHTH, TYPE_Q4_K, TYPE_Q2_K}},
    {"Q3_K_S", 11, TYPE_Q3_K, .raises_mixtral_output = true},
    {"Q3_K_M", 12, TYPE_Q3_K,
        {FIRST_TWO, TYPE_Q5_K, TYPE_Q4_K},
        {FIRST_SIXTEENTH, TYPE_Q5_K, TYPE_Q4_K},
        {EVERY_LAYER, TYPE_Q4_K}, .raises_mixtral_output = true},
    {"Q3_K_L", 13, TYPE_Q3_K,
        {EVERY_LAYER, TYPE_Q5_K},
        {EVERY_LAYER, TYPE_Q5_K},
        {EVERY_LAYER, TYPE_Q5_K}},
    {"Q4_K_S", 14, TYPE_Q4_K,
        {FIRST_FOUR, TYPE_Q5_K, TYPE_Q4_K},
        {FIRST_EIGHTH, TYPE_Q5_K, TYPE_Q4_K}, .raises_mixtral_output = true},
    {"Q4_K_M", 15, TYPE_Q4_K,
        {OUTER_AND_EVERY_THIRD, TYPE_Q6_K, TYPE_Q4_K},
        {OUTER_AND_EVERY_THIRD, TYPE_Q6_K, TYPE_Q4_K}, .raises_mixtral_output = true},
    {"Q5_K_S", 16, TYPE_Q5_K},
    {"Q5_K_M", 17, TYPE_Q5_K,
        {OUTER_AND_EVERY_THIRD, TYPE_Q6_K, TYPE_Q5_K},
        {OUTER_AND_EVERY_THIRD, TYPE_Q6_K, TYPE_Q5_K}},
    {"Q6_K", 18, TYPE_Q6_K},
    {"IQ4_NL", 25, TYPE_IQ4_NL,
        {EVERY_LAYER_OF_FEW_KVS, TYPE_Q5_K, TYPE_IQ4_NL},
        {FIRST_EIGHTH, TYPE_Q5_K, TYPE_IQ4_NL}, .raises_mixtral_output = true},
    {"IQ4_XS", 30, TYPE_IQ4_XS,
        {EVERY_LAYER_OF_FEW_KVS, TYPE_Q5_K, TYPE_IQ4_XS},
        {FIRST_EIGHTH, TYPE_Q5_K, TYPE_IQ4_XS}, .raises_mixtral_output = true},
    {"MXFP4", 38, TYPE_MXFP4},
};
/* clang-format on */

enum { MIXES = sizeof mixes / sizeof *mixes };

/* A type alone stands for its medium mix, as in llama.cpp. */
static const char *const short_names[][2] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

enum salvo_status mix_find(const char *name, const struct mix **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++) {
        if (strcasecmp(name, short_names[i][0]) == 0)
            name = short_names[i][1];
    }
    for (size_t i = 0; i < MIXES; i++) {
        if (strcasecmp(name, mixes[i].name) == 0) {
            *out = &mixes[i];
            return SALVO_OK;
        }
    }
    char list[256] = "";
    for (size_t i = 0, used = 0; i < MIXES; i++) {
        size_t size = strlen(mixes[i].name);
        if (used + size + 2 > sizeof list)
            break;
        list[used] = ' ';
        memcpy(list + used + 1, mixes[i].name, size + 1);
        used += size + 1;
    }
    return fail(SALVO_ERROR_ARGUMENT, "'%s' is not a quantisation type; available:%s", name, list);
}

const char *mix_name(const struct mix *mix)
{
    return mix->name;
}

uint32_t mix_file_type(const struct mix *mix)
{
    return mix->file_type;
}

/* ---- Tensors that are not quantised ---- */

/* Parts of names: small important matrices, and matrices that are not multiplied. */
static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight",
    "indexer.k_proj.weight", "indexer.q_proj.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d",
    "shortconv.conv.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", ".rel_pos", ".patch_embd",
    ".patch_merger"};

static const char *const kept_whole_names[] = {"position_embd.weight", "token_types.weight"};

static bool is_kept(const struct mix_tensor *tensor)
{
    const char *suffix = "weight";
    size_t size = strlen(tensor->name), suffix_size = strlen(suffix);
    if (tensor->rows < 2 || size < suffix_size || strcmp(tensor->name + size - suffix_size, suffix) != 0)
        return true;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(tensor->name, kept[i]))
            return true;
    for (size_t i = 0; i < sizeof kept_whole_names / sizeof *kept_whole_names; i++)
        if (strcmp(tensor->name, kept_whole_names[i]) == 0)
            return true;
    return false;
}

/* ---- The choice ------------------------------------------------------------------------------------------
 */

static uint32_t layer_of(const char *name)
{
    const char *prefix = "blk.";
    return strncmp(name, prefix, strlen(prefix)) == 0 ? (uint32_t)strtoul(name + strlen(prefix), NULL, 10)
                                                      : 0;
}

static bool applies(enum layers layers, uint32_t layer, const struct mix_model *model)
{
    uint32_t eighth = model->layers / 8;
    switch (layers) {
    case NO_LAYER:
        return false;
    case EVERY_LAYER:
        return true;
    case FIRST_TWO:
        return layer < 2;
    case FIRST_FOUR:
        return layer < 4;
    case FIRST_SIXTEENTH:
        return layer < model->layers / 16;
    case FIRST_EIGHTH:
        return layer < eighth;
    case OUTER_AND_EVERY_THIRD:
        return layer < eighth || layer >= 7 * model->layers / 8 || (layer - eighth) % 3 == 2;
    case EVERY_LAYER_OF_FEW_KVS:
        return model->kv_heads && model->heads / model->kv_heads >= 4;
    }
    return false;
}

static uint32_t follow(const struct rule *rule, uint32_t type, uint32_t layer, const struct mix_model *model)
{
    if (rule->layers == NO_LAYER)
        return type;
    return applies(rule->layers, layer, model) ? rule->type : rule->otherwise;
}

static bool contains_any(const char *name, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strstr(name, parts[i]))
            return true;
    return false;
}

static uint32_t choose_by_role(
    const struct mix *mix, const struct mix_model *model, const struct mix_tensor *tensor)
{
    static const char *const values[] = {"attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"};
    const char *name = tensor->name;
    bool is_embedding = strcmp(name, "token_embd.weight") == 0;
    if (model->experts && mix->type == TYPE_MXFP4)
        return tensor->is_stack ? TYPE_MXFP4 : TYPE_Q8_0;
    if (strcmp(name, "output.weight") == 0 || (is_embedding && model->tied)) {
        bool whole_blocks = tensor->columns % tensor_type_info(mix->type)->block_elements == 0;
        return mix->type == TYPE_Q8_0 || !whole_blocks ? TYPE_Q8_0 : TYPE_Q6_K;
    }
    if (is_embedding)
        return mix->type;
    uint32_t layer = layer_of(name);
    /* Mixtral's eight experts are most of the model, so more bits for its attention cost little. */
    const bool is_mixtral = model->experts == 8;
    if (is_mixtral && strstr(name, "attn_k.weight"))
        return TYPE_Q8_0;
    if (is_mixtral && contains_any(name, values, sizeof values / sizeof *values))
        return TYPE_Q8_0;
    if (is_mixtral && strstr(name, "attn_output.weight"))
        return mix->raises_mixtral_output ? TYPE_Q5_K : mix->type;
    if (contains_any(name, values, sizeof values / sizeof *values)) {
        uint32_t type = follow(&mix->attention_value, mix->type, layer, model);
        /* Llama 70B: eight heads share one value matrix, so more bits for it cost little. */
        bool is_70b = strcmp(model->architecture, "llama") == 0 && model->layers == 80;
        return is_70b && (type == TYPE_Q3_K || type == TYPE_Q4_K) ? TYPE_Q5_K : type;
    }
    if (strstr(name, "ffn_down"))
        return follow(&mix->feed_forward_down, mix->type, layer, model);
    if (strstr(name, "attn_output.weight"))
        return follow(&mix->attention_output, mix->type, layer, model);
    return mix->type;
}

/* Rows with an incomplete block get a type with smaller blocks, or stay unquantised. */
static uint32_t fit_columns(uint32_t type, uint64_t columns)
{
    if (columns % tensor_type_info(type)->block_elements == 0)
        return type;
    if (columns % 32 != 0)
        return TYPE_F16;
    switch (type) {
    case TYPE_Q2_K:
    case TYPE_Q3_K:
        return TYPE_Q4_0;
    case TYPE_Q4_K:
        return TYPE_Q5_0;
    case TYPE_Q5_K:
        return TYPE_Q5_1;
    case TYPE_IQ4_XS:
        return TYPE_IQ4_NL;
    default: /* Q6_K */
        return TYPE_Q8_0;
    }
}

uint32_t mix_choose_pure(const struct mix *mix, const struct mix_tensor *tensor)
{
    return is_kept(tensor) ? tensor->type : fit_columns(mix->type, tensor->columns);
}

uint32_t mix_choose(const struct mix *mix, const struct mix_model *model, const struct mix_tensor *tensor)
{
    if (is_kept(tensor))
        return tensor->type;
    if (tensor_type_info(mix->type)->block_elements == 1)
        return mix->type;
    return fit_columns(choose_by_role(mix, model, tensor), tensor->columns);
}
