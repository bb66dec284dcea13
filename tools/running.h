/* Running servers: each leaves a file in $XDG_RUNTIME_DIR/salvo and holds a lock on it while it runs. */
#ifndef TOOLS_RUNNING_H
#define TOOLS_RUNNING_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUNNING_TEXT = 1024 };

struct running_server {
    int64_t pid, started;       /* started: seconds since 1970 */
    char address[RUNNING_TEXT]; /* "http://127.0.0.1:8080" */
    char models[RUNNING_TEXT];  /* names, separated by commas */
};

/* $XDG_RUNTIME_DIR/salvo; false if the variable is not set. */
bool running_folder(char path[PATH_MAX]);

/* Notes this process as a server until running_end or the end of the process. Does nothing without the
 * folder. */
void running_begin(const char *address, const char *models);
void running_end(void);

/* Reads the note of a server; false, and removes the file, if its process has ended. */
bool running_read(const char *path, struct running_server *out);

#endif
