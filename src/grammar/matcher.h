/*
 * A compiled grammar, shared by threads, and matchers: positions in texts, each used by one thread at a time.
 *
 * The grammar owns the parser states of all its matchers, which make them as they go, under a lock.
 */
#ifndef GRAMMAR_MATCHER_H
#define GRAMMAR_MATCHER_H

#include <salvo/grammar.h>

#include "grammar/states.h"
#include "grammar/token_trie.h"

/* Takes the network, also when it fails. `trie` may be NULL, for texts without tokens; it must outlive the
 * grammar. `limit`: bytes of parser states. */
enum salvo_status grammar_open(
    struct network *network, const struct token_trie *trie, size_t limit, struct salvo_grammar **out);

/* All matchers must be closed before. */
void grammar_close(struct salvo_grammar *grammar);

/* Control tokens that count as their texts, where the grammar allows these. Copied. Before any matcher. */
struct control_token {
    uint32_t id;
    struct salvo_text text;
};
enum salvo_status grammar_set_controls(
    struct salvo_grammar *grammar, const struct control_token *controls, size_t count);

enum salvo_status matcher_open(struct salvo_grammar *grammar, struct salvo_grammar_matcher **out);
enum salvo_status matcher_copy(
    const struct salvo_grammar_matcher *matcher, struct salvo_grammar_matcher **out);
void matcher_close(struct salvo_grammar_matcher *matcher);

/* The tokens that may follow: a bit for each, in at least (tokens + 31) / 32 words; the rest is zero. */
enum salvo_status matcher_mask(struct salvo_grammar_matcher *matcher, uint32_t *out, size_t words);

/* The bytes that may follow. */
enum salvo_status matcher_bytes(struct salvo_grammar_matcher *matcher, struct byte_set *out);

/* Appends a token or bytes, as one step. A token or bytes that cannot follow are an error without effect;
 * *out_taken is the number of bytes that can. */
enum salvo_status matcher_accept(struct salvo_grammar_matcher *matcher, uint32_t token);
enum salvo_status matcher_append(
    struct salvo_grammar_matcher *matcher, const char *data, size_t size, size_t *out_taken);

/* The bytes that must follow, at most `size`: each is the only one, and the text before it is not complete.
 * *out_ends: the text is complete after them and nothing else can follow. */
enum salvo_status matcher_forced(
    struct salvo_grammar_matcher *matcher, char *out, size_t size, size_t *out_size, bool *out_ends);

/* The number of first bytes whose tokens are final, whatever follows the text: the bytes after them are
 * the beginning of a longer token. */
size_t matcher_settled(const struct salvo_grammar_matcher *matcher, const char *text, size_t size);

/* The control token whose text begins at `text`; NULL: none. */
const struct control_token *matcher_control_at(
    const struct salvo_grammar_matcher *matcher, const char *text, size_t size);

bool matcher_is_complete(const struct salvo_grammar_matcher *matcher); /* the text so far matches */
bool matcher_is_ended(const struct salvo_grammar_matcher *matcher);    /* an end token was accepted */

size_t matcher_steps(const struct salvo_grammar_matcher *matcher); /* steps so far */
enum salvo_status matcher_rollback(struct salvo_grammar_matcher *matcher, size_t steps);

#endif
