/*
 * HTTP requests, after a byte that chooses the sizes of the pieces: the parser gives the same requests and
 * the same error for pieces of any size, holds no more than its limits, and what it accepts is well-formed.
 */
#include "../../server/http_parser.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_LIMIT = 300, REQUEST_LIMIT = 8 };

struct outcome {
    size_t requests, used[REQUEST_LIMIT];
    uint64_t hashes[REQUEST_LIMIT];
    int64_t status; /* as wide as the others: memcmp compares outcomes */
};

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static uint64_t hash(uint64_t seed, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        seed = (seed ^ (unsigned char)text[i]) * 1099511628211u;
    return seed * 1099511628211u;
}

static uint64_t check_request(const struct http_head *head)
{
    const struct http_request *request = &head->request;
    uint64_t result = 14695981039346656037u;
    expect(request->path[0] == '/' || (request->path[0] == '*' && !request->path[1]));
    expect(request->header_count <= HTTP_HEADER_COUNT_LIMIT);
    expect(request->body_size <= BODY_LIMIT && request->body[request->body_size] == 0);
    expect(head->minor == 0 || http_request_header(request, "Host"));
    result = hash(result, request->method, strlen(request->method));
    result = hash(result, request->path, strlen(request->path));
    result = hash(result, request->query, strlen(request->query));
    result = hash(result, request->host, strlen(request->host));
    for (size_t i = 0; i < request->header_count; i++) {
        const char *name = request->headers[i].name, *value = request->headers[i].value;
        expect(*name && !strpbrk(name, " \t\r\n:") && !strpbrk(value, "\r\n"));
        result = hash(hash(result, name, strlen(name)), value, strlen(value));
    }
    char out[16];
    if (http_request_query(request, "a", out, sizeof out))
        result = hash(result, out, strlen(out));
    return hash(result, request->body, request->body_size);
}

static void parse(const char *data, size_t size, size_t piece, struct outcome *out)
{
    struct http_parser parser = {.body_limit = BODY_LIMIT};
    size_t begin = 0, end = piece < size ? piece : size;
    *out = (struct outcome){0};
    while (out->requests < REQUEST_LIMIT) {
        size_t used = 0;
        const size_t count = end - begin;
        char *copy = malloc(count ? count : 1); /* a read behind it is an error */
        memcpy(copy, data + begin, count);
        const enum http_parse_result result = http_parser_feed(&parser, copy, count, &used);
        free(copy);
        expect(used <= count);
        expect(http_parser_held(&parser) <= 2 * (HTTP_HEAD_LIMIT + 1024));
        begin += used;
        if (result == HTTP_PARSE_ERROR) {
            expect(parser.head.status >= 400 && parser.head.reason);
            out->status = parser.head.status;
            break;
        }
        if (result == HTTP_PARSE_DONE) {
            out->used[out->requests] = begin;
            out->hashes[out->requests++] = check_request(&parser.head);
            http_parser_reset(&parser);
        } else if (result == HTTP_PARSE_MORE) {
            expect(used == count);
            if (end == size)
                break;
            end = size - end < piece ? size : end + piece;
        }
    }
    http_parser_reset(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, pieces;
    if (!size)
        return 0;
    const char *bytes = (const char *)data + 1;
    parse(bytes, size - 1, size, &whole);
    parse(bytes, size - 1, 1 + data[0] % 64, &pieces);
    expect(memcmp(&whole, &pieces, sizeof whole) == 0);
    return 0;
}
