/* The short cut for words that are one token, which most words of a text are. */
#ifndef TEXT_WHOLE_WORD_H
#define TEXT_WHOLE_WORD_H

#include "text/merge.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

/* Appends the tokens of a word, as the merges make them. */
typedef enum salvo_status (*word_encoder)(
    const void *context, struct merger *merger, struct salvo_text word, struct token_list *list);

/*
 * Encodes a word. One that has a token of its own becomes it if `always`, or if `encode` makes it so, which
 * is asked only once for each token.
 */
enum salvo_status whole_word_encode(const struct vocabulary *vocabulary, bool always, word_encoder encode,
    const void *context, struct merger *merger, struct salvo_text word, struct token_list *list);

#endif
