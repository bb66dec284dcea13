/* The bytes of an answer's status line and headers. */
#ifndef SERVER_HTTP_ANSWER_H
#define SERVER_HTTP_ANSWER_H

#include "http_request.h"

struct evbuffer;

struct http_answer {
    int status;
    const struct http_header *headers; /* ends with an entry without name, or NULL */
    bool chunked;
    bool sized; /* `size` is Content-Length */
    size_t size;
    bool keep_alive;
    bool old_client; /* HTTP/1.0: a connection that stays is said so */
};

/* False if memory is short. */
bool http_answer_head(struct evbuffer *out, const struct http_answer *answer);
/* 1xx, 204 and 304 have neither a body nor a length. */
bool http_status_has_body(int status);
const char *http_status_text(int status);

#endif
