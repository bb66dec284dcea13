/*
 * Goals: sets of schemas that one value must fit, all at once. Each goal becomes a rule; equal goals are one
 * rule, so that recursive schemas become recursive rules. Goals wait in a list until schema.c builds them.
 */
#ifndef GRAMMAR_SCHEMA_GOALS_H
#define GRAMMAR_SCHEMA_GOALS_H

#include "grammar/schema_json.h"
#include "grammar/schema_layout.h"

/* Schemas in the order in which they were found. Zeroed, it is empty. */
struct node_list {
    const struct json_value **items;
    size_t count, capacity;
};

void node_list_add(struct expr_pool *pool, struct node_list *list, const struct json_value *node);
bool node_list_has(const struct node_list *list, const struct json_value *node);
void node_list_free(struct node_list *list);

struct goal {
    struct node_list nodes;
    uint32_t rule;
};

struct made_entry;
struct resource;
struct string_rule;

enum { SCHEMA_MOST_GOALS = 20000, SCHEMA_MOST_EFFORT = 3000000 };

struct schema {
    struct rule_list *rules;
    struct expr_pool *pool;
    struct layout layout;
    const struct json_value *root;
    bool ref_alone; /* up to draft 7 nothing beside $ref counts */
    bool old_ids;   /* up to draft 4 $id is id */
    struct goal *goals;
    size_t goal_count, goal_capacity, goals_built;
    uint32_t *slots; /* hash table of the goals: index + 1 */
    size_t mask;
    size_t effort;           /* comparisons so far */
    struct made_entry *made; /* hash table of schema_made.c */
    size_t made_mask, made_count;
    struct resource *resources; /* of schema_refs.c */
    size_t resource_count;
    struct string_rule *strings; /* of schema_flat.c */
    size_t string_count;
};

/* The rule of a goal; EXPR_NONE if a schema is `false`. */
const struct expr *schema_goal(struct schema *schema, const struct node_list *nodes);
void schema_goals_free(struct schema *schema);

/* Counts work; false, with an error, when it is too much. */
bool schema_works(struct schema *schema, size_t effort);

/* References, in schema_refs.c: the keyword that refers to another schema, if there is one, and that schema;
 * NULL after an error. */
const struct json_value *schema_reference(struct schema *schema, const struct json_value *node);
const struct json_value *schema_resolve(struct schema *schema, const struct json_value *ref);

/* Whether two schemas certainly have no value of `types` in common; with the rest in schema_disjoint.c. */
bool schemas_are_disjoint(struct schema *schema, const struct json_value *left,
    const struct json_value *right, unsigned types, unsigned depth);

/* Whether `required` of a schema has a key. */
bool schema_requires(const struct json_value *node, struct salvo_text key);

/* The types a schema allows, a bit for each; all if it does not say. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are not integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
};
unsigned schema_types(struct schema *schema, const struct json_value *node);
unsigned schema_possible_types(struct schema *schema, const struct json_value *node); /* also by its values */
unsigned tree_type(const struct json_value *value);

#endif
