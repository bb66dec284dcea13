/* Generated text on its way to standard output, or kept, or both. */
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
    char *text;       /* what was kept, to be freed */
    size_t size, capacity;
    double first; /* when the first text came; 0: not yet */
    int error;    /* errno of why it cannot go there; 0: it can */
    char last;    /* byte that was shown; 0: none */
    struct safe_text safe;
    bool wrap; /* on a terminal, between words */
    struct word_wrap words;

    const struct salvo_session *watched; /* ends an answer that repeats itself; NULL: nothing does */
    uint32_t answer_begins;              /* at this position of it */
    uint32_t loop;                       /* tokens of the cycle that ended it; 0: it was not that */
};

/* A salvo_text_function; `user` is a struct text_output. Control characters are removed on a terminal. */
bool text_output_write(void *user, const char *text, size_t size);

/* A salvo_token_function for the same `user`: detects loops, also of tokens without text. */
bool text_output_token(void *user, int32_t id, const char *data, size_t size);

#endif
