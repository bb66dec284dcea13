/* Who may ask: keys, the Host header, origins of browsers. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

#include "http_request.h"

struct http_access {
    const char *const *keys; /* a request needs one of them; without keys, it needs a right Host */
    size_t key_count;
    const char *host;         /* of --host; NULL or "": the loopback names alone */
    bool any_host;            /* a Unix socket has no address: any Host is right */
    const char *cors_origins; /* origins with commas between, or "*"; NULL or "": none */
};

/*
 * 0 if the request is admitted, or a status: 401 (with a message) for a missing or wrong key, 403 for a Host
 * that is neither loopback nor --host, where there is no key. `needs_key` is false for /health. The key is
 * read from "Authorization: Bearer KEY" or "X-Api-Key: KEY". OPTIONS needs no key.
 */
int http_access_check(const struct http_access *access, const struct http_request *request, bool needs_key,
    const char **out_message);

/* Compares in a time that depends only on the size of the given text. */
bool http_access_equal(const char *given, const char *secret);

/* Appends the CORS headers of an answer to a list that ends with an entry without name and has room for
 * `room` entries; nothing for a request without Origin, or with one that is not allowed. */
void http_access_cors(const struct http_access *access, const struct http_request *request,
    struct http_header *headers, size_t room);

#endif
