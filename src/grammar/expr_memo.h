/*
 * Results by their sources: large schemas repeat patterns, formats and limits, and each is made once. A
 * source is a kind and some bytes; for results of other results the bytes are their addresses.
 */
#ifndef GRAMMAR_EXPR_MEMO_H
#define GRAMMAR_EXPR_MEMO_H

#include "grammar/expr.h"

enum memo_kind {
    MEMO_REGEX_UTF8, /* the expression of a regular expression */
    MEMO_REGEX_JSON,
    MEMO_FORMAT,    /* the expression of a format, by its name */
    MEMO_EXCEPT,    /* the strings that a schema does not exclude, by its address */
    MEMO_NUMBER,    /* the numbers within limits */
    MEMO_KEY,       /* the rule of keys in quotes, by their automaton */
    MEMO_AUTOMATON, /* by the expression */
    MEMO_BOTH,      /* by the two automata */
    MEMO_WITHOUT,
};

/* NULL if nothing is kept for the source. */
const void *memo_find(const struct expr_pool *pool, enum memo_kind kind, struct salvo_text source);

/* Keeps a result, unless it is NULL or the pool has an error. The source is copied. */
void memo_keep(struct expr_pool *pool, enum memo_kind kind, struct salvo_text source, const void *result);

/* The bytes of a pointer, or of an array of pointers. */
#define MEMO_SOURCE(value) ((struct salvo_text){(const char *)&(value), sizeof(value)})

#endif
