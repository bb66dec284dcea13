#include "http_connection.h"
#include "listen.h"
#include "tls.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ACCEPTS_AT_ONCE = 64, /* connections accepted before other events are handled */
    PAUSE_MS = 100,
    SIGNAL_LIMIT = 8,
    DESCRIPTOR_RESERVE = 64, /* for files of the program */
};

struct post {
    struct post *next;
    void (*function)(void *argument);
    void *argument;
};

struct http_timer {
    struct event *event;
    void (*function)(void *argument);
    void *argument;
};

struct signal_watch {
    struct event *event;
    void (*function)(void *argument, int number);
    void *argument;
};

struct http_server {
    struct http_options options;
    struct event_base *base;
    struct tls *tls;
    struct listen_sockets sockets;
    int port;
    struct event *accepts[LISTEN_LIMIT];
    struct event *resume; /* a timer that ends a pause of accepting */
    bool paused;
    struct http_connections connections;
    struct signal_watch signals[SIGNAL_LIMIT];
    size_t signal_count;

    int wake_pipe[2]; /* a byte there wakes the loop */
    struct event *wake;
    atomic_bool stopping;
    pthread_mutex_t lock; /* protects the members below */
    struct post *first_post, **last_post;
    bool ended;
};

/* --- accepting --- */

static void pause_accepting(struct http_server *server)
{
    const struct timeval time = {.tv_usec = PAUSE_MS * 1000};
    for (size_t i = 0; i < server->sockets.count; i++)
        event_del(server->accepts[i]);
    server->paused = true;
    server->connections.counters.accept_pauses++;
    event_add(server->resume, &time);
}

static void resume_accepting(struct http_server *server)
{
    if (!server->paused || server->connections.draining)
        return;
    server->paused = false;
    event_del(server->resume);
    for (size_t i = 0; i < server->sockets.count; i++)
        event_add(server->accepts[i], NULL);
}

static void on_resume(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what;
    resume_accepting(argument);
}

static bool has_caller(int listener)
{
    struct pollfd state = {.fd = listener, .events = POLLIN};
    return poll(&state, 1, 0) > 0;
}

/* At the limit of connections, the ones that wait longest without a request are closed. Connections accepted
 * in this iteration of the loop are not: their requests have not been read. */
static void on_accept(evutil_socket_t listener, short what, void *argument)
{
    struct http_server *server = argument;
    struct http_connections *connections = &server->connections;
    const uint64_t earlier = connections->counters.accepted;
    (void)what;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        if (connections->counters.connections >= server->options.connection_limit) {
            if (!has_caller(listener))
                return;
            if (!http_connections_evict(connections, earlier)) {
                if (connections->counters.accepted == earlier)
                    pause_accepting(server);
                return;
            }
        }
        const int fd = listen_accept(listener);
        if (fd >= 0) {
            http_connection_new(connections, fd);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
            /* No descriptors or no memory: the connection stays in the queue, and the socket readable. */
            http_connections_evict(connections, earlier);
            pause_accepting(server);
            return;
        }
    }
}

static void on_removed(void *owner)
{
    struct http_server *server = owner;
    const struct http_connections *connections = &server->connections;
    if (connections->draining && connections->counters.connections == 0)
        event_base_loopbreak(server->base);
}

/* --- functions from other threads --- */

static void wake(struct http_server *server)
{
    const char byte = 0;
    /* A full pipe wakes the loop as well. */
    while (write(server->wake_pipe[1], &byte, 1) < 0 && errno == EINTR) {
    }
}

bool http_post(struct http_server *server, void (*function)(void *argument), void *argument)
{
    struct post *post = malloc(sizeof *post);
    if (!post)
        return false;
    *post = (struct post){NULL, function, argument};
    pthread_mutex_lock(&server->lock);
    const bool ended = server->ended, first = !server->first_post;
    if (!ended) {
        *server->last_post = post;
        server->last_post = &post->next;
        /* Inside the lock: the server cannot be closed before its pipe was written. */
        if (first)
            wake(server);
    }
    pthread_mutex_unlock(&server->lock);
    if (ended)
        free(post);
    return !ended;
}

static struct post *take_posts(struct http_server *server, bool end_if_none)
{
    pthread_mutex_lock(&server->lock);
    struct post *posts = server->first_post;
    server->first_post = NULL;
    server->last_post = &server->first_post;
    if (!posts && end_if_none)
        server->ended = true;
    pthread_mutex_unlock(&server->lock);
    return posts;
}

static void run_posts(struct post *posts)
{
    while (posts) {
        struct post *post = posts;
        posts = post->next;
        post->function(post->argument);
        free(post);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *argument)
{
    struct http_server *server = argument;
    char bytes[64];
    (void)what;
    while (read(fd, bytes, sizeof bytes) > 0) {
    }
    if (atomic_load(&server->stopping))
        event_base_loopbreak(server->base);
    run_posts(take_posts(server, false));
}

void http_server_stop(struct http_server *server)
{
    atomic_store(&server->stopping, true);
    wake(server);
}

/* --- signals and timers --- */

static void on_signal(evutil_socket_t number, short what, void *argument)
{
    const struct signal_watch *watch = argument;
    (void)what;
    watch->function(watch->argument, (int)number);
}

bool http_signal(
    struct http_server *server, int number, void (*function)(void *argument, int number), void *argument)
{
    if (server->signal_count == SIGNAL_LIMIT)
        return false;
    struct signal_watch *watch = &server->signals[server->signal_count];
    *watch = (struct signal_watch){NULL, function, argument};
    watch->event = evsignal_new(server->base, number, on_signal, watch);
    if (!watch->event)
        return false;
    server->signal_count++;
    return event_add(watch->event, NULL) == 0;
}

static void on_timer(evutil_socket_t fd, short what, void *argument)
{
    const struct http_timer *timer = argument;
    (void)fd, (void)what;
    timer->function(timer->argument);
}

struct http_timer *http_timer_new(
    struct http_server *server, void (*function)(void *argument), void *argument)
{
    struct http_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return NULL;
    *timer = (struct http_timer){event_new(server->base, -1, 0, on_timer, timer), function, argument};
    if (!timer->event) {
        free(timer);
        return NULL;
    }
    return timer;
}

void http_timer_start(struct http_timer *timer, unsigned milliseconds)
{
    const struct timeval time = {
        .tv_sec = milliseconds / 1000, .tv_usec = (long)(milliseconds % 1000) * 1000};
    event_add(timer->event, &time);
}

void http_timer_free(struct http_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event);
    free(timer);
}

/* --- opening --- */

static void fill_defaults(struct http_options *options)
{
    struct rlimit files = {0};
    if (!options->host)
        options->host = "127.0.0.1";
    if (!options->body_limit)
        options->body_limit = 16u << 20;
    if (!options->connection_limit)
        options->connection_limit = 4096;
    if (!options->header_ms)
        options->header_ms = 30000;
    if (!options->body_ms)
        options->body_ms = 60000;
    if (!options->idle_ms)
        options->idle_ms = 120000;
    if (!options->write_ms)
        options->write_ms = 600000;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_cur > 2 * DESCRIPTOR_RESERVE &&
            options->connection_limit > files.rlim_cur - DESCRIPTOR_RESERVE)
            options->connection_limit = files.rlim_cur - DESCRIPTOR_RESERVE;
    }
}

static bool open_sockets(struct http_server *server, char *error, size_t room)
{
    const struct http_options *options = &server->options;
    if (options->systemd && !listen_systemd(&server->sockets, error, room))
        return false;
    if (server->sockets.count == 0) {
        const bool listens = options->unix_socket
                                 ? listen_unix(options->unix_socket, &server->sockets, error, room)
                                 : listen_tcp(options->host, options->port, &server->sockets, error, room);
        if (!listens)
            return false;
    }
    server->port = server->sockets.port;
    return !options->second_port || options->second_port == server->port ||
           listen_add_tcp(options->host, options->second_port, &server->sockets, error, room);
}

static bool open_pipe(struct http_server *server)
{
    if (pipe(server->wake_pipe) != 0)
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (evutil_make_socket_nonblocking(server->wake_pipe[i]) != 0 ||
            evutil_make_socket_closeonexec(server->wake_pipe[i]) != 0)
            return false;
    }
    return true;
}

static bool open_loop(struct http_server *server)
{
    server->base = event_base_new();
    if (!server->base || !open_pipe(server))
        return false;
    server->connections = (struct http_connections){.options = &server->options,
        .base = server->base,
        .tls = server->tls,
        .removed = on_removed,
        .owner = server};
    if (!http_connections_open(&server->connections))
        return false;
    server->resume = event_new(server->base, -1, 0, on_resume, server);
    server->wake = event_new(server->base, server->wake_pipe[0], EV_READ | EV_PERSIST, on_wake, server);
    if (!server->resume || !server->wake || event_add(server->wake, NULL) != 0)
        return false;
    for (size_t i = 0; i < server->sockets.count; i++) {
        server->accepts[i] =
            event_new(server->base, server->sockets.fds[i], EV_READ | EV_PERSIST, on_accept, server);
        if (!server->accepts[i] || event_add(server->accepts[i], NULL) != 0)
            return false;
    }
    return true;
}

struct http_server *http_server_open(const struct http_options *options, char *error, size_t error_room)
{
    struct http_server *server = calloc(1, sizeof *server);
    if (!server) {
        snprintf(error, error_room, "out of memory");
        return NULL;
    }
    server->options = *options;
    server->wake_pipe[0] = server->wake_pipe[1] = -1;
    server->last_post = &server->first_post;
    pthread_mutex_init(&server->lock, NULL);
    fill_defaults(&server->options);
    signal(SIGPIPE, SIG_IGN); /* a client that went away is an error of write */
    bool good = true;
    if (!options->tls_key_file != !options->tls_cert_file) {
        snprintf(error, error_room, "TLS: a key file and a certificate file belong together");
        good = false;
    } else if (options->tls_key_file) {
        server->tls = tls_open(options->tls_key_file, options->tls_cert_file, error, error_room);
        good = server->tls != NULL;
    }
    good = good && open_sockets(server, error, error_room);
    if (good && !open_loop(server)) {
        snprintf(error, error_room, "cannot start the server's loop: %s", strerror(errno));
        good = false;
    }
    if (!good) {
        http_server_close(server);
        return NULL;
    }
    return server;
}

int http_server_port(const struct http_server *server)
{
    return server->port;
}

/* --- running --- */

static void stop_listening(struct http_server *server)
{
    for (size_t i = 0; i < LISTEN_LIMIT; i++) {
        if (server->accepts[i])
            event_free(server->accepts[i]);
        server->accepts[i] = NULL;
    }
    listen_close(&server->sockets);
}

void http_server_drain(struct http_server *server)
{
    stop_listening(server);
    http_connections_drain(&server->connections);
    if (server->connections.counters.connections == 0)
        http_server_stop(server);
}

void http_server_run(struct http_server *server)
{
    event_base_loop(server->base, EVLOOP_NO_EXIT_ON_EMPTY);
    stop_listening(server);
    event_del(server->wake);
    http_connections_close(&server->connections);
    struct post *posts = NULL;
    while ((posts = take_posts(server, true)))
        run_posts(posts);
    /* Connections free their memory on the loop. */
    event_base_loop(server->base, EVLOOP_NONBLOCK);
}

void http_server_close(struct http_server *server)
{
    stop_listening(server);
    if (server->base) {
        http_connections_close(&server->connections);
        for (size_t i = 0; i < server->signal_count; i++)
            event_free(server->signals[i].event);
        if (server->resume)
            event_free(server->resume);
        if (server->wake)
            event_free(server->wake);
        event_base_free(server->base);
    }
    tls_close(server->tls);
    struct post *posts = NULL;
    while ((posts = take_posts(server, true)))
        run_posts(posts);
    for (size_t i = 0; i < 2; i++) {
        if (server->wake_pipe[i] >= 0)
            close(server->wake_pipe[i]);
    }
    pthread_mutex_destroy(&server->lock);
    free(server);
}

struct http_counters http_server_counters(const struct http_server *server)
{
    return server->connections.counters;
}
