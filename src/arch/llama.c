/*
 * The Llama family: RMS norms, rotary embeddings, grouped-query attention, a gated feed-forward network. One
 * table of traits holds the differences between its members; one list of ops serves all.
 */
#include "arch/arch.h"
#include "arch/rope_scaling.h"

#include <float.h>
#include <math.h>

struct traits {
    bool rope_halves;    /* rotary pairs are (i, i + half) rather than (2i, 2i + 1) */
    bool qkv_bias;       /* q, k and v must have biases; elsewhere they are optional */
    bool qk_norm;        /* each head of q and k is normed before it is rotated */
    bool fused_gate_up;  /* one matrix has the rows of gate, then the rows of up */
    bool post_norms;     /* results of attention and feed-forward are normed before they are added */
    bool gelu;           /* gates by GELU rather than SiLU */
    bool wide_embedding; /* embeddings are scaled by sqrt(width) */

    uint32_t no_rope_every; /* every nth layer has no rope; 0: all have */

    bool windows;          /* the metadata's sliding window is used */
    uint32_t window;       /* default if the metadata has none; 0: no window */
    uint32_t global_every; /* every nth layer has no window; 0: all have */
    float window_base;     /* rope.freq_base of layers with windows, without rope scaling; 0: as the others */

    float attention_cap, output_cap; /* default if the metadata has none; 0: none */
    /* The model with this number of layers scales attention by width / heads, not by head_dim. */
    uint32_t layers_of_largest;
};

/* Metadata of a model of this family. */
struct model {
    const struct traits *traits;
    uint32_t layers, width, heads, kv_heads, head_dim, feed_forward, trained_context;
    uint64_t vocabulary;
    float epsilon, attention_scale, attention_cap, output_cap;
    uint32_t window, global_every;
    struct rope_scaling rope, window_rope;

    /* In the program: */
    uint32_t rope_number, window_rope_number;
    buffer_id x, h;                /* [T][width] */
    buffer_id q, attended;         /* [T][heads * head_dim] */
    buffer_id k, v;                /* [T][kv_heads * head_dim] */
    buffer_id gate, up, activated; /* [T][feed_forward] */
};

/* ---- Metadata ---- */

static void read_heads(struct arch_metadata *metadata, struct model *model)
{
    const char *arch = metadata->arch;
    model->heads = metadata_u32(metadata, "attention.head_count", 1, 1 << 16);
    model->kv_heads = metadata_u32_or(metadata, "attention.head_count_kv", model->heads, 1, 1 << 16);
    if (model->heads % model->kv_heads) {
        metadata_refuse(metadata, SALVO_ERROR_FORMAT,
            "key '%s.attention.head_count' is %u, which is not a multiple of '%s.attention.head_count_kv', "
            "%u",
            arch, model->heads, arch, model->kv_heads);
    }

    if (!metadata_has(metadata, "attention.key_length") && model->width % model->heads) {
        metadata_refuse(metadata, SALVO_ERROR_FORMAT,
            "key '%s.embedding_length' is %u, which is not a multiple of '%s.attention.head_count', %u", arch,
            model->width, arch, model->heads);
    }
    model->head_dim =
        metadata_u32_or(metadata, "attention.key_length", model->width / model->heads, 1, 1 << 16);
    uint32_t value_dim = metadata_u32_or(metadata, "attention.value_length", model->head_dim, 1, 1 << 16);
    if (value_dim != model->head_dim) {
        metadata_refuse(metadata, SALVO_ERROR_UNSUPPORTED,
            "heads with keys of %u and values of %u elements ('%s.attention.key_length', 'value_length') are "
            "not "
            "supported",
            model->head_dim, value_dim, arch);
    }
    if (model->head_dim % 8)
        metadata_refuse(metadata, SALVO_ERROR_UNSUPPORTED,
            "heads of %u elements are not supported, the size must be a multiple of 8", model->head_dim);
}

static void read_attention(struct arch_metadata *metadata, struct model *model)
{
    const struct traits *traits = model->traits;
    const uint64_t each = model->width / model->heads;
    float width_of_scale = (float)(model->layers == traits->layers_of_largest ? each : model->head_dim);
    /* With a larger scale scores may overflow, and then the order of a sum decides where NaN is. With a
     * larger cap, quotients of it may be subnormal, which some GPUs take for 0. */
    model->attention_scale =
        metadata_f32_or(metadata, "attention.scale", 1.0f / sqrtf(width_of_scale), 1e-9f, 1e9f);
    model->attention_cap =
        metadata_f32_or(metadata, "attn_logit_softcapping", traits->attention_cap, 0, 1e30f);
    model->output_cap = metadata_f32_or(metadata, "final_logit_softcapping", traits->output_cap, 0, 1e30f);

    model->rope = rope_scaling_read(metadata, model->head_dim, traits->rope_halves, model->trained_context);
    model->window_rope = model->rope;
    if (!traits->windows)
        return;
    model->window = metadata_u32_or(metadata, "attention.sliding_window", traits->window, 0, UINT32_MAX);
    model->global_every = traits->global_every;
    if (traits->global_every)
        model->global_every = metadata_u32_or(
            metadata, "attention.sliding_window_pattern", traits->global_every, 0, UINT32_MAX);
    if (traits->window_base > 0) {
        model->window_rope.base =
            metadata_f32_or(metadata, "rope.freq_base_swa", traits->window_base, 1, FLT_MAX);
        model->window_rope.factor = 1;
    }
}

static enum salvo_status read_model(const struct arch *arch, const struct gguf *gguf, struct model *model)
{
    struct arch_metadata metadata = {.gguf = gguf, .arch = arch->name};
    model->traits = arch->traits;
    uint32_t experts = metadata_u32_or(&metadata, "expert_count", 0, 0, UINT32_MAX);
    if (experts)
        metadata_refuse(&metadata, SALVO_ERROR_UNSUPPORTED,
            "mixture-of-experts models are not supported ('%s.expert_count' is %u)", arch->name, experts);
    model->layers = metadata_u32(&metadata, "block_count", 1, 1024);
    model->width = metadata_u32(&metadata, "embedding_length", 1, 1 << 20);
    model->feed_forward = metadata_u32(&metadata, "feed_forward_length", 1, 1 << 24);
    model->trained_context = metadata_u32_or(&metadata, "context_length", 0, 0, UINT32_MAX);
    model->epsilon = metadata_f32(&metadata, "attention.layer_norm_rms_epsilon", 0, FLT_MAX);
    read_heads(&metadata, model);
    read_attention(&metadata, model);
    model->vocabulary = metadata_vocabulary(&metadata);
    return metadata.status;
}

/* ---- The program ---- */

static uint64_t query_width(const struct model *model)
{
    return (uint64_t)model->heads * model->head_dim;
}

static uint64_t kv_width(const struct model *model)
{
    return (uint64_t)model->kv_heads * model->head_dim;
}

static bool has_window(const struct model *model, uint32_t layer)
{
    return model->window && !(model->global_every && layer % model->global_every == model->global_every - 1);
}

static bool is_rotated(const struct model *model, uint32_t layer)
{
    uint32_t every = model->traits->no_rope_every;
    return !(every && layer % every == every - 1);
}

static void add_scratch(struct builder *builder, struct model *model)
{
    model->x = builder_scratch(builder, ROWS_TOKENS, model->width, "x");
    model->h = builder_scratch(builder, ROWS_TOKENS, model->width, "h");
    model->q = builder_scratch(builder, ROWS_TOKENS, query_width(model), "q");
    model->k = builder_scratch(builder, ROWS_TOKENS, kv_width(model), "k");
    model->v = builder_scratch(builder, ROWS_TOKENS, kv_width(model), "v");
    model->attended = builder_scratch(builder, ROWS_TOKENS, query_width(model), "attended");
    model->gate = builder_scratch(builder, ROWS_TOKENS, model->feed_forward, "gate");
    model->up = builder_scratch(builder, ROWS_TOKENS, model->feed_forward, "up");
    model->activated = builder_scratch(builder, ROWS_TOKENS, model->feed_forward, "activated");
}

/* out = RMS norm of x with the layer's vector `name`. */
static void norm(struct builder *builder, const struct model *model, uint32_t layer, buffer_id out,
    buffer_id x, uint64_t columns, const char *name)
{
    buffer_id weight = builder_weight(builder, 1, columns, "blk.%u.%s.weight", layer, name);
    build_rms_norm(builder, out, x, weight, model->epsilon);
}

/* The layer's bias `name`; NO_BUFFER for most models. */
static buffer_id find_bias(
    struct builder *builder, uint32_t layer, uint64_t width, const char *name, bool needed)
{
    return needed ? builder_weight(builder, 1, width, "blk.%u.%s.bias", layer, name)
                  : builder_optional_weight(builder, 1, width, "blk.%u.%s.bias", layer, name);
}

/* out = the layer's matrix `name` times h, plus its bias. */
static void project(struct builder *builder, const struct model *model, uint32_t layer, buffer_id out,
    uint64_t out_width, const char *name, bool needs_bias)
{
    buffer_id weight = builder_weight(builder, out_width, model->width, "blk.%u.%s.weight", layer, name);
    buffer_id bias = find_bias(builder, layer, out_width, name, needs_bias);
    build_matmul(builder, out, weight, model->h, bias, false);
}

/* out = rows of a fused matrix times h. */
static void project_part(struct builder *builder, const struct model *model, buffer_id out, buffer_id fused,
    uint64_t first, uint64_t rows)
{
    build_matmul(builder, out, builder_weight_part(builder, fused, first, rows), model->h, NO_BUFFER, false);
}

/* x += the layer's matrix `name` times `source`; with post norms, x += norm(product), through h. */
static void project_back(struct builder *builder, const struct model *model, uint32_t layer, buffer_id source,
    uint64_t source_width, const char *name, const char *post_norm)
{
    buffer_id weight = builder_weight(builder, model->width, source_width, "blk.%u.%s.weight", layer, name);
    buffer_id bias = find_bias(builder, layer, model->width, name, false);
    if (model->traits->post_norms) {
        build_matmul(builder, model->h, weight, source, bias, false);
        norm(builder, model, layer, model->h, model->h, model->width, post_norm);
        build_add(builder, model->x, model->h);
    } else {
        build_matmul(builder, model->x, weight, source, bias, true);
    }
}

static void build_qkv(struct builder *builder, const struct model *model, uint32_t layer)
{
    const uint64_t queries = query_width(model), kv = kv_width(model), all = queries + 2 * kv;
    const bool bias = model->traits->qkv_bias;
    buffer_id fused = builder_optional_weight(builder, all, model->width, "blk.%u.attn_qkv.weight", layer);
    if (fused == NO_BUFFER) {
        project(builder, model, layer, model->q, queries, "attn_q", bias);
        project(builder, model, layer, model->k, kv, "attn_k", bias);
        project(builder, model, layer, model->v, kv, "attn_v", bias);
        return;
    }
    if (find_bias(builder, layer, all, "attn_qkv", false) != NO_BUFFER)
        builder_refuse(
            builder, SALVO_ERROR_UNSUPPORTED, "tensor 'blk.%u.attn_qkv.bias' is not supported", layer);
    project_part(builder, model, model->q, fused, 0, queries);
    project_part(builder, model, model->k, fused, queries, kv);
    project_part(builder, model, model->v, fused, queries + kv, kv);
}

static void build_attention(struct builder *builder, const struct model *model, uint32_t layer)
{
    const struct traits *traits = model->traits;
    const uint32_t head_dim = model->head_dim;
    const bool window = has_window(model, layer);

    norm(builder, model, layer, model->h, model->x, model->width, "attn_norm");
    build_qkv(builder, model, layer);
    if (traits->qk_norm) {
        norm(builder, model, layer, model->q, model->q, head_dim, "attn_q_norm");
        norm(builder, model, layer, model->k, model->k, head_dim, "attn_k_norm");
    }
    if (is_rotated(model, layer)) {
        uint32_t rope = window ? model->window_rope_number : model->rope_number;
        build_rope(builder, model->q, head_dim, rope);
        build_rope(builder, model->k, head_dim, rope);
    }
    buffer_id keys = builder_cache(builder, TYPE_F16, kv_width(model), "kv.%u.k", layer);
    buffer_id values = builder_cache(builder, TYPE_F16, kv_width(model), "kv.%u.v", layer);
    build_kv_append(builder, keys, values, model->k, model->v, head_dim);
    build_attend(builder, model->attended, model->q, keys, values,
        (struct attend_options){.head_dim = head_dim,
            .window = window ? model->window : 0,
            .scale = model->attention_scale,
            .cap = model->attention_cap});
    project_back(
        builder, model, layer, model->attended, query_width(model), "attn_output", "post_attention_norm");
}

static void build_gate_and_up(struct builder *builder, const struct model *model, uint32_t layer)
{
    const uint64_t inner = model->feed_forward;
    if (!model->traits->fused_gate_up) {
        project(builder, model, layer, model->gate, inner, "ffn_gate", false);
        project(builder, model, layer, model->up, inner, "ffn_up", false);
        return;
    }
    buffer_id fused = builder_weight(builder, 2 * inner, model->width, "blk.%u.ffn_up.weight", layer);
    project_part(builder, model, model->gate, fused, 0, inner);
    project_part(builder, model, model->up, fused, inner, inner);
}

static void build_feed_forward(struct builder *builder, const struct model *model, uint32_t layer)
{
    norm(builder, model, layer, model->h, model->x, model->width, "ffn_norm");
    build_gate_and_up(builder, model, layer);
    build_glu(builder, model->activated, model->gate, model->up,
        model->traits->gelu ? ACTIVATION_GELU : ACTIVATION_SILU);
    project_back(builder, model, layer, model->activated, model->feed_forward, "ffn_down", "post_ffw_norm");
}

/* The last norm and the largest matrix process only rows that get logits. */
static void build_output(struct builder *builder, const struct model *model, buffer_id embedding)
{
    buffer_id last = builder_scratch(builder, ROWS_OUTPUTS, model->width, "last");
    buffer_id normed = builder_scratch(builder, ROWS_OUTPUTS, model->width, "normed");
    buffer_id logits = builder_scratch(builder, ROWS_OUTPUTS, model->vocabulary, "logits");
    buffer_id weight = builder_optional_weight(builder, model->vocabulary, model->width, "output.weight");
    buffer_id bias = builder_optional_weight(builder, 1, model->vocabulary, "output.bias");

    build_select_rows(builder, last, model->x);
    build_rms_norm(builder, normed, last, builder_weight(builder, 1, model->width, "output_norm.weight"),
        model->epsilon);
    build_matmul(builder, logits, weight == NO_BUFFER ? embedding : weight, normed, bias, false);
    if (model->output_cap > 0)
        build_softcap(builder, logits, model->output_cap);
    build_sample(builder, logits);
}

static enum salvo_status build_llama(
    const struct arch *arch, const struct gguf *gguf, uint32_t context, struct program **out)
{
    enum salvo_status status = SALVO_OK;
    struct model model = {0};
    struct builder builder;
    *out = NULL;
    TRY(read_model(arch, gguf, &model));
    TRY(builder_open(&builder, gguf));
    builder.program->layers = model.layers;
    builder.program->trained_context = model.trained_context;
    if (!context)
        context = model.trained_context;

    buffer_id embedding = builder_weight(&builder, model.vocabulary, model.width, "token_embd.weight");
    add_scratch(&builder, &model);
    model.rope_number = rope_scaling_build(&model.rope, context, &builder);
    model.window_rope_number = model.rope_number;
    if (model.window && model.traits->window_base > 0)
        model.window_rope_number = rope_scaling_build(&model.window_rope, context, &builder);

    build_embed(&builder, model.x, embedding, model.traits->wide_embedding ? sqrtf((float)model.width) : 1);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
        build_attention(&builder, &model, layer);
        build_feed_forward(&builder, &model, layer);
    }
    build_output(&builder, &model, embedding);
    TRY(builder_finish(&builder, out));

cleanup:
    return status;
}

/* ---- The family ---- */

static const struct traits llama = {0};
static const struct traits qwen2 = {.rope_halves = true, .qkv_bias = true};
static const struct traits qwen3 = {.rope_halves = true, .qk_norm = true};
static const struct traits smollm3 = {.no_rope_every = 4};
static const struct traits phi3 = {.rope_halves = true, .fused_gate_up = true, .windows = true};
static const struct traits gemma = {.rope_halves = true, .gelu = true, .wide_embedding = true};
static const struct traits gemma2 = {.rope_halves = true,
    .gelu = true,
    .wide_embedding = true,
    .post_norms = true,
    .windows = true,
    .window = 4096,
    .global_every = 2,
    .attention_cap = 50,
    .output_cap = 30,
    .layers_of_largest = 46};
static const struct traits gemma3 = {.rope_halves = true,
    .gelu = true,
    .wide_embedding = true,
    .post_norms = true,
    .qk_norm = true,
    .windows = true,
    .global_every = 6,
    .window_base = 10000,
    .layers_of_largest = 62};

const struct arch llama_archs[] = {
    {"llama", build_llama, &llama},
    {"qwen2", build_llama, &qwen2},
    {"qwen3", build_llama, &qwen3},
    {"smollm3", build_llama, &smollm3},
    {"phi3", build_llama, &phi3},
    {"gemma", build_llama, &gemma},
    {"gemma2", build_llama, &gemma2},
    {"gemma3", build_llama, &gemma3},
    {0},
};
