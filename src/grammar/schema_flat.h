/* A value that fits a list of schemas at once, none of which has alternatives: its grammar. */
#ifndef GRAMMAR_SCHEMA_FLAT_H
#define GRAMMAR_SCHEMA_FLAT_H

#include "grammar/schema_goals.h"

const struct expr *schema_flat(struct schema *schema, const struct node_list *nodes);

/* Objects, in schema_members.c, and arrays, in schema_items.c. */
const struct expr *schema_object(struct schema *schema, const struct node_list *nodes);
const struct expr *schema_array(struct schema *schema, const struct node_list *nodes);

#endif
