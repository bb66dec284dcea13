#include "fake_http.h"

#include "../../server/api_workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct posted {
    struct posted *next;
    void (*function)(void *argument);
    void *argument;
};

struct http_server {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct posted *first, **last;
};

struct http_exchange {
    struct http_request request;
    char *body;
    void *user;
    void (*closed)(void *argument), (*room)(void *argument);
    void *closed_argument, *room_argument;
    bool slow, full;
    struct fake_answer answer;
};

static struct http_server loop = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &loop.first};
static struct http_exchange current;

static void expect(bool condition)
{
    if (!condition)
        abort();
}

struct http_server *fake_http(void)
{
    return &loop;
}

/* ---- The loop ---- */

bool http_post(struct http_server *server, void (*function)(void *argument), void *argument)
{
    struct posted *posted = calloc(1, sizeof *posted);
    expect(posted);
    posted->function = function;
    posted->argument = argument;
    pthread_mutex_lock(&server->lock);
    *server->last = posted;
    server->last = &posted->next;
    pthread_cond_signal(&server->filled);
    pthread_mutex_unlock(&server->lock);
    return true;
}

static bool run_posted(bool waits)
{
    pthread_mutex_lock(&loop.lock);
    while (waits && !loop.first)
        pthread_cond_wait(&loop.filled, &loop.lock);
    struct posted *posted = loop.first;
    if (posted) {
        loop.first = posted->next;
        if (!loop.first)
            loop.last = &loop.first;
    }
    pthread_mutex_unlock(&loop.lock);
    if (posted)
        posted->function(posted->argument);
    free(posted);
    return posted != NULL;
}

void fake_http_step(void)
{
    (void)run_posted(true);
}

void fake_http_finish(void)
{
    while (run_posted(false)) {
    }
}

static void run_work(void *argument)
{
    struct api_work *work = argument;
    work->run(work);
}

void api_workers_add(struct api_workers *workers, struct api_work *item)
{
    (void)workers;
    (void)http_post(&loop, run_work, item);
}

void http_server_drain(struct http_server *server)
{
    (void)server;
    abort(); /* a device was lost for ever */
}

struct http_counters http_server_counters(const struct http_server *server)
{
    (void)server;
    return (struct http_counters){0};
}

/* ---- The exchange ---- */

struct http_exchange *fake_http_begin(const char *path, const uint8_t *body, size_t size, bool slow)
{
    static const struct http_header headers[] = {{"Host", "localhost"}, {"Content-Type", "application/json"}};
    free(current.body);
    buffer_free(&current.answer.body);
    current = (struct http_exchange){.slow = slow, .body = malloc(size + 1)};
    expect(current.body);
    if (size)
        memcpy(current.body, body, size);
    current.body[size] = 0;
    current.request = (struct http_request){.method = "POST",
        .path = path,
        .query = "",
        .host = "localhost",
        .headers = headers,
        .header_count = 2,
        .body = current.body,
        .body_size = size,
        .peer = "fuzz"};
    return &current;
}

const struct fake_answer *fake_http_answer(void)
{
    return &current.answer;
}

void fake_http_leave(void)
{
    expect(!current.answer.ended);
    current.answer.ended = current.answer.aborted = true;
    if (current.closed)
        current.closed(current.closed_argument);
}

/* No function may use an exchange after its end. */
static struct http_exchange *open_one(const struct http_exchange *exchange)
{
    expect(exchange == &current && !current.answer.ended);
    return &current;
}

const struct http_request *http_exchange_request(const struct http_exchange *exchange)
{
    return &open_one(exchange)->request;
}

char *http_take_body(struct http_exchange *exchange, size_t *out_size)
{
    char *body = open_one(exchange)->body;
    *out_size = exchange->request.body_size;
    exchange->body = NULL;
    exchange->request.body = NULL;
    exchange->request.body_size = 0;
    return body;
}

void http_on_close(struct http_exchange *exchange, void (*closed)(void *argument), void *argument)
{
    open_one(exchange)->closed = closed;
    exchange->closed_argument = argument;
}

static void append(const void *data, size_t size)
{
    expect(buffer_append(&current.answer.body, data, size) == SALVO_OK);
}

void http_reply(struct http_exchange *exchange, int status, const struct http_header *headers,
    const void *body, size_t size)
{
    (void)headers;
    expect(open_one(exchange)->answer.status == 0);
    exchange->answer.status = status;
    append(body, size);
    exchange->answer.ended = true;
}

void http_stream_begin(struct http_exchange *exchange, int status, const struct http_header *headers)
{
    (void)headers;
    expect(open_one(exchange)->answer.status == 0);
    exchange->answer.status = status;
    exchange->answer.streamed = true;
}

static void has_room(void *argument)
{
    (void)argument;
    current.full = false;
    if (!current.answer.ended && current.room)
        current.room(current.room_argument);
}

size_t http_stream_write(struct http_exchange *exchange, const void *data, size_t size)
{
    expect(open_one(exchange)->answer.streamed);
    append(data, size);
    if (exchange->slow && !exchange->full) {
        exchange->full = true;
        (void)http_post(&loop, has_room, NULL);
    }
    return exchange->full ? HTTP_UNSENT_LIMIT + 1 : 0;
}

void http_stream_on_room(struct http_exchange *exchange, void (*room)(void *argument), void *argument)
{
    open_one(exchange)->room = room;
    exchange->room_argument = argument;
}

void http_stream_on_silence(struct http_exchange *exchange, unsigned milliseconds, const char *text)
{
    (void)milliseconds;
    (void)text;
    (void)open_one(exchange);
}

void http_stream_end(struct http_exchange *exchange)
{
    expect(open_one(exchange)->answer.streamed);
    exchange->answer.ended = true;
}

void http_stream_abort(struct http_exchange *exchange)
{
    (void)open_one(exchange);
    exchange->answer.ended = exchange->answer.aborted = true;
}
