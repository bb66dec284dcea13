/* --tools FILE: tools that an answer may call. */
#ifndef TOOLS_TOOL_FLAGS_H
#define TOOLS_TOOL_FLAGS_H

#include "base/json.h"
#include "command.h"

#include <salvo/chat.h>
#include <salvo/tools.h>

extern struct tool_flags {
    const char *file;
} tool_flags;

/* The tools of the file and the form of their calls. All zeros: there are none. */
struct tool_use {
    struct salvo_tool_form *form;
    char *tools, *variables; /* a JSON array; a JSON object with it, for the template */
    size_t size;
};

/* Reads the file. EXIT_DONE, or an exit status after an error message; without --tools nothing is opened. */
int tool_use_open(struct salvo_model *model, struct tool_use *out);
void tool_use_close(struct tool_use *use);

/* The variables for a template that lists the tools; empty for others. */
struct salvo_text tool_use_variables(const struct tool_use *use);

/* Prints the name and the description of each tool to standard error. */
int tool_use_print(const struct tool_use *use);

/* A call as {"name": ..., "arguments": {...}}. */
void tool_write_call(struct json_writer *json, struct salvo_text name, struct salvo_text arguments);

/* Describes the tools in the system message, if the template does not list them. */
int tool_use_describe(const struct tool_use *use, struct salvo_chat *chat);

/* The grammar of answers with calls. */
int tool_use_grammar(const struct tool_use *use, struct salvo_model *model, struct salvo_grammar **out);

/* Receives a whole answer: `text` gets content and reasoning, `call` each call. */
struct tool_answer {
    void (*text)(void *user, struct salvo_text text, bool is_reasoning);
    void (*call)(void *user, struct salvo_text name, struct salvo_text arguments);
    void *user;
};
int tool_use_read(const struct tool_use *use, struct salvo_text answer, const struct tool_answer *out);

#endif
