/*
 * Text to token ids and back, as the vocabulary in a GGUF file says. Immutable once open: any thread may
 * use it.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/buffer.h"
#include "base/status.h"

struct gguf;
struct tokenizer;

struct token_list {
    int32_t *ids;
    size_t count, capacity;
    size_t lost; /* bytes without a token, in a vocabulary without an unknown token */
};

void token_list_free(struct token_list *list);

/* `gguf` must outlive the tokenizer: token texts stay in the mapped file. */
enum salvo_status tokenizer_open(const struct gguf *gguf, struct tokenizer **out);
void tokenizer_close(struct tokenizer *tokenizer);

const char *tokenizer_model(const struct tokenizer *tokenizer); /* "gpt2", "llama", "rwkv" */
const char *tokenizer_pre(const struct tokenizer *tokenizer);   /* "smollm"; "" where there is none */
size_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* -1 when the vocabulary has none. */
int32_t tokenizer_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_eos(const struct tokenizer *tokenizer);

/* eos, eot, eom by metadata or by name: generation ends at any of these. */
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);

/* Whether it is a control token: text becomes it only with TOKENIZE_SPECIAL. */
bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t id);

/* Whether it is user-defined: any text that contains it becomes this token. */
bool tokenizer_is_user_defined(const struct tokenizer *tokenizer, int32_t id);

/* Whether the metadata asks to add them. */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
bool tokenizer_adds_eos(const struct tokenizer *tokenizer);

enum tokenize_flags {
    TOKENIZE_SPECIAL = 1, /* names of control tokens in the text become control tokens */
    TOKENIZE_BOS = 2,     /* the beginning-of-text token first */
    TOKENIZE_EOS = 4,     /* the end-of-text token last */
};

/* Appends the tokens of any bytes, also invalid UTF-8. Bytes without a token are left out, with one warning.
 */
enum salvo_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
    unsigned flags, struct token_list *list);

/* A text of which some bytes may not become part of a control token. */
struct guarded_text {
    const char *text;
    const char *marks; /* [size] 1 for these bytes */
    size_t size;
    const bool *guarded; /* NULL, or for each token whether it counts as a control token here */
};

enum salvo_status tokenizer_encode_guarded(const struct tokenizer *tokenizer,
    const struct guarded_text *guarded, unsigned flags, struct token_list *list);

/* Sets guarded[id] for all user-defined tokens in `text`, except tokens of blanks only, which are plain text
 * in a message. */
enum salvo_status tokenizer_guard(
    const struct tokenizer *tokenizer, const char *text, size_t size, bool *guarded);

/*
 * Bytes of one token; empty for control tokens unless `special`. A SentencePiece vocabulary puts a space
 * before the text: tokenizer_decode removes it again, this does not.
 */
enum salvo_status tokenizer_piece(
    const struct tokenizer *tokenizer, int32_t id, bool special, struct buffer *buffer);

/*
 * Appends the text of all ids; control tokens are written only with `special`. An id outside the vocabulary
 * is an error.
 */
enum salvo_status tokenizer_decode(
    const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool special, struct buffer *buffer);

/* How many bytes at the end of `text` are the beginning of a UTF-8 character that is not complete: 0 to 3. */
size_t utf8_incomplete_tail(const char *text, size_t size);

#endif
