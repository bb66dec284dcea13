/*
 * Byte-level BPE: words become bytes, and neighbours are merged in the order in which the merges were
 * learned.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/tokenizer.h"
#include "text/vocabulary.h"

struct bpe_pair {
    int32_t left,
        right; /* symbols: ids of tokens and, beyond these, of texts that only merges mention; -1: free */
    uint32_t rank;
    int32_t joined;
};

struct bpe {
    const struct vocabulary *vocabulary;
    int32_t byte_symbols[256];
    struct bpe_pair *pairs; /* [mask + 1], a hash table */
    size_t mask;
};

enum salvo_status bpe_open(struct bpe *bpe, const struct gguf *gguf, struct vocabulary *vocabulary);
void bpe_close(struct bpe *bpe);

/* Appends the token of each byte; bytes without a token are counted as lost. */
enum salvo_status bpe_spell(const struct bpe *bpe, struct salvo_text text, struct token_list *list);

/* Appends the tokens of plain text. */
enum salvo_status bpe_encode(const struct bpe *bpe, struct salvo_text text, struct token_list *list);

#endif
