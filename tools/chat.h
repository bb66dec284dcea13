/* A conversation that is being held: what `salvo chat` works on. */
#ifndef TOOLS_CHAT_H
#define TOOLS_CHAT_H

#include "answer.h"
#include "conversation.h"
#include "engine_flags.h"
#include "generate_flags.h"

struct chat {
    struct loaded loaded;
    struct conversation conversation;
    struct stop_strings stops;
    struct answer_settings settings;
    struct salvo_sampler sampler;
    struct answer_counts totals;
    uint32_t answers;
    bool has_leftovers; /* the session may hold tokens that the conversation has no longer */
    bool interactive;   /* a person sits before it */
    bool leaving;
};

/* All that can fail says why and returns an exit status other than EXIT_DONE; what was said before stays. */

/* Sends a message and writes the answer. */
int chat_ask(struct chat *chat, const char *text, size_t size);

/* Answers the last message again, with another seed. */
int chat_answer_again(struct chat *chat);

/* Takes the last message and its answer back. */
int chat_undo(struct chat *chat);

/* Writes the conversation and its state to a file. */
int chat_save(struct chat *chat, const char *path, bool force);

/* What begins with a slash: "/help". */
int chat_obey(struct chat *chat, const char *text);

/* What a person should know and what is no error, on standard error. */
void chat_notice(const struct chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The tokens of answers, on standard error. */
void chat_print_totals(const struct chat *chat);

#endif
