/* Messages of a conversation with memory of their own. */
#ifndef ENGINE_MESSAGE_LIST_H
#define ENGINE_MESSAGE_LIST_H

#include "base/status.h"

struct message_list {
    struct salvo_message *items;
    char **memory; /* the texts of each message */
    size_t count, capacity;
};

/* Functions that fail change nothing. */
enum salvo_status message_list_insert(
    struct message_list *list, size_t index, const struct salvo_message *message);
enum salvo_status message_list_copy(
    const struct salvo_message *messages, size_t count, struct message_list *out);
void message_list_erase(struct message_list *list, size_t first, size_t count);
void message_list_free(struct message_list *list);

bool message_is_from(const struct salvo_message *message, const char *role);

/* The index of the last message of the user; `count` if there is none. */
size_t message_list_question(const struct message_list *list);

/* Whether the first message is the system message: it belongs to no turn. */
bool message_list_has_system(const struct message_list *list);

/* A turn is a message of the user and the answers to it. */
size_t message_list_turns(const struct message_list *list);

/* The number of messages in the oldest `turns`. */
size_t message_list_turn_messages(const struct message_list *list, size_t turns);

#endif
