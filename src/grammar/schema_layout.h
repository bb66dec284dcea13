/* How JSON documents are written: strings, objects and arrays from the expressions of their parts. */
#ifndef GRAMMAR_SCHEMA_LAYOUT_H
#define GRAMMAR_SCHEMA_LAYOUT_H

#include "grammar/dfa.h"
#include "grammar/readers.h"

struct layout {
    struct rule_list *rules;
    struct expr_pool *pool;
    /* Documents of others: members in any order, any white space, any spelling of keys. */
    bool any;
    const struct expr *space, *outer_space; /* after { [ , : and before } ]; and at all other places */
    const struct expr *character;           /* a rule: one character of a string */
    const struct expr *character_here;      /* the same, not as a rule */
    const struct expr *special_character;   /* for schema_keys.c; NULL until it is needed */
    const struct dfa *any_text;             /* for layout_any_text */
};

void layout_open(struct rule_list *rules, bool any, struct layout *out);

/* The inside of a string as the library writes it; it lives in the pool, without data after an error. */
struct salvo_text layout_written(struct layout *layout, struct salvo_text text);

/* The inside of a string in every spelling, or as the library writes it, and the whole string. */
const struct expr *layout_spelled(struct layout *layout, struct salvo_text text, bool every_spelling);
const struct expr *layout_string(struct layout *layout, struct salvo_text text);
const struct expr *layout_quoted(struct layout *layout, const struct expr *inside);

/* The insides of all strings; NULL after an error. */
const struct dfa *layout_any_text(struct layout *layout);

struct layout_member {
    const struct expr *key, *value; /* the key with its quotes */
    bool required;
};

struct layout_object {
    struct layout_member *members; /* in the order in which they are written */
    size_t count;
    const struct expr *others; /* any other member, key to value; EXPR_NONE: there are none */
    uint32_t min, max;         /* members; max may be REPEAT_UNLIMITED */
};

/* With `any`, at most LAYOUT_MOST_REQUIRED members may be required: false for more. */
enum { LAYOUT_MOST_REQUIRED = 10, LAYOUT_MOST_COUNTED = 200 };
bool layout_object(struct layout *layout, const struct layout_object *object, const struct expr **out);

/* "key" : value */
const struct expr *layout_pair(struct layout *layout, const struct expr *key, const struct expr *value);

/* Between items, and around them. `unique`: no two items are equal. */
const struct expr *layout_item_comma(struct layout *layout, bool unique);
const struct expr *layout_item_brackets(struct layout *layout, const struct expr *inside, bool unique);

struct layout_array {
    const struct expr *const *first; /* the first items, each of its own */
    size_t count;
    const struct expr *rest; /* all others; EXPR_NONE: there are none */
    uint32_t min, max;
    bool unique; /* no two items are equal */
};

const struct expr *layout_array(struct layout *layout, const struct layout_array *array);

#endif
