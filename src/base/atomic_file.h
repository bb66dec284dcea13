/*
 * A file that appears under its name only when it is complete; until then, or on failure, nothing changes. It
 * replaces a regular file with a write bit only, the one that a symbolic link leads to, and keeps its mode
 * and, where the process may set them, its owner and group. Anything else that has the name is refused.
 */
#ifndef BASE_ATOMIC_FILE_H
#define BASE_ATOMIC_FILE_H

#include "base/status.h"

#include <stdio.h>

struct atomic_file {
    FILE *stream;
    char *path;                    /* as it was given, for messages */
    char *target, *temporary_path; /* where links lead to, and its neighbour until then */
    bool is_new;                   /* nothing may have the name, also not since it was opened */
    int error;                     /* of a write that failed; 0: none */
};

enum salvo_status atomic_file_open(const char *path, struct atomic_file *out);

/* The same, but a file that has the name is refused. */
enum salvo_status atomic_file_open_new(const char *path, struct atomic_file *out);
enum salvo_status atomic_file_write(struct atomic_file *file, const void *data, size_t size);

/* Flushes to the disk and renames, unless a write failed. The file is closed in any case. */
enum salvo_status atomic_file_commit(struct atomic_file *file);

/* Closes and removes what was not committed; harmless after a commit. */
void atomic_file_abandon(struct atomic_file *file);

#endif
