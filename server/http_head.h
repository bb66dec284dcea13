/* The request line and the headers of a request, from their lines. */
#ifndef SERVER_HTTP_HEAD_H
#define SERVER_HTTP_HEAD_H

#include "http_request.h"

#include <stdint.h>

enum http_body_kind { HTTP_BODY_NONE, HTTP_BODY_SIZED, HTTP_BODY_CHUNKED };

struct http_head {
    struct http_request request;
    unsigned minor; /* HTTP/1.minor, 0 or 1 */
    bool keep_alive;
    bool expects_continue; /* the client waits for "100 Continue" before it sends the body */
    enum http_body_kind body;
    uint64_t body_size; /* of HTTP_BODY_SIZED */
    int status;         /* of a malformed request, with a reason */
    const char *reason;
};

/* Both write to the line, which ends with a 0 byte and has no line break. False with a status and a reason if
 * the line is malformed. */
bool http_head_request_line(struct http_head *head, char *line, size_t size);
bool http_head_header_line(struct http_head *head, char *line, size_t size, struct http_header *out);

/* After the last header: Host, the framing of the body, Connection, Expect. A body above the limit is
 * refused. */
bool http_head_finish(struct http_head *head, size_t body_limit);

#endif
