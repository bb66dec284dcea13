/*
 * HTTP/1.1 requests from bytes, in pieces of any size. Strict: bytes that two parsers could take for
 * different requests are refused. Independent of sockets.
 */
#ifndef SERVER_HTTP_PARSER_H
#define SERVER_HTTP_PARSER_H

#include "http_head.h"

enum {
    HTTP_HEAD_LIMIT = 64 * 1024,   /* request line and headers; also trailers */
    HTTP_TARGET_LIMIT = 16 * 1024, /* request line */
    HTTP_HEADER_COUNT_LIMIT = 100, /* also trailers */
    HTTP_CHUNK_LINE_LIMIT = 256,
};

enum http_parse_result {
    HTTP_PARSE_MORE, /* all bytes are used */
    HTTP_PARSE_HEAD, /* the headers are complete; call again for the body, also without further bytes */
    HTTP_PARSE_DONE, /* the request is complete; bytes behind it are not used */
    HTTP_PARSE_ERROR /* see the head's status and reason; the connection cannot go on */
};

enum http_parse_state {
    HTTP_STATE_LINES, /* request line and headers */
    HTTP_STATE_BODY,  /* Content-Length */
    HTTP_STATE_CHUNK_SIZE,
    HTTP_STATE_CHUNK_DATA,
    HTTP_STATE_CHUNK_END,
    HTTP_STATE_TRAILERS,
    HTTP_STATE_END
};

struct http_parser {
    size_t body_limit; /* set before the first byte */

    /* Its request is complete but for the body from HTTP_PARSE_HEAD on, until http_parser_reset. */
    struct http_head head;

    /* private */
    enum http_parse_state state;
    char *text; /* lines, which the texts of the request point into */
    size_t text_size, text_capacity, line_start;
    struct http_header headers[HTTP_HEADER_COUNT_LIMIT];
    size_t lines, trailers;
    bool skipped_line;
    char *body;
    size_t body_size, body_capacity;
    uint64_t left; /* bytes of the body or of the chunk */
    char chunk_line[HTTP_CHUNK_LINE_LIMIT];
    size_t chunk_line_size;
};

/* A zeroed parser with a body limit is ready. */
enum http_parse_result http_parser_feed(
    struct http_parser *parser, const char *data, size_t size, size_t *out_used);
/* True if bytes of a request have arrived. */
bool http_parser_begun(const struct http_parser *parser);
/* Bytes that the parser holds. */
size_t http_parser_held(const struct http_parser *parser);
/* Gives the body to the caller, to be freed with free(). */
char *http_parser_take_body(struct http_parser *parser, size_t *out_size);
/* Ready for the next request; frees all memory. */
void http_parser_reset(struct http_parser *parser);

#endif
