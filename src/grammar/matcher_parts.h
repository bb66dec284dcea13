/* The structs of grammars and matchers, for the files that implement them. */
#ifndef GRAMMAR_MATCHER_PARTS_H
#define GRAMMAR_MATCHER_PARTS_H

#include "grammar/matcher.h"
#include "grammar/unique.h"

#include <pthread.h>

struct salvo_grammar {
    pthread_mutex_t lock;
    struct network network;
    struct states states;
    const struct token_trie *trie;
    struct salvo_grammar_matcher *matchers, *worker; /* all, and the last that used the states */
    uint32_t *path;                                  /* states along the current branch of the trie */
    struct control_token *controls;
    size_t control_count;
    char *control_texts;
};

struct salvo_grammar_matcher {
    struct salvo_grammar *grammar;
    struct salvo_grammar_matcher *previous, *next; /* of the grammar */
    uint32_t *history; /* the state after each step, first state first; STATE_DEAD: ended */
    size_t count, capacity;
    size_t work;               /* items made for it */
    struct unique_text unique; /* if the grammar has arrays with unique items */
};

/* ---- Grammars with unique items, in matcher_unique.c; with the lock ---- */

/* The state after bytes, from the current place of the matcher's text on, which moves; stops before the first
 * that cannot follow. */
enum salvo_status unique_walk(
    struct salvo_grammar_matcher *matcher, struct salvo_text bytes, uint32_t *state, size_t *out_taken);

/* Removes from the mask of a state the tokens that lead to equal items. */
enum salvo_status unique_restrict(struct salvo_grammar_matcher *matcher, uint32_t state, uint32_t *mask);

#endif
