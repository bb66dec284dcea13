/* A JSON document as a tree, for schemas and the values in them. */
#ifndef GRAMMAR_SCHEMA_JSON_H
#define GRAMMAR_SCHEMA_JSON_H

#include "base/json.h"
#include "grammar/expr.h"

enum value_kind {
    VALUE_NULL,
    VALUE_FALSE,
    VALUE_TRUE,
    VALUE_NUMBER,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_OBJECT,
    /* Schemas that no text has: schema_made.h makes them from others. */
    VALUE_NOT,     /* what `of` does not allow */
    VALUE_EXCEPT,  /* all values but `of`, or but the items of `of`, the value of an enum */
    VALUE_TYPES,   /* values of `types` */
    VALUE_UNLIKE,  /* no string that fits `of`, the value of pattern or format */
    VALUE_REFUSED, /* what the keyword `of` refuses, which is not supported */
};

struct json_value {
    enum value_kind kind;
    struct salvo_text key;  /* of a member of an object */
    struct salvo_text text; /* a string, decoded; a number, as written */
    const struct json_value *parent;
    struct json_value *first, *next; /* items or members; the next one of the parent */
    size_t count, index;             /* of items or members; the place in the parent */
    struct json_value **slots;       /* of an object with many members: hash table of them */
    size_t mask;
    const struct json_value *of;
    unsigned types;
};

/* The tree lives in the pool. */
enum salvo_status tree_read(
    struct expr_pool *pool, const char *text, size_t size, const struct json_value **out);

/* The member of an object; NULL if it has none, or is no object. */
const struct json_value *tree_member(const struct json_value *object, const char *key);
const struct json_value *tree_member_text(const struct json_value *object, struct salvo_text key);
const struct json_value *tree_item(const struct json_value *array, size_t index);

bool tree_is_string(const struct json_value *value, const char *text);
bool texts_are_equal(struct salvo_text left, struct salvo_text right);

/* Equal as JSON Schema says: numbers by value, objects in any order. */
bool trees_are_equal(const struct json_value *left, const struct json_value *right);

/* A whole number that is not negative, at most `most`; false for another value. */
bool tree_count(const struct json_value *value, uint32_t most, uint32_t *out);

/* Writes the JSON pointer of a place in the tree to `out`: "/properties/a". The root is "". */
void tree_pointer(const struct json_value *value, char *out, size_t size);

/* Keeps an error that names keyword and place in the pool: "schema: /properties/a/pattern: ...". */
void tree_complain(
    struct expr_pool *pool, enum salvo_status status, const struct json_value *place, const char *message);

#endif
