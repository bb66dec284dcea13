/* Generates one answer: tokenizes the conversation, computes the tokens that are not in the session yet,
 * generates. */
#ifndef TOOLS_ANSWER_H
#define TOOLS_ANSWER_H

#include "conversation.h"
#include "engine_flags.h"
#include "generate_flags.h"

/* When the context is full: end the answer, or drop the oldest turns. */
enum on_full {
    ON_FULL_STOP,  /* the answer ends with a notice */
    ON_FULL_SLIDE, /* whole turns are dropped, the oldest first; the rest is computed again */
};

struct answer_settings {
    enum on_full on_full;
    const struct stop_strings *stops; /* of the options and of the template */
    uint32_t max_tokens;              /* 0: no limit */
};

/* Tokens and seconds of one answer, or sums over several. */
struct answer_counts {
    uint64_t computed, reused; /* of the prompt */
    uint64_t generated, decoded;
    double first_text, prefill, decode; /* seconds; first_text counts from the question */
};

struct answer {
    struct answer_counts counts;
    enum salvo_finish finish;
    uint32_t loop;    /* length of the cycle that ended the answer; 0: none */
    uint32_t dropped; /* number of dropped turns */
    bool is_kept;     /* the answer, maybe incomplete, was added to the conversation */
};

/*
 * Answers the last message: writes the text to standard output as it comes, and adds it to the conversation.
 * EXIT_DONE also for an answer that was stopped. Any other exit status follows an error message, and the
 * conversation is unchanged.
 */
int answer_question(const struct loaded *loaded, struct conversation *conversation,
    const struct answer_settings *settings, struct answer *out);

#endif
