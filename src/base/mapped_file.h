/*
 * A file mapped for reading. If the file is truncated while it is mapped, reading beyond its new end gives
 * zeros instead of SIGBUS, and mapped_file_check fails: check after reading, before using the result.
 */
#ifndef BASE_MAPPED_FILE_H
#define BASE_MAPPED_FILE_H

#include "base/status.h"

#include <sys/stat.h>

struct mapped_file {
    const uint8_t *data; /* not NULL, not even for an empty file: NULL + 0 is undefined */
    size_t size;
    char *path;
    void *mapping; /* the mapping of `data`; not const only because some system calls require it */
    int guard;     /* index in the table of guarded ranges, -1 when not mapped */
    dev_t device;  /* with the inode: the file's identity */
    ino_t inode;
};

enum salvo_status mapped_file_open(const char *path, struct mapped_file *out);
enum salvo_status mapped_file_check(const struct mapped_file *file);

/* Whether `path` is this file, also through links. */
bool mapped_file_is_at(const struct mapped_file *file, const char *path);
void mapped_file_close(struct mapped_file *file);

/* Releases the pages of a range; later reads fetch them from the file again. */
void mapped_file_release(const struct mapped_file *file, size_t offset, size_t size);

#endif
