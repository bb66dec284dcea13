/*
 * A file mapped for reading. If the file is cut while it is mapped, reading beyond its new end gives zeros
 * instead of SIGBUS, and mapped_file_check says so: check after reading, before believing.
 */
#ifndef BASE_MAPPED_FILE_H
#define BASE_MAPPED_FILE_H

#include "base/status.h"

#include <sys/stat.h>

struct mapped_file {
    const uint8_t *data;
    size_t size;
    char *path;
    void *mapping; /* what `data` points into, writable only for the system calls that ask for it */
    int guard;     /* index in the table of guarded ranges, -1 when not mapped */
    dev_t device;  /* with the inode: which file it is, whatever it is called */
    ino_t inode;
};

enum salvo_status mapped_file_open(const char *path, struct mapped_file *out);
enum salvo_status mapped_file_check(const struct mapped_file *file);

/* Whether `path` leads to this very file: by its name, a link of either kind, or another way. */
bool mapped_file_is_at(const struct mapped_file *file, const char *path);
void mapped_file_close(struct mapped_file *file);

/* Gives the pages of a range back to the system; reading them again fetches them from the file. */
void mapped_file_release(const struct mapped_file *file, size_t offset, size_t size);

#endif
