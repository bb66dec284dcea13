/*
 * The tokens that may end an item of an array, prepared once for a vocabulary: where no two items may be
 * equal, these are tried one by one.
 */
#ifndef GRAMMAR_SEPARATOR_TOKENS_H
#define GRAMMAR_SEPARATOR_TOKENS_H

#include "grammar/token_trie.h"

enum separator_case {
    SEPARATOR_IN_ARRAY,  /* a comma or bracket is in the token */
    SEPARATOR_IN_STRING, /* behind a quote */
    SEPARATOR_OUTSIDE,   /* behind an opening bracket */
    SEPARATOR_CASES
};

struct separator_tokens {
    uint32_t *ids[SEPARATOR_CASES], counts[SEPARATOR_CASES];
};

enum salvo_status separator_tokens_open(const struct token_trie *trie, struct separator_tokens **out);
void separator_tokens_close(struct separator_tokens *tokens);

#endif
