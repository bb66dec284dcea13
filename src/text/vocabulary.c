#include "text/vocabulary.h"

#include "base/log.h"
#include "base/memory.h"
#include "gguf/gguf.h"
#include "text/pieces.h"
#include "text/special_names.h"

#include <string.h>

/* ---- Which kind -------------------------------------------------------------------------------------- */

static enum salvo_status read_model(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    static const struct {
        const char *name;
        enum vocabulary_model model;
    } models[] = {{"gpt2", VOCABULARY_BPE}, {"llama", VOCABULARY_SPM}, {"rwkv", VOCABULARY_RWKV}};
    enum salvo_status status = SALVO_OK;
    struct salvo_text name = {0};
    bool found;
    TRY(gguf_get_text(gguf, "tokenizer.ggml.model", &name, &found));
    if (!found || text_equals(name, "no_vocab") || text_equals(name, "none"))
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the model has no vocabulary: cannot tokenize text"));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (text_equals(name, models[i].name)) {
            vocabulary->model = models[i].model;
            goto cleanup;
        }
    }
    status = fail(SALVO_ERROR_UNSUPPORTED,
        "tokenizer.ggml.model '%.*s' is not supported; supported: gpt2, llama, rwkv",
        (int)(name.size < 64 ? name.size : 64), name.data);

cleanup:
    return status;
}

static enum salvo_status read_pre_tokenizer(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    static const char default_name[] = "default";
    enum salvo_status status = SALVO_OK;
    struct salvo_text name = {0};
    char *copy;
    bool found;
    TRY(gguf_get_text(gguf, "tokenizer.ggml.pre", &name, &found));
    TRY(arena_copy_bytes(&vocabulary->arena, name.data, name.size, &copy));
    vocabulary->pre_name = copy;
    if (vocabulary->model != VOCABULARY_BPE)
        goto cleanup;
    vocabulary->pre = pre_tokenizer_find(name.data, name.size);
    if (!vocabulary->pre) {
        vocabulary->pre = pre_tokenizer_find(default_name, strlen(default_name));
        log_line(SALVO_LOG_WARNING,
            "%s: the pre-tokenizer (tokenizer.ggml.pre) is %s%s: using '%s', tokens may differ",
            gguf_path(gguf), found ? "not known: " : "missing", copy, default_name);
    }

cleanup:
    return status;
}

/* ---- Tokens ------------------------------------------------------------------------------------------ */

static enum salvo_status read_texts(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_value texts, item;
    bool found;
    TRY(gguf_get_array(gguf, "tokenizer.ggml.tokens", SALVO_STRING, &texts, &found));
    if (!found)
        TRY(fail(SALVO_ERROR_FORMAT, "tokenizer.ggml.tokens is missing"));
    if (texts.array.count == 0 || texts.array.count > INT32_MAX)
        TRY(fail(SALVO_ERROR_FORMAT, "tokenizer.ggml.tokens has %llu tokens: expected 1 to %d",
            (unsigned long long)texts.array.count, INT32_MAX));
    TRY(NEW(&vocabulary->tokens, (size_t)texts.array.count));
    while (salvo_array_next(&texts, &item))
        vocabulary->tokens[vocabulary->count++] =
            (struct token){.text = item.text, .piece = item.text, .type = TOKEN_NORMAL};

cleanup:
    return status;
}

/* An optional array with one number per token; *found is false if the file does not have it. */
static enum salvo_status get_per_token(const struct gguf *gguf, const struct vocabulary *vocabulary,
    const char *key, enum salvo_type item_type, struct salvo_value *out, bool *found)
{
    enum salvo_status status = SALVO_OK;
    TRY(gguf_get_array(gguf, key, item_type, out, found));
    if (*found && out->array.count != vocabulary->count)
        TRY(fail(SALVO_ERROR_FORMAT, "%s has %llu items, but tokenizer.ggml.tokens has %zu", key,
            (unsigned long long)out->array.count, vocabulary->count));

cleanup:
    return status;
}

static enum salvo_status read_scores(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    static const char key[] = "tokenizer.ggml.scores";
    enum salvo_status status = SALVO_OK;
    const struct salvo_value *value = gguf_find(gguf, key);
    struct salvo_value scores, item;
    bool found, integers = value && value->type == SALVO_ARRAY && value->array.type == SALVO_I32;
    TRY(get_per_token(gguf, vocabulary, key, integers ? SALVO_I32 : SALVO_F32, &scores, &found));
    if (!found && vocabulary->model == VOCABULARY_SPM)
        TRY(fail(SALVO_ERROR_FORMAT, "%s is missing: the 'llama' tokenizer needs it", key));
    for (size_t i = 0; found && salvo_array_next(&scores, &item); i++)
        vocabulary->tokens[i].score = integers ? (float)item.i : (float)item.f;

cleanup:
    return status;
}

static enum salvo_status read_types(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_value types, item;
    bool found;
    TRY(get_per_token(gguf, vocabulary, "tokenizer.ggml.token_type", SALVO_I32, &types, &found));
    for (size_t i = 0; found && salvo_array_next(&types, &item); i++) {
        bool known = item.i >= TOKEN_UNDEFINED && item.i <= TOKEN_BYTE;
        vocabulary->tokens[i].type = known ? (uint8_t)item.i : TOKEN_UNDEFINED;
    }

cleanup:
    return status;
}

/* ---- Special tokens ---------------------------------------------------------------------------------- */

/* Replaces *id if the key exists; a default outside the vocabulary becomes -1. */
static enum salvo_status read_id(
    const struct gguf *gguf, const struct vocabulary *vocabulary, const char *key, int32_t *id)
{
    enum salvo_status status = SALVO_OK;
    uint32_t value = 0;
    bool found;
    if (*id >= 0 && (size_t)*id >= vocabulary->count)
        *id = -1;
    TRY(gguf_get_u32(gguf, key, &value, &found));
    if (found && value >= vocabulary->count)
        TRY(fail(SALVO_ERROR_FORMAT, "%s is %u, but there are %zu tokens", key, value, vocabulary->count));
    if (found)
        *id = (int32_t)value;

cleanup:
    return status;
}

static enum salvo_status read_special_ids(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    /* Defaults for keys that are missing. */
    static const struct {
        int32_t bos, eos, unknown;
    } defaults[] = {
        [VOCABULARY_BPE] = {11, 11, -1}, [VOCABULARY_SPM] = {1, 2, 0}, [VOCABULARY_RWKV] = {-1, -1, -1}};
    static const char *const end_keys[] = {
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id",
        "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
    };
    enum salvo_status status = SALVO_OK;
    vocabulary->bos =
        vocabulary->pre && vocabulary->pre->no_default_bos ? -1 : defaults[vocabulary->model].bos;
    vocabulary->eos = defaults[vocabulary->model].eos;
    vocabulary->unknown = defaults[vocabulary->model].unknown;
    TRY(read_id(gguf, vocabulary, "tokenizer.ggml.bos_token_id", &vocabulary->bos));
    TRY(read_id(gguf, vocabulary, "tokenizer.ggml.eos_token_id", &vocabulary->eos));
    TRY(read_id(gguf, vocabulary, "tokenizer.ggml.unknown_token_id", &vocabulary->unknown));
    if (vocabulary->eos >= 0)
        vocabulary->tokens[vocabulary->eos].ends_generation = true;
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
        int32_t id = -1;
        TRY(read_id(gguf, vocabulary, end_keys[i], &id));
        if (id >= 0)
            vocabulary->tokens[id].ends_generation = true;
    }

cleanup:
    return status;
}

static enum salvo_status read_switches(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    bool spm = vocabulary->model == VOCABULARY_SPM;
    vocabulary->add_bos = spm || (vocabulary->pre && vocabulary->pre->add_bos);
    vocabulary->add_space_prefix = spm;
    TRY(gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &vocabulary->add_bos, NULL));
    TRY(gguf_get_bool(gguf, "tokenizer.ggml.add_eos_token", &vocabulary->add_eos, NULL));
    TRY(gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", &vocabulary->add_space_prefix, NULL));
    TRY(gguf_get_bool(
        gguf, "tokenizer.ggml.remove_extra_whitespaces", &vocabulary->remove_extra_spaces, NULL));
    vocabulary->add_bos = vocabulary->add_bos && vocabulary->bos >= 0;
    vocabulary->add_eos = vocabulary->add_eos && vocabulary->eos >= 0;

cleanup:
    return status;
}

/* ---- Open and close ---------------------------------------------------------------------------------- */

static enum salvo_status index_pieces(struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    TRY(string_map_open(&vocabulary->by_piece, vocabulary->count));
    for (size_t i = 0; i < vocabulary->count; i++) {
        const struct token *token = &vocabulary->tokens[i];
        uint32_t older;
        if (token->plain)
            TRY(string_map_add(
                &vocabulary->by_piece, token->piece.data, token->piece.size, (uint32_t)i, &older));
    }

cleanup:
    return status;
}

enum salvo_status vocabulary_open(const struct gguf *gguf, struct vocabulary *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct vocabulary){0};
    TRY(read_model(gguf, out));
    TRY(read_pre_tokenizer(gguf, out));
    TRY(read_texts(gguf, out));
    TRY(read_scores(gguf, out));
    TRY(read_types(gguf, out));
    TRY(read_special_ids(gguf, out));
    TRY(read_switches(gguf, out));
    TRY(special_names_apply(gguf, out));
    TRY(pieces_decode(out));
    TRY(index_pieces(out));

cleanup:
    if (status != SALVO_OK)
        vocabulary_close(out);
    return status;
}

void vocabulary_close(struct vocabulary *vocabulary)
{
    memory_free(vocabulary->tokens);
    string_map_close(&vocabulary->by_piece);
    arena_free(&vocabulary->arena);
    *vocabulary = (struct vocabulary){0};
}
