/* Clients that go away, slow readers, other threads, the end of the server. */
#include "http_fixture.h"

#include "cmocka_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define H "Host: x\r\n"

static void hold_and_wait(struct fixture *fixture, int fd)
{
    const unsigned before = fixture_count(fixture, &fixture->held);
    client_send_text(fd, "GET /hold HTTP/1.1\r\n" H "\r\n");
    fixture_wait(fixture, &fixture->held, before + 1);
}

static void assert_no_more_closes(struct fixture *fixture, unsigned expected)
{
    fixture_wait_counter(fixture, offsetof(struct http_counters, connections), 0);
    assert_int_equal(fixture_counters(fixture).exchanges, 0);
    assert_int_equal(fixture_count(fixture, &fixture->closed), expected);
}

static void test_client_vanishes(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    int fd = client_open(&fixture); /* closed */
    hold_and_wait(&fixture, fd);
    close(fd);
    fixture_wait(&fixture, &fixture.closed, 1);

    fd = client_open(&fixture); /* its sending side alone */
    hold_and_wait(&fixture, fd);
    shutdown(fd, SHUT_WR);
    fixture_wait(&fixture, &fixture.closed, 2);
    char *rest = client_read_all(fd, NULL);
    assert_string_equal(rest, "");
    free(rest);
    close(fd);

    fd = client_open(&fixture); /* reset */
    hold_and_wait(&fixture, fd);
    client_reset(fd);
    fixture_wait(&fixture, &fixture.closed, 3);

    fd = client_open(&fixture); /* within a stream */
    client_send_text(fd, "GET /stream?pieces=100000 HTTP/1.1\r\n" H "\r\n");
    client_read_until(fd, "xxx");
    client_reset(fd);
    fixture_wait(&fixture, &fixture.closed, 4);

    fd = client_open(&fixture); /* within the body */
    client_send_text(fd, "POST /check HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nab");
    fixture_wait(&fixture, &fixture.held, 5);
    close(fd);
    fixture_wait(&fixture, &fixture.closed, 5);

    fd = client_open(&fixture); /* within the headers */
    client_send_text(fd, "POST /check HTTP/1.1\r\n" H);
    close(fd);
    assert_no_more_closes(&fixture, 5);
    client_check_alive(&fixture);
    fixture_stop(&fixture);
}

/* The server has stopped reading, since too much lies behind the running request, and sees the close still.
 */
static void vanish_behind_bytes(struct fixture *fixture, void (*leave)(int fd), unsigned closed)
{
    enum {
        SIZE = 120000
    }; /* more bytes than the server reads, and no more than sockets buffer: the close follows unread bytes */
    const int fd = client_open(fixture);
    char *bytes = calloc(1, SIZE);
    hold_and_wait(fixture, fd);
    client_send(fd, bytes, SIZE);
    free(bytes);
    assert_true(fixture_counters(fixture).received_bytes < 100000);
    leave(fd);
    fixture_wait(fixture, &fixture->closed, closed);
}

static void leave_by_close(int fd)
{
    close(fd);
}

static void test_client_vanishes_behind_bytes(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    vanish_behind_bytes(&fixture, leave_by_close, 1);
    vanish_behind_bytes(&fixture, client_reset, 2);
    assert_no_more_closes(&fixture, 2);
    fixture_stop(&fixture);
}

static void test_slow_reader(void **state)
{
    enum { PIECES = 20000 };
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, "GET /stream?pieces=20000 HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    /* Another client is served while this one does not read. */
    fixture_wait(&fixture, &fixture.held, 1);
    client_check_alive(&fixture);
    size_t size = 0;
    char *answer = client_read_all(fd, &size);
    assert_int_equal(count_text(answer, "3e8\r\nxxx"), PIECES);
    assert_string_equal(answer + size - 7, "\r\n0\r\n\r\n");
    free(answer);
    close(fd);
    const struct http_counters counters = fixture_counters(&fixture);
    assert_true(
        counters.unsent_most > HTTP_UNSENT_LIMIT); /* 20 MB do not fit into the sockets: it has paused */
    assert_true(counters.unsent_most < HTTP_UNSENT_LIMIT + 1100);
    assert_true(fixture_count(&fixture, &fixture.room_calls) > 0);
    assert_int_equal(counters.unsent_bytes, 0);
    assert_no_more_closes(&fixture, 0);
    fixture_stop(&fixture);
}

/* Streams whose clients do not read: each buffers at most its limit, until the write timeout ends it. */
static void test_readers_that_do_not_read(void **state)
{
    enum { READERS = 50 };
    int fds[READERS];
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture_start(&fixture);
    for (int i = 0; i < READERS; i++) {
        fds[i] = client_open(&fixture);
        client_send_text(fds[i], "GET /stream?pieces=20000 HTTP/1.1\r\n" H "\r\n");
    }
    fixture_wait(&fixture, &fixture.held, READERS);
    client_check_alive(&fixture);
    const struct http_counters counters = fixture_counters(&fixture);
    assert_true(counters.unsent_most < HTTP_UNSENT_LIMIT + 1100);
    assert_true(counters.unsent_bytes <= (uint64_t)READERS * (HTTP_UNSENT_LIMIT + 1100));
    for (int i = 0; i < READERS; i++)
        close(fds[i]);
    fixture_wait(&fixture, &fixture.closed, READERS);
    assert_no_more_closes(&fixture, READERS);
    assert_int_equal(fixture_counters(&fixture).unsent_bytes, 0);
    fixture_stop(&fixture);

    fixture_init(&fixture);
    fixture.options.write_ms = 20;
    fixture_start(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, "GET /stream?pieces=20000 HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.closed, 1);
    close(fd);
    assert_no_more_closes(&fixture, 1);
    fixture_stop(&fixture);
}

/* --- the end --- */

static void test_stop_with_open_connections(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int idle = client_open(&fixture), held = client_open(&fixture), half = client_open(&fixture),
              stream = client_open(&fixture);
    hold_and_wait(&fixture, held);
    client_send_text(half, "POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nab");
    client_send_text(stream, "GET /stream?pieces=20000 HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 2);
    http_server_stop(fixture.server);
    char *rest = client_read_all(held, NULL);
    assert_string_equal(rest, "");
    free(rest);
    free(client_read_all(idle, NULL));
    free(client_read_all(half, NULL));
    free(client_read_all(stream, NULL));
    fixture_join(&fixture);
    assert_int_equal(fixture.closed, 2);
    close(idle);
    close(held);
    close(half);
    close(stream);
}

static void test_drain(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int idle = client_open(&fixture), held = client_open(&fixture), half = client_open(&fixture);
    client_send_text(idle, "GET /echo HTTP/1.1\r\n" H "\r\n");
    free(client_read_answer(idle));
    client_send_text(half, "POST /check HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nab");
    fixture_wait(&fixture, &fixture.held, 1);
    hold_and_wait(&fixture, held);
    const int port = http_server_port(fixture.server);
    fixture_drain(&fixture);
    char *rest = client_read_all(idle, NULL); /* closed at once */
    assert_string_equal(rest, "");
    free(rest);
    close(idle);

    /* Nobody listens any more: another server gets the port. */
    struct fixture other;
    fixture_init(&other);
    other.options.port = port;
    fixture_start(&other);
    client_check_alive(&other);
    fixture_stop(&other);

    /* Requests that have begun are finished. */
    client_send_text(half, "cde");
    fixture_wait(&fixture, &fixture.held, 3);
    fixture_release(&fixture);
    char *answer = client_read_all(held, NULL);
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(answer, "\r\n\r\nreleased"));
    free(answer);
    answer = client_read_all(half, NULL);
    assert_non_null(strstr(answer, "\r\n\r\nreleased"));
    free(answer);
    close(held);
    close(half);
    fixture_join(&fixture); /* the loop ends by itself */
    assert_int_equal(fixture.closed, 0);

    fixture_run(&fixture);
    fixture_drain(&fixture); /* without connections */
    fixture_join(&fixture);
}

static void test_two_servers(void **state)
{
    struct fixture first, second;
    char error[256] = "";
    (void)state;
    fixture_run(&first);
    fixture_run(&second);
    assert_int_not_equal(http_server_port(first.server), http_server_port(second.server));
    const int held = client_open(&first);
    hold_and_wait(&first, held);
    client_check_alive(&first);
    client_check_alive(&second);
    fixture_stop(&second);
    client_check_alive(&first);
    struct http_options options = first.options;
    options.port = http_server_port(first.server);
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, "in use"));
    close(held);
    fixture_wait(&first, &first.closed, 1);
    fixture_stop(&first);
}

/* --- other threads, timers, signals --- */

enum { POSTERS = 4, POSTS = 1000 };

struct poster {
    struct fixture *fixture;
    pthread_t thread;
    unsigned accepted, ran;
    bool wrong;
};

struct posted {
    struct poster *poster;
    unsigned number;
};

static void on_post(void *argument)
{
    struct posted *posted = argument;
    struct poster *poster = posted->poster;
    pthread_mutex_lock(&poster->fixture->lock);
    poster->wrong = poster->wrong || poster->ran != posted->number;
    poster->ran++;
    pthread_cond_broadcast(&poster->fixture->changed);
    pthread_mutex_unlock(&poster->fixture->lock);
    free(posted);
}

static void *post_all(void *argument)
{
    struct poster *poster = argument;
    for (unsigned i = 0; i < POSTS; i++) {
        struct posted *posted = malloc(sizeof *posted);
        *posted = (struct posted){poster, i};
        if (http_post(poster->fixture->server, on_post, posted))
            poster->accepted++;
        else
            free(posted);
    }
    return NULL;
}

static void test_posts(void **state)
{
    struct fixture fixture;
    struct poster posters[POSTERS] = {0};
    (void)state;
    fixture_run(&fixture);
    for (int i = 0; i < POSTERS; i++) {
        posters[i].fixture = &fixture;
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
    }
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
        fixture_wait(&fixture, &posters[i].ran, POSTS);
        assert_false(posters[i].wrong);
    }
    /* While the loop ends, a post either runs or is refused: none is lost. */
    posters[0] = (struct poster){.fixture = &fixture};
    assert_int_equal(pthread_create(&posters[0].thread, NULL, post_all, &posters[0]), 0);
    http_server_stop(fixture.server);
    pthread_join(fixture.thread, NULL);
    pthread_join(posters[0].thread, NULL);
    assert_false(http_post(fixture.server, on_post, NULL));
    assert_false(posters[0].wrong);
    assert_int_equal(posters[0].ran, posters[0].accepted);
    http_server_close(fixture.server);
}

static void stop_on_signal(void *argument, int number)
{
    if (number == SIGUSR1)
        http_server_drain(((struct fixture *)argument)->server);
}

static void test_signal(void **state)
{
    struct fixture fixture;
    char error[256];
    (void)state;
    fixture_init(&fixture);
    fixture.server = http_server_open(&fixture.options, error, sizeof error);
    assert_non_null(fixture.server);
    assert_true(http_signal(fixture.server, SIGUSR1, stop_on_signal, &fixture));
    raise(SIGUSR1);
    http_server_run(fixture.server);
    http_server_close(fixture.server);
}

struct ticks {
    struct fixture *fixture;
    struct http_timer *timer;
    unsigned count;
};

static void on_tick(void *argument)
{
    struct ticks *ticks = argument;
    if (++ticks->count < 3)
        http_timer_start(ticks->timer, 1);
    else
        http_server_stop(ticks->fixture->server);
}

static void test_timer(void **state)
{
    struct fixture fixture;
    struct ticks ticks = {.fixture = &fixture};
    char error[256];
    (void)state;
    fixture_init(&fixture);
    fixture.server = http_server_open(&fixture.options, error, sizeof error);
    assert_non_null(fixture.server);
    ticks.timer = http_timer_new(fixture.server, on_tick, &ticks);
    http_timer_start(ticks.timer, 1);
    http_server_run(fixture.server);
    assert_int_equal(ticks.count, 3);
    http_timer_free(ticks.timer);
    http_server_close(fixture.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_vanishes),
        cmocka_unit_test(test_client_vanishes_behind_bytes),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_readers_that_do_not_read),
        cmocka_unit_test(test_stop_with_open_connections),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_two_servers),
        cmocka_unit_test(test_posts),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
