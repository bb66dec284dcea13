/*
 * salvo/chat.h: a conversation that computes only what is new.
 *
 * A chat keeps messages; sessions are only caches of them. For each answer the chat template renders all
 * messages to tokens. Tokens that the session has are kept, and only the others are computed; so messages may
 * be removed, replaced and answered again without any care. A model may generate an answer with other tokens
 * than the tokenizer would choose: where the text is the same, the generated tokens are kept.
 *
 * With a session, salvo_chat_answer does all of this. With a scheduler, salvo_chat_prompt gives the tokens of
 * the next request, which the engine's prefix cache finds again, and salvo_chat_take adds the answer.
 *
 * A chat is used by one thread at a time; different chats of a model may be used by different threads.
 */
#ifndef SALVO_CHAT_H
#define SALVO_CHAT_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

struct salvo_chat;

/* When the messages do not fit into the context. A turn is a message of the user and the answers to it; the
 * system message belongs to none. */
enum salvo_on_full {
    SALVO_ON_FULL_STOP = 0, /* a prompt that is too long is SALVO_ERROR_CONTEXT; an answer ends */
    SALVO_ON_FULL_SLIDE = 1 /* whole turns are removed, the oldest first, until a quarter is free */
};

struct salvo_chat_options {
    size_t size;
    uint32_t on_full;                /* enum salvo_on_full */
    struct salvo_text chat_template; /* empty: the template that salvo_template_open finds in the model */
    struct salvo_text json;          /* further template variables, as in struct salvo_conversation; copied */
};
#define SALVO_CHAT_OPTIONS_INIT                       \
    {                                                 \
        sizeof(struct salvo_chat_options), 0, {0, 0}, \
        {                                             \
            0, 0                                      \
        }                                             \
    }

/* The model must stay open as long as the chat. */
SALVO_API enum salvo_status salvo_chat_open(
    struct salvo_model *model, const struct salvo_chat_options *options, struct salvo_chat **out);
SALVO_API void salvo_chat_close(struct salvo_chat *chat);

/* ---- Messages ---- */

/* All messages; valid until the chat is changed. */
SALVO_API struct salvo_messages salvo_chat_messages(const struct salvo_chat *chat);

/* Appends copies of messages. `message_size` is sizeof(struct salvo_message). */
SALVO_API enum salvo_status salvo_chat_add(
    struct salvo_chat *chat, const struct salvo_message *messages, size_t count, size_t message_size);

/* Keeps the first `count` messages. */
SALVO_API void salvo_chat_cut(struct salvo_chat *chat, size_t count);

/* The index of the last message of the user; the number of messages if there is none. Cutting there undoes
 * the last turn. */
SALVO_API size_t salvo_chat_question(const struct salvo_chat *chat);

/* Sets or replaces the system message, the first of all; an empty text removes it. A template may refuse
 * system messages: an error without effect. */
SALVO_API enum salvo_status salvo_chat_set_system(struct salvo_chat *chat, const char *text, size_t size);

/* ---- Answers by a session ---- */

struct salvo_answer_options {
    size_t size;
    const char *const *stop_strings; /* in addition to the stop strings of the template */
    size_t stop_count;
    uint32_t max_tokens; /* 0: until the end or the context */
    uint32_t ahead;      /* as in struct salvo_generate_options */
    uint32_t again;      /* 1: replaces the answers to the last message of the user */
    /* As in struct salvo_generate_options; text that is complete is passed also if `token` returned false. */
    salvo_text_function text;
    salvo_token_function token;
    void *user;
};
#define SALVO_ANSWER_OPTIONS_INIT                                   \
    {                                                               \
        sizeof(struct salvo_answer_options), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

struct salvo_answer {
    size_t size;
    uint32_t finish;  /* enum salvo_finish */
    uint32_t kept;    /* 1: the answer is now the last message. 0: it was cancelled before its first text */
    uint32_t dropped; /* turns that were removed because the context was full */
    uint32_t tokens;  /* of the answer */
    uint64_t computed, reused; /* tokens of the prompt */
    double prompt_seconds, decode_seconds;
};
#define SALVO_ANSWER_INIT                                   \
    {                                                       \
        sizeof(struct salvo_answer), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/*
 * Answers the messages, with the sampler of the session, and adds the answer to them. The session belongs to
 * an engine of the chat's model; whatever it contains is replaced, as far as it differs. After an error, and
 * if the answer is not kept, the messages are unchanged. salvo_session_cancel stops the call, which then
 * returns SALVO_OK. `options` and `out` may be NULL.
 */
SALVO_API enum salvo_status salvo_chat_answer(struct salvo_chat *chat, struct salvo_session *session,
    const struct salvo_answer_options *options, struct salvo_answer *out);

/* ---- Answers by others, such as a scheduler ---- */

/*
 * The prompt for the next answer as tokens, freed by salvo_free. `context` is the context of the engine: a
 * longer prompt is SALVO_ERROR_CONTEXT, or removes turns; 0: no limit.
 */
SALVO_API enum salvo_status salvo_chat_prompt(
    struct salvo_chat *chat, uint32_t context, int32_t **out_ids, size_t *out_count);

/* Adds an answer that was generated after the last salvo_chat_prompt: its text as a message, and its tokens,
 * which the next prompt keeps where the text is the same. */
SALVO_API enum salvo_status salvo_chat_take(
    struct salvo_chat *chat, const int32_t *ids, size_t count, const char *text, size_t size);

/* The ids and strings that end an answer: salvo_template_stops of the chat's template. */
SALVO_API const struct salvo_stops *salvo_chat_stops(const struct salvo_chat *chat);

/* ---- Files ---- */

/* Saves messages and session in one file, as salvo_session_chat_save_file does; tokens that are not part of
 * the conversation are removed from the session first. `replace` false: an existing file is an error. */
SALVO_API enum salvo_status salvo_chat_save_file(
    struct salvo_chat *chat, struct salvo_session *session, const char *path, bool replace);

/* Replaces messages and session by the contents of a file. A file that is refused changes nothing. */
SALVO_API enum salvo_status salvo_chat_load_file(
    struct salvo_chat *chat, struct salvo_session *session, const char *path);

#ifdef __cplusplus
}
#endif

#endif
