#include "http_fixture.h"

#include "cmocka_test.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct hold {
    struct hold *next;
    struct fixture *fixture;
    struct http_exchange *exchange;
    unsigned pieces; /* of a stream, still to write; 0: not a stream */
};

static void add(struct fixture *fixture, unsigned *counter)
{
    pthread_mutex_lock(&fixture->lock);
    ++*counter;
    pthread_cond_broadcast(&fixture->changed);
    pthread_mutex_unlock(&fixture->lock);
}

void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned value)
{
    pthread_mutex_lock(&fixture->lock);
    while (*counter < value)
        pthread_cond_wait(&fixture->changed, &fixture->lock);
    pthread_mutex_unlock(&fixture->lock);
}

unsigned fixture_count(struct fixture *fixture, const unsigned *counter)
{
    pthread_mutex_lock(&fixture->lock);
    const unsigned value = *counter;
    pthread_mutex_unlock(&fixture->lock);
    return value;
}

/* --- the handler --- */

static void drop(struct hold *hold)
{
    struct hold **link = &hold->fixture->holds;
    while (*link != hold)
        link = &(*link)->next;
    *link = hold->next;
    free(hold);
}

static void on_close(void *argument)
{
    struct hold *hold = argument;
    struct fixture *fixture = hold->fixture;
    drop(hold);
    add(fixture, &fixture->closed);
}

static struct hold *keep(struct fixture *fixture, struct http_exchange *exchange)
{
    struct hold *hold = calloc(1, sizeof *hold);
    *hold = (struct hold){.next = fixture->holds, .fixture = fixture, .exchange = exchange};
    fixture->holds = hold;
    http_on_close(exchange, on_close, hold);
    add(fixture, &fixture->held);
    return hold;
}

static void write_pieces(struct hold *hold)
{
    char piece[1000];
    memset(piece, 'x', sizeof piece);
    while (hold->pieces) {
        hold->pieces--;
        if (http_stream_write(hold->exchange, piece, sizeof piece) > HTTP_UNSENT_LIMIT)
            return; /* on_room goes on */
    }
    http_stream_end(hold->exchange);
    drop(hold);
}

static void on_room(void *argument)
{
    struct hold *hold = argument;
    add(hold->fixture, &hold->fixture->room_calls);
    write_pieces(hold);
}

static void handle(void *user, struct http_exchange *exchange)
{
    static const struct http_header stream_headers[] = {{"Content-Type", "text/event-stream"}, {0}};
    struct fixture *fixture = user;
    const struct http_request *request = http_exchange_request(exchange);
    char pieces[16];
    add(fixture, &fixture->handled);
    if (strcmp(request->path, "/echo") == 0) {
        const bool has_body = request->body_size > 0;
        http_reply(exchange, 200, NULL, has_body ? request->body : request->path,
            has_body ? request->body_size : strlen(request->path));
    } else if (strcmp(request->path, "/hold") == 0) {
        keep(fixture, exchange);
    } else if (strcmp(request->path, "/check") == 0) {
        add(fixture, &fixture->held);
    } else if (strcmp(request->path, "/stream") == 0) {
        struct hold *hold = keep(fixture, exchange);
        http_stream_begin(exchange, 200, stream_headers);
        http_stream_on_room(exchange, on_room, hold);
        if (http_request_query(request, "pieces", pieces, sizeof pieces))
            hold->pieces = (unsigned)strtoul(pieces, NULL, 10);
        write_pieces(hold);
    } else if (strcmp(request->path, "/silent") == 0) {
        keep(fixture, exchange);
        http_stream_begin(exchange, 200, stream_headers);
        http_stream_on_silence(exchange, 5, ": still here\n\n");
    } else if (strcmp(request->path, "/abort") == 0) {
        http_stream_begin(exchange, 200, stream_headers);
        http_stream_write(exchange, "half", 4);
        http_stream_abort(exchange);
    } else {
        const struct http_header headers[] = {{"X-Good", "yes"}, {"X-Bad", "no\r\nX-Worse: no"}, {0}};
        http_reply(exchange, 404, headers, "none\n", 5);
    }
}

static void check(void *user, struct http_exchange *exchange)
{
    struct fixture *fixture = user;
    const struct http_request *request = http_exchange_request(exchange);
    if (strcmp(request->path, "/refuse") == 0)
        http_reply(exchange, 403, NULL, "refused", 7);
    else if (strcmp(request->path, "/check") == 0)
        keep(fixture, exchange);
}

static void release(void *argument)
{
    struct fixture *fixture = argument;
    while (fixture->holds) {
        struct hold *hold = fixture->holds;
        struct http_exchange *exchange = hold->exchange;
        fixture->holds = hold->next;
        free(hold);
        http_reply(exchange, 200, NULL, "released", 8);
    }
}

void fixture_release(struct fixture *fixture)
{
    assert_true(http_post(fixture->server, release, fixture));
}

static void drain(void *argument)
{
    http_server_drain(((struct fixture *)argument)->server);
}

void fixture_drain(struct fixture *fixture)
{
    assert_true(http_post(fixture->server, drain, fixture));
}

struct question {
    struct fixture *fixture;
    struct http_counters counters;
    unsigned answered;
};

static void answer_question(void *argument)
{
    struct question *question = argument;
    question->counters = http_server_counters(question->fixture->server);
    add(question->fixture, &question->answered);
}

struct http_counters fixture_counters(struct fixture *fixture)
{
    struct question question = {.fixture = fixture};
    assert_true(http_post(fixture->server, answer_question, &question));
    fixture_wait(fixture, &question.answered, 1);
    return question.counters;
}

void fixture_wait_counter(struct fixture *fixture, size_t offset, uint64_t value)
{
    for (;;) {
        const struct http_counters counters = fixture_counters(fixture);
        uint64_t now = 0;
        memcpy(&now, (const char *)&counters + offset, sizeof now);
        if (now == value)
            return;
        usleep(1000);
    }
}

/* --- start and end --- */

void fixture_init(struct fixture *fixture)
{
    *fixture = (struct fixture){.options = {.handle = handle, .check = check, .user = fixture}};
    pthread_mutex_init(&fixture->lock, NULL);
    pthread_cond_init(&fixture->changed, NULL);
}

static void *run(void *argument)
{
    http_server_run(argument);
    return NULL;
}

void fixture_start(struct fixture *fixture)
{
    char error[256] = "";
    fixture->server = http_server_open(&fixture->options, error, sizeof error);
    if (!fixture->server)
        fail_msg("%s", error);
    assert_int_equal(pthread_create(&fixture->thread, NULL, run, fixture->server), 0);
}

void fixture_run(struct fixture *fixture)
{
    fixture_init(fixture);
    fixture_start(fixture);
}

void fixture_join(struct fixture *fixture)
{
    pthread_join(fixture->thread, NULL);
    http_server_close(fixture->server);
    assert_null(fixture->holds);
    pthread_cond_destroy(&fixture->changed);
    pthread_mutex_destroy(&fixture->lock);
}

void fixture_stop(struct fixture *fixture)
{
    http_server_stop(fixture->server);
    fixture_join(fixture);
}

/* --- clients --- */

int client_open(const struct fixture *fixture)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)http_server_port(fixture->server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval timeout = {.tv_sec = 120}; /* a server that hangs fails the test */
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The server may have closed already: that is seen when its answer is read. */
void client_send(int fd, const void *data, size_t size)
{
    const char *bytes = data;
    while (size) {
        const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0) {
            assert_true(errno == EPIPE || errno == ECONNRESET);
            return;
        }
        bytes += sent;
        size -= (size_t)sent;
    }
}

void client_send_text(int fd, const char *text)
{
    client_send(fd, text, strlen(text));
}

char *client_read_all(int fd, size_t *out_size)
{
    size_t size = 0, capacity = 4096;
    char *text = malloc(capacity);
    for (;;) {
        if (capacity - size < 2) {
            char *larger = realloc(text, capacity *= 2);
            assert_non_null(larger);
            text = larger;
        }
        const ssize_t count = recv(fd, text + size, capacity - size - 1, 0);
        if (count < 0 && errno == EAGAIN)
            fail_msg("the server neither answers nor closes");
        if (count <= 0)
            break;
        size += (size_t)count;
    }
    text[size] = 0;
    if (out_size)
        *out_size = size;
    return text;
}

char *client_read_answer(int fd)
{
    size_t size = 0, needed = 0, capacity = 1 << 20;
    char *text = calloc(1, capacity);
    while (!needed || size < needed) {
        assert_true(size + 1 < capacity);
        /* Not more than this answer: byte by byte within the head. */
        const size_t wanted = needed ? needed - size : 1;
        const ssize_t count = recv(fd, text + size, wanted, 0);
        if (count <= 0)
            fail_msg("the server closed within an answer: '%s'", text);
        size += (size_t)count;
        if (!needed && size >= 4 && memcmp(text + size - 4, "\r\n\r\n", 4) == 0) {
            const char *length = strstr(text, "Content-Length: ");
            needed = size + (length ? strtoul(length + 16, NULL, 10) : 0);
        }
    }
    return text;
}

void client_read_until(int fd, const char *text)
{
    const size_t size = strlen(text);
    char *last = calloc(1, size + 1);
    while (memcmp(last, text, size) != 0) {
        memmove(last, last + 1, size - 1);
        if (recv(fd, last + size - 1, 1, 0) != 1)
            fail_msg("the server closed before '%s' came", text);
    }
    free(last);
}

char *client_exchange(const struct fixture *fixture, const char *request)
{
    const int fd = client_open(fixture);
    client_send_text(fd, request);
    char *answer = client_read_all(fd, NULL);
    close(fd);
    return answer;
}

void client_check_alive(const struct fixture *fixture)
{
    char *answer = client_exchange(
        fixture, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nalive");
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17), 0);
    assert_non_null(strstr(answer, "\r\n\r\nalive"));
    free(answer);
}

void client_reset(int fd)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

/* A loop: under the sanitizers strstr and memmem read to the end of the text at each call. */
size_t count_text(const char *text, const char *part)
{
    const size_t size = strlen(part);
    size_t count = 0;
    for (; *text; text++)
        count += *text == *part && strncmp(text, part, size) == 0;
    return count;
}
