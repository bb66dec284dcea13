#include "text/special_names.h"

#include "gguf/gguf.h"

#include <ctype.h>
#include <string.h>

enum {
    ENDS = 1, /* generation ends at this token */
};

struct special_name {
    const char *text;
    unsigned flags;
};

/*
 * All of these are control tokens, whatever type the file gives them. That the names for a repository, a file
 * and padding end generation is meant for completion of code: a model that begins another file has finished
 * this one.
 */
static const struct special_name special_names[] = {
    {"<|eot_id|>", ENDS},
    {"<|eom_id|>", ENDS},
    {"<|im_end|>", ENDS},
    {"<|end|>", ENDS},
    {"<|return|>", ENDS},
    {"<|call|>", ENDS},
    {"<|flush|>", ENDS},
    {"<|calls|>", ENDS},
    {"<end_of_turn>", ENDS},
    {"<|endoftext|>", ENDS},
    {"<|end_of_text|>", ENDS},
    {"<end_of_utterance>", ENDS},
    {"<eos>", ENDS},
    {"</s>", ENDS},
    {"<EOT>", ENDS},
    {"_<EOT>", ENDS},
    {"[EOT]", ENDS},
    {"[EOS]", ENDS},
    {"[e~[", ENDS},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
        ENDS},

    {"<|fim_pad|>", ENDS},
    {"<fim-pad>", ENDS},
    {"<fim_pad>", ENDS},
    {"<PAD>", ENDS},
    {"[PAD]", ENDS},
    {"<|fim_repo|>", ENDS},
    {"<|repo_name|>", ENDS},
    {"<fim-repo>", ENDS},
    {"<REPO>", ENDS},
    {"<reponame>", ENDS},
    {"<|file_sep|>", ENDS},

    {"<|fim_prefix|>", 0},
    {"<fim-prefix>", 0},
    {"<fim_prefix>", 0},
    {"<PRE>", 0},
    {"\xe2\x96\x81<PRE>", 0},
    {"<|code_prefix|>", 0},
    {"<|prefix|>", 0},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
        0},
    {"<|fim_suffix|>", 0},
    {"<fim-suffix>", 0},
    {"<fim_suffix>", 0},
    {"<SUF>", 0},
    {"\xe2\x96\x81<SUF>", 0},
    {"<|code_suffix|>", 0},
    {"<|suffix|>", 0},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
        0},
    {"<|fim_middle|>", 0},
    {"<fim-middle>", 0},
    {"<fim_middle>", 0},
    {"<MID>", 0},
    {"\xe2\x96\x81<MID>", 0},
    {"<|code_middle|>", 0},
    {"<|middle|>", 0},
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
        0},
};

enum { NAME_COUNT = sizeof special_names / sizeof *special_names };

static enum salvo_status mark_names(struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct string_map names = {0};
    TRY(string_map_open(&names, NAME_COUNT));
    for (uint32_t i = 0; i < NAME_COUNT; i++) {
        uint32_t older;
        TRY(string_map_add(&names, special_names[i].text, strlen(special_names[i].text), i, &older));
    }
    for (size_t i = 0; i < vocabulary->count; i++) {
        struct token *token = &vocabulary->tokens[i];
        uint32_t name = string_map_find(&names, token->text.data, token->text.size);
        if (name == UINT32_MAX)
            continue;
        token->type = TOKEN_CONTROL;
        if (special_names[name].flags & ENDS)
            token->ends_generation = true;
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

/* Where a message ends with <|end|> and the turn with <|return|> or <|flush|>, the former does not end
 * generation. */
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
    return token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN || token->type == TOKEN_USER_DEFINED;
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
    TRY(mark_names(vocabulary));
    except_end_of_message(vocabulary);
    TRY(mark_stripping(gguf, vocabulary));

cleanup:
    return status;
}
