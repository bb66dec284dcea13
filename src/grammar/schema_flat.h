/* A value that fits a list of schemas at once, none of which has alternatives: its grammar. */
#ifndef GRAMMAR_SCHEMA_FLAT_H
#define GRAMMAR_SCHEMA_FLAT_H

#include "grammar/schema_goals.h"

const struct expr *schema_flat(struct schema *schema, const struct node_list *nodes);

/* Objects and arrays, in schema_members.c. */
const struct expr *schema_object(struct schema *schema, const struct node_list *nodes);
const struct expr *schema_array(struct schema *schema, const struct node_list *nodes);

/* A count such as minLength: the largest or the smallest of all schemas; `unset` where none has it. */
uint32_t schema_largest(struct schema *schema, const struct node_list *nodes, const char *keyword);
uint32_t schema_smallest(struct schema *schema, const struct node_list *nodes, const char *keyword);

#endif
