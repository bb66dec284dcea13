/* The request parser, fed in pieces of every size, and the checks of keys, hosts and origins. */
#include "server/http_parser.h"

#include "cmocka_test.h"
#include "server/http_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_LIMIT = 100 };

struct outcome {
    enum http_parse_result result;
    int status;
    size_t used;
    char text[4096]; /* what the request says, to be compared */
};

static void describe(const struct http_request *request, char *out, size_t room)
{
    size_t size = 0;
    size += (size_t)snprintf(out, room, "%s%s %s ?%s @%s", request->method, request->head ? "(HEAD)" : "",
        request->path, request->query, request->host);
    for (size_t i = 0; i < request->header_count; i++)
        size += (size_t)snprintf(
            out + size, room - size, " %s=%s", request->headers[i].name, request->headers[i].value);
    snprintf(out + size, room - size, " [%zu %s]", request->body_size, request->body);
}

/* Gives the bytes in pieces of `piece` bytes, the first one of `first` bytes. */
static void parse(const char *data, size_t size, size_t first, size_t piece, struct outcome *out)
{
    struct http_parser parser = {.body_limit = BODY_LIMIT};
    *out = (struct outcome){.result = HTTP_PARSE_MORE};
    size_t end = first < size ? first : size;
    while (out->result == HTTP_PARSE_MORE || out->result == HTTP_PARSE_HEAD) {
        size_t used = 0;
        /* A copy of exactly these bytes: a read behind them is an error under ASan. */
        const size_t count = end - out->used;
        char *copy = malloc(count ? count : 1);
        memcpy(copy, data + out->used, count);
        out->result = http_parser_feed(&parser, copy, count, &used);
        free(copy);
        out->used += used;
        if (out->result == HTTP_PARSE_MORE) {
            assert_int_equal(used, count);
            if (end == size)
                break;
            end = size - end < piece ? size : end + piece;
        }
    }
    if (out->result == HTTP_PARSE_DONE)
        describe(&parser.head.request, out->text, sizeof out->text);
    if (out->result == HTTP_PARSE_ERROR) {
        out->status = parser.head.status;
        assert_non_null(parser.head.reason);
    }
    http_parser_reset(&parser);
}

/* All ways to cut the bytes in two, and pieces of one byte, give the same outcome. */
static void parse_all_ways(const char *data, size_t size, struct outcome *out)
{
    struct outcome other;
    parse(data, size, size, size, out);
    for (size_t cut = 0; cut <= size; cut++) {
        if (cut == 0)
            parse(data, size, 1, 1, &other);
        else
            parse(data, size, cut, size, &other);
        if (out->result == HTTP_PARSE_DONE)
            assert_int_equal(other.used, out->used);
        if (other.result != out->result || other.status != out->status || strcmp(other.text, out->text) != 0)
            fail_msg("cut at %zu: result %d status %d '%s', not %d %d '%s'", cut, other.result, other.status,
                other.text, out->result, out->status, out->text);
    }
}

#define H "Host: h\r\n"

static void test_good_requests(void **state)
{
    static const struct {
        const char *bytes, *expected;
        const char *rest; /* not used */
    } cases[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", "GET / ? @h Host=h [0 ]", ""},
        {"\r\nGET / HTTP/1.1\r\n" H "\r\n", "GET / ? @h Host=h [0 ]", ""},
        {"HEAD /a?b=c&d HTTP/1.1\r\n" H "\r\n", "GET(HEAD) /a ?b=c&d @h Host=h [0 ]", ""},
        {"GET /a%20b%2Fc?x%20 HTTP/1.1\r\n" H "\r\n", "GET /a b/c ?x%20 @h Host=h [0 ]", ""},
        {"GET / HTTP/1.0\r\n\r\n", "GET / ? @ [0 ]", ""},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * ? @h Host=h [0 ]", ""},
        {"GET http://other:8/p?q HTTP/1.1\r\n" H "\r\n", "GET /p ?q @other:8 Host=h [0 ]", ""},
        {"GET / HTTP/1.1\r\n" H "A:b\r\nC: \t d e \t\r\nE:\r\n\r\n", "GET / ? @h Host=h A=b C=d e E= [0 ]",
            ""},
        {"GET / HTTP/1.1\r\n" H "A: caf\xc3\xa9\r\n\r\n", "GET / ? @h Host=h A=caf\xc3\xa9 [0 ]", ""},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc",
            "POST / ? @h Host=h Content-Length=3 [3 abc]", ""},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0003\r\n\r\nabcGET",
            "POST / ? @h Host=h Content-Length=0003 [3 abc]", "GET"},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\nabc", "POST / ? @h Host=h Content-Length=0 [0 ]",
            "abc"},
        {"POST / HTTP/1.1\r\n" H
         "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0a;x=\"y\"\r\n0123456789\r\n0\r\n\r\nG",
            "POST / ? @h Host=h Transfer-Encoding=Chunked [13 abc0123456789]", "G"},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n",
            "POST / ? @h Host=h Transfer-Encoding=chunked [0 ]", ""},
        {"GET / HTTP/1.9\r\n" H "\r\n", "GET / ? @h Host=h [0 ]", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome outcome;
        parse_all_ways(cases[i].bytes, strlen(cases[i].bytes), &outcome);
        assert_int_equal(outcome.result, HTTP_PARSE_DONE);
        assert_string_equal(outcome.text, cases[i].expected);
        assert_string_equal(cases[i].bytes + outcome.used, cases[i].rest);
    }
}

static void test_malformed_requests(void **state)
{
#define POST    "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
    static const struct {
        const char *bytes;
        int status;
    } cases[] = {
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1\n" H "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "\n", 400},
        {"GET / HTTP/1.1\rX: y\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /  HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1 \r\n" H "\r\n", 400},
        {" GET / HTTP/1.1\r\n" H "\r\n", 400},
        {"GET\t/ HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /\r\n" H "\r\n", 400},
        {"GET\r\n" H "\r\n", 400},
        {"G(T / HTTP/1.1\r\n" H "\r\n", 400},
        {"\x16\x03\x01\x02", 400},
        {"GET / http/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/11\r\n" H "\r\n", 400},
        {"GET / HTTP/1.x\r\n" H "\r\n", 400},
        {"GET / HTTP/2.0\r\n" H "\r\n", 505},
        {"PRI * HTTP/2.0\r\n\r\n", 505},
        {"GET path HTTP/1.1\r\n" H "\r\n", 400},
        {"GET * HTTP/1.1\r\n" H "\r\n", 400},
        {"CONNECT h:80 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET http:///p HTTP/1.1\r\n" H "\r\n", 400},
        {"GET http://h?p HTTP/1.1\r\n" H "\r\n", 400},
        {"GET ftp://h/p HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /#f HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /?#f HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /caf\xc3\xa9 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%zz HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%4 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET /%00 HTTP/1.1\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H H "\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n A: b\r\n" H "\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A : b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H ": b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A\xc3: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\x01\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "A: b\x7f\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" H "Expect: wonders\r\n\r\n", 417},
        {POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
        {POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400},
        {POST "Content-Length: 3, 3\r\n\r\nabc", 400},
        {POST "Content-Length: +3\r\n\r\nabc", 400},
        {POST "Content-Length: -3\r\n\r\nabc", 400},
        {POST "Content-Length: 3 4\r\n\r\nabc", 400},
        {POST "Content-Length: 0x3\r\n\r\nabc", 400},
        {POST "Content-Length:\r\n\r\nabc", 400},
        {POST "Content-Length: 101\r\n\r\n", 413},
        {POST "Content-Length: 18446744073709551616\r\n\r\n", 413},
        {POST "Content-Length: 18446744073709551619\r\n\r\nabc", 413},
        {POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {POST "Transfer-Encoding: identity\r\n\r\n", 501},
        {POST "Transfer-Encoding:\r\n\r\n", 501},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {CHUNKED "\r\n", 400},
        {CHUNKED "g\r\n", 400},
        {CHUNKED "-1\r\n", 400},
        {CHUNKED "0x1\r\n", 400},
        {CHUNKED " 1\r\na\r\n", 400},
        {CHUNKED "1 \r\na\r\n", 400},
        {CHUNKED "1 ;x\r\na\r\n", 400},
        {CHUNKED "1\na\r\n", 400},
        {CHUNKED "1\r\nab\r\n", 400},
        {CHUNKED "1\r\na\n", 400},
        {CHUNKED "1;\x01\r\na\r\n", 400},
        {CHUNKED "65\r\n", 413},
        {CHUNKED "1\r\na\r\n64\r\n", 413},
        {CHUNKED "ffffffffffffffff\r\n", 413},
        {CHUNKED "00000000000000001\r\n", 400},
        {CHUNKED "0\r\nbad trailer\r\n\r\n", 400},
        {CHUNKED "0\r\n folded\r\n\r\n", 400},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome outcome;
        parse_all_ways(cases[i].bytes, strlen(cases[i].bytes), &outcome);
        if (outcome.result != HTTP_PARSE_ERROR || outcome.status != cases[i].status)
            fail_msg("case %zu '%s': result %d, status %d instead of %d", i, cases[i].bytes, outcome.result,
                outcome.status, cases[i].status);
    }
}

static void test_bytes_of_zero(void **state)
{
    static const char target[] = "GET /\0 HTTP/1.1\r\n" H "\r\n",
                      value[] = "GET / HTTP/1.1\r\n" H "A: b\0c\r\n\r\n",
                      name[] = "GET / HTTP/1.1\r\n" H "A\0: b\r\n\r\n";
    const struct {
        const char *data;
        size_t size;
    } cases[] = {{target, sizeof target - 1}, {value, sizeof value - 1}, {name, sizeof name - 1}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct outcome outcome;
        parse_all_ways(cases[i].data, cases[i].size, &outcome);
        assert_int_equal(outcome.result, HTTP_PARSE_ERROR);
        assert_int_equal(outcome.status, 400);
    }
}

/* "GET / HTTP/1.1", Host, and `count` headers with values of `size` bytes. */
static char *with_headers(size_t count, size_t size)
{
    const size_t room = 200 + count * (size + 20);
    char *text = malloc(room);
    size_t end = (size_t)snprintf(text, room, "GET / HTTP/1.1\r\n" H);
    for (size_t i = 0; i < count; i++) {
        end += (size_t)snprintf(text + end, room - end, "N%zu: ", i);
        memset(text + end, 'v', size);
        end += size;
        end += (size_t)snprintf(text + end, room - end, "\r\n");
    }
    snprintf(text + end, room - end, "\r\n");
    return text;
}

static int status_of(const char *text, size_t piece)
{
    struct http_parser parser = {.body_limit = BODY_LIMIT};
    const size_t size = strlen(text);
    enum http_parse_result result = HTTP_PARSE_MORE;
    for (size_t i = 0; i < size && result == HTTP_PARSE_MORE; i += piece) {
        size_t used = 0;
        result = http_parser_feed(&parser, text + i, size - i < piece ? size - i : piece, &used);
        assert_true(http_parser_held(&parser) <= 2 * HTTP_HEAD_LIMIT);
    }
    const int status = result == HTTP_PARSE_HEAD ? 200 : parser.head.status;
    http_parser_reset(&parser);
    return status;
}

static void test_limits(void **state)
{
    static const struct {
        size_t count, size;
        int status;
    } cases[] = {
        {99, 10, 200}, {100, 10, 431}, {98, 600, 200}, {98, 700, 431}, {1, 60000, 200}, {1, 70000, 431}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = with_headers(cases[i].count, cases[i].size);
        assert_int_equal(status_of(text, strlen(text)), cases[i].status);
        assert_int_equal(status_of(text, 1000), cases[i].status);
        free(text);
    }
    char target[20000] = "GET /";
    memset(target + 5, 'a', sizeof target - 6);
    assert_int_equal(status_of(target, 1000), 414);
    assert_int_equal(status_of(target, sizeof target), 414);

    /* Lines between chunks and trailers have limits as well. */
    static const char head[] = CHUNKED;
    char chunk[1000] = "";
    struct http_parser parser = {.body_limit = BODY_LIMIT};
    size_t used = 0;
    assert_int_equal(http_parser_feed(&parser, head, sizeof head - 1, &used), HTTP_PARSE_HEAD);
    memset(chunk, '0', sizeof chunk);
    assert_int_equal(http_parser_feed(&parser, chunk, sizeof chunk, &used), HTTP_PARSE_ERROR);
    assert_int_equal(parser.head.status, 400);
    http_parser_reset(&parser);
    assert_int_equal(http_parser_feed(&parser, head, sizeof head - 1, &used), HTTP_PARSE_HEAD);
    assert_int_equal(http_parser_feed(&parser, "0\r\n", 3, &used), HTTP_PARSE_MORE);
    enum http_parse_result result = HTTP_PARSE_MORE;
    size_t trailers = 0;
    for (; result == HTTP_PARSE_MORE && trailers < 1000; trailers++)
        result = http_parser_feed(&parser, "T: x\r\n", 6, &used);
    assert_int_equal(result, HTTP_PARSE_ERROR);
    assert_int_equal(parser.head.status, 431);
    assert_int_equal(trailers, HTTP_HEADER_COUNT_LIMIT + 1);
    http_parser_reset(&parser);
}

/* A client that announces a large body has not cost its memory. */
static void test_announced_length_costs_nothing(void **state)
{
    static const char head[] = POST "Content-Length: 1000000000\r\n\r\nx";
    struct http_parser parser = {.body_limit = 2000000000};
    size_t used = 0;
    (void)state;
    assert_int_equal(http_parser_feed(&parser, head, sizeof head - 1, &used), HTTP_PARSE_HEAD);
    assert_int_equal(http_parser_feed(&parser, head + used, sizeof head - 1 - used, &used), HTTP_PARSE_MORE);
    assert_true(http_parser_held(&parser) < 10000);
    http_parser_reset(&parser);
}

static void test_keep_alive(void **state)
{
    static const struct {
        const char *bytes;
        bool keep, waits;
    } cases[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", true, false},
        {"GET / HTTP/1.1\r\n" H "Connection: close\r\n\r\n", false, false},
        {"GET / HTTP/1.1\r\n" H "Connection: TE, Close\r\n\r\n", false, false},
        {"GET / HTTP/1.1\r\n" H "Connection: closed\r\n\r\n", true, false},
        {"GET / HTTP/1.0\r\n\r\n", false, false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, false},
        {POST "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n", true, true},
        {POST "Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", true, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_parser parser = {.body_limit = BODY_LIMIT};
        size_t used = 0;
        assert_int_equal(
            http_parser_feed(&parser, cases[i].bytes, strlen(cases[i].bytes), &used), HTTP_PARSE_HEAD);
        assert_int_equal(parser.head.keep_alive, cases[i].keep);
        assert_int_equal(parser.head.expects_continue, cases[i].waits);
        http_parser_reset(&parser);
    }
}

static void test_query(void **state)
{
    const struct http_request request = {.query = "a=1&bb=x%20y+z&c&d=&e=%zz&a=2"};
    char out[8];
    (void)state;
    assert_true(http_request_query(&request, "a", out, sizeof out));
    assert_string_equal(out, "1");
    assert_false(http_request_query(&request, "bb", out, 7));
    char larger[10];
    assert_true(http_request_query(&request, "bb", larger, sizeof larger));
    assert_string_equal(larger, "x y z");
    assert_true(http_request_query(&request, "c", out, sizeof out));
    assert_string_equal(out, "");
    assert_true(http_request_query(&request, "d", out, sizeof out));
    assert_string_equal(out, "");
    assert_false(http_request_query(&request, "e", out, sizeof out));
    assert_false(http_request_query(&request, "b", out, sizeof out));
    assert_false(http_request_query(&request, "f", out, sizeof out));
}

/* --- access --- */

static int check_host(const char *own, const char *host)
{
    const struct http_access access = {.host = own};
    const struct http_header header = {"Host", host};
    const struct http_request request = {
        .method = "GET", .host = host ? host : "", .headers = &header, .header_count = host ? 1 : 0};
    const char *message = NULL;
    const int status = http_access_check(&access, &request, true, &message);
    assert_int_equal(status == 0, *message == 0);
    return status;
}

static void test_hosts(void **state)
{
    static const char *const loopback[] = {"localhost", "LocalHost:8080", "localhost.", "a.localhost:1",
        "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]"};
    static const char *const foreign[] = {"evil.example", "evil.example:8080", "localhost.evil.example",
        "127.0.0.1.evil.example", "notlocalhost", "10.0.0.1", "[::2]", "[::1", "[::1]x", "localhost:80x", "",
        ":80", "127.1", "2130706433"};
    (void)state;
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        assert_int_equal(check_host(NULL, loopback[i]), 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        assert_int_equal(check_host("127.0.0.1", foreign[i]), 403);
        assert_int_equal(check_host(NULL, foreign[i]), 403);
    }
    assert_int_equal(check_host(NULL, NULL), 0);
    assert_int_equal(check_host("Box.lan", "box.LAN:80"), 0);
    assert_int_equal(check_host("box.lan", "other.lan"), 403);
    assert_int_equal(check_host("10.0.0.1", "10.0.0.1:80"), 0);
    assert_int_equal(check_host("fe80::1", "[fe80:0::1]:80"), 0);
    assert_int_equal(check_host("0.0.0.0", "10.0.0.1:80"), 0);
    assert_int_equal(check_host("::", "[fe80::1]:80"), 0);
    assert_int_equal(check_host("0.0.0.0", "evil.example"), 403);
}

static int check_key(const char *method, const char *name, const char *value, bool needs_key)
{
    static const char *const keys[] = {"first", "second"};
    const struct http_access access = {.keys = keys, .key_count = 2};
    const struct http_header header = {name, value};
    const struct http_request request = {
        .method = method, .host = "evil.example", .headers = &header, .header_count = 1};
    const char *message = NULL;
    return http_access_check(&access, &request, needs_key, &message);
}

static void test_keys(void **state)
{
    (void)state;
    assert_int_equal(check_key("GET", "authorization", "Bearer first", true), 0);
    assert_int_equal(check_key("GET", "Authorization", "bearer second", true), 0);
    assert_int_equal(check_key("GET", "X-Api-Key", "second", true), 0);
    assert_int_equal(check_key("GET", "Authorization", "Bearer firs", true), 401);
    assert_int_equal(check_key("GET", "Authorization", "Bearer firsts", true), 401);
    assert_int_equal(check_key("GET", "Authorization", "Bearer firstfirst", true), 401);
    assert_int_equal(check_key("GET", "Authorization", "Bearer ", true), 401);
    assert_int_equal(check_key("GET", "Authorization", "first", true), 401);
    assert_int_equal(check_key("GET", "Accept", "first", true), 401);
    assert_int_equal(check_key("GET", "Accept", "first", false), 0);
    assert_int_equal(check_key("OPTIONS", "Accept", "first", true), 0);
    assert_true(http_access_equal("a", "a"));
    assert_false(http_access_equal("", "a"));
    assert_false(http_access_equal("a", ""));
    assert_false(http_access_equal("", ""));
}

static const char *find(const struct http_header *headers, const char *name)
{
    for (; headers->name; headers++) {
        if (strcmp(headers->name, name) == 0)
            return headers->value;
    }
    return NULL;
}

static void test_cors(void **state)
{
    const struct http_header given[] = {
        {"Origin", "https://a.example"}, {"Access-Control-Request-Headers", "x-y"}};
    struct http_request request = {.method = "GET", .headers = given, .header_count = 2};
    struct http_access access = {.cors_origins = NULL};
    struct http_header headers[10] = {{"Content-Type", "x"}, {0}};
    (void)state;
    http_access_cors(&access, &request, headers, 10);
    assert_null(headers[1].name);
    access.cors_origins = "https://b.example, https://a.example.org";
    http_access_cors(&access, &request, headers, 10);
    assert_null(find(headers, "Access-Control-Allow-Origin"));
    assert_string_equal(find(headers, "Vary"), "Origin");
    headers[1].name = NULL;
    access.cors_origins = "https://b.example,https://a.example";
    http_access_cors(&access, &request, headers, 10);
    assert_string_equal(find(headers, "Access-Control-Allow-Origin"), "https://a.example");
    assert_null(find(headers, "Access-Control-Allow-Methods"));
    assert_string_equal(find(headers, "Content-Type"), "x");
    headers[1].name = NULL;
    access.cors_origins = "*";
    request.method = "OPTIONS";
    http_access_cors(&access, &request, headers, 10);
    assert_string_equal(find(headers, "Access-Control-Allow-Origin"), "*");
    assert_string_equal(find(headers, "Access-Control-Allow-Headers"), "x-y");
    assert_non_null(find(headers, "Access-Control-Allow-Methods"));
    headers[1].name = NULL;
    http_access_cors(&access, &request, headers, 3); /* room for one more */
    assert_null(headers[2].name);
    headers[1].name = NULL;
    request.header_count = 0;
    http_access_cors(&access, &request, headers, 10);
    assert_null(find(headers, "Access-Control-Allow-Origin"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_requests),
        cmocka_unit_test(test_malformed_requests),
        cmocka_unit_test(test_bytes_of_zero),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_announced_length_costs_nothing),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_cors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
