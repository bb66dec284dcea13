/*
 * server/http.h without sockets, for one exchange at a time. The caller runs the loop: functions that other
 * threads post wait in a list. Workers of server/api_workers.h run there, too, so that requests are prepared
 * in the same order each time.
 */
#ifndef TESTS_FAKE_HTTP_H
#define TESTS_FAKE_HTTP_H

#include "../../server/http.h"
#include "base/buffer.h"

struct fake_answer {
    int status; /* 0: none yet */
    struct buffer body;
    bool streamed, ended, aborted;
};

/* The only server. */
struct http_server *fake_http(void);

/* Begins an exchange. With `slow`, each piece of a stream fills the connection, which then has room again. */
struct http_exchange *fake_http_begin(const char *path, const uint8_t *body, size_t size, bool slow);
const struct fake_answer *fake_http_answer(void);
/* The client goes away. */
void fake_http_leave(void);

/* Waits for a function that was posted and runs it. */
void fake_http_step(void);
/* Runs the functions that were posted so far. */
void fake_http_finish(void);

#endif
