/* Readers of grammars in text: each gives rules for network_build. */
#ifndef GRAMMAR_READERS_H
#define GRAMMAR_READERS_H

#include "grammar/charset.h"

enum {
    READER_MAX_BYTES = 2 << 20, /* of a grammar's text */
    READER_MAX_DEPTH = 250,     /* of nested groups */
};

/* Rules in a pool: expressions refer to them by number. A rule is added first and set when it is known. */
struct rule_list {
    struct expr_pool pool;
    const struct expr **items;
    size_t count, capacity;
    uint32_t root;
    uint32_t character; /* JSON Schema: the rule of one character of a string, + 1 */
};

/* Errors go to the pool. */
uint32_t rule_list_add(struct rule_list *rules, const struct expr *expr);
void rule_list_free(struct rule_list *rules);

/*
 * GBNF, as llama.cpp reads it: rules `name ::= ...` with literals, classes of characters, `.`, groups,
 * alternatives, and the repetitions * + ? {m} {m,} {m,n}. Errors name line and column, counted in bytes from
 * 1. `root` is the name of the rule that texts must match. One element is not llama.cpp's: `%json` and a JSON
 * Schema is a document that fits the schema.
 */
enum salvo_status gbnf_read(const char *text, size_t size, const char *root, struct rule_list *out);

/*
 * A regular expression: the syntax that ECMAScript, Python and PCRE share, without what is not regular. \d
 * and \w are ASCII. Errors name the column.
 *
 * SPELL_UTF8: the whole text must match; `.` is all but \n, \s is ASCII. SPELL_JSON: a part of the text must
 * match, as `pattern` of JSON Schema says, `.` and \s are those of ECMAScript, and the expression matches the
 * inside of a JSON string in every spelling.
 */
const struct expr *regex_read(struct expr_pool *pool, const char *text, size_t size, enum spelling spelling);

/*
 * JSON Schema, 2020-12 or an older draft. A keyword that cannot be enforced is an error that names it and its
 * place. Members are written in the order of the schema, with little white space; with `any_layout` in any
 * order with any white space, for documents that others have written.
 */
enum salvo_status schema_read(const char *text, size_t size, bool any_layout, struct rule_list *out);

/* The same as a part of other rules. Errors go to the pool. */
const struct expr *schema_rules(struct rule_list *rules, const char *text, size_t size, bool any_layout);

#endif
