/* The state of a rendering, and the functions that the files of the interpreter share. */
#ifndef TEXT_JINJA_INTERPRETER_H
#define TEXT_JINJA_INTERPRETER_H

#include "text/jinja/ast.h"

struct variable {
    struct variable *next;
    struct string name;
    struct value value;
};

/* Names are looked for in the innermost scope first. */
struct scope {
    struct scope *parent;
    struct variable *variables;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct builtin_tables;

struct interpreter {
    struct heap heap;
    const struct builtin_tables *builtins;
    uint64_t work_left; /* in nodes, items and characters */
    unsigned depth;
    struct text *output;
    struct scope *scope;
    enum flow flow;
    bool placed;         /* the current error names its line and column */
    bool constants_only; /* what depends on a variable is an error */
};

/* ---- Limits ---- */

/* Limits the run time: every loop calls it with the number of items or characters it processes. */
enum salvo_status spend(struct interpreter *in, size_t work);

/* The worst case of a search for `part`. */
enum salvo_status spend_search(struct interpreter *in, struct string string, struct string part);

/* Around every recursive call. */
enum salvo_status enter(struct interpreter *in);
void leave(struct interpreter *in);

/* ---- Arguments ---- */

struct named_value {
    struct string name;
    struct value value;
};

struct arguments {
    const struct value *values;
    size_t count;
    const struct named_value *named;
    size_t named_count;
};

/* ---- Operations on values: operations.c, text_form.c ---- */

bool value_true(const struct value *value);
enum salvo_status value_equal(struct interpreter *in, struct value left, struct value right, bool *out);

/* -1, 0 or 1 for less, equal, greater; an error when the two have no order. 2: neither (NaN). */
enum salvo_status value_compare(struct interpreter *in, struct value left, struct value right, int *out);
enum salvo_status value_contains(struct interpreter *in, struct value where, struct value what, bool *out);

/* The items of an iterable; a generator is exhausted by it. */
enum salvo_status value_items(struct interpreter *in, struct value value, struct value **out, size_t *count);
bool value_can_iterate(const struct value *value);

/* The result of value_items as a list. */
enum salvo_status value_to_list(
    struct interpreter *in, struct value value, enum list_kind kind, struct value *out);
enum salvo_status value_length(struct interpreter *in, struct value value, size_t *out);

/* str() and repr(), appended. */
enum salvo_status value_write(struct interpreter *in, struct value value, struct text *text);
enum salvo_status value_write_repr(struct interpreter *in, struct value value, struct text *text);
enum salvo_status value_to_string(struct interpreter *in, struct value value, struct string *out);

/* An error that names `what` when `value` has another type. */
enum salvo_status want_string(const struct value *value, const char *what, struct string *out);
enum salvo_status want_integer(const struct value *value, const char *what, int64_t *out);

/* "'x' is undefined" and the like. */
enum salvo_status fail_undefined(const struct value *value);

/* An error when a value cannot be a key: lists and dicts. */
enum salvo_status value_check_key(const struct value *key);
enum salvo_status dict_find(
    struct interpreter *in, const struct dict *dict, struct value key, struct value **out); /* NULL: absent */
enum salvo_status dict_set(struct interpreter *in, struct dict *dict, struct value key, struct value value);
struct value *dict_find_name(const struct dict *dict, const char *name);
enum salvo_status dict_set_name(
    struct interpreter *in, struct dict *dict, const char *name, struct value value);

/* a[b] and a.b; undefined when the item is missing. */
enum salvo_status value_item(struct interpreter *in, struct value owner, struct value key, struct value *out);
enum salvo_status value_attribute(
    struct interpreter *in, struct value owner, struct string name, struct value *out);
/* a.b for attributes only, not items. */
enum salvo_status value_own_attribute(
    struct interpreter *in, struct value owner, struct string name, struct value *out);
enum salvo_status value_slice(
    struct interpreter *in, struct value owner, const struct value bounds[3], struct value *out);

enum salvo_status value_binary(
    struct interpreter *in, uint32_t sign, struct value left, struct value right, struct value *out);
enum salvo_status value_negate(struct value value, bool negative, struct value *out);

/* ---- Formatting: printf_form.c, format_form.c ---- */

/* "..." % value */
enum salvo_status format_percent(
    struct interpreter *in, struct string format, struct value value, struct value *out);

/* "...".format(...) */
enum salvo_status format_braces(
    struct interpreter *in, struct string format, const struct arguments *arguments, struct value *out);

/* Python's int() of a number: false for a float that no integer holds. */
bool number_to_integer(const struct value *value, struct value *out);

/* ---- Variables: scopes.c ---- */

enum salvo_status scope_open(struct interpreter *in, struct scope *parent, struct scope **out);
enum salvo_status scope_set(
    struct interpreter *in, struct scope *scope, struct string name, struct value value);

/* The variable in the innermost scope that has it; NULL when there is none. */
enum salvo_status scope_find(struct interpreter *in, struct string name, const struct variable **out);

/* ---- Running: evaluate.c, run.c ---- */

enum salvo_status evaluate(struct interpreter *in, const struct node *node, struct value *out);
enum salvo_status gather_arguments(struct interpreter *in, const struct node *items, struct arguments *out);
enum salvo_status call_value(
    struct interpreter *in, struct value callee, const struct arguments *arguments, struct value *out);
enum salvo_status run_body(struct interpreter *in, const struct node *body);

/* Whether the expression depends on no variable and is true, or false, as `truth` says: constants.c. The work
 * comes from *work_left; without work left nothing is constant. */
bool constant_is(const struct node *node, bool truth, uint64_t *work_left);

/* ---- Objects: loops.c, macros.c ---- */

struct loop {
    struct object object;
    const struct node *node;
    struct scope *scope; /* around the loop */
    const struct value *items;
    size_t count, at;
    unsigned depth;            /* of a recursive loop, from 0 */
    const struct list *latest; /* the last arguments of loop.changed; NULL: none yet */
};

enum salvo_status loop_attribute(
    struct interpreter *in, struct object *self, struct string name, struct value *out);
enum salvo_status loop_write(struct interpreter *in, const struct object *self, struct text *text);

struct macro {
    struct object object;
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

/* Sets the parameters, and varargs, kwargs and caller if the body mentions them, in the current scope. */
enum salvo_status macro_bind(
    struct interpreter *in, const struct macro *macro, const struct arguments *arguments);
enum salvo_status macro_attribute(
    struct interpreter *in, struct object *self, struct string name, struct value *out);
enum salvo_status macro_write(struct interpreter *in, const struct object *self, struct text *text);

#endif
