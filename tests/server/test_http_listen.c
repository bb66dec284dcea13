/* Where a server listens, and how many connections it bears. */
#include "http_fixture.h"

#include "cmocka_test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define H       "Host: x\r\n"
#define REQUEST "GET /echo HTTP/1.1\r\n" H "Connection: close\r\n\r\n"

static void assert_answers(int fd)
{
    client_send_text(fd, REQUEST);
    char *answer = client_read_all(fd, NULL);
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17), 0);
    free(answer);
    close(fd);
}

/* --- Unix sockets --- */

static int connect_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void test_unix_socket(void **state)
{
    char folder[] = "/tmp/salvo-http-XXXXXX", path[100], error[256] = "";
    struct fixture fixture;
    struct stat info;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    fixture_init(&fixture);
    fixture.options.unix_socket = path;
    fixture_start(&fixture);
    assert_int_equal(http_server_port(fixture.server), 0);
    assert_answers(connect_unix(path));
    /* In use: the second server leaves the first alone. */
    assert_null(http_server_open(&fixture.options, error, sizeof error));
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "in use"));
    assert_answers(connect_unix(path));
    fixture_stop(&fixture);
    assert_int_equal(lstat(path, &info), -1);

    /* A stale file, as a server that was killed leaves it, is replaced. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (const struct sockaddr *)&address, sizeof address), 0);
    close(stale);
    assert_int_equal(lstat(path, &info), 0);
    fixture_init(&fixture);
    fixture.options.unix_socket = path;
    fixture_start(&fixture);
    assert_answers(connect_unix(path));
    fixture_stop(&fixture);

    /* Another file is not. */
    const int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    close(file);
    assert_null(http_server_open(&fixture.options, error, sizeof error));
    assert_non_null(strstr(error, "exists"));
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    unlink(path);
    rmdir(folder);

    char too_long[300];
    memset(too_long, 'a', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    fixture.options.unix_socket = too_long;
    assert_null(http_server_open(&fixture.options, error, sizeof error));
    assert_non_null(strstr(error, "bytes"));
}

/* --- addresses and systemd --- */

static void test_bad_addresses(void **state)
{
    struct http_options options = {.host = "no such host", .port = 0};
    char error[256] = "";
    (void)state;
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, "no such host"));
    options = (struct http_options){.port = 65536};
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, "65536"));
    options = (struct http_options){.tls_key_file = "key"};
    assert_null(http_server_open(&options, error, sizeof error));
    assert_non_null(strstr(error, "certificate"));
}

static void test_localhost(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture.options.host = "localhost";
    fixture_start(&fixture);
    client_check_alive(&fixture);
    fixture_stop(&fixture);
}

static void set_systemd(long pid, const char *count)
{
    char text[20];
    snprintf(text, sizeof text, "%ld", pid);
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDS", count, 1);
}

static void test_systemd(void **state)
{
    enum { FIRST = 3 };
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct fixture fixture;
    char error[256] = "";
    (void)state;
    const int saved = fcntl(FIRST, F_DUPFD, 10); /* whatever this process has there */
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(dup2(listener, FIRST), FIRST);
    set_systemd(getpid(), "1");
    fixture_init(&fixture);
    fixture.options.systemd = true;
    assert_null(http_server_open(&fixture.options, error, sizeof error));
    assert_non_null(strstr(error, "descriptor 3"));
    assert_null(getenv("LISTEN_FDS"));

    assert_int_equal(listen(listener, 5), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(dup2(listener, FIRST), FIRST);
    set_systemd(getpid(), "1");
    fixture_start(&fixture);
    assert_int_equal(http_server_port(fixture.server), ntohs(address.sin_port));
    client_check_alive(&fixture);
    fixture_stop(&fixture); /* closes descriptor 3 */
    close(listener);
    if (saved >= 0) {
        assert_int_equal(dup2(saved, FIRST), FIRST);
        close(saved);
    }

    /* Variables for another process do not matter. */
    set_systemd((long)getpid() + 1, "1");
    fixture_init(&fixture);
    fixture.options.systemd = true;
    fixture_start(&fixture);
    assert_int_not_equal(http_server_port(fixture.server), ntohs(address.sin_port));
    client_check_alive(&fixture);
    fixture_stop(&fixture);
    set_systemd(getpid(), "1000");
    assert_null(http_server_open(&fixture.options, error, sizeof error));
    assert_non_null(strstr(error, "1000"));
}

/* --- many connections --- */

static void test_many_quick_connections(void **state)
{
    struct fixture fixture;
    (void)state;
    fixture_run(&fixture);
    for (int i = 0; i < LONG_RUN(20000); i++) {
        const int fd = client_open(&fixture);
        if (i % 3 == 1)
            client_send_text(fd, "GET /echo HTTP/1.1\r\n" H "\r\n");
        else if (i % 3 == 2)
            client_send_text(fd, "GET /hold HTTP");
        client_reset(fd); /* leaves no port in TIME_WAIT */
    }
    client_check_alive(&fixture);
    fixture_wait_counter(&fixture, offsetof(struct http_counters, connections), 0);
    const struct http_counters counters = fixture_counters(&fixture);
    assert_int_equal(counters.unsent_bytes, 0);
    assert_int_equal(counters.received_bytes, 0);
    fixture_stop(&fixture);
}

/* At the limit the connections that wait longest make room. */
static void test_limit_with_idle_connections(void **state)
{
    enum { LIMIT = 8, CLIENTS = 40 };
    int fds[CLIENTS];
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture.options.connection_limit = LIMIT;
    fixture_start(&fixture);
    const int held = client_open(&fixture);
    client_send_text(held, "GET /hold HTTP/1.1\r\n" H "\r\n");
    fixture_wait(&fixture, &fixture.held, 1);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_open(&fixture);
        client_send_text(fds[i], "GET /slow HTTP/1.1\r\n");
    }
    client_check_alive(&fixture);
    assert_true(fixture_counters(&fixture).connections <= LIMIT);
    char *rest = client_read_all(fds[0], NULL);
    assert_string_equal(rest, "");
    free(rest);
    fixture_release(&fixture); /* a request in progress was not touched */
    char *answer = client_read_answer(held);
    assert_non_null(strstr(answer, "released"));
    free(answer);
    close(held);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    fixture_stop(&fixture);
}

static void test_limit_with_busy_connections(void **state)
{
    enum { LIMIT = 4 };
    int fds[LIMIT];
    struct fixture fixture;
    (void)state;
    fixture_init(&fixture);
    fixture.options.connection_limit = LIMIT;
    fixture_start(&fixture);
    for (int i = 0; i < LIMIT; i++) {
        fds[i] = client_open(&fixture);
        client_send_text(fds[i], "GET /hold HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    }
    fixture_wait(&fixture, &fixture.held, LIMIT);
    const int late = client_open(&fixture);
    client_send_text(late, REQUEST);
    while (fixture_counters(&fixture).accept_pauses == 0)
        usleep(1000);
    assert_int_equal(fixture_counters(&fixture).connections, LIMIT);
    fixture_release(&fixture);
    char *answer = client_read_all(late, NULL);
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17), 0);
    free(answer);
    close(late);
    for (int i = 0; i < LIMIT; i++) {
        free(client_read_all(fds[i], NULL));
        close(fds[i]);
    }
    fixture_stop(&fixture);
}

/* No descriptor is free: accepting pauses until one is. */
static void test_no_descriptors(void **state)
{
    enum { CLIENTS = 3 };
    int fds[CLIENTS];
    struct fixture fixture;
    struct rlimit limit, tight;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    fixture_run(&fixture);
    const struct sockaddr_in address = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)http_server_port(fixture.server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int highest = 0;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fds[i] >= 0);
        highest = fds[i] > highest ? fds[i] : highest;
    }
    /* Descriptors below the highest one may be free: all are filled. */
    int filled[1024], filled_count = 0;
    tight = (struct rlimit){.rlim_cur = (rlim_t)highest + 1, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    while (filled_count < 1024 && (filled[filled_count] = dup(fds[0])) >= 0)
        filled_count++;
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(connect(fds[i], (const struct sockaddr *)&address, sizeof address), 0);
        client_send_text(fds[i], REQUEST);
    }
    while (fixture_counters(&fixture).accept_pauses < 2)
        usleep(1000);
    tight.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    while (filled_count)
        close(filled[--filled_count]);
    for (int i = 0; i < CLIENTS; i++) {
        char *answer = client_read_all(fds[i], NULL);
        assert_int_equal(strncmp(answer, "HTTP/1.1 200 OK\r\n", 17), 0);
        free(answer);
        close(fds[i]);
    }
    fixture_stop(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_localhost),
        cmocka_unit_test(test_systemd),
        cmocka_unit_test(test_many_quick_connections),
        cmocka_unit_test(test_limit_with_idle_connections),
        cmocka_unit_test(test_limit_with_busy_connections),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
