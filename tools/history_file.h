/*
 * The input history, in ${XDG_STATE_HOME:-~/.local/state}/salvo/history, readable by its owner only. Errors
 * are ignored: there is no history then.
 */
#ifndef TOOLS_HISTORY_FILE_H
#define TOOLS_HISTORY_FILE_H

/* Passes the newest lines to the callback, oldest first, and truncates long files to them. */
void history_file_load(void (*line)(void *user, const char *text), void *user);

/* Appends a line, which may contain line breaks. */
void history_file_add(const char *text);

#endif
