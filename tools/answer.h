/* One answer: the conversation becomes tokens, of which only the new ones are computed, and then text. */
#ifndef TOOLS_ANSWER_H
#define TOOLS_ANSWER_H

#include "conversation.h"
#include "engine_flags.h"

/* What happens when the context is full. */
enum on_full {
    ON_FULL_STOP,  /* nothing: it is said, and the person decides */
    ON_FULL_SLIDE, /* whole turns are dropped, the oldest first, and what stays is computed again */
};

struct answer_settings {
    enum on_full on_full;
    const char *const *stop_strings; /* those of the template among them */
    size_t stop_count;
    uint32_t max_tokens; /* 0: as many as it takes */
};

/* Tokens and seconds of one answer, or of several when they are added up. */
struct answer_counts {
    uint64_t computed, reused; /* of the prompt */
    uint64_t generated, decoded;
    double first_text, prefill, decode; /* seconds; first_text counts from the question */
};

struct answer {
    struct answer_counts counts;
    enum salvo_finish finish;
    uint32_t loop;    /* tokens of the cycle that ended it; 0: it was not that */
    uint32_t dropped; /* turns that did not fit any longer */
    bool is_kept;     /* there is an answer, perhaps a part of one, and the conversation has it */
};

/*
 * Answers the last message: writes the text to standard output as it comes, and adds it to the conversation.
 * EXIT_DONE also when it was stopped. Otherwise an exit status after saying why; nothing was added then.
 */
int answer_question(const struct loaded *loaded, struct conversation *conversation,
    const struct answer_settings *settings, struct answer *out);

#endif
