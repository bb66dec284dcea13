#ifndef ENGINE_TOKEN_OVERLAP_H
#define ENGINE_TOKEN_OVERLAP_H

#include "base/status.h"

struct tokenizer;

struct token_overlap {
    size_t kept; /* first tokens of `held` that can stay */
    size_t next; /* index of the first id to compute */
};

/*
 * Finds the tokens of `held` that can stay when `ids`, [count], are wanted; the last id is always computed
 * again. A model may generate other tokens for a text than the tokenizer gives: generated tokens stay where
 * the text is equal.
 */
enum salvo_status token_overlap_find(const struct tokenizer *tokenizer, const int32_t *held,
    size_t held_count, const int32_t *ids, size_t count, struct token_overlap *out);

#endif
