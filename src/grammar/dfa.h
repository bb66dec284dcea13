/*
 * Deterministic automata over bytes, for what expressions cannot say: texts that match both of two
 * expressions, or one and not the other. Made from expressions without rules.
 */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/expr.h"

enum {
    DFA_MAX_STATES = 20000,
    DFA_MAX_BYTES = 24 << 20, /* of parser states while an automaton is made */
};

/* Bytes that an automaton treats in the same way are a class. */
struct byte_classes {
    uint32_t count;
    uint8_t of[256];
};

/* State 0 is dead: no text leads out of it. State 1 is the first. */
struct dfa {
    uint32_t states;
    struct byte_classes classes;
    uint32_t *next; /* [states][classes.count] */
    bool *accepts;
};

static inline uint32_t *dfa_row(const struct dfa *dfa, uint32_t state)
{
    return dfa->next + (size_t)state * dfa->classes.count;
}

static inline uint32_t dfa_step(const struct dfa *dfa, uint32_t state, unsigned byte)
{
    return dfa_row(dfa, state)[dfa->classes.of[byte]];
}

/* Texts of JSON strings that an automaton accepts, with a number of characters within limits. */
struct counted_text {
    const struct dfa *dfa;
    uint32_t min, max; /* max may be REPEAT_UNLIMITED */
};

/* All return NULL after an error, which the pool keeps; the automaton lives as long as the pool. States that
 * lead nowhere are dead. */
const struct dfa *dfa_of(struct expr_pool *pool, const struct expr *expr);
const struct dfa *dfa_both(struct expr_pool *pool, const struct dfa *left, const struct dfa *right);
const struct dfa *dfa_without(struct expr_pool *pool, const struct dfa *left, const struct dfa *right);

/* An automaton of `count` states, all dead, to be filled. */
struct dfa *dfa_new(struct expr_pool *pool, uint32_t count, const struct byte_classes *classes);

/* Whether an automaton accepts a text. */
bool dfa_accepts(const struct dfa *dfa, struct salvo_text text);

bool dfa_is_empty(const struct dfa *dfa); /* accepts no text */

#endif
