/* One GET request, with redirects and a token, through libcurl. */
#ifndef TOOLS_HTTP_GET_H
#define TOOLS_HTTP_GET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_URL = 4096, HTTP_TEXT = 256 };

/* The headers of the answer. Headers that begin with `linked` are of the first answer that has them: a hub
 * describes a file in the redirect to it. */
struct http_reply {
    long status;
    bool has_length, has_range, has_linked_size;
    bool is_encoded; /* the body is compressed */
    uint64_t length; /* of the body */
    uint64_t from;   /* Content-Range: first byte of the body within the file */
    uint64_t total;  /* Content-Range: size of the file */
    uint64_t linked_size;
    uint32_t retry_after; /* seconds; 0: not given */
    char etag[HTTP_TEXT]; /* "" if there is none, or a weak one */
    char linked_etag[HTTP_TEXT];
    char message[HTTP_TEXT]; /* X-Error-Message */
    char next[HTTP_URL];     /* Link, rel="next" */
};

struct http_request {
    const char *url;
    const char *token;    /* NULL: none */
    const char *endpoint; /* the token is sent only to this origin, and only over HTTPS */
    uint64_t from;        /* first byte that is wanted */
    const char *if_range; /* the ETag that a part must have; NULL: any */
    uint32_t timeout;     /* seconds of silence that end the transfer */
    bool (*begin)(void *user, const struct http_reply *reply); /* before the body of status 200 or 206 */
    bool (*body)(void *user, const char *data, size_t size);
    void *user; /* of both; each returns false to stop */
};

enum http_result {
    HTTP_DONE,        /* an answer of any status, complete */
    HTTP_UNREACHABLE, /* no connection */
    HTTP_BROKEN,      /* the connection was cut, or was silent for too long */
    HTTP_REFUSED,     /* a certificate, URL or redirect that is not accepted */
    HTTP_STOPPED,     /* by `begin` or `body` */
    HTTP_NO_LIBRARY,  /* after an error message */
};

/* `error` gets a line for each result but HTTP_DONE. */
enum http_result http_get(
    const struct http_request *request, struct http_reply *out_reply, char error[HTTP_URL + HTTP_TEXT]);

/* "https://host:port" in lower case with the port always written; false for any other scheme than HTTP and
 * HTTPS, for URLs with a user name, and for unusual characters. */
bool url_origin(const char *url, char *out, size_t room);

#endif
