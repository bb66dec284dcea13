#include "text/tokenizer.h"

#include "base/log.h"
#include "base/memory.h"
#include "text/bpe.h"
#include "text/rwkv.h"
#include "text/special.h"
#include "text/spm.h"
#include "text/token_list.h"

#include <string.h>

struct tokenizer {
    struct vocabulary vocabulary;
    struct special_tokens special;
    union { /* by vocabulary.model */
        struct bpe bpe;
        struct spm spm;
        struct rwkv rwkv;
    };
};

/* ---- Open and close ---------------------------------------------------------------------------------- */

static enum salvo_status open_model(const struct gguf *gguf, struct tokenizer *tokenizer)
{
    switch (tokenizer->vocabulary.model) {
    case VOCABULARY_BPE:
        return bpe_open(&tokenizer->bpe, gguf, &tokenizer->vocabulary);
    case VOCABULARY_SPM:
        spm_open(&tokenizer->spm, &tokenizer->vocabulary);
        return SALVO_OK;
    case VOCABULARY_RWKV:
        return rwkv_open(&tokenizer->rwkv, &tokenizer->vocabulary);
    }
    return SALVO_OK;
}

enum salvo_status tokenizer_open(const struct gguf *gguf, struct tokenizer **out)
{
    enum salvo_status status = SALVO_OK;
    struct tokenizer *tokenizer = NULL;
    *out = NULL;
    TRY(NEW(&tokenizer, 1));
    TRY(vocabulary_open(gguf, &tokenizer->vocabulary));
    TRY(special_tokens_open(&tokenizer->special, &tokenizer->vocabulary));
    TRY(open_model(gguf, tokenizer));
    *out = tokenizer;

cleanup:
    if (status != SALVO_OK)
        tokenizer_close(tokenizer);
    return status;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    switch (tokenizer->vocabulary.model) {
    case VOCABULARY_BPE:
        bpe_close(&tokenizer->bpe);
        break;
    case VOCABULARY_SPM:
        break;
    case VOCABULARY_RWKV:
        rwkv_close(&tokenizer->rwkv);
        break;
    }
    special_tokens_close(&tokenizer->special);
    vocabulary_close(&tokenizer->vocabulary);
    memory_free(tokenizer);
}

/* ---- Properties -------------------------------------------------------------------------------------- */

const char *tokenizer_model(const struct tokenizer *tokenizer)
{
    static const char *const names[] = {
        [VOCABULARY_BPE] = "gpt2", [VOCABULARY_SPM] = "llama", [VOCABULARY_RWKV] = "rwkv"};
    return names[tokenizer->vocabulary.model];
}

const char *tokenizer_pre(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.pre_name;
}

size_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.count;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.eos;
}

static bool is_token(const struct tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && (size_t)id < tokenizer->vocabulary.count;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) && tokenizer->vocabulary.tokens[id].ends_generation;
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) && token_is_control(&tokenizer->vocabulary.tokens[id]);
}

bool tokenizer_is_user_defined(const struct tokenizer *tokenizer, int32_t id)
{
    return is_token(tokenizer, id) && tokenizer->vocabulary.tokens[id].type == TOKEN_USER_DEFINED;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.add_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.add_eos;
}

/* ---- Text to tokens ---------------------------------------------------------------------------------- */

static enum salvo_status encode_plain(
    const struct tokenizer *tokenizer, struct salvo_text text, struct token_list *list)
{
    if (text.size == 0)
        return SALVO_OK;
    switch (tokenizer->vocabulary.model) {
    case VOCABULARY_BPE:
        return bpe_encode(&tokenizer->bpe, text, list);
    case VOCABULARY_SPM:
        return spm_encode(&tokenizer->spm, text, list);
    case VOCABULARY_RWKV:
        return rwkv_encode(&tokenizer->rwkv, text, list);
    }
    return SALVO_OK;
}

/* Byte by byte, without merges, so that no token of several bytes results. */
static enum salvo_status spell(
    const struct tokenizer *tokenizer, struct salvo_text text, struct token_list *list)
{
    switch (tokenizer->vocabulary.model) {
    case VOCABULARY_BPE:
        return bpe_spell(&tokenizer->bpe, text, list);
    case VOCABULARY_SPM:
        return spm_spell(&tokenizer->spm, text, list);
    case VOCABULARY_RWKV:
        return rwkv_spell(&tokenizer->rwkv, text, list);
    }
    return SALVO_OK;
}

/* Plain text may also become a user-defined token by merges, or as a whole word. */
static enum salvo_status encode_without(
    const struct tokenizer *tokenizer, struct salvo_text text, const bool *guarded, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    struct token_list plain = {0};
    TRY(encode_plain(tokenizer, text, &plain));
    list->lost += plain.lost;
    for (size_t i = 0; i < plain.count; i++) {
        if (guarded[plain.ids[i]])
            TRY(spell(tokenizer, tokenizer->vocabulary.tokens[plain.ids[i]].piece, list));
        else
            TRY(token_list_add(list, plain.ids[i]));
    }

cleanup:
    token_list_free(&plain);
    return status;
}

static enum salvo_status encode_between(
    const struct tokenizer *tokenizer, struct salvo_text text, const bool *guarded, struct token_list *list)
{
    return guarded ? encode_without(tokenizer, text, guarded, list) : encode_plain(tokenizer, text, list);
}

enum salvo_status tokenizer_encode(
    const struct tokenizer *tokenizer, const char *text, size_t size, unsigned flags, struct token_list *list)
{
    const struct guarded_text plain = {.text = text, .size = size};
    return tokenizer_encode_guarded(tokenizer, &plain, flags, list);
}

enum salvo_status tokenizer_encode_guarded(const struct tokenizer *tokenizer,
    const struct guarded_text *guarded, unsigned flags, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    const char *text = guarded->text;
    const size_t size = guarded->size;
    const struct special_search search = {
        .special = &tokenizer->special,
        .vocabulary = vocabulary,
        .text = {text, size},
        .control = (flags & TOKENIZE_SPECIAL) != 0,
        .marks = guarded->marks,
        .guarded = guarded->guarded,
    };
    struct special_match *matches = NULL;
    size_t match_count, at = 0, count_before = list->count, lost_before = list->lost;

    if ((flags & TOKENIZE_BOS) && vocabulary->bos >= 0)
        TRY(token_list_add(list, vocabulary->bos));
    TRY(special_tokens_find(&search, &matches, &match_count));
    for (size_t i = 0; i < match_count; i++) {
        TRY(encode_between(
            tokenizer, (struct salvo_text){text + at, matches[i].begin - at}, search.guarded, list));
        TRY(token_list_add(list, matches[i].id));
        at = matches[i].end;
    }
    if (at < size)
        TRY(encode_between(tokenizer, (struct salvo_text){text + at, size - at}, search.guarded, list));
    if ((flags & TOKENIZE_EOS) && vocabulary->eos >= 0)
        TRY(token_list_add(list, vocabulary->eos));
    if (list->lost > lost_before) {
        log_line(SALVO_LOG_WARNING,
            "%zu of the %zu bytes of the text have no token in the vocabulary and are dropped",
            list->lost - lost_before, size);
    }

cleanup:
    memory_free(matches);
    if (status != SALVO_OK)
        list->count = count_before;
    return status;
}

static bool is_blank_text(struct salvo_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (!is_blank(text.data[i]))
            return false;
    }
    return true;
}

enum salvo_status tokenizer_guard(
    const struct tokenizer *tokenizer, const char *text, size_t size, bool *guarded)
{
    enum salvo_status status = SALVO_OK;
    const struct special_search search = {.special = &tokenizer->special,
        .vocabulary = &tokenizer->vocabulary,
        .text = {text, size},
        .control = true};
    struct special_match *matches = NULL;
    size_t count;
    TRY(special_tokens_find(&search, &matches, &count));
    for (size_t i = 0; i < count; i++) {
        const struct token *token = &tokenizer->vocabulary.tokens[matches[i].id];
        if (token->type == TOKEN_USER_DEFINED && !is_blank_text(token->piece))
            guarded[matches[i].id] = true;
    }

cleanup:
    memory_free(matches);
    return status;
}

/* ---- Tokens to text ---------------------------------------------------------------------------------- */

static enum salvo_status find_piece(
    const struct tokenizer *tokenizer, int32_t id, bool special, struct salvo_text *out)
{
    *out = (struct salvo_text){0};
    if (!is_token(tokenizer, id))
        return fail(SALVO_ERROR_ARGUMENT, "token %d is outside the vocabulary of %zu tokens", id,
            tokenizer->vocabulary.count);
    const struct token *token = &tokenizer->vocabulary.tokens[id];
    if (special || !token_is_control(token))
        *out = token->piece;
    return SALVO_OK;
}

enum salvo_status tokenizer_piece(
    const struct tokenizer *tokenizer, int32_t id, bool special, struct buffer *buffer)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text piece;
    TRY(find_piece(tokenizer, id, special, &piece));
    TRY(buffer_append(buffer, piece.data, piece.size));

cleanup:
    return status;
}

enum salvo_status tokenizer_decode(
    const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool special, struct buffer *buffer)
{
    enum salvo_status status = SALVO_OK;
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    size_t size_before = buffer->size;
    bool remove_blank = vocabulary->model == VOCABULARY_SPM && vocabulary->add_space_prefix;
    for (size_t i = 0; i < count; i++) {
        struct salvo_text piece;
        TRY(find_piece(tokenizer, ids[i], special, &piece));
        if (remove_blank && piece.size) {
            size_t blank = piece.data[0] == ' ' ? 1 : 0;
            piece = (struct salvo_text){piece.data + blank, piece.size - blank};
            remove_blank = false;
        }
        TRY(buffer_append(buffer, piece.data, piece.size));
    }

cleanup:
    if (status != SALVO_OK)
        buffer->size = size_before;
    return status;
}
