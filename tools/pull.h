/* Brings a model into the models folder: whole and checked, or not at all. */
#ifndef TOOLS_PULL_H
#define TOOLS_PULL_H

#include "pull_plan.h"

enum { PULL_TIMEOUT = 30 };

struct pull_result {
    char name[NAME_MAX + 1], path[PATH_MAX]; /* of the first file */
    char source[HTTP_URL];
    char sha256[SHA256_TEXT]; /* of the first file; "": an older file without a checksum */
    uint64_t size;            /* of all files */
    size_t files;
    bool was_there;
};

/* EXIT_DONE, or an exit status after an error message. */
int pull_model(const struct pull_request *request, struct pull_result *out);

#endif
