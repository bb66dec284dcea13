/* The ends of an expression that any text may precede or follow. */
#ifndef GRAMMAR_REGEX_ENDS_H
#define GRAMMAR_REGEX_ENDS_H

#include "grammar/expr.h"

/* A smaller expression that matches the same texts, if any text follows: "ab*" becomes "a". With `first`, if
 * any text precedes. */
const struct expr *expr_shortest_end(struct expr_pool *pool, const struct expr *expr, bool first);

/* The lengths of the strings that an expression in characters matches. */
struct length_range {
    uint64_t min, max; /* max may be LENGTH_UNKNOWN */
};

#define LENGTH_UNKNOWN UINT64_MAX

struct length_range expr_lengths(const struct expr *expr);

#endif
