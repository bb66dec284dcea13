/* Generates a text that fits a grammar. The device computes each token while the host makes the mask of the
 * tokens that may follow; a second submission chooses. Tokens that the grammar forces are fed with the chosen
 * one before them, after the mask. */
#ifndef TOOLS_CONSTRAINED_H
#define TOOLS_CONSTRAINED_H

#include <salvo/grammar.h>

#include "text_output.h"

struct constrained {
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session;
    struct salvo_grammar *grammar;
    uint32_t max_tokens; /* 0: no limit */
    struct text_output *output;
};

/*
 * Appends the last token of the prompt, `last`, then generates. The text ends at an end token, where nothing
 * can follow, and for the reasons of salvo_session_generate. EXIT_DONE, or an exit status after an error
 * message.
 */
int generate_constrained(
    const struct constrained *constrained, int32_t last, struct salvo_generate_result *result);

#endif
