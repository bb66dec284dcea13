/* The tables of all files. */
#include "text/jinja/builtins.h"

#define TABLES(...)                 \
    (const struct builtin *const[]) \
    {                               \
        __VA_ARGS__, NULL           \
    }

const struct builtin_tables builtin_tables = {
    .filters = TABLES(text_filters, sequence_filters, choice_filters, order_filters, number_filters),
    .tests = TABLES(test_builtins),
    .functions = TABLES(function_builtins),
    .string_methods = TABLES(text_methods, split_methods, character_methods),
    .list_methods = TABLES(list_methods),
    .list_changes = TABLES(list_changes),
    .dict_methods = TABLES(dict_methods),
};
