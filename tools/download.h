/* Downloads one file, in as many requests as it takes, and checks size and SHA-256. */
#ifndef TOOLS_DOWNLOAD_H
#define TOOLS_DOWNLOAD_H

#include "http_get.h"
#include "sha256.h"

struct download {
    const char *name; /* shown */
    const char *url;
    const char *part;         /* path of the unfinished file, whose bytes are kept */
    char sha256[SHA256_TEXT]; /* the expected checksum, "": the server's, if it sends one; afterwards the
                                 file's checksum */
    bool has_size;
    uint64_t size;  /* expected, if has_size; then the result */
    bool is_listed; /* sha256 and size come from a list of the same server, not from the user */
    uint32_t timeout;
};

enum download_result {
    DOWNLOAD_DONE,
    DOWNLOAD_FAILED,  /* after an error message */
    DOWNLOAD_CHANGED, /* the server has another file now than the list says */
};

enum download_result download(struct download *download);

/* Checks that the folder has room for `needed` more bytes. EXIT_DONE, or EXIT_FAILED after an error message.
 */
int check_free_space(const char *path, uint64_t needed);

#endif
