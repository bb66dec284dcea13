/* Filters, tests, methods and functions that templates can name. */
#ifndef TEXT_JINJA_BUILTINS_H
#define TEXT_JINJA_BUILTINS_H

#include "text/jinja/interpreter.h"

enum { MOST_PARAMETERS = 6 };

/* A call that is under way: `given` has the arguments by the builtin's parameters, absent ones as
 * VALUE_ABSENT. */
struct call {
    struct value self; /* the value that is filtered or tested, or the owner of the method */
    struct value given[MOST_PARAMETERS];
    const struct arguments *arguments; /* all arguments, unsorted */
};

struct builtin {
    const char *name;
    enum salvo_status (*run)(struct interpreter *in, const struct call *call, struct value *out);
    const char *parameters; /* names, separated by blanks; "*": any number, to be found in `arguments` */
    unsigned required;
};

/* A method bound to its owner. */
struct function {
    const struct builtin *builtin;
    struct value self;
};

/* Lists of tables, each terminated by NULL; a table is terminated by a NULL name. */
struct builtin_tables {
    const struct builtin *const *filters, *const *tests, *const *functions;
    const struct builtin *const *string_methods, *const *list_methods, *const *list_changes,
                                                                           *const *dict_methods;
};

/* All of them: builtins.c. The interpreter points at it, because some filters call other filters by name. */
extern const struct builtin_tables builtin_tables;

/* The tables of the files. */
extern const struct builtin text_filters[], sequence_filters[], choice_filters[], order_filters[],
    number_filters[];
extern const struct builtin text_methods[], split_methods[], character_methods[], list_methods[],
    list_changes[], dict_methods[];
extern const struct builtin test_builtins[], function_builtins[];

const struct builtin *builtin_find(const struct builtin *const *tables, struct string name);

/* The builtin as a value; `self` is the owner of a method. */
enum salvo_status builtin_bind(
    struct interpreter *in, const struct builtin *builtin, struct value self, struct value *out);

/* The error for a filter or a test that does not exist. */
enum salvo_status fail_unknown(const struct node *node);

/* Assigns the arguments to the parameters and calls the builtin. */
enum salvo_status builtin_call(struct interpreter *in, const struct builtin *builtin, struct value self,
    const struct arguments *arguments, struct value *out);

/* ---- Shared by filters and tests ---- */

/* Whether all letters, of which there are some, are in upper or lower case. */
bool string_has_case(struct string string, bool upper);

/* The value at a path such as "a.b.0" in `item`; `path` absent or none: the item itself. `fallback`, if
 * it is given, replaces a missing value. */
enum salvo_status path_value(
    struct interpreter *in, struct value item, struct value path, struct value fallback, struct value *out);

static inline bool is_given(const struct value *value)
{
    return value->kind != VALUE_ABSENT && value->kind != VALUE_NONE;
}

#endif
