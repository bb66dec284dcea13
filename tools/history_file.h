/*
 * Lines that were typed, kept from one conversation to the next in
 * ${XDG_STATE_HOME:-~/.local/state}/salvo/history, which is its owner's alone. A history that cannot be read
 * or written is none: nobody is stopped by that.
 */
#ifndef TOOLS_HISTORY_FILE_H
#define TOOLS_HISTORY_FILE_H

/* Hands over the newest lines, oldest first; long files are cut to as many. */
void history_file_load(void (*line)(void *user, const char *text), void *user);

/* Adds one; it may hold line breaks. */
void history_file_add(const char *text);

#endif
