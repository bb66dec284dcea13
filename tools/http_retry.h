/* Failed requests: which to repeat, how long to wait, and how to explain them. */
#ifndef TOOLS_HTTP_RETRY_H
#define TOOLS_HTTP_RETRY_H

#include "http_get.h"

enum { HTTP_TRIES = 5 }; /* requests without progress after which a transfer fails */

/* Whether the same request may succeed later: cut connections, status 408, 429 and 5xx. */
bool http_may_retry(
    const struct http_request *request, enum http_result result, const struct http_reply *reply);

/* Waits as long as the server asks, or a second, doubled with each of `tries`. */
void http_pause(const struct http_reply *reply, unsigned tries);

/* Prints one line that explains the failure, and returns EXIT_FAILED. */
int http_complain(const struct http_request *request, enum http_result result, const struct http_reply *reply,
    const char *error);

#endif
