/*
 * Encodes the words of one text with a cache of recent words, because most words of a text repeat.
 */
#ifndef TEXT_WORD_ENCODER_H
#define TEXT_WORD_ENCODER_H

#include "text/merge.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

enum { MEMO_LONGEST_WORD = 15, MEMO_MOST_TOKENS = 4 };

struct memo_slot {
    uint64_t word[2]; /* the bytes, and the size in the last one; the size is never 0, so all zeros is free */
    int32_t ids[MEMO_MOST_TOKENS];
    size_t count;
};

struct word_encoder;

/* Appends the tokens of a word, as the merges make them. */
typedef enum salvo_status (*encode_function)(
    struct word_encoder *encoder, struct salvo_text word, struct token_list *list);

struct word_encoder {
    const struct vocabulary *vocabulary;
    const void *model; /* struct bpe or struct spm */
    encode_function encode;
    bool ignore_merges; /* a word that has a token of its own becomes it */
    struct merger merger;
    struct memo_slot *slots; /* NULL for a text too short to profit */
};

/* Set the members above `merger` first. */
enum salvo_status word_encoder_begin(struct word_encoder *encoder, size_t text_size);
void word_encoder_end(struct word_encoder *encoder);

enum salvo_status word_encode(struct word_encoder *encoder, struct salvo_text word, struct token_list *list);

#endif
