/* The state of `salvo chat`. */
#ifndef TOOLS_CHAT_H
#define TOOLS_CHAT_H

#include "engine_flags.h"
#include "generate_flags.h"
#include "line_editor.h"
#include "text_output.h"
#include "tool_flags.h"

#include <salvo/chat.h>

/* Tokens and seconds of all answers, or of one. */
struct answer_counts {
    uint64_t computed, reused; /* of the prompts */
    uint64_t generated;
    double first_text, prefill, decode; /* seconds; first_text counts from the question */
};

/* A call whose result is not known yet. */
struct chat_call {
    char *name;
    char id[32];
};

struct chat {
    struct loaded loaded;
    struct salvo_chat *conversation;
    struct line_editor *editor;
    struct tool_use tools;         /* of --tools */
    struct salvo_grammar *grammar; /* of answers with calls; NULL without tools */
    struct chat_call *calls;       /* of the last answer */
    size_t call_count;
    struct stop_strings stops; /* of the options */
    struct salvo_sampler sampler;
    struct answer_counts totals;
    uint32_t answers;
    bool slides;      /* --on-full slide */
    bool interactive; /* input and output are a terminal */
    bool leaving;
};

/* Functions that fail print an error, return an exit status other than EXIT_DONE and leave the conversation
 * as it was. */

/* Adds a message and prints the answer. Results of calls are asked for, and answered as well. */
int chat_ask(struct chat *chat, const char *text, size_t size);

/* Generates the last answer again, with another seed. */
int chat_answer_again(struct chat *chat);

/* Removes the last message and its answer. */
int chat_undo(struct chat *chat);

/* Writes the conversation and its state to a file. */
int chat_save(struct chat *chat, const char *path, bool force);

/* The system message; NULL if there is none. */
const struct salvo_message *chat_system(const struct chat *chat);

/* The index of the last message that the user wrote, as salvo_chat_question; results of calls do not count.
 */
size_t chat_question(const struct chat *chat);

/* Reports that the answer failed. */
int chat_answer_failure(const struct chat *chat, enum salvo_status status);

/* Answers with the grammar of the tools: text and calls are shown as they come, and the calls are kept in the
 * chat. */
int chat_tools_answer(struct chat *chat, struct text_output *shown, struct salvo_answer *out);

/* Asks for the results of the calls, and adds them as messages. */
int chat_tools_ask(struct chat *chat);
void chat_tools_forget(struct chat *chat); /* the calls */

/* Runs a command such as "/help". */
int chat_obey(struct chat *chat, const char *text);

/* Prints a notice to standard error. */
void chat_notice(const struct chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the statistics of all answers to standard error. */
void chat_print_totals(const struct chat *chat);

#endif
