#include "http_retry.h"

#include "command.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONGEST_WAIT = 10 /* timeouts */ };

bool http_may_retry(
    const struct http_request *request, enum http_result result, const struct http_reply *reply)
{
    if (result != HTTP_DONE)
        return result == HTTP_BROKEN;
    const bool is_passing = reply->status == 408 || reply->status == 429 || reply->status >= 500;
    return is_passing && reply->retry_after <= request->timeout * LONGEST_WAIT;
}

void http_pause(const struct http_reply *reply, unsigned tries)
{
    const char *first = getenv("SALVO_PULL_PAUSE"); /* milliseconds, for tests */
    uint64_t milliseconds = (first ? strtoul(first, NULL, 10) : 1000) << (tries < 8 ? tries : 8);
    if (reply->status != 200 && reply->status != 206 && reply->retry_after)
        milliseconds = (uint64_t)reply->retry_after * 1000;
    struct timespec time = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static const char *hint_for(const struct http_request *request, long status)
{
    if (status == 404)
        return ": there is no such file or repository";
    if (status == 429)
        return ": too many requests; try again later";
    if (status != 401 && status != 403)
        return "";
    if (!request->token)
        return ": access denied; a private or gated model needs a token in HF_TOKEN, of an account that has "
               "accepted the model's terms";
    if (strncmp(request->endpoint, "https://", 8) != 0)
        return ": access denied; HF_TOKEN is not sent over plain HTTP";
    return ": access denied; the account of HF_TOKEN may have to accept the model's terms first";
}

int http_complain(const struct http_request *request, enum http_result result, const struct http_reply *reply,
    const char *error)
{
    char origin[HTTP_TEXT];
    if (!url_origin(request->url, origin, sizeof origin))
        origin[0] = 0;
    switch (result) {
    case HTTP_NO_LIBRARY:
        return EXIT_FAILED; /* which has a message */
    case HTTP_UNREACHABLE:
        return failure("%s cannot be reached; is this machine offline? %s", origin, error);
    case HTTP_DONE:
        return failure("%s: status %ld%s%s%s", request->url, reply->status, hint_for(request, reply->status),
            *reply->message ? ": " : "", reply->message);
    default:
        return failure("%s: %s", request->url, error);
    }
}
