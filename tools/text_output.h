/* Prints generated text to standard output, keeps it in memory, or both. */
#ifndef TOOLS_TEXT_OUTPUT_H
#define TOOLS_TEXT_OUTPUT_H

#include "generate_flags.h"
#include "loop_watch.h"
#include "safe_text.h"
#include "word_wrap.h"

#include <salvo/salvo.h>

#include <stdbool.h>
#include <stddef.h>

struct text_output {
    bool show, keep;  /* print it, keep it in memory */
    bool skip_blanks; /* before the first letter, when it is shown */
    char *text;       /* the kept text */
    size_t size, capacity;
    double first; /* time of the first text; 0: none yet */
    int error;    /* errno of a failed write; 0: none */
    char last;    /* last printed byte; 0: none */
    struct safe_text safe;
    struct salvo_text_filter *filter;
    bool stopped;             /* by a stop string */
    bool wrap;                /* on a terminal, between words */
    salvo_text_function sink; /* receives the text as well; may be NULL */
    void *sink_user;
    struct word_wrap words;

    bool watch_loops;
    struct loop_watch watch;
    uint32_t loop; /* length of the cycle that ended the answer; 0: none */
};

/* Opens the filter for `stops`, which it copies; the caller sets the members above as needed. EXIT_DONE, or
 * an exit status after an error message. */
int text_output_open(struct text_output *output, const struct stop_strings *stops);

/* A salvo_token_function; `user` is a struct text_output. Writes the text of tokens up to a stop string;
 * detects loops, also of tokens without text. On a terminal, control characters are removed. */
bool text_output_token(void *user, int32_t id, const char *data, size_t size);

/* For text that was filtered: a salvo_text_function that writes it, and a salvo_token_function that detects
 * loops. */
bool text_output_text(void *user, const char *text, size_t size);
bool text_output_watch(void *user, int32_t id, const char *data, size_t size);

/* After salvo_session_generate: a text that a stop string ended has SALVO_FINISH_STOP as its result, and
 * `loop` is kept only if it ended the text. */
void text_output_generated(struct text_output *output, struct salvo_generate_result *result);

/* After the last token: writes the text that was held back as the possible beginning of a stop string. */
void text_output_end(struct text_output *output);

void text_output_close(struct text_output *output);

#endif
