#include "cuda/hollow_model.h"

#include "unit/gguf_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct number {
    const char *key;
    uint32_t value;
};

enum { ALIGNMENT = 32, MOST_NUMBERS = 12 };

static uint32_t list_numbers(const struct model_shape *shape, struct number out[MOST_NUMBERS])
{
    const struct number common[] = {{"block_count", shape->layers}, {"context_length", shape->context},
        {"embedding_length", shape->width}, {"feed_forward_length", shape->feed_forward},
        {"vocab_size", shape->vocabulary}};
    const struct number llama[] = {
        {"attention.head_count", shape->heads}, {"attention.head_count_kv", shape->kv_heads}};
    const struct number rwkv7[] = {{"wkv.head_size", shape->head_size},
        {"attention.decay_lora_rank", shape->decay_rank}, {"attention.iclr_lora_rank", shape->iclr_rank},
        {"attention.value_residual_mix_lora_rank", shape->value_rank},
        {"attention.gate_lora_rank", shape->gate_rank},
        {"token_shift_count", shape->architecture == RWKV7 ? 2 : 1}};
    const bool is_llama = shape->architecture == LLAMA;
    const uint32_t own = is_llama ? sizeof llama / sizeof *llama : sizeof rwkv7 / sizeof *rwkv7;
    memcpy(out, common, sizeof common);
    memcpy(out + sizeof common / sizeof *common, is_llama ? llama : rwkv7, own * sizeof *out);
    return sizeof common / sizeof *common + own;
}

static void put_metadata(struct buffer *file, const struct model_shape *shape, size_t tensors)
{
    static const char *const names[] = {[LLAMA] = "llama", [RWKV7] = "rwkv7", [ARWKV7] = "arwkv7"};
    const char *name = names[shape->architecture];
    const float epsilon = 1e-5f;
    struct number numbers[MOST_NUMBERS];
    const uint32_t count = list_numbers(shape, numbers);
    uint32_t bits;
    char key[64];
    put_header(file, 3, tensors, count + 2);
    put_key(file, "general.architecture", SALVO_STRING);
    put_text(file, name);
    snprintf(key, sizeof key, "%s.attention.layer_norm_%sepsilon", name,
        shape->architecture == RWKV7 ? "" : "rms_");
    memcpy(&bits, &epsilon, sizeof bits);
    put_key(file, key, SALVO_F32);
    put_number(file, bits, 4);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s.%s", name, numbers[i].key);
        put_key(file, key, SALVO_U32);
        put_number(file, numbers[i].value, 4);
    }
}

static uint64_t tensor_bytes(const struct plan_tensor *tensor, enum tensor_type type)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const uint64_t elements = tensor->shape[0] * tensor->shape[1] * tensor->shape[2] * tensor->shape[3];
    return (elements / info->block_elements * info->block_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Factors of a rope's frequencies are read when a program is built. */
static void fill_rope_factors(const struct model_plan *plan, const struct hollow_model *model)
{
    const float one = 1;
    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_tensor *tensor = &plan->tensors[i];
        const struct gguf_tensor *found = gguf_tensor_at(model->gguf, i);
        for (size_t at = 0; tensor->rope_factors && at < found->size; at += sizeof one)
            memcpy((uint8_t *)model->memory + found->offset + at, &one, sizeof one);
    }
}

void hollow_model_open(const struct model_shape *shape, const struct model_mix *mix, struct hollow_model *out)
{
    struct buffer file = {0};
    struct model_plan plan;
    uint64_t offset = 0;
    if (model_plan_make(shape, &plan) != SALVO_OK)
        abort();
    put_metadata(&file, shape, plan.count);
    for (size_t i = 0; i < plan.count; i++) {
        const struct plan_tensor *tensor = &plan.tensors[i];
        const enum tensor_type type = model_mix_type(mix, shape, tensor);
        put_tensor(&file, tensor->name, tensor->dimensions, tensor->shape, type, offset);
        offset += tensor_bytes(tensor, type);
    }
    out->size = (file.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + (size_t)offset;
    out->memory =
        mmap(NULL, out->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (out->memory == MAP_FAILED)
        abort();
    memcpy(out->memory, file.data, file.size);
    if (gguf_open_memory(out->memory, out->size, "hollow.gguf", &out->gguf) != SALVO_OK) {
        fprintf(stderr, "%s\n", salvo_error());
        abort();
    }
    fill_rope_factors(&plan, out);
    buffer_free(&file);
    model_plan_free(&plan);
}

void hollow_model_close(struct hollow_model *model)
{
    gguf_close(model->gguf);
    munmap(model->memory, model->size);
}

const struct model_shape *find_shape(const char *name)
{
    const struct model_shape *shape = model_shapes;
    while (shape->name && strcmp(shape->name, name) != 0)
        shape++;
    return shape;
}

const struct model_mix *find_mix(const char *name)
{
    const struct model_mix *mix = model_mixes;
    while (mix->name && strcmp(mix->name, name) != 0)
        mix++;
    return mix;
}
