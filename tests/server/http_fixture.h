/* A server with a small handler in a thread, and clients that send raw bytes. */
#ifndef TESTS_SERVER_HTTP_FIXTURE_H
#define TESTS_SERVER_HTTP_FIXTURE_H

#include "server/http.h"

#include <pthread.h>

/*
 * Paths of the handler:
 *   /echo             the body or, without one, the path
 *   /hold             no answer until fixture_release
 *   /check            as /hold, but the close callback is set before the body has arrived
 *   /refuse           403 before the body is read
 *   /stream?pieces=N  N pieces of 1000 bytes; pauses as http.h asks
 *   /silent           a stream that only has comments
 *   /abort            a stream that breaks off
 */
struct fixture {
    struct http_options options; /* to be changed before fixture_start */
    struct http_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hold *holds; /* of the loop's thread */
    /* below the lock */
    unsigned held;   /* requests of /hold and /check that arrived */
    unsigned closed; /* close callbacks */
    unsigned handled;
    unsigned room_calls;
};

void fixture_init(struct fixture *fixture);
void fixture_start(struct fixture *fixture);
/* fixture_init and fixture_start */
void fixture_run(struct fixture *fixture);
/* Stops, joins the thread and closes the server. */
void fixture_stop(struct fixture *fixture);
/* Joins without stopping. */
void fixture_join(struct fixture *fixture);

/* Waits until the counter has that value or more. */
void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned value);
unsigned fixture_count(struct fixture *fixture, const unsigned *counter);
/* Answers all held requests with "released". */
void fixture_release(struct fixture *fixture);
void fixture_drain(struct fixture *fixture);
struct http_counters fixture_counters(struct fixture *fixture);
/* Asks for the counters again and again until the member at the offset has the value. */
void fixture_wait_counter(struct fixture *fixture, size_t offset, uint64_t value);

int client_open(const struct fixture *fixture);
void client_send(int fd, const void *data, size_t size);
void client_send_text(int fd, const char *text);
/* All bytes until the server closes, with a 0 byte behind them; to be freed. */
char *client_read_all(int fd, size_t *out_size);
/* One answer with Content-Length, head and body. */
char *client_read_answer(int fd);
/* Reads until the text has come. */
void client_read_until(int fd, const char *text);
/* Sends on a new connection, reads all. */
char *client_exchange(const struct fixture *fixture, const char *request);
/* Whether the server works. */
void client_check_alive(const struct fixture *fixture);
/* Closes so that the server sees a reset. */
void client_reset(int fd);

size_t count_text(const char *text, const char *part);

#endif
