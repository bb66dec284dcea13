/* Prints generated text to standard output, keeps it in memory, or both. */
#ifndef TOOLS_TEXT_OUTPUT_H
#define TOOLS_TEXT_OUTPUT_H

#include "safe_text.h"
#include "word_wrap.h"

#include <salvo/salvo.h>

#include <stdbool.h>
#include <stddef.h>

struct text_output {
    bool show, keep;  /* where it goes */
    bool skip_blanks; /* before the first letter, when it is shown */
    char *text;       /* the kept text, freed by the owner */
    size_t size, capacity;
    double first; /* time of the first text; 0: none yet */
    int error;    /* errno of a failed write; 0: none */
    char last;    /* last printed byte; 0: none */
    struct safe_text safe;
    bool wrap; /* on a terminal, between words */
    struct word_wrap words;

    const struct salvo_session *watched; /* session whose tokens are checked for loops; NULL: no check */
    uint32_t answer_begins;              /* position of the first token of the answer */
    uint32_t loop;                       /* length of the cycle that ended the answer; 0: none */
};

/* A salvo_text_function; `user` is a struct text_output. Control characters are removed on a terminal. */
bool text_output_write(void *user, const char *text, size_t size);

/* A salvo_token_function for the same `user`: detects loops, also of tokens without text. */
bool text_output_token(void *user, int32_t id, const char *data, size_t size);

#endif
