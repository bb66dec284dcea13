#include "http_parser.h"

#include <stdlib.h>
#include <string.h>

static enum http_parse_result refuse(struct http_parser *parser, int status, const char *reason)
{
    parser->head.status = status;
    parser->head.reason = reason;
    return HTTP_PARSE_ERROR;
}

/* Room for `size` bytes and a 0 byte. The memory grows with the bytes that arrive: a length that a client
 * announces costs nothing. */
static bool reserve(char **memory, size_t *capacity, size_t size)
{
    if (size < *capacity)
        return true;
    size_t larger = *capacity ? *capacity : 1024;
    while (larger <= size)
        larger *= 2;
    char *moved = realloc(*memory, larger);
    if (!moved)
        return false;
    *memory = moved;
    *capacity = larger;
    return true;
}

/* A line of `size` bytes with its line feed: its length without the break, or SIZE_MAX if that is not CR LF.
 */
static size_t line_length(const char *line, size_t size)
{
    if (size < 2 || line[size - 2] != '\r' || memchr(line, '\r', size) != line + size - 2)
        return SIZE_MAX;
    return size - 2;
}

/* Lines are parsed when all of them are there, since their texts stay where they are. */
static enum http_parse_result parse_head(struct http_parser *parser)
{
    struct http_request *request = &parser->head.request;
    char *line = parser->text, *end = parser->text + parser->text_size;
    request->headers = parser->headers;
    for (size_t i = 0; line < end; i++) {
        char *feed = memchr(line, '\n', (size_t)(end - line));
        const size_t size = (size_t)(feed - line) - 1;
        feed[-1] = 0;
        if (i == 0) {
            if (!http_head_request_line(&parser->head, line, size))
                return HTTP_PARSE_ERROR;
        } else if (size) {
            if (!http_head_header_line(&parser->head, line, size, &parser->headers[request->header_count]))
                return HTTP_PARSE_ERROR;
            request->header_count++;
        }
        line = feed + 1;
    }
    if (!http_head_finish(&parser->head, parser->body_limit))
        return HTTP_PARSE_ERROR;
    parser->left = parser->head.body_size;
    const enum http_body_kind kind = parser->head.body;
    parser->state = kind == HTTP_BODY_CHUNKED ? HTTP_STATE_CHUNK_SIZE
                    : kind == HTTP_BODY_SIZED ? HTTP_STATE_BODY
                                              : HTTP_STATE_END;
    return HTTP_PARSE_HEAD;
}

static enum http_parse_result feed_line(struct http_parser *parser)
{
    const char *line = parser->text + parser->line_start;
    const size_t length = line_length(line, parser->text_size - parser->line_start);
    if (length == SIZE_MAX)
        return refuse(parser, 400, "a line does not end with CR LF");
    if (length == 0 && parser->lines == 0) { /* an empty line before a request, which some clients send */
        if (parser->skipped_line)
            return refuse(parser, 400, "the request begins with empty lines");
        parser->skipped_line = true;
        parser->text_size = 0;
        return HTTP_PARSE_MORE;
    }
    if (length == 0)
        return parse_head(parser);
    if (parser->lines++ > HTTP_HEADER_COUNT_LIMIT)
        return refuse(parser, 431, "there are more than 100 headers");
    parser->line_start = parser->text_size;
    return HTTP_PARSE_MORE;
}

static enum http_parse_result feed_lines(
    struct http_parser *parser, const char *data, size_t size, size_t *out_used)
{
    size_t used = 0;
    enum http_parse_result result = HTTP_PARSE_MORE;
    while (used < size && result == HTTP_PARSE_MORE) {
        const char *feed = memchr(data + used, '\n', size - used);
        size_t count = feed ? (size_t)(feed - data) + 1 - used : size - used;
        const unsigned char begin = (unsigned char)data[used];
        if (parser->text_size == 0 && begin != '\r' && (begin <= ' ' || begin >= 0x7f))
            result = refuse(parser, 400, "the request line does not begin with a method");
        else if (parser->lines == 0 && count > HTTP_TARGET_LIMIT - parser->text_size)
            result = refuse(parser, 414, "the request line is too long");
        else if (count > HTTP_HEAD_LIMIT - parser->text_size)
            result = refuse(parser, 431, "the headers are too large");
        else if (!reserve(&parser->text, &parser->text_capacity, parser->text_size + count))
            result = refuse(parser, 503, "out of memory");
        if (result == HTTP_PARSE_ERROR)
            break;
        memcpy(parser->text + parser->text_size, data + used, count);
        parser->text_size += count;
        used += count;
        if (feed)
            result = feed_line(parser);
    }
    *out_used = used;
    return result;
}

static enum http_parse_result feed_data(
    struct http_parser *parser, const char *data, size_t size, size_t *out_used)
{
    const size_t count = parser->left < size ? (size_t)parser->left : size;
    *out_used = 0;
    if (!reserve(&parser->body, &parser->body_capacity, parser->body_size + count))
        return refuse(parser, 503, "out of memory");
    memcpy(parser->body + parser->body_size, data, count);
    parser->body_size += count;
    parser->left -= count;
    *out_used = count;
    if (parser->left == 0)
        parser->state = parser->state == HTTP_STATE_BODY ? HTTP_STATE_END : HTTP_STATE_CHUNK_END;
    return HTTP_PARSE_MORE;
}

/* "SIZE" or "SIZE;EXTENSION", of which the extension is not used. */
static enum http_parse_result parse_chunk_size(struct http_parser *parser, size_t length)
{
    const char *line = parser->chunk_line;
    const size_t room = parser->body_limit - parser->body_size;
    uint64_t size = 0;
    size_t digits = 0;
    for (; digits < length && http_hex_digit(line[digits]) >= 0; digits++) {
        if (digits == 16)
            return refuse(parser, 400, "the size of a chunk has more than 16 digits");
        size = size * 16 + (unsigned)http_hex_digit(line[digits]);
    }
    if (!digits || (digits < length && line[digits] != ';'))
        return refuse(parser, 400, "the size of a chunk is malformed");
    for (size_t i = digits; i < length; i++) {
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return refuse(parser, 400, "the extension of a chunk has a control character");
    }
    if (size > room)
        return refuse(parser, 413, "the body is larger than the server accepts");
    parser->left = size;
    parser->state = size ? HTTP_STATE_CHUNK_DATA : HTTP_STATE_TRAILERS;
    return HTTP_PARSE_MORE;
}

static enum http_parse_result parse_trailer(struct http_parser *parser, size_t length)
{
    struct http_header ignored;
    if (length == 0) {
        parser->state = HTTP_STATE_END;
        return HTTP_PARSE_MORE;
    }
    if (parser->trailers++ >= HTTP_HEADER_COUNT_LIMIT)
        return refuse(parser, 431, "there are more than 100 trailers");
    parser->chunk_line[length] = 0;
    return http_head_header_line(&parser->head, parser->chunk_line, length, &ignored) ? HTTP_PARSE_MORE
                                                                                      : HTTP_PARSE_ERROR;
}

/* The short lines between the data of chunks, and trailers. */
static enum http_parse_result feed_chunk_line(
    struct http_parser *parser, const char *data, size_t size, size_t *out_used)
{
    const char *feed = memchr(data, '\n', size);
    const size_t count = feed ? (size_t)(feed - data) + 1 : size;
    *out_used = 0;
    if (parser->chunk_line_size + count > sizeof parser->chunk_line)
        return refuse(parser, 400, "a line between chunks is too long");
    memcpy(parser->chunk_line + parser->chunk_line_size, data, count);
    parser->chunk_line_size += count;
    *out_used = count;
    if (!feed)
        return HTTP_PARSE_MORE;
    const size_t length = line_length(parser->chunk_line, parser->chunk_line_size);
    parser->chunk_line_size = 0;
    if (length == SIZE_MAX)
        return refuse(parser, 400, "a line between chunks does not end with CR LF");
    if (parser->state == HTTP_STATE_CHUNK_SIZE)
        return parse_chunk_size(parser, length);
    if (parser->state == HTTP_STATE_TRAILERS)
        return parse_trailer(parser, length);
    if (length)
        return refuse(parser, 400, "a chunk is longer than its size");
    parser->state = HTTP_STATE_CHUNK_SIZE;
    return HTTP_PARSE_MORE;
}

static enum http_parse_result finish(struct http_parser *parser)
{
    if (!reserve(&parser->body, &parser->body_capacity, parser->body_size))
        return refuse(parser, 503, "out of memory");
    parser->body[parser->body_size] = 0;
    parser->head.request.body = parser->body;
    parser->head.request.body_size = parser->body_size;
    return HTTP_PARSE_DONE;
}

enum http_parse_result http_parser_feed(
    struct http_parser *parser, const char *data, size_t size, size_t *out_used)
{
    enum http_parse_result result = HTTP_PARSE_MORE;
    *out_used = 0;
    if (parser->head.status)
        return HTTP_PARSE_ERROR;
    while (result == HTTP_PARSE_MORE) {
        size_t used = 0;
        if (parser->state == HTTP_STATE_END)
            return finish(parser);
        if (*out_used == size)
            break;
        if (parser->state == HTTP_STATE_LINES)
            result = feed_lines(parser, data + *out_used, size - *out_used, &used);
        else if (parser->state == HTTP_STATE_BODY || parser->state == HTTP_STATE_CHUNK_DATA)
            result = feed_data(parser, data + *out_used, size - *out_used, &used);
        else
            result = feed_chunk_line(parser, data + *out_used, size - *out_used, &used);
        *out_used += used;
    }
    return result;
}

bool http_parser_begun(const struct http_parser *parser)
{
    return parser->text_size > 0;
}

size_t http_parser_held(const struct http_parser *parser)
{
    return parser->text_capacity + parser->body_capacity;
}

char *http_parser_take_body(struct http_parser *parser, size_t *out_size)
{
    char *body = parser->body;
    *out_size = parser->body_size;
    parser->body = NULL;
    parser->body_size = parser->body_capacity = 0;
    parser->head.request.body = NULL;
    parser->head.request.body_size = 0;
    return body;
}

void http_parser_reset(struct http_parser *parser)
{
    const size_t body_limit = parser->body_limit;
    free(parser->text);
    free(parser->body);
    *parser = (struct http_parser){.body_limit = body_limit};
}
