/* The keywords of a list of schemas that one value must fit at once: counts, limits of numbers, patterns. */
#ifndef GRAMMAR_SCHEMA_KEYWORDS_H
#define GRAMMAR_SCHEMA_KEYWORDS_H

#include "grammar/dfa.h"
#include "grammar/schema_goals.h"
#include "grammar/schema_number.h"

enum { SCHEMA_MOST_COUNT = 999999 };

/* A count such as minLength: the largest or the smallest of all schemas; `unset` where none has it. */
uint32_t schema_largest(struct schema *schema, const struct node_list *nodes, const char *keyword);
uint32_t schema_smallest(struct schema *schema, const struct node_list *nodes, const char *keyword);

/* A member of a schema that must be of a kind; NULL if it is absent. */
const struct json_value *schema_member(
    struct schema *schema, const struct json_value *node, const char *keyword, enum value_kind kind);

/* Reads a number; false, with an error, if it is none or has too many digits. */
bool schema_number(struct schema *schema, const struct json_value *value, struct decimal_number *out);
void schema_limits(struct schema *schema, const struct node_list *nodes, struct number_limits *limits);

/* The expressions that strings must match: `pattern`, `format`, and complements of negated ones. */
void schema_patterns(struct schema *schema, const struct node_list *nodes, struct expr_list *out);

/* For each schema that excludes strings of const or enum, the expression of all others. */
void schema_not_excluded(struct schema *schema, const struct node_list *nodes, struct expr_list *out);

/* The insides of all strings that fit one schema; for propertyNames. */
const struct dfa *schema_string_automaton(struct schema *schema, const struct json_value *node);

/* The values that a VALUE_EXCEPT excludes: the first, and its successors unless there is just one. NULL for
 * other schemas. */
const struct json_value *schema_excluded(const struct json_value *node, bool *out_one);

/* Whether a value of const or enum fits the other keywords. */
bool schema_value_fits(struct schema *schema, const struct node_list *nodes, const struct json_value *value);

#endif
