/* Keywords that become choices between schemas: not, if, oneOf, dependentRequired, dependentSchemas. */
#ifndef GRAMMAR_SCHEMA_NEGATE_H
#define GRAMMAR_SCHEMA_NEGATE_H

#include "grammar/schema_made.h"

/* The negation of a schema: an array of schemas, any of which may hold. NULL after an error. */
const struct json_value *schema_negation(struct schema *schema, const struct json_value *node);

/* The same for the keywords of a schema, in schema_choices.c: adds arrays to `choices`, of which one schema
 * each must hold. */
void schema_choices(struct schema *schema, const struct json_value *node, struct node_list *choices);

/* The schema of members or items that no other keyword evaluates, in schema_unevaluated.c, as one that
 * applies to the whole value. NULL after an error. */
const struct json_value *schema_unevaluated(
    struct schema *schema, const struct json_value *node, const struct json_value *keyword, bool items);

/* The array of schemas that a keyword must have; NULL if it is absent, or has something else. */
const struct json_value *array_of_schemas(
    struct schema *schema, const struct json_value *node, const char *keyword);

/* {"type": TYPE}, and {"type": "object", "required": [KEY]} */
struct json_value *made_of_type(struct schema *schema, const char *type, const struct json_value *place);
struct json_value *made_requiring(
    struct schema *schema, struct salvo_text key, const struct json_value *place);

/* Adds "properties": {KEY: value}. */
void made_property(
    struct schema *schema, struct json_value *object, struct salvo_text key, const struct json_value *value);

#endif
