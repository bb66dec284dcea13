/*
 * A file that appears under its name only when it is complete; until then, or on failure, nothing changes. It
 * replaces only a regular file with a write bit, following symbolic links, and keeps its mode and, if the
 * process may set them, its owner and group. Other existing files are refused.
 */
#ifndef BASE_ATOMIC_FILE_H
#define BASE_ATOMIC_FILE_H

#include "base/status.h"

#include <stdio.h>

struct atomic_file {
    FILE *stream;
    char *path;                    /* as given, for messages */
    char *target, *temporary_path; /* the target behind links, and the temporary file beside it */
    bool is_new;                   /* no file may have the name, not even one created since the open */
    int error;                     /* errno of a failed write; 0: none */
};

enum salvo_status atomic_file_open(const char *path, struct atomic_file *out);

/* The same, but an existing file is refused. */
enum salvo_status atomic_file_open_new(const char *path, struct atomic_file *out);
enum salvo_status atomic_file_write(struct atomic_file *file, const void *data, size_t size);

/* Flushes to disk and renames, unless a write failed. Always closes the file. */
enum salvo_status atomic_file_commit(struct atomic_file *file);

/* Closes and removes a file that was not committed; does nothing after a commit. */
void atomic_file_abandon(struct atomic_file *file);

#endif
