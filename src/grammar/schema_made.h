/*
 * Schemas that are made from others, as trees: `if` becomes a choice between two of them. A made schema
 * shares the parts of its source. Each is made once for its source, so that recursive schemas stay finite.
 */
#ifndef GRAMMAR_SCHEMA_MADE_H
#define GRAMMAR_SCHEMA_MADE_H

#include "grammar/schema_goals.h"

/* The relation of a made schema to its source. */
enum made_role { MADE_NOT, MADE_NEGATION, MADE_CHOICE, MADE_REST, MADE_OPEN };

/* The schema that was kept for a source; NULL if there is none yet. */
const struct json_value *made_find(
    const struct schema *schema, const struct json_value *from, enum made_role role);
void made_keep(
    struct schema *schema, const struct json_value *from, enum made_role role, const struct json_value *made);
void made_free(struct schema *schema);

/* A new value that errors report at `place`; NULL after an error, which the other functions accept. */
struct json_value *made_value(struct schema *schema, enum value_kind kind, const struct json_value *place);

/* Append a copy of a value, which shares its parts. */
void made_member(
    struct schema *schema, struct json_value *object, const char *key, const struct json_value *value);
void made_member_text(
    struct schema *schema, struct json_value *object, struct salvo_text key, const struct json_value *value);
void made_item(struct schema *schema, struct json_value *array, const struct json_value *value);

/* Values that are often needed. */
const struct json_value *made_string(struct schema *schema, const char *text, const struct json_value *place);
const struct json_value *made_count(struct schema *schema, uint32_t count, const struct json_value *place);

/* A schema that allows exactly the values that `node` does not allow. */
const struct json_value *made_not(struct schema *schema, const struct json_value *node);

/* {"allOf": [first, second]}; `second` may be NULL. */
struct json_value *made_both(
    struct schema *schema, const struct json_value *first, const struct json_value *second);

#endif
