/* Answers that fit a grammar or a schema: `response_format`, `grammar` and `json_schema` of requests. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include "api_request.h"

#include <salvo/grammar.h>

/* Compiles the grammar or schema of a request. *out is NULL if it has none. False with status 400 after an
 * error in the grammar, whose place the message names. Any thread. */
bool api_constraint_compile(struct salvo_model *model, const struct api_request *request,
    struct salvo_grammar **out, struct api_error *error);

/* One answer's place in its grammar. Used by the scheduler's thread between submission and the last event. */
struct api_constraint {
    struct salvo_grammar_matcher *matcher; /* NULL: the answer is free */
    char message[256];                     /* why the answer was given up, or "" */
};

/* A salvo_mask_function's work: false where the answer ends. */
bool api_constraint_mask(
    struct api_constraint *constraint, const int32_t *tokens, size_t count, uint32_t *mask, size_t words);

/* A salvo_forced_function's work. */
size_t api_constraint_forced(struct api_constraint *constraint, struct salvo_model *model,
    const int32_t *tokens, size_t count, int32_t *ids, size_t capacity);

#endif
