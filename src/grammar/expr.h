/*
 * Expressions over bytes: what the readers of GBNF, regular expressions and JSON Schema produce. Expressions
 * are immutable and may be shared. They live in a pool, which counts them and keeps the first error: after
 * one, the functions return an expression that matches nothing, and the reader returns the pool's status.
 */
#ifndef GRAMMAR_EXPR_H
#define GRAMMAR_EXPR_H

#include "base/arena.h"

#include <stdint.h>

struct byte_set {
    uint64_t words[4];
};

static inline void byte_set_add(struct byte_set *set, unsigned first, unsigned last)
{
    for (unsigned byte = first; byte <= last; byte++)
        set->words[byte / 64] |= UINT64_C(1) << (byte % 64);
}

static inline bool byte_set_has(const struct byte_set *set, unsigned byte)
{
    return set->words[byte / 64] >> (byte % 64) & 1;
}

enum expr_kind {
    EXPR_NONE,     /* matches nothing */
    EXPR_EMPTY,    /* the empty text */
    EXPR_LITERAL,  /* `bytes` */
    EXPR_SET,      /* one byte of `set` */
    EXPR_SEQUENCE, /* all items, in order */
    EXPR_EITHER,   /* one of the items */
    EXPR_REPEAT,   /* items[0], `min` to `max` times */
    EXPR_RULE,     /* what rule number `rule` matches */
    EXPR_DFA,      /* what `dfa` accepts */
    EXPR_COUNTED,  /* what `dfa` accepts inside a JSON string, with `min` to `max` characters */
    EXPR_SHARED,   /* items[0]; where several places go on with it in the same way, they share its nodes */
};

#define REPEAT_UNLIMITED UINT32_MAX

struct dfa;

struct expr {
    enum expr_kind kind;
    uint32_t depth; /* of nested expressions */
    uint32_t min, max, rule;
    size_t count;
    const struct expr *const *items;
    struct salvo_text bytes;
    struct byte_set set;
    const struct dfa *dfa;
    bool is_character; /* one character in every spelling of JSON */
    bool unique;       /* EXPR_SET: of an array with unique items; see unique.h */
    bool free;         /* EXPR_DFA: free text before a trigger, where control tokens are allowed */
};

enum {
    EXPR_MAX_DEPTH = 4000,
    EXPR_MAX_REPEAT = 100000,
    EXPR_MAX_BYTES = 40 << 20, /* of a pool */
};

struct memo_entry;

struct expr_pool {
    struct arena arena;
    size_t bytes; /* in the arena */
    enum salvo_status status;
    struct memo_entry *memo; /* hash table of expr_memo.c */
    size_t memo_mask, memo_count;
};

void expr_pool_free(struct expr_pool *pool);

/* Memory that lives as long as the pool; NULL after an error. */
void *expr_pool_new(struct expr_pool *pool, size_t size);

/* A growing list of expressions; zeroed, it is empty. */
struct expr_list {
    const struct expr **items;
    size_t count, capacity;
};

void expr_list_add(struct expr_pool *pool, struct expr_list *list, const struct expr *expr);
void expr_list_free(struct expr_list *list);

const struct expr *expr_none(void);
const struct expr *expr_empty(void);
const struct expr *expr_literal(struct expr_pool *pool, const char *data, size_t size);
const struct expr *expr_string(struct expr_pool *pool, const char *text);
const struct expr *expr_set(struct expr_pool *pool, const struct byte_set *set);
/* `[`, `,` or `]` of an array with unique items. */
const struct expr *expr_unique(struct expr_pool *pool, char byte);
const struct expr *expr_range(struct expr_pool *pool, unsigned first, unsigned last);
const struct expr *expr_sequence(struct expr_pool *pool, const struct expr *const *items, size_t count);
const struct expr *expr_either(struct expr_pool *pool, const struct expr *const *items, size_t count);
const struct expr *expr_repeat(struct expr_pool *pool, const struct expr *item, uint32_t min, uint32_t max);
const struct expr *expr_rule(struct expr_pool *pool, uint32_t rule);
const struct expr *expr_shared(struct expr_pool *pool, const struct expr *item);
const struct expr *expr_dfa(struct expr_pool *pool, const struct dfa *dfa);
const struct expr *expr_counted(struct expr_pool *pool, const struct dfa *dfa, uint32_t min, uint32_t max);
const struct expr *expr_free_text(struct expr_pool *pool, const struct dfa *dfa);

/* The same expression, marked as one character. */
const struct expr *expr_as_character(struct expr_pool *pool, const struct expr *expr);

static inline const struct expr *expr_optional(struct expr_pool *pool, const struct expr *item)
{
    return expr_repeat(pool, item, 0, 1);
}

#define EXPR_SEQUENCE_OF(pool, ...)                                  \
    expr_sequence((pool), (const struct expr *const[]){__VA_ARGS__}, \
        sizeof((const struct expr *const[]){__VA_ARGS__}) / sizeof(const struct expr *))
#define EXPR_EITHER_OF(pool, ...)                                  \
    expr_either((pool), (const struct expr *const[]){__VA_ARGS__}, \
        sizeof((const struct expr *const[]){__VA_ARGS__}) / sizeof(const struct expr *))

#endif
