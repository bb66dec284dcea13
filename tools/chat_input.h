/*
 * Reads messages, one per line. A backslash at the end of a line continues the message on the next line; """
 * encloses a message of several lines.
 */
#ifndef TOOLS_CHAT_INPUT_H
#define TOOLS_CHAT_INPUT_H

#include "line_editor.h"

struct chat_message {
    char *text; /* NUL-terminated, may contain NULs; freed by its owner */
    size_t size;
    bool is_quoted; /* was in """: never a command */
};

/* `prompt` is shown before the first line. */
enum line_result chat_input_read(struct line_editor *editor, const char *prompt, struct chat_message *out);

#endif
