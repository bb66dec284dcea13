/* The files that a pull needs: their addresses, and their names in the models folder. */
#ifndef TOOLS_PULL_PLAN_H
#define TOOLS_PULL_PLAN_H

#include "http_get.h"
#include "hub.h"

#include <limits.h>

struct pull_request {
    const char *source; /* hf:..., a URL, or a name of known_models.h; NULL: the default model */
    const char *sha256; /* NULL: not given */
    const char *name;   /* for the models folder, with or without .gguf; NULL: as the source calls it */
    uint32_t timeout;   /* seconds of silence that end a transfer */
    bool ask;           /* asks before it downloads */
};

struct pull_file {
    char name[NAME_MAX + 1], url[HTTP_URL];
    char source[HTTP_URL]; /* hf:ORG/REPO/PATH, or the URL */
    char sha256[SHA256_TEXT];
    uint64_t size;
    bool has_size, is_listed; /* is_listed: by the hub */
    bool is_there;            /* in the models folder */
    char part[PATH_MAX];
};

struct pull_plan {
    struct pull_file *files; /* in their order, if the model is split */
    size_t count;
};

/* Asks the hub for its list of files, if the source is there. EXIT_DONE, or an exit status after an error
 * message. */
int pull_plan_make(const struct pull_request *request, struct pull_plan *out);
void pull_plan_free(struct pull_plan *plan);

/* Whether a file of this name stays in the models folder and is seen there. */
bool is_model_file_name(const char *name);

#endif
