#ifndef TOOLS_TOKEN_OVERLAP_H
#define TOOLS_TOKEN_OVERLAP_H

#include <salvo/salvo.h>

struct token_overlap {
    uint32_t kept; /* tokens of the session that can stay */
    size_t next;   /* the first of the ids that is to be computed */
};

/*
 * What of a session's tokens can stay when it is to hold `ids`, [count]; at least the last of them is always
 * to be computed. Where a model has spelled its answer with other tokens than the tokenizer would, the text
 * decides: what was generated stays.
 */
struct token_overlap find_token_overlap(
    struct salvo_model *model, const struct salvo_session *session, const int32_t *ids, size_t count);

#endif
