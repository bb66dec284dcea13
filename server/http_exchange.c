/* Answers of the program to one request; http.h declares them. */
#include "http_connection.h"

#include <event2/event.h>
#include <stdio.h>
#include <string.h>

const struct http_request *http_exchange_request(const struct http_exchange *exchange)
{
    return &exchange->connection->parser.head.request;
}

char *http_take_body(struct http_exchange *exchange, size_t *out_size)
{
    return http_parser_take_body(&exchange->connection->parser, out_size);
}

void http_on_close(struct http_exchange *exchange, void (*closed)(void *argument), void *argument)
{
    exchange->closed = closed;
    exchange->closed_argument = argument;
}

static void begin(struct http_exchange *exchange, struct http_answer *answer)
{
    struct http_connection *connection = exchange->connection;
    answer->old_client = connection->parser.head.minor == 0;
    answer->keep_alive = exchange->keep_alive = exchange->keep_alive && http_connection_can_stay(connection);
    exchange->begun = true;
    http_connection_send_head(connection, answer);
}

void http_reply(struct http_exchange *exchange, int status, const struct http_header *headers,
    const void *body, size_t size)
{
    struct http_connection *connection = exchange->connection;
    const bool head = connection->parser.head.request.head;
    struct http_answer answer = {.status = status, .headers = headers, .sized = true, .size = size};
    if (!exchange->open)
        return;
    if (exchange->begun) { /* two answers: the client must not take the first for a whole one */
        http_stream_abort(exchange);
        return;
    }
    exchange->keep_alive = true;
    begin(exchange, &answer);
    if (size && !head && http_status_has_body(status))
        http_connection_send(connection, body, size);
    http_connection_end_exchange(connection, exchange->keep_alive);
}

void http_stream_begin(struct http_exchange *exchange, int status, const struct http_header *headers)
{
    if (!exchange->open || exchange->begun)
        return;
    exchange->chunked = exchange->connection->parser.head.minor > 0;
    exchange->keep_alive = exchange->chunked; /* else the end of the connection ends the answer */
    struct http_answer answer = {.status = status, .headers = headers, .chunked = exchange->chunked};
    begin(exchange, &answer);
}

static void restart_silence(struct http_exchange *exchange)
{
    if (!exchange->silence)
        return;
    const struct timeval time = {
        .tv_sec = exchange->silence_ms / 1000, .tv_usec = (long)(exchange->silence_ms % 1000) * 1000};
    event_add(exchange->silence, &time);
}

size_t http_stream_write(struct http_exchange *exchange, const void *data, size_t size)
{
    struct http_connection *connection = exchange->connection;
    if (!exchange->open || !exchange->begun)
        return 0;
    if (size && !connection->parser.head.request.head) {
        char line[32];
        if (exchange->chunked)
            http_connection_send(connection, line, (size_t)snprintf(line, sizeof line, "%zx\r\n", size));
        http_connection_send(connection, data, size);
        if (exchange->chunked)
            http_connection_send(connection, "\r\n", 2);
        restart_silence(exchange);
    }
    const size_t unsent = http_connection_unsent(connection);
    if (unsent > HTTP_UNSENT_LIMIT)
        exchange->above = true;
    return unsent;
}

void http_stream_on_room(struct http_exchange *exchange, void (*room)(void *argument), void *argument)
{
    exchange->room = room;
    exchange->room_argument = argument;
}

static void on_silence(evutil_socket_t fd, short what, void *argument)
{
    struct http_exchange *exchange = argument;
    (void)fd, (void)what;
    if (http_connection_unsent(exchange->connection) == 0)
        http_stream_write(exchange, exchange->silence_text, strlen(exchange->silence_text));
    restart_silence(exchange);
}

void http_stream_on_silence(struct http_exchange *exchange, unsigned milliseconds, const char *text)
{
    if (!exchange->silence)
        exchange->silence = event_new(exchange->connection->set->base, -1, 0, on_silence, exchange);
    exchange->silence_ms = milliseconds;
    exchange->silence_text = text;
    restart_silence(exchange);
}

void http_stream_end(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    if (!exchange->open || !exchange->begun)
        return;
    if (exchange->chunked && !connection->parser.head.request.head)
        http_connection_send(connection, "0\r\n\r\n", 5);
    http_connection_end_exchange(connection, exchange->keep_alive);
}

void http_stream_abort(struct http_exchange *exchange)
{
    if (exchange->open)
        http_connection_end_exchange(exchange->connection, false);
}
