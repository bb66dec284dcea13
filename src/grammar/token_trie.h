/*
 * The bytes of all tokens of a vocabulary as a trie, in one array: a node is followed by its children, so
 * that walking it is a loop. Immutable once open.
 */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include "grammar/expr.h"

enum token_use {
    TOKEN_IS_TEXT,
    TOKEN_IS_END,   /* ends a text: allowed where the text is complete */
    TOKEN_IS_NEVER, /* a control token or one without bytes: never allowed */
};

/* Stores how a token is used and, for text, its bytes, which stay in place until the next call. */
typedef enum salvo_status (*token_function)(
    void *user, uint32_t id, enum token_use *out_use, struct salvo_text *out_bytes);

struct trie_node {
    uint32_t after;  /* the node that follows this one and all below it */
    uint32_t tokens; /* this node's tokens are ids[tokens] to ids[(this + 1)->tokens] */
    uint32_t below;  /* number of the set of bytes below this node; UINT32_MAX: not known */
    uint16_t depth;  /* length of its text */
    uint8_t byte;    /* last byte of it */
};

struct token_trie {
    uint32_t token_count;
    struct trie_node *nodes; /* [node_count + 1]: the last one ends the list */
    uint32_t node_count;
    uint32_t *ids; /* of tokens that are text, in the order of the nodes */
    uint32_t *ends;
    uint32_t end_count;
    uint16_t deepest;
    struct byte_set *sets;
    uint32_t set_count;
    struct string_tokens *strings;
    struct separator_tokens *separators;

    /* The text of each token: texts[offsets[i]] to texts[offsets[i + 1]]; empty unless it is text. */
    char *texts;
    uint32_t *offsets;
    uint8_t *uses; /* enum token_use */
};

enum salvo_status token_trie_open(uint32_t count, token_function token, void *user, struct token_trie **out);
void token_trie_close(struct token_trie *trie);

static inline struct salvo_text token_trie_text(const struct token_trie *trie, uint32_t id)
{
    return (struct salvo_text){trie->texts + trie->offsets[id], trie->offsets[id + 1] - trie->offsets[id]};
}

#endif
