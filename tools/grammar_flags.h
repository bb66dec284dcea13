/* The options that constrain a text: --grammar, --regex, --json-schema. */
#ifndef TOOLS_GRAMMAR_FLAGS_H
#define TOOLS_GRAMMAR_FLAGS_H

#include "command.h"

#include <salvo/grammar.h>

extern struct grammar_flags {
    const char *grammar, *regex, *json_schema;
} grammar_flags;

extern const struct option grammar_flag_table[];

/* Whether one of them is given. */
bool has_grammar(void);

/* Compiles the grammar; `model` may be NULL. `any_layout` as in struct salvo_grammar_options. EXIT_DONE, or
 * an exit status after an error message, also if several options are given. *out is NULL if none is. */
int grammar_from_flags(struct salvo_model *model, bool any_layout, struct salvo_grammar **out);

#endif
