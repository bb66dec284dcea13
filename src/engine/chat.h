/* A conversation: chat.c has its messages and prompts, chat_answer.c its answers by a session, chat_file.c
 * its files. */
#ifndef ENGINE_CHAT_H
#define ENGINE_CHAT_H

#include "engine/message_list.h"
#include "text/tokenizer.h"

#include <salvo/chat.h>

struct salvo_chat {
    struct salvo_model *model;
    struct salvo_template *chat_template;
    char *json; /* the template variables; NULL: none */
    size_t json_size;
    enum salvo_on_full on_full;
    struct message_list messages;

    /* The tokens of the last prompt and of the answer to it. */
    struct token_list held;
    bool has_leftovers; /* `held` may have tokens of removed messages */
};

/* The tokens of messages without the oldest `dropped` turns; freed by memory_free. */
enum salvo_status chat_render(const struct salvo_chat *chat, const struct message_list *messages,
    size_t dropped, bool generation_prompt, struct token_list *out);

/*
 * The prompt of `messages`, with the tokens of `held` where they have the same text, followed by `generated`.
 * If it leaves no room in the context (0: no limit), turns are removed from the messages or the call fails.
 */
enum salvo_status chat_make_prompt(const struct salvo_chat *chat, struct message_list *messages,
    uint32_t context, struct token_list generated, struct token_list *out);

/* Removes turns until a quarter of the context is free; *out_fits is false if that gives no room: nothing is
 * removed. */
enum salvo_status chat_slide(const struct salvo_chat *chat, struct message_list *messages, uint32_t context,
    struct token_list generated, struct token_list *out, bool *out_fits);

/* Replaces `held`; without memory it becomes empty. */
void chat_hold(struct salvo_chat *chat, const int32_t *ids, size_t count);

#endif
