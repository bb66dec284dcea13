/*
 * Deterministic automata over bytes, for what expressions cannot say: texts that match both of two
 * expressions, or one and not the other. Made from expressions without rules.
 */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/expr.h"

enum { DFA_MAX_STATES = 20000 };

/* State 0 is dead: no text leads out of it. State 1 is the first. */
struct dfa {
    uint32_t states;
    uint32_t (*next)[256];
    bool *accepts;
};

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
struct dfa *dfa_new(struct expr_pool *pool, uint32_t count);

bool dfa_is_empty(const struct dfa *dfa); /* accepts no text */

#endif
