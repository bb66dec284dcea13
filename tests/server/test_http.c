/* Requests and answers over real sockets: malformed bytes, pieces, pipelining, bodies, versions. */
#include "http_fixture.h"

#include "cmocka_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define H "Host: x\r\n"

static void assert_begins(const char *text, const char *beginning)
{
    if (strncmp(text, beginning, strlen(beginning)) != 0)
        fail_msg("'%s' does not begin with '%s'", text, beginning);
}

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

static size_t describe(void *user, int status, const char *reason, char *out, size_t room)
{
    (void)user;
    return (size_t)snprintf(out, room, "{%d: %s}", status, reason);
}

/* The parser's own test has all malformed requests; here the server answers some and closes. */
static void test_malformed(void **state)
{
    static const struct {
        const char *request, *status;
    } cases[] = {
        {"nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"},
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
        {"GET / HTTP/3.0\r\n" H "\r\n", "HTTP/1.1 505 "},
        {"GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 "},
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 2000\r\n\r\n", "HTTP/1.1 413 "},
        {"POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", "HTTP/1.1 413 "},
        {"POST /echo HTTP/1.1\r\n" H "Expect: x\r\n\r\n", "HTTP/1.1 417 "},
        {"\x16\x03\x01", "HTTP/1.1 400 "},
    };
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture.options.body_limit = 1000;
    fixture.options.describe = describe;
    fixture.options.describe_type = "application/test";
    fixture_start(&fixture);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *answer = client_exchange(&fixture, cases[i].request);
        assert_begins(answer, cases[i].status);
        assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
        assert_non_null(strstr(answer, "\r\nContent-Type: application/test\r\n"));
        assert_int_equal(strncmp(body_of(answer) + 1, answer + 9, 3), 0); /* the status is in the body */
        free(answer);
    }
    assert_int_equal(fixture_count(&fixture, &fixture.handled), 0);
    assert_int_equal(fixture_counters(&fixture).bad_requests, sizeof cases / sizeof *cases);
    client_check_alive(&fixture);
    fixture_stop(&fixture);
}

/* The answer arrives while the client still sends: 100 MB, of which the server reads little. */
static void test_large_body_is_refused_early(void **state)
{
    enum { PIECE = 1 << 20, PIECES = 100 };
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, "POST /echo HTTP/1.1\r\n" H "Content-Length: 104857600\r\n\r\n");
    char *answer = client_read_answer(fd);
    assert_begins(answer, "HTTP/1.1 413 Content Too Large\r\n");
    free(answer);
    char *piece = calloc(1, PIECE);
    for (int i = 0; i < PIECES; i++)
        client_send(fd, piece, PIECE);
    free(piece);
    close(fd);
    client_check_alive(&fixture);
    assert_int_equal(fixture_count(&fixture, &fixture.handled), 1);
    fixture_stop(&fixture);
}

static void test_answers(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    char *answer = client_exchange(&fixture, "GET /none HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 404 Not Found\r\n");
    assert_non_null(strstr(answer, "\r\nContent-Length: 5\r\n"));
    assert_non_null(strstr(answer, "\r\nDate: "));
    assert_non_null(strstr(answer, " GMT\r\n"));
    assert_non_null(strstr(answer, "\r\nX-Good: yes\r\n"));
    assert_null(strstr(answer, "X-Bad"));
    assert_null(strstr(answer, "X-Worse"));
    assert_string_equal(body_of(answer), "none\n");
    free(answer);

    answer = client_exchange(&fixture, "HEAD /none HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 404 Not Found\r\n");
    assert_non_null(strstr(answer, "\r\nContent-Length: 5\r\n"));
    assert_string_equal(body_of(answer), "");
    free(answer);

    answer = client_exchange(&fixture, "HEAD /stream?pieces=3 HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 200 OK\r\n");
    assert_string_equal(body_of(answer), "");
    free(answer);

    /* A client that closes its sending side at once still gets answers that are given at once. */
    const int fd = client_open(&fixture);
    client_send_text(fd, "GET /echo HTTP/1.1\r\n" H "\r\nGET /echo HTTP/1.1\r\n" H "\r\n");
    shutdown(fd, SHUT_WR);
    answer = client_read_all(fd, NULL);
    assert_int_equal(count_text(answer, "HTTP/1.1 200 OK"), 2);
    free(answer);
    close(fd);
    fixture_stop(&fixture);
}

static void test_body_split_at_every_byte(void **state)
{
    static const char *const requests[] = {
        "POST /echo HTTP/1.1\r\n" H "Content-Length: 11\r\n\r\nhello world",
        "POST /echo HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
        "5;x=y\r\nhello\r\n06\r\n world\r\n0\r\nA: b\r\n\r\n",
    };
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    for (size_t i = 0; i < 2; i++) {
        const char *request = requests[i];
        const size_t size = strlen(request);
        const int fd = client_open(&fixture);
        for (size_t cut = 0; cut <= size; cut++) {
            client_send(fd, request, cut);
            client_send(fd, request + cut, size - cut);
            char *answer = client_read_answer(fd);
            assert_begins(answer, "HTTP/1.1 200 OK\r\n");
            assert_string_equal(body_of(answer), "hello world");
            free(answer);
        }
        for (size_t byte = 0; byte < size; byte++)
            client_send(fd, request + byte, 1);
        char *answer = client_read_answer(fd);
        assert_string_equal(body_of(answer), "hello world");
        free(answer);
        close(fd);
    }
    fixture_stop(&fixture);
}

static void test_large_body(void **state)
{
    enum { SIZE = 3000000 };
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    char head[100], *body = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        body[i] = (char)(i * 2654435761u >> 24);
    snprintf(head, sizeof head, "POST /echo HTTP/1.1\r\n" H "Connection: close\r\nContent-Length: %d\r\n\r\n",
        SIZE);
    client_send_text(fd, head);
    client_send(fd, body, SIZE);
    size_t size = 0;
    char *answer = client_read_all(fd, &size);
    const char *echoed = body_of(answer);
    assert_int_equal(size - (size_t)(echoed - answer), SIZE);
    assert_memory_equal(echoed, body, SIZE);
    free(answer);
    free(body);
    close(fd);
    fixture_wait_counter(&fixture, offsetof(struct http_counters, received_bytes), 0);
    fixture_stop(&fixture);
}

static void test_expect_continue(void **state)
{
    static const char head[] =
        "POST /echo HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, head);
    client_read_until(fd, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send_text(fd, "ok");
    char *answer = client_read_answer(fd);
    assert_begins(answer, "HTTP/1.1 200 OK\r\n");
    assert_string_equal(body_of(answer), "ok");
    free(answer);
    close(fd);

    /* Refused by `check`: no 100, and the body is not waited for. */
    answer = client_exchange(
        &fixture, "POST /refuse HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 403 Forbidden\r\n");
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    free(answer);
    fixture_stop(&fixture);
}

/* Without a body a refused request leaves the connection usable. */
static void test_refused_before_the_body(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    char *answer = client_exchange(
        &fixture, "GET /refuse HTTP/1.1\r\n" H "\r\nGET /echo HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 403 Forbidden\r\n");
    assert_int_equal(count_text(answer, "HTTP/1.1 200 OK"), 1);
    free(answer);
    answer = client_exchange(
        &fixture, "POST /refuse HTTP/1.1\r\n" H "Content-Length: 100\r\n\r\nGET /echo HTTP/1.1\r\n" H "\r\n");
    assert_begins(answer, "HTTP/1.1 403 Forbidden\r\n");
    assert_int_equal(count_text(answer, "HTTP/1.1"), 1);
    free(answer);
    assert_int_equal(fixture_count(&fixture, &fixture.handled), 1);
    fixture_stop(&fixture);
}

static void test_pipelining(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, "GET /echo HTTP/1.1\r\n" H "\r\nGET /hold HTTP/1.1\r\n" H "\r\n"
                         "POST /echo HTTP/1.1\r\n" H "Content-Length: 6\r\n\r\nbehind"
                         "GET /stream?pieces=2 HTTP/1.1\r\n" H "\r\n"
                         "GET /last HTTP/1.1\r\n" H "Connection: close\r\n\r\n"
                         "GET /never HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 1);
    char *answer = client_read_answer(fd);
    assert_string_equal(body_of(answer), "/echo");
    free(answer);
    assert_int_equal(fixture_counters(&fixture).exchanges, 1);
    fixture_release(&fixture);
    answer = client_read_answer(fd);
    assert_string_equal(body_of(answer), "released");
    free(answer);
    answer = client_read_answer(fd);
    assert_string_equal(body_of(answer), "behind");
    free(answer);
    answer = client_read_all(fd, NULL);
    assert_begins(answer, "HTTP/1.1 200 OK\r\n");
    assert_non_null(strstr(answer, "\r\nTransfer-Encoding: chunked\r\n"));
    assert_int_equal(count_text(answer, "3e8\r\n"), 2);
    assert_non_null(strstr(answer, "\r\n0\r\n\r\nHTTP/1.1 404 Not Found\r\n"));
    assert_int_equal(count_text(answer, "HTTP/1.1 "), 2);
    free(answer);
    close(fd);
    fixture_stop(&fixture);
}

/* A client that sends requests and does not read waits; all are answered when it reads. */
static void test_pipelining_without_reading(void **state)
{
    enum { COUNT = 20000 };
    static const char request[] = "GET /none HTTP/1.1\r\n" H "\r\n";
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    size_t sent = 0, total = (sizeof request - 1) * COUNT, answers = 0;
    char *all = malloc(total), last = 0;
    for (size_t i = 0; i < COUNT; i++)
        memcpy(all + i * (sizeof request - 1), request, sizeof request - 1);
    while (answers < COUNT) {
        char bytes[65536];
        while (sent < total) {
            const ssize_t count = send(fd, all + sent, total - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count <= 0)
                break;
            sent += (size_t)count;
        }
        const ssize_t count = recv(fd, bytes, sizeof bytes, 0);
        assert_true(count > 0);
        for (ssize_t i = 0; i < count;
             i++) { /* the body is "none\n", and no header has such an end of line */
            answers += last == 'e' && bytes[i] == '\n';
            last = bytes[i];
        }
    }
    assert_int_equal(sent, total);
    free(all);
    close(fd);
    const struct http_counters counters = fixture_counters(&fixture);
    assert_int_equal(counters.requests, COUNT);
    assert_true(counters.unsent_most <= HTTP_UNSENT_LIMIT + 1000);
    fixture_stop(&fixture);
}

static void test_old_clients(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    char *answer = client_exchange(&fixture, "GET /stream?pieces=2 HTTP/1.0\r\n\r\n");
    assert_begins(answer, "HTTP/1.1 200 OK\r\n");
    assert_null(strstr(answer, "chunked"));
    assert_int_equal(strlen(body_of(answer)), 2000);
    free(answer);
    answer = client_exchange(&fixture, "GET /stream?pieces=2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_int_equal(strlen(body_of(answer)), 2000);
    free(answer);
    answer = client_exchange(
        &fixture, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /echo HTTP/1.0\r\n\r\n");
    assert_int_equal(count_text(answer, "HTTP/1.1 200 OK"), 2);
    assert_int_equal(count_text(answer, "\r\nConnection: keep-alive\r\n"), 1);
    free(answer);
    fixture_stop(&fixture);
}

static void test_aborted_stream(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    char *answer = client_exchange(&fixture, "GET /abort HTTP/1.1\r\n" H "\r\n");
    assert_string_equal(body_of(answer), "4\r\nhalf\r\n"); /* and no last chunk */
    free(answer);
    fixture_stop(&fixture);
}

static void test_silence(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    const int fd = client_open(&fixture);
    client_send_text(fd, "GET /silent HTTP/1.1\r\n" H "\r\n");
    for (int i = 0; i < 3; i++)
        client_read_until(fd, "e\r\n: still here\n\n\r\n");
    close(fd);
    fixture_wait(&fixture, &fixture.closed, 1);
    fixture_stop(&fixture);
}

static void test_timeouts(void **state)
{
    static const struct {
        const char *bytes, *status;
    } cases[] = {
        {"GET /echo HTTP/1.1\r\nHo", "HTTP/1.1 408 "},
        {"POST /echo HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nabc", "HTTP/1.1 408 "},
        {"POST /check HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nabc", "HTTP/1.1 408 "},
        {"", ""},
    };
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture.options.header_ms = 20;
    fixture.options.body_ms = 20;
    fixture.options.idle_ms = 20;
    fixture_start(&fixture);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *answer = client_exchange(&fixture, cases[i].bytes);
        assert_begins(answer, cases[i].status);
        free(answer);
    }
    fixture_wait(&fixture, &fixture.closed, 1); /* of /check */
    assert_int_equal(fixture_count(&fixture, &fixture.closed), 1);
    fixture_stop(&fixture);

    /* After an answer the connection is idle. */
    fixture_init(&fixture);
    fixture.options.idle_ms = 20;
    fixture_start(&fixture);
    char *answer = client_exchange(&fixture, "GET /echo HTTP/1.1\r\n" H "\r\n");
    assert_begins(answer, "HTTP/1.1 200 OK\r\n");
    assert_int_equal(count_text(answer, "HTTP/1.1"), 1);
    free(answer);
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_large_body_is_refused_early),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_body_split_at_every_byte),
        cmocka_unit_test(test_large_body),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_refused_before_the_body),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_pipelining_without_reading),
        cmocka_unit_test(test_old_clients),
        cmocka_unit_test(test_aborted_stream),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
