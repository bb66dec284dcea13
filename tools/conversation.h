/* What was said so far, and the template that makes a prompt of it. */
#ifndef TOOLS_CONVERSATION_H
#define TOOLS_CONVERSATION_H

#include <salvo/salvo.h>

struct conversation {
    struct salvo_template *template;
    struct salvo_message *messages;
    char **memory; /* of the texts of each */
    size_t count, capacity;
};

/* All that can fail says why, returns an exit status other than EXIT_DONE, and changes nothing. */
int conversation_open(struct salvo_model *model, struct conversation *out);
void conversation_close(struct conversation *conversation);

int conversation_add(struct conversation *conversation, const char *role, const char *text, size_t size);
void conversation_cut(struct conversation *conversation, size_t count); /* to the first `count` messages */

/* A system message, in the place of the one there is; "" takes it away. Templates may refuse it. */
int conversation_set_system(struct conversation *conversation, const char *text);
int conversation_set_system_from_flags(struct conversation *conversation); /* --system, if it was given */
bool conversation_has_system(const struct conversation *conversation);

/* The messages in the place of those there are. */
int conversation_replace(struct conversation *conversation, const struct salvo_messages *messages);

/* Turns: what a user said and the answers to it. The system message belongs to none. */
size_t conversation_turns(const struct conversation *conversation);
void conversation_drop_oldest(struct conversation *conversation, size_t turns);

/* What the user said last: its index, or `count` when nobody has said anything. */
size_t conversation_last_question(const struct conversation *conversation);

/* All of it as tokens, up to where the answer begins, as if the oldest `dropped` turns were not there; freed
 * by salvo_free. */
int conversation_tokens(
    const struct conversation *conversation, size_t dropped, int32_t **out_ids, size_t *out_count);

#endif
