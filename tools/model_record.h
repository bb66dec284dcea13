/*
 * Notes of salvo about the files of the models folder, in its subfolder .salvo: where a file was pulled
 * from (FILE.json), when a model was last used (the time of FILE.used), downloads that are not complete
 * (unfinished.h) and locks (FILE.lock).
 */
#ifndef TOOLS_MODEL_RECORD_H
#define TOOLS_MODEL_RECORD_H

#include "http_get.h"
#include "hub.h"

#include <limits.h>

struct model_record {
    char source[HTTP_URL]; /* hf:ORG/REPO/PATH, or a URL */
    char sha256[SHA256_TEXT];
    uint64_t size;
    int64_t changed; /* time of the file in nanoseconds, to recognise another file of this name */
    int64_t pulled;  /* seconds since 1970 */
};

/* FOLDER/.salvo/NAME + ENDING; false if it is too long. */
bool record_path(const char *folder, const char *name, const char *ending, char out[PATH_MAX]);

/* Makes the models folder and its subfolder. EXIT_DONE, or EXIT_FAILED after an error message. */
int record_folder_make(const char *folder);

/* The record of a file that has not changed since it was pulled. */
bool record_read(const char *folder, const char *name, struct model_record *out);

/* Notes that the file, which has its place already, came from `source`. False with salvo_error(). */
bool record_write(const char *folder, const char *name, const struct model_record *record);

void record_remove(const char *folder, const char *name);

/* Locks a model against pulls; false if one runs. `lock` is -1 if the folder has no notes or cannot be
 * written. */
bool record_lock(const char *folder, const char *name, int *lock);
void record_unlock(const char *folder, const char *name, int lock);

/* The last use of a model, in seconds since 1970; 0: never. */
void record_use(const char *folder, const char *name);
int64_t record_last_use(const char *folder, const char *name);

/* The name of the pulled model that a reference means; false if none fits, or several. */
bool record_find(const char *folder, const struct hub_reference *reference, char out[NAME_MAX + 1]);

#endif
