/*
 * Reads lines: from a terminal with editing and history if libedit is built in, from a pipe unchanged.
 */
#ifndef TOOLS_LINE_EDITOR_H
#define TOOLS_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor;

/* "line editing by libedit", or why there is none. */
extern const char line_editor_description[];

/* `interactive`: input and output are terminals, and a prompt is printed. NULL: out of memory. */
struct line_editor *line_editor_open(bool interactive);
void line_editor_close(struct line_editor *editor);

enum line_result {
    LINE_READ,
    LINE_INTERRUPTED, /* by Ctrl-C */
    LINE_END,         /* of the input; Ctrl-D */
    LINE_FAILED,      /* `errno` says why */
};

/* One line without its end; it lives until the next call and may hold any bytes. `prompt` is shown before it,
 * in colour and with a blank after it. */
enum line_result line_editor_read(
    struct line_editor *editor, const char *prompt, const char **out_line, size_t *out_size);

#endif
