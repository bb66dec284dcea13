#include "history_file.h"

#include "escapes.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 1000 }; /* lines; twice as many before a file is cut */

static bool history_path(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length;
    if (state && *state == '/')
        length = snprintf(path, size, "%s/salvo/history", state);
    else if (home && *home)
        length = snprintf(path, size, "%s/.local/state/salvo/history", home);
    else
        return false;
    return length > 0 && (size_t)length < size;
}

/* Creates the missing parent folders. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

/* `mode` as for fopen: "r", "a" or "w". Fails for anything but a regular file of this user. */
static FILE *open_history(const char *mode)
{
    char path[PATH_MAX];
    if (!history_path(path, sizeof path))
        return NULL;
    int flags = *mode == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (*mode == 'a' ? O_APPEND : 0);
    if (*mode != 'r')
        make_folders(path);
    int file = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    struct stat status;
    FILE *stream = NULL;
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        fchmod(file, 0600) == 0 && (*mode != 'w' || ftruncate(file, 0) == 0))
        stream = fdopen(file, mode);
    if (file >= 0 && !stream)
        close(file);
    return stream;
}

/* A line break within is written as an escape. */
static void write_line(FILE *stream, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            fputs("\\n", stream);
        else if (*text == '\\')
            fputs("\\\\", stream);
        else
            putc(*text, stream);
    }
    putc('\n', stream);
}

void history_file_add(const char *text)
{
    FILE *stream = open_history("a");
    if (!stream)
        return;
    write_line(stream, text);
    fclose(stream);
}

void history_file_load(void (*line)(void *user, const char *text), void *user)
{
    FILE *stream = open_history("r");
    if (!stream)
        return;
    char *lines[KEPT] = {0}, *text = NULL; /* the newest, in a ring */
    size_t count = 0, capacity = 0;
    ssize_t length;
    while ((length = getline(&text, &capacity, stream)) > 0) {
        length -= text[length - 1] == '\n';
        text[unescape(text, (size_t)length)] = 0;
        free(lines[count % KEPT]);
        lines[count++ % KEPT] = text;
        text = NULL;
        capacity = 0;
    }
    free(text);
    fclose(stream);
    stream = count > 2 * KEPT ? open_history("w") : NULL;
    for (size_t i = count > KEPT ? count - KEPT : 0; i < count; i++) {
        line(user, lines[i % KEPT]);
        if (stream)
            write_line(stream, lines[i % KEPT]);
        free(lines[i % KEPT]);
    }
    if (stream)
        fclose(stream);
}
