/*
 * Tokens inside JSON strings, prepared once for a vocabulary. Where any text may follow within a string,
 * tokens without a closing quote need not be tried: only tokens with a quote depend on the grammar.
 */
#ifndef GRAMMAR_STRING_TOKENS_H
#define GRAMMAR_STRING_TOKENS_H

#include "grammar/token_trie.h"

enum { NOT_STRING_TEXT = UINT16_MAX };

struct string_tokens {
    uint32_t *mask;  /* tokens that are text of a string, or the beginning of one */
    uint16_t *chars; /* for each entry of trie->ids: the characters that it begins; NOT_STRING_TEXT: other */
    uint32_t *longest; /* the entries of trie->ids that are text, the longest first */
    uint32_t text_count;
    bool *at_body;           /* for each node of the trie: its bytes are whole characters of a string */
    struct trie_node *nodes; /* [node_count + 1]: a trie of the tokens in which a quote ends a string */
    uint32_t node_count;
    uint32_t *ids;
    uint32_t *origins; /* for each of `nodes`: its number in the whole trie */
};

enum salvo_status string_tokens_open(const struct token_trie *trie, struct string_tokens **out);
void string_tokens_close(struct string_tokens *tokens);

/* The first of `nodes` that is not before a node of the whole trie. */
uint32_t string_tokens_find(const struct string_tokens *tokens, uint32_t origin);

#endif
