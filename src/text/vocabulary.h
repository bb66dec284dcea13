/* The tokens of a GGUF file, checked, and what its metadata says about them. */
#ifndef TEXT_VOCABULARY_H
#define TEXT_VOCABULARY_H

#include "base/arena.h"
#include "base/string_map.h"
#include "text/split.h"

#include <string.h>

struct gguf;

enum token_type { /* numbered as in GGUF */
    TOKEN_UNDEFINED = 0,
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

enum vocabulary_model { VOCABULARY_BPE, VOCABULARY_SPM, VOCABULARY_RWKV };

struct token {
    struct salvo_text text;  /* as the file writes it */
    struct salvo_text piece; /* the bytes it stands for */
    float score;
    uint8_t type; /* enum token_type */
    bool plain;   /* plain text may become this token */
    bool ends_generation;
    bool strips_left, strips_right; /* a special token that also takes the blanks on its left or right */
};

struct vocabulary {
    enum vocabulary_model model;
    const struct pre_tokenizer *pre; /* NULL unless BPE */
    const char *pre_name;            /* as the file writes it; "" where there is none */
    struct token *tokens;
    size_t count;
    int32_t bos, eos, unknown; /* -1: none */
    bool add_bos, add_eos, add_space_prefix, remove_extra_spaces;
    struct string_map by_piece; /* of plain tokens */
    struct arena arena;
};

enum salvo_status vocabulary_open(const struct gguf *gguf, struct vocabulary *out);
void vocabulary_close(struct vocabulary *vocabulary);

/* 10 for "<0x0A>"; -1 for other texts. */
int byte_token_value(struct salvo_text text);

/*
 * Plain text never becomes a control token, even if it spells one, and control tokens are written only on
 * request.
 */
static inline bool token_is_control(const struct token *token)
{
    return token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN;
}

static inline bool text_equals(struct salvo_text text, const char *string)
{
    return text.size == strlen(string) && memcmp(text.data, string, text.size) == 0;
}

#endif
