/*
 * Downloads that have not ended, in the folder .salvo of the models folder: FILE.0123456789abcdef.part and,
 * beside it, what tells which file of the server it is a part of.
 */
#ifndef TOOLS_UNFINISHED_H
#define TOOLS_UNFINISHED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unfinished_file {
    char name[NAME_MAX + 1]; /* of the file in the models folder */
    uint64_t size;           /* bytes that were downloaded */
};

/* The ending of the unfinished file with this checksum. */
void unfinished_ending(const char *sha256, char out[40]);

/* The unfinished files in alphabetical order; the caller frees them. */
size_t unfinished_list(const char *folder, struct unfinished_file **out);

/* Bytes that were downloaded of the file of this name. */
uint64_t unfinished_size(const char *folder, const char *name);

/* Removes what pulls of this name have left, except the file `kept` (a path, or NULL) and what belongs to it.
 */
void unfinished_remove(const char *folder, const char *name, const char *kept);

#endif
