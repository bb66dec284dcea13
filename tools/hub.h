/* Models of a hub with the interface of Hugging Face: what hf:ORG/REPO[:QUANT|/FILE.gguf] means. */
#ifndef TOOLS_HUB_H
#define TOOLS_HUB_H

#include "sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HUB_NAME = 200, HUB_PATH = 512, HUB_ERROR = 1200 };

struct hub_reference {
    char repository[HUB_NAME]; /* ORG/REPO */
    char quant[64];            /* "Q4_K_M"; "": not given */
    char file[HUB_PATH];       /* path in the repository; "": not given */
};

struct hub_file {
    char *path;
    char sha256[SHA256_TEXT]; /* "": unknown */
    uint64_t size;
};

struct hub_listing {
    struct hub_file *files;
    size_t count, capacity;
};

/* The files of a model in their order: one, or all parts of a split model. */
struct hub_choice {
    const struct hub_file **files;
    size_t count;
};

/* The endpoint, $HF_ENDPOINT or https://huggingface.co, without a slash at its end; and $HF_TOKEN or NULL. */
const char *hub_endpoint(void);
const char *hub_token(void);

/* Whether the text is a reference, "hf:..."; an invalid one is reported by hub_parse. */
bool hub_is_reference(const char *text);

/* EXIT_DONE, or EXIT_USAGE after an error message. */
int hub_parse(const char *text, struct hub_reference *out);

/* All GGUF files of a repository. EXIT_DONE, or EXIT_FAILED after an error message. */
int hub_list(const struct hub_reference *reference, uint32_t timeout, struct hub_listing *out);
bool hub_listing_add(struct hub_listing *listing, const struct hub_file *file); /* copies the path */
void hub_listing_free(struct hub_listing *listing);

/* The model that the reference means. False, with a line in `error`, if there is none or more than one. */
bool hub_choose(const struct hub_reference *reference, const struct hub_listing *listing,
    struct hub_choice *out, char error[HUB_ERROR]);

/* The address of a file; false if it is too long. */
bool hub_url(const struct hub_reference *reference, const char *path, char *out, size_t room);

/* A path that stays within the repository. */
bool hub_path_is_inner(const char *path);

/* The part of a split model that a file is, from 1, by its name: STEM-00002-of-00003.gguf; 0: none. `stem`
 * gets the length of STEM. */
unsigned split_number(const char *name, size_t *stem, unsigned *out_parts);

#endif
