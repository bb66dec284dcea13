/* Small vocabularies and grammars for tests. */
#ifndef TESTS_GRAMMAR_SAMPLE_H
#define TESTS_GRAMMAR_SAMPLE_H

#include "grammar/matcher.h"
#include "grammar/readers.h"

/* A vocabulary of all bytes, `count` random texts over the letters of grammars, two end tokens, a control
 * token and duplicates. */
struct token_trie *sample_trie(uint32_t count, uint64_t seed);

/* Random numbers below `below`, reproducible. */
uint32_t sample_random(uint64_t *seed, uint32_t below);

/* Reads and opens a grammar; NULL with salvo_error() when that fails. */
struct salvo_grammar *sample_gbnf(const char *text, const struct token_trie *trie, size_t limit);
struct salvo_grammar *sample_schema(
    const char *text, const struct token_trie *trie, bool any_layout, size_t limit);
struct salvo_grammar *sample_regex(const char *text, const struct token_trie *trie, size_t limit);

/* 1: the text matches, 0: it is the beginning of one that does, -1: neither, -2: an error. */
int sample_match(struct salvo_grammar *grammar, const char *data, size_t size);

#endif
