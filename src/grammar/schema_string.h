/* Strings of JSON Schema: lengths, patterns, formats. */
#ifndef GRAMMAR_SCHEMA_STRING_H
#define GRAMMAR_SCHEMA_STRING_H

#include "grammar/schema_layout.h"

/* The regular expression of a format, NULL where it cannot be enforced. False for a name that JSON Schema
 * does not define: that is an annotation, as the specification says. */
bool string_format(struct salvo_text name, const char **out_regex);

/* The texts of `time` and `date-time` with a leap second and an offset, which the expression lacks; NULL for
 * other formats. */
const struct expr *string_leap_seconds(struct expr_pool *pool, struct salvo_text format);

struct string_limits {
    uint32_t min, max; /* characters; max may be REPEAT_UNLIMITED */
    const struct expr *const
        *all; /* expressions of the inside, without rules; a string matches all of them */
    size_t count;
};

/* The inside of the strings within limits; EXPR_NONE if there are none. */
const struct expr *string_inside(struct layout *layout, const struct string_limits *limits);

/* The same as an automaton; NULL after an error. */
const struct dfa *string_automaton(struct layout *layout, const struct string_limits *limits);

/* Whether an automaton over the insides of strings accepts one, given in UTF-8. */
bool string_matches(struct layout *layout, const struct dfa *dfa, struct salvo_text text);

#endif
