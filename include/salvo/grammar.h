/*
 * salvo/grammar.h: texts that fit a grammar, enforced token by token. A compiled grammar gives for each place
 * of a text the tokens that may follow, as a mask for struct salvo_run. The rules of salvo.h for ownership,
 * errors and structs hold here.
 */
#ifndef SALVO_GRAMMAR_H
#define SALVO_GRAMMAR_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

enum salvo_grammar_kind {
    /* GBNF as llama.cpp reads it. Errors name line and column. `%json {...}` within a rule is a JSON document
     * that fits the schema behind it. */
    SALVO_GRAMMAR_GBNF = 0,
    /* A regular expression that the whole text must match: the syntax common to ECMAScript, Python and PCRE.
     * \d, \w and \s are ASCII; \p{...} has the general categories of Unicode, Any, ASCII and Assigned. Other
     * properties, lookaround within groups, references and word boundaries are errors. */
    SALVO_GRAMMAR_REGEX = 1,
    /* JSON Schema, 2020-12 or draft 7. A keyword that cannot be enforced is an error that names it and its
     * place as a JSON pointer. */
    SALVO_GRAMMAR_JSON_SCHEMA = 2
};

struct salvo_grammar_options {
    size_t size;
    const char *root; /* GBNF: the rule that texts must match; NULL: "root" */
    uint64_t memory;  /* limit in bytes for parser states and masks; 0: 64 MB */
    /* JSON Schema. 0: members are written in the order of the schema, with little white space. 1: in any
     * order with any white space, to check documents that others have written. */
    uint32_t any_layout;
    /* The grammar holds after the first trigger, a marker such as the beginning of a tool call or the end of
     * a reasoning part. The trigger is not a part of the text that the grammar matches. Before a trigger all
     * tokens are allowed; a text without one is complete everywhere, unless `trigger_required`. At most 32
     * with 1000 bytes together; read during the call. */
    const struct salvo_text *triggers;
    size_t trigger_count;
    uint32_t trigger_required;
    /* Control tokens that may be written where the grammar allows their names, as `<|tool_call|>`. Tokens
     * whose name is a trigger need not be listed. */
    const int32_t *control_tokens;
    size_t control_token_count;
};
#define SALVO_GRAMMAR_OPTIONS_INIT                                   \
    {                                                                \
        sizeof(struct salvo_grammar_options), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* A compiled grammar. Any number of threads may make and use matchers of it at once. */
struct salvo_grammar;

/*
 * Compiles a grammar for the tokens of `model`, which must stay open as long as the grammar. With NULL for
 * the model, matchers know bytes only. `text` is read during the call.
 */
SALVO_API enum salvo_status salvo_grammar_compile(struct salvo_model *model, enum salvo_grammar_kind kind,
    const char *text, size_t size, const struct salvo_grammar_options *options, struct salvo_grammar **out);

/* All matchers must be freed before. */
SALVO_API void salvo_grammar_free(struct salvo_grammar *grammar);

/* A position in a text that follows a grammar. One thread at a time may use it. */
struct salvo_grammar_matcher;

/* A matcher at the beginning of a text, and one at the position of another. */
SALVO_API enum salvo_status salvo_grammar_matcher_new(
    struct salvo_grammar *grammar, struct salvo_grammar_matcher **out);
SALVO_API enum salvo_status salvo_grammar_matcher_copy(
    const struct salvo_grammar_matcher *matcher, struct salvo_grammar_matcher **out);
SALVO_API void salvo_grammar_matcher_free(struct salvo_grammar_matcher *matcher);

/*
 * The tokens that may follow: bit i % 32 of word i / 32 allows token i. `words` is at least (vocabulary + 31)
 * / 32; the rest is zero. Control tokens are allowed before a trigger, and where the options list them; end
 * tokens where the text so far is complete.
 * Masks are kept: a place that was seen before costs a copy. Fails with SALVO_ERROR_MEMORY if the grammar's
 * limit is too small.
 */
SALVO_API enum salvo_status salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words);

/* The bytes that may follow, a bit for each, in 8 words. */
SALVO_API enum salvo_status salvo_grammar_matcher_bytes(
    struct salvo_grammar_matcher *matcher, uint32_t mask[8]);

/*
 * The tokens that must follow where the grammar leaves one text, at most `capacity`: they can be fed as a
 * prompt instead of being chosen one by one. They are the tokenizer's tokens for this text, up to the last
 * one that no longer token could replace. `model` is the model of the grammar. The matcher's state does not
 * change. */
SALVO_API enum salvo_status salvo_grammar_matcher_forced(struct salvo_grammar_matcher *matcher,
    struct salvo_model *model, int32_t *ids, size_t capacity, size_t *out_count);

/* Appends a token, as one step. A token that cannot follow is SALVO_ERROR_ARGUMENT, without effect. */
SALVO_API enum salvo_status salvo_grammar_matcher_accept(struct salvo_grammar_matcher *matcher, int32_t id);

/* Appends bytes, as one step. *out_taken, which may be NULL, is the number of bytes from the beginning that
 * fit; if they are not all, the call is SALVO_ERROR_ARGUMENT, without effect. */
SALVO_API enum salvo_status salvo_grammar_matcher_append(
    struct salvo_grammar_matcher *matcher, const char *data, size_t size, size_t *out_taken);

/* Whether the text so far matches the grammar, and whether an end token was accepted. */
SALVO_API bool salvo_grammar_matcher_complete(const struct salvo_grammar_matcher *matcher);
SALVO_API bool salvo_grammar_matcher_ended(const struct salvo_grammar_matcher *matcher);

/* The number of steps so far, and the way back to an earlier position: takes back the last `steps`. */
SALVO_API size_t salvo_grammar_matcher_steps(const struct salvo_grammar_matcher *matcher);
SALVO_API enum salvo_status salvo_grammar_matcher_rollback(
    struct salvo_grammar_matcher *matcher, size_t steps);

#ifdef __cplusplus
}
#endif

#endif
