/*
 * RWKV-7: instead of attention, each head has a state matrix that every token updates; each token is mixed
 * with the previous one. ARWKV-7 has the same recurrence between the RMS norms and gated feed-forward
 * networks of the Llama model from which it was converted.
 */
#include "arch/arch.h"
#include "arch/arch_metadata.h"

#include <float.h>
#include <stdio.h>

struct traits {
    bool like_llama; /* RMS norms and a gated feed-forward network; no norm after the embedding */
};

/* The vectors of `time_mix_lerp_fused`, in its order. */
enum mix { MIX_R, MIX_W, MIX_K, MIX_V, MIX_A, MIX_G, MIX_COUNT };

/* Metadata of a model of this family. */
struct model {
    const struct traits *traits;
    uint32_t layers, width, head_dim, feed_forward, trained_context;
    uint32_t decay_rank, rate_rank, value_rank,
        gate_rank; /* ranks of the low-rank matrices; gate 0: no gate */
    uint64_t vocabulary;
    float epsilon;

    /* In the program: */
    buffer_id x, h, before;                             /* [T][width] */
    buffer_id mixed[MIX_COUNT];                         /* [T][width]: h mixed with the previous row */
    buffer_id r, w, k, v, a, g, v_first, v_share;       /* [T][width] */
    buffer_id kk, key, value, y;                        /* [T][width] */
    buffer_id decay_low, rate_low, value_low, gate_low; /* [T][rank] */
    buffer_id inner, gate, up;                          /* [T][feed_forward] */
};

/* The epsilons of the norm over heads and of the L2 norm of keys. */
static const float head_epsilon = 64e-5f, direction_epsilon = 1e-12f;

/* ---- Metadata ---- */

static enum salvo_status read_model(const struct arch *arch, const struct gguf *gguf, struct model *model)
{
    struct arch_metadata metadata = {.gguf = gguf, .arch = arch->name};
    model->traits = arch->traits;
    model->layers = metadata_u32(&metadata, "block_count", 1, 1024);
    model->width = metadata_u32(&metadata, "embedding_length", 1, 1 << 20);
    model->feed_forward = metadata_u32(&metadata, "feed_forward_length", 1, 1 << 24);
    model->trained_context = metadata_u32_or(&metadata, "context_length", 0, 0, UINT32_MAX);
    model->head_dim = metadata_u32(&metadata, "wkv.head_size", 1, 1 << 16);
    model->decay_rank = metadata_u32(&metadata, "attention.decay_lora_rank", 1, 1 << 16);
    model->rate_rank = metadata_u32(&metadata, "attention.iclr_lora_rank", 1, 1 << 16);
    model->value_rank = metadata_u32(&metadata, "attention.value_residual_mix_lora_rank", 1, 1 << 16);
    model->gate_rank = metadata_u32_or(&metadata, "attention.gate_lora_rank", 0, 0, 1 << 16);
    model->epsilon = metadata_f32(&metadata,
        model->traits->like_llama ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 0,
        FLT_MAX);
    if (model->head_dim % 8)
        metadata_refuse(&metadata, SALVO_ERROR_UNSUPPORTED,
            "key '%s.wkv.head_size' is %u, only multiples of 8 are supported", arch->name, model->head_dim);
    if (model->width % model->head_dim) {
        metadata_refuse(&metadata, SALVO_ERROR_FORMAT,
            "key '%s.embedding_length' is %u, which is not a multiple of '%s.wkv.head_size', %u", arch->name,
            model->width, arch->name, model->head_dim);
    }
    model->vocabulary = metadata_vocabulary(&metadata);
    return metadata.status;
}

/* ---- The program ---- */

static void add_scratch(struct builder *builder, struct model *model)
{
    const struct {
        buffer_id *id;
        uint64_t columns;
        const char *name;
    } buffers[] = {{&model->x, model->width, "x"}, {&model->h, model->width, "h"},
        {&model->before, model->width, "before"}, {&model->mixed[MIX_R], model->width, "mixed_r"},
        {&model->mixed[MIX_W], model->width, "mixed_w"}, {&model->mixed[MIX_K], model->width, "mixed_k"},
        {&model->mixed[MIX_V], model->width, "mixed_v"}, {&model->mixed[MIX_A], model->width, "mixed_a"},
        {&model->mixed[MIX_G], model->width, "mixed_g"}, {&model->r, model->width, "r"},
        {&model->w, model->width, "w"}, {&model->k, model->width, "k"}, {&model->v, model->width, "v"},
        {&model->a, model->width, "a"}, {&model->g, model->width, "g"},
        {&model->v_first, model->width, "v_first"}, {&model->v_share, model->width, "v_share"},
        {&model->kk, model->width, "kk"}, {&model->key, model->width, "key"},
        {&model->value, model->width, "value"}, {&model->y, model->width, "y"},
        {&model->decay_low, model->decay_rank, "decay_low"}, {&model->rate_low, model->rate_rank, "rate_low"},
        {&model->value_low, model->value_rank, "value_low"},
        {&model->gate_low, model->gate_rank ? model->gate_rank : 1, "gate_low"},
        {&model->inner, model->feed_forward, "inner"}, {&model->gate, model->feed_forward, "gate"},
        {&model->up, model->feed_forward, "up"}};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        *buffers[i].id = builder_scratch(builder, ROWS_TOKENS, buffers[i].columns, buffers[i].name);
}

static buffer_id vector(struct builder *builder, const struct model *model, uint32_t layer, const char *name)
{
    return builder_weight(builder, 1, model->width, "blk.%u.%s.weight", layer, name);
}

/* out = activation(the layer's matrix `name` times x + bias). */
static void project(struct builder *builder, uint32_t layer, buffer_id out, uint64_t rows, const char *name,
    buffer_id x, uint64_t columns, buffer_id bias, enum activation activation)
{
    buffer_id weight = builder_weight(builder, rows, columns, "blk.%u.%s.weight", layer, name);
    build_activated_matmul(builder, out, weight, x, bias, activation);
}

/* x += the layer's matrix `name` times `source`. */
static void project_back(struct builder *builder, const struct model *model, uint32_t layer, buffer_id source,
    uint64_t columns, const char *name)
{
    buffer_id weight = builder_weight(builder, model->width, columns, "blk.%u.%s.weight", layer, name);
    build_matmul(builder, model->x, weight, source, NO_BUFFER, true);
}

/* out = norm of x with the weights that begin with `name`. */
static void norm(
    struct builder *builder, const struct model *model, buffer_id out, buffer_id x, const char *name)
{
    buffer_id weight = builder_weight(builder, 1, model->width, "%s.weight", name);
    if (model->traits->like_llama)
        build_rms_norm(builder, out, x, weight, model->epsilon);
    else
        build_layer_norm(builder, out, x, weight, builder_weight(builder, 1, model->width, "%s.bias", name),
            model->width, model->epsilon);
}

static void norm_layer(struct builder *builder, const struct model *model, uint32_t layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    norm(builder, model, model->h, model->x, full);
}

/* before = the previous row of each row of h. */
static void shift(struct builder *builder, const struct model *model, uint32_t layer, const char *part)
{
    buffer_id state = builder_recurrent(builder, model->width, "shift.%u.%s", layer, part);
    build_token_shift(builder, model->before, model->h, state);
}

/* The inputs of the projections: h interpolated with the previous row, by a weight per column. */
static void build_mixes(struct builder *builder, const struct model *model, uint32_t layer)
{
    const uint64_t count = model->gate_rank ? MIX_COUNT : MIX_G;
    buffer_id shares =
        builder_weight(builder, count, model->width, "blk.%u.time_mix_lerp_fused.weight", layer);
    for (uint64_t i = 0; i < count; i++)
        build_lerp(
            builder, model->mixed[i], model->h, model->before, builder_weight_part(builder, shares, i, 1));
}

/*
 * All matmuls of time mixing. Low-rank matrices are pairs: the first matrices follow the projections, and the
 * second matrices follow each other, so that a backend can run each set as one phase. Later layers mix their
 * v with the first layer's v; the first layer's own tensors for this are not used.
 */
static void build_projections(struct builder *builder, const struct model *model, uint32_t layer)
{
    const buffer_id *mixed = model->mixed;
    const uint64_t width = model->width;
    const buffer_id none = NO_BUFFER;
    const bool has_share = layer > 0;
    project(
        builder, layer, model->r, width, "time_mix_receptance", mixed[MIX_R], width, none, ACTIVATION_NONE);
    builder->round_finely = true; /* the recurrence amplifies errors of k */
    project(builder, layer, model->k, width, "time_mix_key", mixed[MIX_K], width, none, ACTIVATION_NONE);
    builder->round_finely = false;
    project(builder, layer, has_share ? model->v : model->v_first, width, "time_mix_value", mixed[MIX_V],
        width, none, ACTIVATION_NONE);
    project(builder, layer, model->decay_low, model->decay_rank, "time_mix_w1", mixed[MIX_W], width, none,
        ACTIVATION_TANH);
    project(builder, layer, model->rate_low, model->rate_rank, "time_mix_a1", mixed[MIX_A], width, none,
        ACTIVATION_NONE);
    if (model->gate_rank)
        project(builder, layer, model->gate_low, model->gate_rank, "time_mix_g1", mixed[MIX_G], width, none,
            ACTIVATION_SIGMOID);
    if (has_share)
        project(builder, layer, model->value_low, model->value_rank, "time_mix_v1", mixed[MIX_V], width, none,
            ACTIVATION_NONE);

    project(builder, layer, model->w, width, "time_mix_w2", model->decay_low, model->decay_rank,
        vector(builder, model, layer, "time_mix_w0"), ACTIVATION_DECAY);
    project(builder, layer, model->a, width, "time_mix_a2", model->rate_low, model->rate_rank,
        vector(builder, model, layer, "time_mix_a0"), ACTIVATION_SIGMOID);
    if (model->gate_rank)
        project(builder, layer, model->g, width, "time_mix_g2", model->gate_low, model->gate_rank, none,
            ACTIVATION_NONE);
    if (has_share) {
        project(builder, layer, model->v_share, width, "time_mix_v2", model->value_low, model->value_rank,
            vector(builder, model, layer, "time_mix_v0"), ACTIVATION_SIGMOID);
    } else {
        for (int i = 0; i < 3; i++)
            builder_ignore_tensor(builder, "blk.0.time_mix_v%d.weight", i);
    }
}

/* Computes the inputs of the recurrence from k, v and the rate a, and runs it. */
static void build_recurrence(struct builder *builder, const struct model *model, uint32_t layer)
{
    buffer_id value = layer ? model->value : model->v_first;
    buffer_id state = builder_recurrent(builder, (uint64_t)model->width * model->head_dim, "wkv.%u", layer);
    if (layer)
        build_lerp(builder, model->value, model->v, model->v_first, model->v_share);
    build_l2_norm(builder, model->kk, model->k, vector(builder, model, layer, "time_mix_k_k"),
        model->head_dim, direction_epsilon);
    build_rwkv_key(builder, model->key, model->k, model->a, vector(builder, model, layer, "time_mix_k_a"));
    build_wkv7(builder, model->y,
        (struct wkv7_inputs){model->r, model->w, model->key, value, model->kk, model->a}, state,
        model->head_dim);

    buffer_id weight = builder_optional_weight(builder, 1, model->width, "blk.%u.time_mix_ln.weight", layer);
    if (weight != NO_BUFFER || !model->traits->like_llama) {
        build_layer_norm(builder, model->y, model->y, vector(builder, model, layer, "time_mix_ln"),
            builder_weight(builder, 1, model->width, "blk.%u.time_mix_ln.bias", layer), model->head_dim,
            head_epsilon);
    }
    build_rwkv_bonus(builder, model->y, model->y, model->r, model->key, value,
        vector(builder, model, layer, "time_mix_r_k"), model->head_dim);
    if (model->gate_rank)
        build_mul(builder, model->y, model->y, model->g);
}

static void build_time_mix(struct builder *builder, const struct model *model, uint32_t layer)
{
    norm_layer(builder, model, layer, "attn_norm");
    shift(builder, model, layer, "att");
    build_mixes(builder, model, layer);
    build_projections(builder, model, layer);
    build_recurrence(builder, model, layer);
    builder->round_finely = true; /* after the norm over heads all rows have the same magnitude */
    project_back(builder, model, layer, model->y, model->width, "time_mix_output");
    builder->round_finely = false;
}

static void build_channel_mix(struct builder *builder, const struct model *model, uint32_t layer)
{
    norm_layer(builder, model, layer, "attn_norm_2");
    shift(builder, model, layer, "ffn");
    build_lerp(builder, model->mixed[MIX_K], model->h, model->before,
        vector(builder, model, layer, "channel_mix_lerp_k"));
    project(builder, layer, model->inner, model->feed_forward, "channel_mix_key", model->mixed[MIX_K],
        model->width, NO_BUFFER, ACTIVATION_RELU_SQUARED);
    project_back(builder, model, layer, model->inner, model->feed_forward, "channel_mix_value");
}

static void build_feed_forward(struct builder *builder, const struct model *model, uint32_t layer)
{
    norm_layer(builder, model, layer, "ffn_norm");
    project(builder, layer, model->gate, model->feed_forward, "ffn_gate", model->h, model->width, NO_BUFFER,
        ACTIVATION_NONE);
    project(builder, layer, model->up, model->feed_forward, "ffn_up", model->h, model->width, NO_BUFFER,
        ACTIVATION_NONE);
    build_glu(builder, model->inner, model->gate, model->up, ACTIVATION_SILU);
    project_back(builder, model, layer, model->inner, model->feed_forward, "ffn_down");
}

/* The last norm and the largest matrix process only rows that get logits. */
static void build_output(struct builder *builder, const struct model *model)
{
    buffer_id last = builder_scratch(builder, ROWS_OUTPUTS, model->width, "last");
    buffer_id normed = builder_scratch(builder, ROWS_OUTPUTS, model->width, "normed");
    buffer_id logits = builder_scratch(builder, ROWS_OUTPUTS, model->vocabulary, "logits");
    buffer_id weight = builder_weight(builder, model->vocabulary, model->width, "output.weight");
    build_select_rows(builder, last, model->x);
    norm(builder, model, normed, last, "output_norm");
    build_matmul(builder, logits, weight, normed, NO_BUFFER, false);
    build_sample(builder, logits);
}

static enum salvo_status build_rwkv7(
    const struct arch *arch, const struct gguf *gguf, uint32_t context, struct program **out)
{
    enum salvo_status status = SALVO_OK;
    struct model model = {0};
    struct builder builder;
    (void)context;
    *out = NULL;
    TRY(read_model(arch, gguf, &model));
    TRY(builder_open(&builder, gguf));
    builder.program->layers = model.layers;
    builder.program->trained_context = model.trained_context;

    buffer_id embedding = builder_weight(&builder, model.vocabulary, model.width, "token_embd.weight");
    add_scratch(&builder, &model);
    build_embed(&builder, model.x, embedding, 1);
    if (!model.traits->like_llama)
        norm(&builder, &model, model.x, model.x, "token_embd_norm");
    for (uint32_t layer = 0; layer < model.layers; layer++) {
        build_time_mix(&builder, &model, layer);
        if (model.traits->like_llama)
            build_feed_forward(&builder, &model, layer);
        else
            build_channel_mix(&builder, &model, layer);
    }
    build_output(&builder, &model);
    TRY(builder_finish(&builder, out));

cleanup:
    return status;
}

/* ---- The family ---- */

static const struct traits rwkv7 = {0};
static const struct traits arwkv7 = {.like_llama = true};

/* Low top-p, and penalties against repetition loops, which recurrent models are prone to. */
static const struct salvo_sampler rwkv_sampler = {.temperature = 1,
    .top_p = 0.3f,
    .repeat_penalty = 1,
    .presence_penalty = 0.5f,
    .frequency_penalty = 0.5f,
    .repeat_last_n = 64};

const struct arch rwkv7_archs[] = {
    {"rwkv7", build_rwkv7, &rwkv7, .is_recurrent = true, .sampler = &rwkv_sampler},
    {"arwkv7", build_rwkv7, &arwkv7, .is_recurrent = true},
    {0},
};
