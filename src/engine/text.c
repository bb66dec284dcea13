/* The public text functions, on the model's tokenizer. */
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"

_Static_assert((int)SALVO_TOKENIZE_SPECIAL == (int)TOKENIZE_SPECIAL &&
                   (int)SALVO_TOKENIZE_BOS == (int)TOKENIZE_BOS &&
                   (int)SALVO_TOKENIZE_EOS == (int)TOKENIZE_EOS,
    "public flags are handed through");

enum salvo_status salvo_tokenize_default_flags(struct salvo_model *model, unsigned *out_flags)
{
    const struct tokenizer *tokenizer;
    REQUIRE(out_flags);
    *out_flags = 0;
    REQUIRE(model);
    enum salvo_status status = model_tokenizer(model, &tokenizer);
    if (status == SALVO_OK) {
        *out_flags = (tokenizer_adds_bos(tokenizer) ? SALVO_TOKENIZE_BOS : 0) |
                     (tokenizer_adds_eos(tokenizer) ? SALVO_TOKENIZE_EOS : 0);
    }
    return status;
}

enum salvo_status salvo_tokenize(struct salvo_model *model, const char *text, size_t size, unsigned flags,
    int32_t **out_ids, size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    struct token_list list = {0};
    const struct tokenizer *tokenizer;
    REQUIRE(out_ids);
    REQUIRE(out_count);
    *out_ids = NULL;
    *out_count = 0;
    REQUIRE(model);
    if (size)
        REQUIRE(text);
    TRY(model_tokenizer(model, &tokenizer));
    TRY(tokenizer_encode(tokenizer, text, size, flags, &list));
    TRY(gguf_check(model_gguf(model)));
    *out_ids = list.ids;
    *out_count = list.count;
    list.ids = NULL;
cleanup:
    token_list_free(&list);
    return status;
}

/* Passes the buffer's memory to the caller, or frees it after a failure. */
static enum salvo_status pass_to_caller(
    enum salvo_status status, struct buffer *buffer, char **out_text, size_t *out_size)
{
    if (status != SALVO_OK) {
        buffer_free(buffer);
        return status;
    }
    *out_text = buffer->data;
    *out_size = buffer->size;
    return SALVO_OK;
}

enum salvo_status salvo_detokenize(struct salvo_model *model, const int32_t *ids, size_t count, bool special,
    char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer buffer = {0};
    const struct tokenizer *tokenizer;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(model);
    if (count)
        REQUIRE(ids);
    TRY(model_tokenizer(model, &tokenizer));
    TRY(tokenizer_decode(tokenizer, ids, count, special, &buffer));
    TRY(gguf_check(model_gguf(model)));
cleanup:
    return pass_to_caller(status, &buffer, out_text, out_size);
}

enum salvo_status salvo_token_text(struct salvo_model *model, int32_t id, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer buffer = {0};
    const struct tokenizer *tokenizer;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(model);
    TRY(model_tokenizer(model, &tokenizer));
    TRY(tokenizer_piece(tokenizer, id, true, &buffer));
    TRY(gguf_check(model_gguf(model)));
cleanup:
    return pass_to_caller(status, &buffer, out_text, out_size);
}

size_t salvo_utf8_incomplete(const char *text, size_t size)
{
    return text && size ? utf8_incomplete_tail(text, size) : 0;
}

void salvo_free(void *memory)
{
    memory_free(memory);
}
