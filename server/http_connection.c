#include "http_connection.h"

#include "listen.h"
#include "tls.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef POLLRDHUP /* Linux alone has it; elsewhere a closed sending side is not seen while reading pauses */
#define POLLRDHUP 0
#endif

/* Most bytes that are read after a running request; the client keeps the rest. */
enum { READ_AHEAD_LIMIT = 64 * 1024, LINGER_MS = 2000, LOOK_MS = 100 };

static struct timeval time_of(unsigned milliseconds)
{
    return (struct timeval){.tv_sec = milliseconds / 1000, .tv_usec = (long)(milliseconds % 1000) * 1000};
}

static void arm(struct http_connection *connection, unsigned milliseconds)
{
    const struct timeval time = time_of(milliseconds);
    event_add(connection->timer, &time);
}

static void poll_later(struct http_connection *connection)
{
    const struct timeval time = time_of(LOOK_MS);
    event_add(connection->poll, &time);
}

/* Enough bytes are buffered behind the running request. libevent's high watermark would call on_read again
 * and again. While reading pauses, a timer polls for a close by the client. */
static void pause_reading(struct http_connection *connection)
{
    if (connection->reading_paused)
        return;
    connection->reading_paused = true;
    bufferevent_disable(connection->buffers, EV_READ);
    poll_later(connection);
}

static void resume_reading(struct http_connection *connection)
{
    if (!connection->reading_paused)
        return;
    connection->reading_paused = false;
    event_del(connection->poll);
    bufferevent_enable(connection->buffers, EV_READ);
}

/* --- counters --- */

/* A body on its way to its handler has a limit of its own. */
static void count_buffered(struct http_connection *connection)
{
    struct http_counters *counters = &connection->set->counters;
    const size_t size = connection->unsent + (connection->exchange.open ? connection->received : 0);
    if (connection->state == HTTP_ANSWERING && size > counters->buffered_most)
        counters->buffered_most = size;
}

static void count_unsent(struct evbuffer *output, const struct evbuffer_cb_info *info, void *argument)
{
    struct http_connection *connection = argument;
    struct http_counters *counters = &connection->set->counters;
    (void)info;
    counters->unsent_bytes -= connection->unsent;
    connection->unsent = evbuffer_get_length(output);
    counters->unsent_bytes += connection->unsent;
    if (connection->unsent > counters->unsent_most)
        counters->unsent_most = connection->unsent;
    count_buffered(connection);
}

static void count_received(struct http_connection *connection)
{
    struct http_counters *counters = &connection->set->counters;
    counters->received_bytes -= connection->received;
    connection->received = evbuffer_get_length(bufferevent_get_input(connection->buffers)) +
                           http_parser_held(&connection->parser);
    counters->received_bytes += connection->received;
    count_buffered(connection);
}

/* --- the end of an exchange and of a connection --- */

/* Connections without a complete request make room for others, the first of the list first. */
static void start_waiting(struct http_connection *connection)
{
    if (!connection->is_waiting)
        TAILQ_INSERT_TAIL(&connection->set->waiting, connection, waiting);
    connection->is_waiting = true;
}

static void stop_waiting(struct http_connection *connection)
{
    if (connection->is_waiting)
        TAILQ_REMOVE(&connection->set->waiting, connection, waiting);
    connection->is_waiting = false;
}

static void forget_exchange(struct http_connection *connection)
{
    struct http_exchange *exchange = &connection->exchange;
    exchange->open = false;
    connection->set->counters.exchanges--;
    if (exchange->silence)
        event_free(exchange->silence);
    exchange->silence = NULL;
}

void http_connection_close(struct http_connection *connection)
{
    struct http_connections *set = connection->set;
    if (connection->dead)
        return;
    connection->dead = true;
    TAILQ_REMOVE(&set->all, connection, all);
    stop_waiting(connection);
    TAILQ_INSERT_TAIL(&set->dead, connection, all);
    set->counters.connections--;
    set->counters.unsent_bytes -= connection->unsent;
    set->counters.received_bytes -= connection->received;
    evbuffer_remove_cb(bufferevent_get_output(connection->buffers), count_unsent, connection);
    bufferevent_setcb(connection->buffers, NULL, NULL, NULL, NULL);
    bufferevent_disable(connection->buffers, EV_READ | EV_WRITE);
    event_del(connection->timer);
    event_del(connection->poll);
    event_active(set->reaper, 0, 0);
    if (connection->exchange.open) {
        forget_exchange(connection);
        if (connection->exchange.closed)
            connection->exchange.closed(connection->exchange.closed_argument);
    }
}

static void free_connection(struct http_connection *connection)
{
    if (connection->buffers)
        bufferevent_free(connection->buffers); /* closes the descriptor */
    if (connection->timer)
        event_free(connection->timer);
    if (connection->poll)
        event_free(connection->poll);
    http_parser_reset(&connection->parser);
    free(connection);
}

static void reap(evutil_socket_t fd, short what, void *argument)
{
    struct http_connections *set = argument;
    struct http_connection *connection = NULL;
    (void)fd, (void)what;
    while ((connection = TAILQ_FIRST(&set->dead))) {
        TAILQ_REMOVE(&set->dead, connection, all);
        free_connection(connection);
    }
    set->removed(set->owner);
}

/* All is sent. */
static void finish_connection(struct http_connection *connection)
{
    if (connection->peer_done) {
        http_connection_close(connection);
        return;
    }
    if (connection->set->tls)
        tls_finish(connection->buffers);
    shutdown(bufferevent_getfd(connection->buffers), SHUT_WR);
    connection->state = HTTP_LINGERING;
    TAILQ_INSERT_HEAD(&connection->set->waiting, connection, waiting);
    connection->is_waiting = true;
    arm(connection, LINGER_MS);
}

static void leave_reading(struct http_connection *connection, enum http_connection_state state)
{
    stop_waiting(connection);
    connection->state = state;
    connection->timing_head = false;
    event_del(connection->timer);
}

static void flush_and_finish(struct http_connection *connection)
{
    struct evbuffer *input = bufferevent_get_input(connection->buffers);
    leave_reading(connection, HTTP_FLUSHING);
    evbuffer_drain(input, evbuffer_get_length(input));
    resume_reading(connection);
    count_received(connection);
    if (http_connection_unsent(connection) == 0)
        finish_connection(connection);
}

/* --- answers --- */

size_t http_connection_unsent(const struct http_connection *connection)
{
    return evbuffer_get_length(bufferevent_get_output(connection->buffers));
}

static void fail_later(struct http_connection *connection)
{
    bufferevent_trigger_event(connection->buffers, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS);
}

void http_connection_send(struct http_connection *connection, const void *data, size_t size)
{
    if (bufferevent_write(connection->buffers, data, size) != 0)
        fail_later(connection);
}

void http_connection_send_head(struct http_connection *connection, const struct http_answer *answer)
{
    if (!http_answer_head(bufferevent_get_output(connection->buffers), answer))
        fail_later(connection);
}

bool http_connection_can_stay(const struct http_connection *connection)
{
    /* A body that is not read would be taken for the next request. */
    const bool complete = connection->state == HTTP_ANSWERING || connection->parser.state == HTTP_STATE_END;
    return complete && connection->parser.head.keep_alive && !connection->set->draining;
}

void http_connection_end_exchange(struct http_connection *connection, bool stay)
{
    forget_exchange(connection);
    http_parser_reset(&connection->parser);
    if (!stay || connection->set->draining) {
        flush_and_finish(connection);
        return;
    }
    start_waiting(connection);
    connection->state = HTTP_READING;
    connection->timing_head = false;
    arm(connection, connection->set->options->idle_ms);
    count_received(connection);
    /* The next request may be there already. Its handler must not run inside the caller. */
    if (!connection->processing)
        bufferevent_trigger(
            connection->buffers, EV_READ, BEV_TRIG_DEFER_CALLBACKS | BEV_TRIG_IGNORE_WATERMARKS);
}

/* An answer of this layer's own; the connection ends with it. */
static void refuse(struct http_connection *connection, int status, const char *reason)
{
    const struct http_options *options = connection->set->options;
    char body[512];
    size_t size = 0;
    if (options->describe)
        size = options->describe(options->user, status, reason, body, sizeof body);
    else
        size = (size_t)snprintf(body, sizeof body, "%s\n", reason);
    if (size > sizeof body)
        size = sizeof body;
    const char *type = options->describe_type ? options->describe_type : "text/plain";
    const struct http_header headers[] = {{"Content-Type", type}, {0}};
    const struct http_answer answer = {.status = status, .headers = headers, .sized = true, .size = size};
    connection->set->counters.bad_requests++;
    http_connection_send_head(connection, &answer);
    if (!connection->parser.head.request.head)
        http_connection_send(connection, body, size);
    if (connection->exchange.open) { /* the headers were good, the body is not */
        forget_exchange(connection);
        if (connection->exchange.closed)
            connection->exchange.closed(connection->exchange.closed_argument);
    }
    http_parser_reset(&connection->parser);
    flush_and_finish(connection);
}

/* --- requests --- */

static void begin_exchange(struct http_connection *connection)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct http_connections *set = connection->set;
    struct http_exchange *exchange = &connection->exchange;
    *exchange = (struct http_exchange){.connection = connection, .open = true};
    connection->parser.head.request.peer = connection->peer;
    set->counters.requests++;
    set->counters.exchanges++;
    connection->timing_head = false;
    arm(connection, set->options->body_ms);
    if (set->options->check)
        set->options->check(set->options->user, exchange);
    if (exchange->open && connection->parser.head.expects_continue)
        http_connection_send(connection, go_on, sizeof go_on - 1);
}

static void answer_request(struct http_connection *connection)
{
    const struct http_options *options = connection->set->options;
    leave_reading(connection, HTTP_ANSWERING);
    options->handle(options->user, &connection->exchange);
}

/* One piece of input. False if there is nothing more to do now. */
static bool feed_parser(struct http_connection *connection)
{
    struct evbuffer *input = bufferevent_get_input(connection->buffers);
    struct evbuffer_iovec piece = {.iov_base = NULL, .iov_len = 0};
    struct http_parser *parser = &connection->parser;
    size_t used = 0;
    if (evbuffer_peek(input, -1, NULL, &piece, 1) < 1)
        piece.iov_len = 0;
    const enum http_parse_result result =
        http_parser_feed(parser, piece.iov_len ? piece.iov_base : "", piece.iov_len, &used);
    evbuffer_drain(input, used);
    count_received(connection);
    switch (result) {
    case HTTP_PARSE_MORE:
        if (used && connection->exchange.open) {
            arm(connection, connection->set->options->body_ms);
        } else if (http_parser_begun(parser) && !connection->timing_head) {
            connection->timing_head = true;
            arm(connection, connection->set->options->header_ms);
        }
        return used > 0;
    case HTTP_PARSE_HEAD:
        begin_exchange(connection);
        return true;
    case HTTP_PARSE_DONE:
        answer_request(connection);
        return true;
    case HTTP_PARSE_ERROR:
        break;
    }
    refuse(connection, parser->head.status, parser->head.reason);
    return false;
}

/* Requests of a client that does not read its answers wait. */
static void process(struct http_connection *connection)
{
    connection->processing = true;
    while (!connection->dead && connection->state == HTTP_READING &&
           http_connection_unsent(connection) <= HTTP_UNSENT_LIMIT) {
        if (!feed_parser(connection))
            break;
    }
    connection->processing = false;
    if (connection->dead)
        return;
    if (evbuffer_get_length(bufferevent_get_input(connection->buffers)) >= READ_AHEAD_LIMIT)
        pause_reading(connection);
    else
        resume_reading(connection);
}

/* --- events --- */

static void on_read(struct bufferevent *buffers, void *argument)
{
    struct http_connection *connection = argument;
    struct evbuffer *input = bufferevent_get_input(buffers);
    if (connection->state == HTTP_FLUSHING || connection->state == HTTP_LINGERING)
        evbuffer_drain(input, evbuffer_get_length(input));
    else
        process(connection);
    if (!connection->dead)
        count_received(connection);
}

static void on_write(struct bufferevent *buffers, void *argument)
{
    struct http_connection *connection = argument;
    struct http_exchange *exchange = &connection->exchange;
    (void)buffers;
    if (connection->state == HTTP_FLUSHING && http_connection_unsent(connection) == 0)
        finish_connection(connection);
    else if (connection->state == HTTP_READING && !connection->processing)
        process(connection);
    else if (exchange->open && exchange->above && http_connection_unsent(connection) <= HTTP_UNSENT_ROOM) {
        exchange->above = false;
        if (exchange->room)
            exchange->room(exchange->room_argument);
    }
}

static void on_end_of_input(struct http_connection *connection)
{
    connection->peer_done = true;
    const bool answered = connection->state == HTTP_READING || connection->state == HTTP_FLUSHING;
    if (!answered || connection->exchange.open || http_connection_unsent(connection) == 0)
        http_connection_close(connection);
    else if (connection->state == HTTP_READING)
        flush_and_finish(connection);
}

static void on_event(struct bufferevent *buffers, short what, void *argument)
{
    struct http_connection *connection = argument;
    (void)buffers;
    if (what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))
        http_connection_close(connection);
    else if (what & BEV_EVENT_EOF)
        on_end_of_input(connection);
}

/* Reading has paused: a close behind unread bytes is seen by poll alone. libevent's EV_CLOSED does not tell
 * of a reset. */
static void on_poll(evutil_socket_t fd, short what, void *argument)
{
    struct http_connection *connection = argument;
    struct pollfd state = {.fd = bufferevent_getfd(connection->buffers), .events = POLLRDHUP};
    (void)fd, (void)what;
    if (poll(&state, 1, 0) > 0)
        http_connection_close(connection);
    else
        poll_later(connection);
}

static void on_timer(evutil_socket_t fd, short what, void *argument)
{
    struct http_connection *connection = argument;
    (void)fd, (void)what;
    const bool within_request = connection->timing_head || connection->exchange.open;
    if (connection->state == HTTP_READING && within_request)
        refuse(connection, 408, "the request did not arrive in time");
    else
        http_connection_close(connection);
}

/* --- the set --- */

bool http_connection_new(struct http_connections *set, int fd)
{
    struct http_connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        close(fd);
        return false;
    }
    connection->set = set;
    connection->parser.body_limit = set->options->body_limit;
    listen_peer(fd, connection->peer, sizeof connection->peer);
    connection->timer = event_new(set->base, -1, 0, on_timer, connection);
    connection->poll = event_new(set->base, -1, 0, on_poll, connection);
    connection->buffers = set->tls ? tls_accept(set->tls, set->base, fd)
                                   : bufferevent_socket_new(set->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!connection->buffers)
        close(fd);
    if (!connection->buffers || !connection->timer || !connection->poll) {
        free_connection(connection);
        return false;
    }
    const struct timeval write_time = time_of(set->options->write_ms);
    evbuffer_add_cb(bufferevent_get_output(connection->buffers), count_unsent, connection);
    bufferevent_setcb(connection->buffers, on_read, on_write, on_event, connection);
    bufferevent_setwatermark(connection->buffers, EV_WRITE, HTTP_UNSENT_ROOM, 0);
    bufferevent_set_timeouts(connection->buffers, NULL, &write_time);
    bufferevent_enable(connection->buffers, EV_READ | EV_WRITE);
    TAILQ_INSERT_TAIL(&set->all, connection, all);
    start_waiting(connection);
    set->counters.connections++;
    connection->number = ++set->counters.accepted;
    arm(connection, set->options->header_ms);
    return true;
}

bool http_connections_evict(struct http_connections *set, uint64_t number)
{
    struct http_connection *connection = TAILQ_FIRST(&set->waiting);
    while (connection && connection->number > number)
        connection = TAILQ_NEXT(connection, waiting);
    if (!connection)
        return false;
    http_connection_close(connection);
    return true;
}

void http_connections_drain(struct http_connections *set)
{
    struct http_connection *connection = NULL, *next = NULL;
    set->draining = true;
    for (connection = TAILQ_FIRST(&set->waiting); connection; connection = next) {
        next = TAILQ_NEXT(connection, waiting);
        if (connection->state == HTTP_READING && !http_parser_begun(&connection->parser) &&
            !connection->processing)
            flush_and_finish(connection);
    }
}

bool http_connections_open(struct http_connections *set)
{
    TAILQ_INIT(&set->all);
    TAILQ_INIT(&set->waiting);
    TAILQ_INIT(&set->dead);
    set->reaper = event_new(set->base, -1, 0, reap, set);
    return set->reaper != NULL;
}

void http_connections_close(struct http_connections *set)
{
    struct http_connection *connection = NULL;
    while ((connection = TAILQ_FIRST(&set->all)))
        http_connection_close(connection);
    while ((connection = TAILQ_FIRST(&set->dead))) {
        TAILQ_REMOVE(&set->dead, connection, all);
        free_connection(connection);
    }
    if (set->reaper)
        event_free(set->reaper);
    set->reaper = NULL;
}
