/* Connections of a server: bytes to requests, answers to bytes, and the end of a connection. Private to
 * server/http*.c. */
#ifndef SERVER_HTTP_CONNECTION_H
#define SERVER_HTTP_CONNECTION_H

#include "http.h"
#include "http_answer.h"
#include "http_parser.h"

#include <sys/queue.h>

struct bufferevent;
struct event;
struct event_base;
struct tls;

enum http_connection_state {
    HTTP_READING,   /* a request, or waiting for one */
    HTTP_ANSWERING, /* the request is complete and its answer is not */
    HTTP_FLUSHING,  /* the last answer is being sent */
    HTTP_LINGERING  /* all is sent: the client's bytes are discarded until it closes, because a close with
                       unread bytes could destroy the answer */
};

struct http_exchange {
    struct http_connection *connection;
    bool open;
    bool begun;      /* the head of the answer was written */
    bool chunked;    /* the stream is */
    bool keep_alive; /* as the head of the answer says */
    bool above;      /* the unsent bytes were above the limit, and have not fallen to the room mark since */
    void (*closed)(void *argument);
    void *closed_argument;
    void (*room)(void *argument);
    void *room_argument;
    struct event *silence;
    unsigned silence_ms;
    const char *silence_text;
};

struct http_connection {
    TAILQ_ENTRY(http_connection) all;     /* of the set's `all` or, when it is dead, of `dead` */
    TAILQ_ENTRY(http_connection) waiting; /* while is_waiting */
    struct http_connections *set;
    struct bufferevent *buffers;
    struct event *timer, *poll;
    enum http_connection_state state;
    bool dead;
    bool is_waiting;
    bool processing; /* inside connection_process */
    bool reading_paused;
    bool peer_done;          /* the client closed its sending side */
    bool timing_head;        /* the timer measures the headers of a request */
    uint64_t number;         /* of accepted ones */
    size_t unsent, received; /* as counted in the set */
    struct http_parser parser;
    struct http_exchange exchange;
    char peer[64];
};

TAILQ_HEAD(http_connection_list, http_connection);

struct http_connections {
    const struct http_options *options; /* defaults filled in */
    struct event_base *base;
    struct tls *tls; /* NULL: none */
    struct event *reaper;
    struct http_connection_list all, waiting, dead;
    struct http_counters counters;
    bool draining;
    void (*removed)(void *owner); /* after connections were closed and freed */
    void *owner;
};

bool http_connections_open(struct http_connections *set);
void http_connections_close(struct http_connections *set);

/* Takes the descriptor. False if memory is short: then the descriptor is closed. */
bool http_connection_new(struct http_connections *set, int fd);
/* Closes at once. An open exchange's close callback is called. The memory stays until the loop goes on. */
void http_connection_close(struct http_connection *connection);
/* Closes the connection that has waited longest without a complete request, among the connections up to
 * `number`. False if there is none. */
bool http_connections_evict(struct http_connections *set, uint64_t number);
void http_connections_drain(struct http_connections *set);

/* For exchanges: whether the connection stays after this answer. */
bool http_connection_can_stay(const struct http_connection *connection);
/* Appends bytes to the output. If there is no memory, the connection is closed in the next round of the loop.
 */
void http_connection_send(struct http_connection *connection, const void *data, size_t size);
void http_connection_send_head(struct http_connection *connection, const struct http_answer *answer);
size_t http_connection_unsent(const struct http_connection *connection);
/* The answer is complete, or given up: then the connection must not stay. */
void http_connection_end_exchange(struct http_connection *connection, bool stay);

#endif
