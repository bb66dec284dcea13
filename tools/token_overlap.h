#ifndef TOOLS_TOKEN_OVERLAP_H
#define TOOLS_TOKEN_OVERLAP_H

#include <salvo/salvo.h>

struct token_overlap {
    uint32_t kept; /* tokens of the session that can stay */
    size_t next;   /* index of the first id to compute */
};

/*
 * Finds the tokens of the session that can stay when it shall hold `ids`, [count]; the last id is always
 * computed again. A model may generate other tokens for a text than the tokenizer gives: generated tokens
 * stay where the text is equal.
 */
struct token_overlap find_token_overlap(
    struct salvo_model *model, const struct salvo_session *session, const int32_t *ids, size_t count);

#endif
