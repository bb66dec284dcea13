#include "gguf_model.h"

#include "gguf_sample.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct model_entry *entry_of(struct gguf_model *model, const char *key, enum salvo_type type)
{
    uint32_t i = 0;
    while (i < model->entry_count && strcmp(model->entries[i].key, key) != 0)
        i++;
    if (i == MODEL_MAX_ENTRIES)
        abort();
    if (i == model->entry_count)
        model->entry_count++;
    model->entries[i] = (struct model_entry){.type = type};
    snprintf(model->entries[i].key, sizeof model->entries[i].key, "%s", key);
    return &model->entries[i];
}

void model_set_u32(struct gguf_model *model, const char *key, uint32_t value)
{
    entry_of(model, key, SALVO_U32)->number = value;
}

void model_set_f32(struct gguf_model *model, const char *key, float value)
{
    entry_of(model, key, SALVO_F32)->real = value;
}

void model_set_text(struct gguf_model *model, const char *key, const char *text)
{
    struct model_entry *entry = entry_of(model, key, SALVO_STRING);
    snprintf(entry->text, sizeof entry->text, "%s", text);
}

void model_set_items(struct gguf_model *model, const char *key, const uint32_t *items, uint32_t count)
{
    struct model_entry *entry = entry_of(model, key, SALVO_ARRAY);
    if (count > MODEL_MAX_ITEMS)
        abort();
    entry->item_type = SALVO_U32;
    entry->item_count = count;
    for (uint32_t i = 0; i < count; i++)
        entry->items[i] = items[i];
}

void model_set_empty_texts(struct gguf_model *model, const char *key, uint32_t count)
{
    struct model_entry *entry = entry_of(model, key, SALVO_ARRAY);
    entry->item_type = SALVO_STRING;
    entry->item_count = count;
}

void model_unset(struct gguf_model *model, const char *key)
{
    struct model_entry *entry = entry_of(model, key, SALVO_U32);
    *entry = model->entries[--model->entry_count];
}

struct model_tensor *model_tensor(
    struct gguf_model *model, uint32_t type, uint64_t columns, uint64_t rows, const char *format, ...)
{
    struct model_tensor tensor = {
        .type = type, .dimensions = rows ? 2 : 1, .shape = {columns, rows}, .fill = 1};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tensor.name, sizeof tensor.name, format, arguments);
    va_end(arguments);
    model_remove_tensor(model, tensor.name);
    if (model->tensor_count == MODEL_MAX_TENSORS)
        abort();
    model->tensors[model->tensor_count] = tensor;
    return &model->tensors[model->tensor_count++];
}

void model_remove_tensor(struct gguf_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        if (!strcmp(model->tensors[i].name, name)) {
            model->tensors[i] = model->tensors[--model->tensor_count];
            return;
        }
    }
}

void model_make_llama(struct gguf_model *model, const char *architecture, uint32_t layers)
{
    enum { WIDTH = 32, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, FEED_FORWARD = 40, VOCABULARY = 48 };
    *model = (struct gguf_model){0};
    char key[64];
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {{"block_count", layers}, {"embedding_length", WIDTH},
        {"feed_forward_length", FEED_FORWARD}, {"attention.head_count", HEADS},
        {"attention.head_count_kv", KV_HEADS}, {"context_length", 512}};
    model_set_text(model, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, numbers[i].key);
        model_set_u32(model, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    model_set_f32(model, key, 1e-5f);

    model_tensor(model, TYPE_Q8_0, WIDTH, VOCABULARY, "token_embd.weight");
    model_tensor(model, TYPE_F32, WIDTH, 0, "output_norm.weight");
    for (uint32_t i = 0; i < layers; i++) {
        model_tensor(model, TYPE_F32, WIDTH, 0, "blk.%u.attn_norm.weight", i);
        model_tensor(model, TYPE_Q4_0, WIDTH, WIDTH, "blk.%u.attn_q.weight", i);
        model_tensor(model, TYPE_Q4_0, WIDTH, WIDTH / 2, "blk.%u.attn_k.weight", i);
        model_tensor(model, TYPE_F16, WIDTH, WIDTH / 2, "blk.%u.attn_v.weight", i);
        model_tensor(model, TYPE_Q4_0, WIDTH, WIDTH, "blk.%u.attn_output.weight", i);
        model_tensor(model, TYPE_F32, WIDTH, 0, "blk.%u.ffn_norm.weight", i);
        model_tensor(model, TYPE_Q4_0, WIDTH, FEED_FORWARD, "blk.%u.ffn_gate.weight", i);
        model_tensor(model, TYPE_Q4_0, WIDTH, FEED_FORWARD, "blk.%u.ffn_up.weight", i);
        model_tensor(model, TYPE_F32, FEED_FORWARD, WIDTH, "blk.%u.ffn_down.weight", i);
    }
}

static void put_real(struct buffer *file, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_number(file, bits, 4);
}

static void put_entry(struct buffer *file, const struct model_entry *entry)
{
    put_key(file, entry->key, entry->type);
    if (entry->type == SALVO_U32)
        put_number(file, entry->number, 4);
    if (entry->type == SALVO_F32)
        put_real(file, entry->real);
    if (entry->type == SALVO_STRING)
        put_text(file, entry->text);
    if (entry->type != SALVO_ARRAY)
        return;
    put_array(file, entry->item_type, entry->item_count);
    for (uint32_t i = 0; i < entry->item_count; i++) {
        if (entry->item_type == SALVO_U32)
            put_number(file, entry->items[i], 4);
        else
            put_text(file, "");
    }
}

/* Bytes of a tensor's data; a type that is not known gets some. */
static uint64_t size_of(const struct model_tensor *tensor)
{
    const struct tensor_type_info *info = tensor_type_info(tensor->type);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->dimensions; i++)
        elements *= tensor->shape[i];
    return info ? elements / info->block_elements * info->block_bytes : 32;
}

static void pad(struct buffer *file)
{
    while (file->size % 32)
        put_number(file, 0, 1);
}

const struct gguf *model_open(struct gguf_model *model)
{
    struct buffer *file = &model->file;
    uint64_t offset = 0;
    put_header(file, 3, model->tensor_count, model->entry_count);
    for (uint32_t i = 0; i < model->entry_count; i++)
        put_entry(file, &model->entries[i]);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        put_tensor(file, tensor->name, tensor->dimensions, tensor->shape, tensor->type, offset);
        offset += (size_of(tensor) + 31) / 32 * 32;
    }
    pad(file);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        for (uint64_t at = 0; at < size_of(tensor); at += tensor->type == TYPE_F32 ? 4 : 1) {
            if (tensor->type == TYPE_F32)
                put_real(file, tensor->fill);
            else
                put_number(file, 0, 1);
        }
        pad(file);
    }
    if (gguf_open_memory(file->data, file->size, "test.gguf", &model->gguf) != SALVO_OK) {
        fprintf(stderr, "%s\n", salvo_error());
        abort();
    }
    return model->gguf;
}

void model_close(struct gguf_model *model)
{
    gguf_close(model->gguf);
    buffer_free(&model->file);
    model->gguf = NULL;
    model->file = (struct buffer){0};
}
