#include "engine/model.h"

#include "arch/arch.h"
#include "base/arena.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "grammar/token_trie.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct salvo_model {
    struct gguf *gguf;
    struct salvo_model_info info;
    struct arena arena; /* strings of `info` */
    pthread_mutex_t tokenizer_lock;
    struct tokenizer *tokenizer; /* under the lock until it is set */
    struct token_trie *trie;     /* the same */
};

/* general.file_type: the number of the quantisation scheme. */
static const char *file_type_name(uint32_t type)
{
    static const char *const names[] = {[0] = "F32",
        [1] = "F16",
        [2] = "Q4_0",
        [3] = "Q4_1",
        [7] = "Q8_0",
        [8] = "Q5_0",
        [9] = "Q5_1",
        [10] = "Q2_K",
        [11] = "Q3_K_S",
        [12] = "Q3_K_M",
        [13] = "Q3_K_L",
        [14] = "Q4_K_S",
        [15] = "Q4_K_M",
        [16] = "Q5_K_S",
        [17] = "Q5_K_M",
        [18] = "Q6_K",
        [19] = "IQ2_XXS",
        [20] = "IQ2_XS",
        [21] = "Q2_K_S",
        [22] = "IQ3_XS",
        [23] = "IQ3_XXS",
        [24] = "IQ1_S",
        [25] = "IQ4_NL",
        [26] = "IQ3_S",
        [27] = "IQ3_M",
        [28] = "IQ2_S",
        [29] = "IQ2_M",
        [30] = "IQ4_XS",
        [31] = "IQ1_M",
        [32] = "BF16",
        [36] = "TQ1_0",
        [37] = "TQ2_0",
        [38] = "MXFP4"};
    return type < sizeof names / sizeof *names && names[type] ? names[type] : "";
}

static enum salvo_status copy_text(struct salvo_model *model, const char *key, const char **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text text = {0};
    char *copy = NULL;
    *out = "";
    TRY(gguf_get_text(model->gguf, key, &text, NULL));
    TRY(arena_copy_bytes(&model->arena, text.data, text.size, &copy));
    *out = copy;
cleanup:
    return status;
}

/* `<architecture>.<suffix>`: a number, or the largest of an array with a number per layer. */
static enum salvo_status get_number(const struct salvo_model *model, const char *suffix, uint32_t *out)
{
    char key[256];
    snprintf(key, sizeof key, "%s.%s", model->info.architecture, suffix);
    const struct salvo_value *value = gguf_find(model->gguf, key);
    if (!value || value->type != SALVO_ARRAY)
        return gguf_get_u32(model->gguf, key, out, NULL);

    struct salvo_value rest = *value, item;
    while (salvo_array_next(&rest, &item)) {
        bool is_signed = item.type == SALVO_I32;
        if (!is_signed && item.type != SALVO_U32)
            return fail(SALVO_ERROR_FORMAT, "key '%s': an array of 32-bit integers was expected", key);
        uint64_t number = is_signed ? (uint64_t)(item.i > 0 ? item.i : 0) : item.u;
        if (number > *out)
            *out = (uint32_t)number;
    }
    return SALVO_OK;
}

static enum salvo_status read_info(struct salvo_model *model)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_model_info *info = &model->info;
    uint32_t file_type = UINT32_MAX, key_length = 0, parts = 1;

    info->size = sizeof *info;
    info->path = gguf_path(model->gguf);
    info->gguf_version = gguf_version(model->gguf);
    info->file_size = gguf_file_size(model->gguf);
    TRY(copy_text(model, "general.architecture", &info->architecture));
    TRY(copy_text(model, "general.name", &info->name));
    TRY(copy_text(model, "general.license", &info->license));
    TRY(copy_text(model, "tokenizer.ggml.model", &info->tokenizer));
    TRY(copy_text(model, "tokenizer.ggml.pre", &info->pre_tokenizer));
    TRY(gguf_get_u32(model->gguf, "general.file_type", &file_type, NULL));
    info->file_type = file_type_name(file_type);
    TRY(gguf_get_u32(model->gguf, "split.count", &parts, NULL));
    info->files = parts ? parts : 1;
    info->has_chat_template = gguf_find(model->gguf, "tokenizer.chat_template") != NULL;

    TRY(get_number(model, "block_count", &info->layers));
    TRY(get_number(model, "embedding_length", &info->width));
    TRY(get_number(model, "context_length", &info->context));
    TRY(get_number(model, "feed_forward_length", &info->feed_forward));
    TRY(get_number(model, "attention.head_count", &info->heads));
    info->kv_heads = info->heads;
    TRY(get_number(model, "attention.head_count_kv", &info->kv_heads));
    TRY(get_number(model, "wkv.head_size", &info->head_size));
    TRY(get_number(model, "attention.key_length", &key_length));
    if (info->head_size && !info->heads)
        info->heads = info->kv_heads = info->width / info->head_size;
    if (!info->head_size && info->heads)
        info->head_size = key_length ? key_length : info->width / info->heads;

    TRY(get_number(model, "vocab_size", &info->vocabulary));
    const struct salvo_value *tokens = gguf_find(model->gguf, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == SALVO_ARRAY && tokens->array.count <= UINT32_MAX)
        info->vocabulary = (uint32_t)tokens->array.count;
    for (size_t i = 0; i < gguf_tensor_count(model->gguf); i++)
        info->parameters += gguf_tensor_at(model->gguf, i)->elements;

cleanup:
    return status;
}

enum salvo_status salvo_model_open(const char *path, struct salvo_model **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_model *model = NULL;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(path);
    TRY(NEW(&model, 1));
    pthread_mutex_init(&model->tokenizer_lock, NULL);
    TRY(gguf_open(path, &model->gguf));
    status = read_info(model);
    if (status != SALVO_OK)
        fail_within(status, "%s: ", path);
    TRY(gguf_check_after(model->gguf, status));
    *out = model;

cleanup:
    if (status != SALVO_OK)
        salvo_model_close(model);
    return status;
}

void salvo_model_close(struct salvo_model *model)
{
    if (!model)
        return;
    token_trie_close(model->trie);
    tokenizer_close(model->tokenizer);
    pthread_mutex_destroy(&model->tokenizer_lock);
    arena_free(&model->arena);
    gguf_close(model->gguf);
    memory_free(model);
}

const struct gguf *model_gguf(const struct salvo_model *model)
{
    return model->gguf;
}

const struct salvo_model_info *salvo_model_info(const struct salvo_model *model)
{
    return model ? &model->info : NULL;
}

bool salvo_model_is_at(const struct salvo_model *model, const char *path)
{
    return model && path && gguf_is_at(model->gguf, path);
}

size_t salvo_model_metadata_count(const struct salvo_model *model)
{
    return model ? gguf_entry_count(model->gguf) : 0;
}

bool salvo_model_metadata(
    const struct salvo_model *model, size_t index, struct salvo_text *out_key, struct salvo_value *out)
{
    const struct gguf_entry *entry =
        index < salvo_model_metadata_count(model) ? gguf_entry_at(model->gguf, index) : NULL;
    if (out_key)
        *out_key = entry ? entry->key : (struct salvo_text){0};
    if (out)
        *out = entry ? entry->value : (struct salvo_value){0};
    return entry != NULL;
}

bool salvo_model_find(const struct salvo_model *model, const char *key, struct salvo_value *out)
{
    const struct salvo_value *value = model && key ? gguf_find(model->gguf, key) : NULL;
    if (out)
        *out = value ? *value : (struct salvo_value){0};
    return value != NULL;
}

size_t salvo_model_tensor_count(const struct salvo_model *model)
{
    return model ? gguf_tensor_count(model->gguf) : 0;
}

enum salvo_status salvo_model_tensor(const struct salvo_model *model, size_t index, struct salvo_tensor *out)
{
    REQUIRE(model);
    REQUIRE(out);
    if (index >= gguf_tensor_count(model->gguf))
        return fail(SALVO_ERROR_ARGUMENT, "tensor %zu was asked for; the model has %zu", index,
            gguf_tensor_count(model->gguf));
    const struct gguf_tensor *tensor = gguf_tensor_at(model->gguf, index);
    const struct tensor_type_info *type = tensor_type_info(tensor->type);
    struct salvo_tensor result = {
        .name = tensor->name,
        .type = type ? type->name : NULL,
        .type_number = tensor->type,
        .dimensions = tensor->dimensions,
        .elements = tensor->elements,
        .bytes = tensor->size,
    };
    memcpy(result.shape, tensor->shape, sizeof result.shape);
    return result_write("salvo_tensor", &result, sizeof result, out);
}

struct salvo_sampler model_sampler(const struct salvo_model *model)
{
    const struct arch *arch = arch_of(model->gguf);
    struct salvo_sampler sampler = {
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
    };
    if (arch && arch->sampler)
        sampler = *arch->sampler;
    sampler.size = sizeof sampler;
    return sampler;
}

enum salvo_status salvo_sampler_default(const struct salvo_model *model, struct salvo_sampler *out)
{
    REQUIRE(model);
    REQUIRE(out);
    const struct salvo_sampler sampler = model_sampler(model);
    return result_write("salvo_sampler", &sampler, sizeof sampler, out);
}

enum salvo_status model_tokenizer(struct salvo_model *model, const struct tokenizer **out)
{
    enum salvo_status status = SALVO_OK;
    pthread_mutex_lock(&model->tokenizer_lock);
    if (!model->tokenizer) {
        status = tokenizer_open(model->gguf, &model->tokenizer);
        if (status != SALVO_OK)
            fail_within(status, "%s: ", model->info.path);
        status = gguf_check_after(model->gguf, status);
    }
    *out = status == SALVO_OK ? model->tokenizer : NULL;
    pthread_mutex_unlock(&model->tokenizer_lock);
    return status;
}

/* A token_function. */
struct token_source {
    const struct tokenizer *tokenizer;
    struct buffer text;
};

static enum salvo_status read_token(
    void *user, uint32_t id, enum token_use *out_use, struct salvo_text *out_bytes)
{
    struct token_source *source = user;
    int32_t token = (int32_t)id;
    source->text.size = 0;
    if (tokenizer_is_end(source->tokenizer, token)) {
        *out_use = TOKEN_IS_END;
        return SALVO_OK;
    }
    if (tokenizer_is_control(source->tokenizer, token)) {
        *out_use = TOKEN_IS_NEVER;
        return SALVO_OK;
    }
    enum salvo_status status = tokenizer_piece(source->tokenizer, token, false, &source->text);
    *out_use = TOKEN_IS_TEXT;
    *out_bytes = (struct salvo_text){source->text.data, source->text.size};
    return status;
}

enum salvo_status model_token_trie(struct salvo_model *model, const struct token_trie **out)
{
    struct token_source source = {0};
    *out = NULL;
    enum salvo_status status = model_tokenizer(model, &source.tokenizer);
    if (status != SALVO_OK)
        return status;
    pthread_mutex_lock(&model->tokenizer_lock);
    if (!model->trie) {
        status = token_trie_open(
            (uint32_t)tokenizer_vocabulary(source.tokenizer), read_token, &source, &model->trie);
        status = gguf_check_after(model->gguf, status);
        if (status != SALVO_OK) {
            token_trie_close(model->trie);
            model->trie = NULL;
        }
    }
    *out = status == SALVO_OK ? model->trie : NULL;
    pthread_mutex_unlock(&model->tokenizer_lock);
    buffer_free(&source.text);
    return status;
}
