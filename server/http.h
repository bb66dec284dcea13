/*
 * The HTTP side of `salvo serve`: connections, requests, answers. It knows nothing about models.
 *
 * One thread runs http_server_run, the loop. All callbacks are called there, and all functions below belong
 * to that thread, except those marked "any thread". No callback may block: long work goes to other threads,
 * which come back with http_post.
 *
 * An exchange is one request and its answer. It ends with http_reply or http_stream_end, or when the client
 * goes away: then the close callback is called, once, and the exchange is gone as soon as that returns. After
 * its end an exchange must not be used. A client has gone away when its connection broke, or when it closed
 * its sending side.
 */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "http_request.h"

#include <stdint.h>

struct http_server;
struct http_exchange;

/* A stream with more unsent bytes than the limit should pause; its room callback tells when to go on. */
enum { HTTP_UNSENT_LIMIT = 32 * 1024, HTTP_UNSENT_ROOM = 16 * 1024 };

struct http_options {
    const char *host;        /* address or name to bind; NULL: 127.0.0.1 */
    int port;                /* 0: any free one, see http_server_port */
    int second_port;         /* of the same host, listened on as well; 0: none */
    const char *unix_socket; /* path of a Unix socket instead of host and port, or NULL */
    bool systemd;            /* take the sockets that systemd passes (LISTEN_FDS), if it passes any */
    const char *tls_key_file, *tls_cert_file; /* PEM; both or none */
    /* 0: the default in brackets */
    size_t body_limit;       /* bytes of a request's body [16 MB]; above: 413 */
    size_t connection_limit; /* accepting pauses there [4096, or fewer if descriptors are short] */
    unsigned header_ms;      /* from the first byte of a request to the end of its headers [30 s] */
    unsigned body_ms;        /* silence within a body [60 s] */
    unsigned idle_ms;        /* between two requests of a connection [120 s] */
    unsigned write_ms;       /* time limit of a client that does not read its unsent bytes [600 s] */

    void *user; /* of the callbacks below */
    /* Called when the headers have arrived, before the body is read; may be NULL. If it answers the exchange,
     * the body is not read and `handle` is not called. Key, Host, path, method and content type belong here.
     */
    void (*check)(void *user, struct http_exchange *exchange);
    /* Called when the whole request has arrived. Answers now or later. */
    void (*handle)(void *user, struct http_exchange *exchange);
    /* Fills the body of an answer that this layer gives by itself (400, 408, 413, ...), for example with
     * JSON, and returns its size; may be NULL. */
    size_t (*describe)(void *user, int status, const char *reason, char *out, size_t room);
    const char *describe_type; /* content type of these bodies; NULL: text/plain */
};

/* Binds and listens. NULL with a readable line in `error` if that fails. */
struct http_server *http_server_open(const struct http_options *options, char *error, size_t error_room);
/* The port it listens on; 0 for a Unix socket. Any thread. */
int http_server_port(const struct http_server *server);
/* Runs the loop until http_server_stop, or after http_server_drain until the last connection is closed.
 * Functions that were posted before it returns have run; then http_post returns false. */
void http_server_run(struct http_server *server);
/* After http_server_run. */
void http_server_close(struct http_server *server);

/* Stops accepting, closes connections without a request; others close after their answer. Call it after the
 * drain delay. */
void http_server_drain(struct http_server *server);
/* Ends the loop at once: close callbacks are called for exchanges that are open. Any thread; not in a signal
 * handler. */
void http_server_stop(struct http_server *server);

/* Runs the function on the loop, in the order of the calls. False if the loop has ended or memory is short:
 * then the function is not called. Any thread. */
bool http_post(struct http_server *server, void (*function)(void *argument), void *argument);
/* Calls the function on the loop for each such signal of the process. */
bool http_signal(
    struct http_server *server, int number, void (*function)(void *argument, int number), void *argument);

/* A timer calls its function once, some milliseconds after http_timer_start; a second start before that
 * restarts the timer. */
struct http_timer;
struct http_timer *http_timer_new(
    struct http_server *server, void (*function)(void *argument), void *argument);
void http_timer_start(struct http_timer *timer, unsigned milliseconds);
void http_timer_free(struct http_timer *timer);

const struct http_request *http_exchange_request(const struct http_exchange *exchange);
/* The body becomes the caller's, to be freed with free(); the request keeps none. For workers. */
char *http_take_body(struct http_exchange *exchange, size_t *out_size);
/* Called at most once: when the client goes away, or the server stops, before the exchange has ended. It must
 * not answer. */
void http_on_close(struct http_exchange *exchange, void (*closed)(void *argument), void *argument);

/*
 * Answers. Headers: a list that ends with an entry without name, or NULL; Content-Length, Transfer-Encoding,
 * Connection, Date and Server are added here. Names and values are copied; a value with a control character
 * is left out.
 */
void http_reply(struct http_exchange *exchange, int status, const struct http_header *headers,
    const void *body, size_t size);

/* An answer in pieces: chunked, or until the connection closes for HTTP/1.0. The headers are sent at once. */
void http_stream_begin(struct http_exchange *exchange, int status, const struct http_header *headers);
/* Returns the bytes of the connection that are not yet sent. It accepts any size, but see HTTP_UNSENT_LIMIT.
 */
size_t http_stream_write(struct http_exchange *exchange, const void *data, size_t size);
/* Called whenever the unsent bytes, having been above HTTP_UNSENT_LIMIT, have fallen to HTTP_UNSENT_ROOM. */
void http_stream_on_room(struct http_exchange *exchange, void (*room)(void *argument), void *argument);
/* Writes the text (a constant, e.g. ": \n\n") whenever nothing was written for so long and nothing is unsent.
 */
void http_stream_on_silence(struct http_exchange *exchange, unsigned milliseconds, const char *text);
void http_stream_end(struct http_exchange *exchange);
/* Breaks the connection, so that the client sees that the stream is incomplete. Ends the exchange, no close
 * callback. */
void http_stream_abort(struct http_exchange *exchange);

struct http_counters {
    uint64_t connections;    /* open now */
    uint64_t accepted;       /* since the start */
    uint64_t requests;       /* given to `check` or `handle` */
    uint64_t bad_requests;   /* answered by this layer with 4xx or 5xx */
    uint64_t exchanges;      /* open now */
    uint64_t unsent_bytes;   /* of all connections, now */
    uint64_t unsent_most;    /* of one connection, since the start */
    uint64_t received_bytes; /* buffered requests of all connections, now */
    uint64_t buffered_most;  /* of one connection, since the start: unsent, and requests that wait behind one
                                that runs */
    uint64_t accept_pauses;  /* the limit of connections or descriptors was reached */
};
struct http_counters http_server_counters(const struct http_server *server);

#endif
