/* The RWKV "world" vocabulary: at each place the longest token that the text begins with. */
#ifndef TEXT_RWKV_H
#define TEXT_RWKV_H

#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/vocabulary.h"

struct rwkv {
    const struct vocabulary *vocabulary;
    struct trie trie;
};

enum salvo_status rwkv_open(struct rwkv *rwkv, const struct vocabulary *vocabulary);
void rwkv_close(struct rwkv *rwkv);

/* Appends the token of each byte: for a byte without one the unknown token, or nothing if there is none. */
enum salvo_status rwkv_spell(const struct rwkv *rwkv, struct salvo_text text, struct token_list *list);

/* Appends the tokens of plain text. */
enum salvo_status rwkv_encode(const struct rwkv *rwkv, struct salvo_text text, struct token_list *list);

#endif
