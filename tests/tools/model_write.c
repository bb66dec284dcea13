#include "model_write.h"

#include "random_weights.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "gguf/gguf_writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Metadata ---- */

/* A number that the metadata says: none of a float's is 0. */
struct number {
    const char *key;
    uint32_t u32;
    float f32;
};

static enum salvo_status set_numbers(
    struct gguf_writer *writer, const char *prefix, const struct number *numbers, size_t count)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < count; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", prefix, numbers[i].key);
        TRY(numbers[i].f32 == 0 ? gguf_writer_set_u32(writer, key, numbers[i].u32)
                                : gguf_writer_set_f32(writer, key, numbers[i].f32));
    }

cleanup:
    return status;
}

static const char *family_of(const struct model_shape *shape)
{
    return shape->family ? shape->family : "llama";
}

static enum salvo_status set_llama(struct gguf_writer *writer, const struct model_shape *shape)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t head_size = model_head_size(shape);
    const struct number numbers[] = {{"block_count", shape->layers, 0}, {"context_length", shape->context, 0},
        {"embedding_length", shape->width, 0}, {"feed_forward_length", shape->feed_forward, 0},
        {"attention.head_count", shape->heads, 0}, {"attention.head_count_kv", shape->kv_heads, 0},
        {"attention.key_length", head_size, 0}, {"attention.value_length", head_size, 0},
        {"attention.layer_norm_rms_epsilon", 0, 1e-5f},
        {"rope.dimension_count", shape->rope_dimensions ? shape->rope_dimensions : head_size, 0},
        {"rope.freq_base", 0, shape->rope_base}, {"vocab_size", shape->vocabulary, 0}};
    TRY(set_numbers(writer, family_of(shape), numbers, sizeof numbers / sizeof *numbers));
    if (shape->window)
        TRY(set_numbers(
            writer, family_of(shape), &(struct number){"attention.sliding_window", shape->window, 0}, 1));
    if (shape->attention_cap > 0)
        TRY(set_numbers(writer, family_of(shape),
            &(struct number){"attn_logit_softcapping", 0, shape->attention_cap}, 1));
    if (shape->output_cap > 0)
        TRY(set_numbers(
            writer, family_of(shape), &(struct number){"final_logit_softcapping", 0, shape->output_cap}, 1));

cleanup:
    return status;
}

static enum salvo_status set_rwkv7(struct gguf_writer *writer, const struct model_shape *shape)
{
    const bool is_rwkv7 = shape->architecture == RWKV7;
    const struct number numbers[] = {{"block_count", shape->layers, 0}, {"context_length", shape->context, 0},
        {"embedding_length", shape->width, 0}, {"feed_forward_length", shape->feed_forward, 0},
        {"attention.head_count", 0, 0}, /* it has none in the usual sense */
        {"wkv.head_size", shape->head_size, 0}, {"attention.decay_lora_rank", shape->decay_rank, 0},
        {"attention.iclr_lora_rank", shape->iclr_rank, 0},
        {"attention.value_residual_mix_lora_rank", shape->value_rank, 0},
        {"attention.gate_lora_rank", shape->gate_rank, 0}, {"token_shift_count", is_rwkv7 ? 2 : 1, 0},
        {"vocab_size", shape->vocabulary, 0},
        {is_rwkv7 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0, 1e-5f}};
    return set_numbers(writer, is_rwkv7 ? "rwkv7" : "arwkv7", numbers, sizeof numbers / sizeof *numbers);
}

static enum salvo_status set_metadata(
    struct gguf_writer *writer, const struct model_shape *shape, const struct model_mix *mix)
{
    enum salvo_status status = SALVO_OK;
    char name[64];
    snprintf(name, sizeof name, "%s %s, random", shape->name, mix->name);
    const char *const architectures[] = {[LLAMA] = family_of(shape), [RWKV7] = "rwkv7", [ARWKV7] = "arwkv7"};
    TRY(gguf_writer_set_text(writer, "general.architecture", architectures[shape->architecture]));
    TRY(gguf_writer_set_text(writer, "general.name", name));
    TRY(gguf_writer_set_u32(writer, "general.file_type", mix->file_type));
    TRY(gguf_writer_set_u32(writer, "general.quantization_version", 2));
    TRY(shape->architecture == LLAMA ? set_llama(writer, shape) : set_rwkv7(writer, shape));
    TRY(gguf_writer_set_text(writer, "tokenizer.ggml.model", "no_vocab"));

cleanup:
    return status;
}

/* ---- Tensors ---- */

/* Llama 3 divides low frequencies by a factor, leaves high ones, and goes smoothly from one to the other. */
static void fill_rope_factors(const struct model_shape *shape, float *out, size_t count)
{
    const float original_context = 8192, low = 1, high = 4, pi = 3.14159265f;
    for (size_t i = 0; i < count; i++) {
        float wavelength = 2 * pi * powf(shape->rope_base, (float)i / (float)count);
        float turns = original_context / wavelength;
        if (turns < low) {
            out[i] = shape->rope_factor;
        } else if (turns > high) {
            out[i] = 1;
        } else {
            float smooth = (turns - low) / (high - low);
            out[i] = 1 / ((1 - smooth) / shape->rope_factor + smooth);
        }
    }
}

static enum salvo_status write_vector(struct gguf_writer *writer, const struct model_shape *shape,
    const struct plan_tensor *tensor, uint64_t *state)
{
    enum salvo_status status = SALVO_OK;
    size_t count = (size_t)(tensor->shape[0] * tensor->shape[1] * tensor->shape[2] * tensor->shape[3]);
    float *values = NULL;
    TRY(NEW(&values, count));
    for (size_t i = 0; i < count; i++)
        values[i] = tensor->mean + tensor->spread * random_gauss(state);
    if (tensor->rope_factors)
        fill_rope_factors(shape, values, count);
    TRY(gguf_writer_write(writer, values, count * sizeof *values));

cleanup:
    memory_free(values);
    return status;
}

static enum salvo_status write_matrix(struct gguf_writer *writer, const struct plan_tensor *tensor,
    enum tensor_type type, struct random_pools *pools, uint64_t *state)
{
    enum salvo_status status = SALVO_OK;
    const struct tensor_type_info *info = tensor_type_info(type);
    const struct random_pool *pool;
    uint8_t *chunk = NULL;
    uint64_t left = tensor->shape[0] * tensor->shape[1] / info->block_elements * info->block_bytes;
    TRY(random_pool_get(pools, type, tensor->spread, &pool));
    size_t chunk_size = 4096 * pool->piece_bytes;
    TRY(NEW(&chunk, chunk_size));
    while (left) {
        size_t size = left < chunk_size ? (size_t)left : chunk_size;
        random_fill(pool, state, chunk, size);
        TRY(gguf_writer_write(writer, chunk, size));
        left -= size;
    }

cleanup:
    memory_free(chunk);
    return status;
}

enum salvo_status model_write(
    const struct model_shape *shape, const struct model_mix *mix, const char *path, uint64_t seed)
{
    enum salvo_status status = SALVO_OK;
    struct gguf_writer *writer = NULL;
    struct model_plan plan = {0};
    struct random_pools pools = {.seed = seed};
    TRY(model_plan_make(shape, &plan));
    TRY(gguf_writer_open(path, &writer));
    TRY(set_metadata(writer, shape, mix));
    for (size_t i = 0; i < plan.count; i++) {
        const struct plan_tensor *tensor = &plan.tensors[i];
        struct salvo_text name = {tensor->name, strlen(tensor->name)};
        TRY(gguf_writer_add_tensor(
            writer, name, model_mix_type(mix, shape, tensor), tensor->dimensions, tensor->shape));
    }
    for (size_t i = 0; i < plan.count; i++) {
        const struct plan_tensor *tensor = &plan.tensors[i];
        /* Each tensor has a sequence of its own: its bytes do not depend on the others. */
        uint64_t state = seed ^ checksum64(tensor->name, strlen(tensor->name));
        TRY(tensor->dimensions == 2
                ? write_matrix(writer, tensor, model_mix_type(mix, shape, tensor), &pools, &state)
                : write_vector(writer, shape, tensor, &state));
    }
    TRY(gguf_writer_commit(writer));

cleanup:
    random_pools_free(&pools);
    model_plan_free(&plan);
    gguf_writer_close(writer);
    return status;
}
