/* One parsed HTTP request. Texts end with a 0 byte and contain no other. */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

/* A list of headers ends with an entry without a name. */
struct http_header {
    const char *name;
    const char *value;
};

struct http_request {
    const char *method; /* as sent; HEAD becomes "GET" with `head` set */
    bool head;          /* the answer is sent without its body */
    const char *path;   /* from the '/' on, percent-decoded, without the query; "*" for OPTIONS * */
    const char *query;  /* behind the '?', not decoded; "" if there is none */
    const char *host; /* of the Host header or of an absolute target; "" if a client of HTTP/1.0 sent none */
    const struct http_header *headers;
    size_t header_count;
    const char *body; /* a 0 byte follows it; NULL until the whole body has arrived */
    size_t body_size;
    const char *peer; /* address and port, or "unix" */
};

/* The value of the first header of that name, in any case, or NULL. */
const char *http_request_header(const struct http_request *request, const char *name);

/* Decodes the value of a query's member to `out`, "" for a member without value. False if there is none, or
 * if it does not fit, or is not well-formed. */
bool http_request_query(const struct http_request *request, const char *name, char *out, size_t room);

/* Decodes %XX in place. False if a % is not followed by two hexadecimal digits, or stands for a 0 byte. */
bool http_decode_percent(char *text);
/* 0 to 15, or -1. */
int http_hex_digit(char c);

#endif
