#include "model_plan.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

/* clang-format off */
#define LLAMA_SHAPE(layers_, width_, heads_, kv_heads_, ff, vocab, tied_, context_, base, factor)                    \
    .architecture = LLAMA, .layers = (layers_), .width = (width_), .heads = (heads_), .kv_heads = (kv_heads_),       \
    .feed_forward = (ff), .vocabulary = (vocab), .tied = (tied_), .context = (context_), .rope_base = (base),        \
    .rope_factor = (factor)

#define RWKV7_SHAPE(layers_, width_, vocab, decay, iclr, value, gate)                                                \
    .architecture = RWKV7, .layers = (layers_), .width = (width_), .feed_forward = 4 * (width_), .head_size = 64,    \
    .vocabulary = (vocab), .context = 1048576, .decay_rank = (decay), .iclr_rank = (iclr), .value_rank = (value),    \
    .gate_rank = (gate)

#define ARWKV7_SHAPE(layers_, width_, vocab, rank)                                                                   \
    .architecture = ARWKV7, .layers = (layers_), .width = (width_), .feed_forward = 2 * (width_), .head_size = 64,   \
    .vocabulary = (vocab), .context = 4096, .decay_rank = (rank), .iclr_rank = (rank), .value_rank = (rank)

const struct model_shape model_shapes[] = {
    /*                           layers  width heads kv  ff     vocab   tied   context base     factor */
    {"smollm-135m", LLAMA_SHAPE( 30,     576,  9,    3,  1536,  49152,  true,  8192,   100000,  0)},
    {"smollm-360m", LLAMA_SHAPE( 32,     960,  15,   5,  2560,  49152,  true,  8192,   100000,  0)},
    {"llama-1b",    LLAMA_SHAPE( 16,     2048, 32,   8,  8192,  128256, true,  131072, 500000,  32)},
    {"llama-8b",    LLAMA_SHAPE( 32,     4096, 32,   8,  14336, 128256, false, 131072, 500000,  8)},
    /* For tests: rows of 32-blocks only, rows that no block format fits, rows of 256-blocks, of one such block, heads of 128. */
    {"llama-tiny",  LLAMA_SHAPE( 2,      160,  5,    1,  288,   331,    false, 512,    10000,   0)},
    {"llama-odd",   LLAMA_SHAPE( 2,      200,  5,    5,  328,   97,     true,  512,    10000,   8)},
    {"llama-256",   LLAMA_SHAPE( 2,      256,  4,    2,  512,   512,    true,  512,    10000,   0)},
    {"llama-mini",  LLAMA_SHAPE( 1,      256,  4,    2,  256,   97,     true,  512,    10000,   0)},
    {"llama-128",   LLAMA_SHAPE( 1,      640,  5,    1,  256,   331,    true,  512,    10000,   0)}, /* a head */
    {"llama-64to1", LLAMA_SHAPE( 1,      512,  64,   1,  96,    97,     true,  512,    10000,   0)}, /* queries to KV heads */
    {"llama-long",  LLAMA_SHAPE( 1,      128,  2,    1,  128,   97,     true,  8192,   10000,   0)}, /* prompts: emulators are slow */
    {"gemma2-tiny", LLAMA_SHAPE( 1,      64,   2,    1,  96,    97,     true,  512,    10000,   0),
        .family = "gemma2", .post_norms = true, .window = 4, .attention_cap = 5, .output_cap = 3},
    /* Rows of a matrix that small shared memory does not hold, after no norm and after one. */
    {"llama-wide",  LLAMA_SHAPE( 1,      192,  3,    1,  24576, 331,    true,  512,    10000,   0)},
    {"llama-tall",  LLAMA_SHAPE( 1,      1536, 12,   2,  256,   6400,   true,  512,    10000,   0)},
    /*                           layers  width vocab   decay iclr value gate */
    {"rwkv7-0.1b",  RWKV7_SHAPE( 12,     768,  65536,  64,   64,  32,   128)},
    {"rwkv7-0.4b",  RWKV7_SHAPE( 24,     1024, 65536,  64,   64,  32,   128)},
    {"rwkv7-1.5b",  RWKV7_SHAPE( 24,     2048, 65536,  96,   96,  64,   256)},
    {"rwkv7-2.9b",  RWKV7_SHAPE( 32,     2560, 65536,  96,   96,  64,   320)},
    {"rwkv7-tiny",  RWKV7_SHAPE( 3,      192,  331,    32,   24,  16,   40)},
    {"rwkv7-mini",  RWKV7_SHAPE( 2,      128,  97,     32,   24,  16,   40)}, /* for tests of sessions: emulators are slow */
    {"rwkv7-256",   RWKV7_SHAPE( 2,      256,  512,    32,   32,  32,   32)},
    {"rwkv7-wide",  RWKV7_SHAPE( 1,      1536, 331,    32,   32,  32,   32)}, /* as llama-wide, after a layer norm */
    /*                           layers  width vocab   ranks; neither a gate nor a norm over heads */
    {"arwkv7-tiny", ARWKV7_SHAPE(3,      192,  331,    32)},
    {0},
};
/* clang-format on */

/* ---- Adding to a plan ---- */

static enum salvo_status add(struct model_plan *plan, struct plan_tensor tensor)
{
    if ((plan->count & (plan->count - 1)) == 0) { /* full: double */
        enum salvo_status status = RESIZE(&plan->tensors, plan->count ? 2 * plan->count : 1);
        if (status != SALVO_OK)
            return status;
    }
    for (uint32_t i = tensor.dimensions; i < 4; i++)
        tensor.shape[i] = 1;
    plan->tensors[plan->count++] = tensor;
    return SALVO_OK;
}

/* A tensor of layer `layer`, or of the model when that is -1. */
static struct plan_tensor named(int layer, const char *name)
{
    struct plan_tensor tensor = {.layer = layer < 0 ? 0 : (uint32_t)layer};
    if (layer < 0)
        snprintf(tensor.name, sizeof tensor.name, "%s", name);
    else
        snprintf(tensor.name, sizeof tensor.name, "blk.%d.%s", layer, name);
    return tensor;
}

static enum salvo_status add_vector(
    struct model_plan *plan, int layer, const char *name, uint64_t size, float mean, float spread)
{
    struct plan_tensor tensor = named(layer, name);
    tensor.dimensions = 1;
    tensor.shape[0] = size;
    tensor.mean = mean;
    tensor.spread = spread;
    return add(plan, tensor);
}

/* The spread keeps a row's product with values around 1 around 1. */
static enum salvo_status add_matrix(struct model_plan *plan, int layer, const char *name,
    enum tensor_role role, uint64_t columns, uint64_t rows)
{
    struct plan_tensor tensor = named(layer, name);
    tensor.role = role;
    tensor.dimensions = 2;
    tensor.shape[0] = columns;
    tensor.shape[1] = rows;
    tensor.spread = 1.0f / sqrtf((float)columns);
    return add(plan, tensor);
}

static enum salvo_status add_layer_norm(struct model_plan *plan, int layer, const char *name, uint64_t size)
{
    char full[48];
    snprintf(full, sizeof full, "%s.weight", name);
    enum salvo_status status = add_vector(plan, layer, full, size, 1, 0.1f);
    snprintf(full, sizeof full, "%s.bias", name);
    return status == SALVO_OK ? add_vector(plan, layer, full, size, 0, 0.05f) : status;
}

/* ---- Llama ---- */

struct model_shape smallest_llama(uint32_t vocabulary, uint32_t context)
{
    return (struct model_shape){.name = "llama",
        .architecture = LLAMA,
        .layers = 1,
        .width = 16,
        .heads = 2,
        .kv_heads = 1,
        .feed_forward = 8,
        .vocabulary = vocabulary,
        .context = context,
        .rope_base = 10000};
}

uint32_t model_head_size(const struct model_shape *shape)
{
    return shape->head_size ? shape->head_size : shape->width / shape->heads;
}

/* A matrix "NAME.weight", and "NAME.bias" with it. */
static enum salvo_status add_projection(struct model_plan *plan, int layer, const char *name,
    enum tensor_role role, uint64_t columns, uint64_t rows, bool bias)
{
    enum salvo_status status = SALVO_OK;
    char full[48];
    snprintf(full, sizeof full, "%s.weight", name);
    TRY(add_matrix(plan, layer, full, role, columns, rows));
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias)
        TRY(add_vector(plan, layer, full, rows, 0, 0.2f));

cleanup:
    return status;
}

static enum salvo_status add_feed_forward(struct model_plan *plan, const struct model_shape *shape, int layer)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t width = shape->width, inner = shape->feed_forward;
    const bool fused = shape->fused_gate_up, bias = shape->biases;
    TRY(add_vector(plan, layer, "ffn_norm.weight", width, 1, 0.1f));
    if (!fused)
        TRY(add_projection(plan, layer, "ffn_gate", ROLE_MATRIX, width, inner, bias));
    TRY(add_projection(plan, layer, "ffn_up", ROLE_MATRIX, width, fused ? 2 * inner : inner, bias && !fused));
    TRY(add_projection(plan, layer, "ffn_down", ROLE_FEED_FORWARD_DOWN, inner, width, bias));
    if (shape->post_norms)
        TRY(add_vector(plan, layer, "post_ffw_norm.weight", width, 1, 0.1f));

cleanup:
    return status;
}

static enum salvo_status add_attention(struct model_plan *plan, const struct model_shape *shape, int layer)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t width = shape->width, head_size = model_head_size(shape);
    const uint32_t q_width = head_size * shape->heads, kv_width = head_size * shape->kv_heads;
    const bool bias = shape->qkv_bias;
    TRY(add_vector(plan, layer, "attn_norm.weight", width, 1, 0.1f));
    if (shape->fused_qkv) {
        TRY(add_matrix(plan, layer, "attn_qkv.weight", ROLE_MATRIX, width, q_width + 2 * kv_width));
    } else {
        TRY(add_projection(plan, layer, "attn_q", ROLE_MATRIX, width, q_width, bias));
        TRY(add_projection(plan, layer, "attn_k", ROLE_MATRIX, width, kv_width, bias));
        TRY(add_projection(plan, layer, "attn_v", ROLE_ATTENTION_VALUE, width, kv_width, bias));
    }
    if (shape->qk_norm) {
        TRY(add_vector(plan, layer, "attn_q_norm.weight", head_size, 1, 0.1f));
        TRY(add_vector(plan, layer, "attn_k_norm.weight", head_size, 1, 0.1f));
    }
    TRY(add_projection(plan, layer, "attn_output", ROLE_ATTENTION_OUTPUT, q_width, width, shape->biases));
    if (shape->post_norms)
        TRY(add_vector(plan, layer, "post_attention_norm.weight", width, 1, 0.1f));

cleanup:
    return status;
}

static enum salvo_status plan_llama(struct model_plan *plan, const struct model_shape *shape)
{
    enum salvo_status status = SALVO_OK;
    TRY(add_matrix(plan, -1, "token_embd.weight", shape->tied ? ROLE_OUTPUT : ROLE_EMBEDDING, shape->width,
        shape->vocabulary));
    if (!shape->tied)
        TRY(add_matrix(plan, -1, "output.weight", ROLE_OUTPUT, shape->width, shape->vocabulary));
    if (shape->biases)
        TRY(add_vector(plan, -1, "output.bias", shape->vocabulary, 0, 0.2f));
    TRY(add_vector(plan, -1, "output_norm.weight", shape->width, 1, 0.1f));
    if (shape->rope_factor > 0) {
        const uint32_t rotated = shape->rope_dimensions ? shape->rope_dimensions : model_head_size(shape);
        TRY(add_vector(plan, -1, "rope_freqs.weight", rotated / 2, 0, 0));
        plan->tensors[plan->count - 1].rope_factors = true;
    }
    for (uint32_t i = 0; i < shape->layers; i++) {
        TRY(add_attention(plan, shape, (int)i));
        TRY(add_feed_forward(plan, shape, (int)i));
    }

cleanup:
    return status;
}

/* ---- RWKV-7 ---- */

/* x0 + f(x1 x) x2: a vector and two thin matrices. `letter` is w, a or v. */
static enum salvo_status add_low_rank(
    struct model_plan *plan, int layer, char letter, uint64_t width, uint64_t rank, float mean, float spread)
{
    enum salvo_status status = SALVO_OK;
    char name[32];
    snprintf(name, sizeof name, "time_mix_%c0.weight", letter);
    TRY(add_vector(plan, layer, name, width, mean, spread));
    snprintf(name, sizeof name, "time_mix_%c1.weight", letter);
    TRY(add_matrix(plan, layer, name, ROLE_SMALL, width, rank));
    snprintf(name, sizeof name, "time_mix_%c2.weight", letter);
    TRY(add_matrix(plan, layer, name, ROLE_SMALL, rank, width));

cleanup:
    return status;
}

/* How much of the token before is mixed in: `count` vectors, in the odd shapes that the converters give them.
 */
static enum salvo_status add_lerp(
    struct model_plan *plan, int layer, const char *name, uint64_t width, uint32_t dimensions, uint64_t count)
{
    struct plan_tensor tensor = named(layer, name);
    tensor.dimensions = dimensions;
    tensor.shape[0] = width;
    tensor.shape[1] = tensor.shape[2] = 1;
    tensor.shape[3] = count;
    tensor.mean = 0.5f;
    tensor.spread = 0.2f;
    return add(plan, tensor);
}

static enum salvo_status add_time_mix(struct model_plan *plan, const struct model_shape *shape, int layer)
{
    enum salvo_status status = SALVO_OK;
    uint32_t width = shape->width;
    /* The first layer has no earlier value to mix in: these tensors are not used; in published files
     * they are copies of the a's. */
    uint32_t value_rank = layer == 0 ? shape->iclr_rank : shape->value_rank;
    TRY(add_low_rank(plan, layer, 'w', width, shape->decay_rank, -1, 1));
    TRY(add_low_rank(plan, layer, 'a', width, shape->iclr_rank, 0, 0.5f));
    TRY(add_low_rank(plan, layer, 'v', width, value_rank, 0.5f, 0.5f));
    if (shape->gate_rank) {
        TRY(add_matrix(plan, layer, "time_mix_g1.weight", ROLE_SMALL, width, shape->gate_rank));
        TRY(add_matrix(plan, layer, "time_mix_g2.weight", ROLE_SMALL, shape->gate_rank, width));
    }
    TRY(add_lerp(plan, layer, "time_mix_lerp_fused.weight", width, 4, shape->gate_rank ? 6 : 5));
    TRY(add_vector(plan, layer, "time_mix_k_k.weight", width, 0.85f, 0.1f));
    TRY(add_vector(plan, layer, "time_mix_k_a.weight", width, 1, 0.1f));
    TRY(add_vector(plan, layer, "time_mix_r_k.weight", width, 0, 0.1f));
    TRY(add_matrix(plan, layer, "time_mix_key.weight", ROLE_MATRIX, width, width));
    TRY(add_matrix(plan, layer, "time_mix_value.weight", ROLE_MATRIX, width, width));
    TRY(add_matrix(plan, layer, "time_mix_receptance.weight", ROLE_MATRIX, width, width));
    TRY(add_matrix(plan, layer, "time_mix_output.weight", ROLE_MATRIX, width, width));

cleanup:
    return status;
}

static enum salvo_status add_rwkv7_layer(struct model_plan *plan, const struct model_shape *shape, int layer)
{
    enum salvo_status status = SALVO_OK;
    uint32_t width = shape->width;
    TRY(add_layer_norm(plan, layer, "attn_norm", width));
    TRY(add_layer_norm(plan, layer, "attn_norm_2", width));
    TRY(add_layer_norm(plan, layer, "time_mix_ln", width));
    TRY(add_time_mix(plan, shape, layer));
    TRY(add_lerp(plan, layer, "channel_mix_lerp_k.weight", width, 3, 1));
    TRY(add_matrix(plan, layer, "channel_mix_key.weight", ROLE_MATRIX, width, shape->feed_forward));
    TRY(add_matrix(plan, layer, "channel_mix_value.weight", ROLE_MATRIX, shape->feed_forward, width));

cleanup:
    return status;
}

static enum salvo_status add_arwkv7_layer(struct model_plan *plan, const struct model_shape *shape, int layer)
{
    enum salvo_status status = SALVO_OK;
    TRY(add_vector(plan, layer, "attn_norm.weight", shape->width, 1, 0.1f));
    TRY(add_time_mix(plan, shape, layer));
    TRY(add_feed_forward(plan, shape, layer));

cleanup:
    return status;
}

static enum salvo_status plan_rwkv7(struct model_plan *plan, const struct model_shape *shape)
{
    enum salvo_status status = SALVO_OK;
    TRY(add_matrix(plan, -1, "token_embd.weight", ROLE_EMBEDDING, shape->width, shape->vocabulary));
    TRY(add_matrix(plan, -1, "output.weight", ROLE_OUTPUT, shape->width, shape->vocabulary));
    if (shape->architecture == RWKV7) {
        TRY(add_layer_norm(plan, -1, "token_embd_norm", shape->width));
        TRY(add_layer_norm(plan, -1, "output_norm", shape->width));
    } else {
        TRY(add_vector(plan, -1, "output_norm.weight", shape->width, 1, 0.1f));
    }
    for (uint32_t i = 0; i < shape->layers; i++) {
        TRY(shape->architecture == RWKV7 ? add_rwkv7_layer(plan, shape, (int)i)
                                         : add_arwkv7_layer(plan, shape, (int)i));
    }

cleanup:
    return status;
}

enum salvo_status model_plan_make(const struct model_shape *shape, struct model_plan *out)
{
    *out = (struct model_plan){0};
    enum salvo_status status = shape->architecture == LLAMA ? plan_llama(out, shape) : plan_rwkv7(out, shape);
    if (status != SALVO_OK)
        model_plan_free(out);
    return status;
}

void model_plan_free(struct model_plan *plan)
{
    memory_free(plan->tensors);
    *plan = (struct model_plan){0};
}
