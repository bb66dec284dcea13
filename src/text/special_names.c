#include "text/special_names.h"

#include "gguf/gguf.h"

#include <ctype.h>
#include <string.h>

/* Generation ends at these. */
static const char *const end_names[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",

    /*
     * Padding, another repository, another file: a model that completes code and comes to these has
     * finished.
     */
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

/* Names of the fill-in-the-middle tokens. */
static const char *const fill_names[] = {
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<｜fim▁begin｜>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<｜fim▁hole｜>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
    "<｜fim▁end｜>",
};

/* Tokens of these names are control tokens, whatever type the file gives them. */
static enum salvo_status mark_names(
    struct vocabulary *vocabulary, const char *const *texts, size_t count, bool ends_generation)
{
    enum salvo_status status = SALVO_OK;
    struct string_map names = {0};
    uint32_t older;
    TRY(string_map_open(&names, count));
    for (size_t i = 0; i < count; i++)
        TRY(string_map_add(&names, texts[i], strlen(texts[i]), (uint32_t)i, &older));
    for (size_t i = 0; i < vocabulary->count; i++) {
        struct token *token = &vocabulary->tokens[i];
        if (string_map_find(&names, token->text.data, token->text.size) == UINT32_MAX)
            continue;
        token->type = TOKEN_CONTROL;
        token->ends_generation = token->ends_generation || ends_generation;
    }

cleanup:
    string_map_close(&names);
    return status;
}

static struct token *find_by_text(struct vocabulary *vocabulary, const char *text)
{
    for (size_t i = 0; i < vocabulary->count; i++) {
        if (text_equals(vocabulary->tokens[i].text, text))
            return &vocabulary->tokens[i];
    }
    return NULL;
}

/*
 * Where a message ends with <|end|> and the turn with <|return|> or <|flush|>, the former does not end
 * generation.
 */
static void except_end_of_message(struct vocabulary *vocabulary)
{
    struct token *end = find_by_text(vocabulary, "<|end|>");
    if (!end)
        return;
    bool calls = find_by_text(vocabulary, "<|call|>") || find_by_text(vocabulary, "<|calls|>");
    bool turns = find_by_text(vocabulary, "<|return|>") || find_by_text(vocabulary, "<|flush|>");
    if (calls && turns)
        end->ends_generation = false;
}

static bool contains(struct salvo_text text, const char *part)
{
    size_t size = strlen(part);
    for (size_t i = 0; i + size <= text.size; i++) {
        size_t matching = 0;
        while (matching < size && tolower((unsigned char)text.data[i + matching]) == part[matching])
            matching++;
        if (matching == size)
            return true;
    }
    return false;
}

static bool is_special(const struct token *token)
{
    return token_is_control(token) || token->type == TOKEN_USER_DEFINED;
}

/* GGUF has no place for these attributes: they are known by the model's name. */
static enum salvo_status mark_stripping(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text name = {0}, pre = {vocabulary->pre_name, strlen(vocabulary->pre_name)};
    struct token *mask = NULL;
    TRY(gguf_get_text(gguf, "general.name", &name, NULL));
    if (contains(pre, "jina-v2-de") || contains(pre, "jina-v2-es") || contains(pre, "jina-v2-code")) {
        mask = find_by_text(vocabulary, "<mask>");
    } else if (contains(name, "phi-3") || contains(name, "phi3")) {
        for (size_t i = 0; i < vocabulary->count; i++) {
            struct token *token = &vocabulary->tokens[i];
            token->strips_right = is_special(token) && !text_equals(token->text, "<unk>") &&
                                  !text_equals(token->text, "<s>") &&
                                  !text_equals(token->text, "<|endoftext|>");
        }
    } else if (contains(name, "modern-bert")) {
        mask = find_by_text(vocabulary, "[MASK]");
    }
    if (mask)
        mask->strips_left = true;

cleanup:
    return status;
}

enum salvo_status special_names_apply(const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    TRY(mark_names(vocabulary, end_names, sizeof end_names / sizeof *end_names, true));
    TRY(mark_names(vocabulary, fill_names, sizeof fill_names / sizeof *fill_names, false));
    except_end_of_message(vocabulary);
    TRY(mark_stripping(gguf, vocabulary));

cleanup:
    return status;
}
