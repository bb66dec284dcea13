/* Keywords that say which members must not be there together: as choices between schemas without them. */
#ifndef GRAMMAR_SCHEMA_PRESENCE_H
#define GRAMMAR_SCHEMA_PRESENCE_H

#include "grammar/schema_goals.h"

/* oneOf of schemas that have `required` alone: an array of schemas, of which any may hold; NULL: the
 * alternatives are others, or there are too many. */
const struct json_value *presence_one_of(struct schema *schema, const struct json_value *list);

/* `not` of `required`, or of anyOf of such schemas: adds arrays to `choices`, each with schemas of which one
 * must hold. False: it is another schema. */
bool presence_not(struct schema *schema, const struct json_value *node, struct node_list *choices);

/* dependentRequired, and `dependencies` with lists of names, in the same way. */
bool presence_dependent(struct schema *schema, const struct json_value *entries, struct node_list *choices);

#endif
