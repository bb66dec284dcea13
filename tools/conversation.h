/* The messages of a conversation, and the chat template that makes a prompt of them. */
#ifndef TOOLS_CONVERSATION_H
#define TOOLS_CONVERSATION_H

#include <salvo/salvo.h>

struct conversation {
    struct salvo_template *template;
    struct salvo_message *messages;
    char **memory; /* the texts of each message */
    size_t count, capacity;
};

/* Functions that fail print an error, return an exit status other than EXIT_DONE and change nothing. */
int conversation_open(struct salvo_model *model, struct conversation *out);
void conversation_close(struct conversation *conversation);

int conversation_add(struct conversation *conversation, const char *role, const char *text, size_t size);
void conversation_cut(struct conversation *conversation, size_t count); /* to the first `count` messages */

/* Sets or replaces the system message; "" removes it. Templates may refuse it. */
int conversation_set_system(struct conversation *conversation, const char *text);
int conversation_set_system_from_flags(struct conversation *conversation); /* --system, if it was given */
bool conversation_has_system(const struct conversation *conversation);

/* Replaces all messages. */
int conversation_replace(struct conversation *conversation, const struct salvo_messages *messages);

/* A turn is a user message and the answers to it. The system message belongs to no turn. */
size_t conversation_turns(const struct conversation *conversation);
void conversation_drop_oldest(struct conversation *conversation, size_t turns);

/* The index of the last user message; `count` when there is none. */
size_t conversation_last_question(const struct conversation *conversation);

/* The prompt for the next answer as tokens, without the oldest `dropped` turns; freed by salvo_free. */
int conversation_tokens(
    const struct conversation *conversation, size_t dropped, int32_t **out_ids, size_t *out_count);

#endif
