/* Texts that follow a grammar only from a trigger on: free text before it. */
#ifndef GRAMMAR_TRIGGER_H
#define GRAMMAR_TRIGGER_H

#include "grammar/expr.h"

enum { TRIGGERS_MOST = 32, TRIGGERS_MOST_BYTES = 1000 }; /* of all triggers together */

struct trigger_list {
    const struct salvo_text *texts; /* the first one that occurs is the end of the free text */
    size_t count;
    bool required; /* a text without a trigger does not match */
};

/* Free text, which contains no trigger, then a trigger and `then`; unless `required`, also free text alone.
 * Errors go to the pool. */
const struct expr *trigger_expr(
    struct expr_pool *pool, const struct trigger_list *triggers, const struct expr *then);

#endif
