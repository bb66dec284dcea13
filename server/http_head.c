#include "http_head.h"

#include <string.h>
#include <strings.h>

static bool refuse(struct http_head *head, int status, const char *reason)
{
    head->status = status;
    head->reason = reason;
    return false;
}

static bool is_token_char(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!is_token_char((unsigned char)text[i]))
            return false;
    }
    return size > 0;
}

static bool parse_version(struct http_head *head, const char *text, size_t size)
{
    if (size != 8 || memcmp(text, "HTTP/", 5) != 0 || text[5] < '0' || text[5] > '9' || text[6] != '.' ||
        text[7] < '0' || text[7] > '9')
        return refuse(head, 400, "the request line does not end with a version of HTTP");
    if (text[5] != '1')
        return refuse(head, 505, "this server speaks HTTP/1.1");
    head->minor = text[7] == '0' ? 0 : 1;
    return true;
}

/* "/path?query", "http://host/path?query" or "*". */
static bool parse_target(struct http_head *head, char *target)
{
    struct http_request *request = &head->request;
    if (strcmp(target, "*") == 0) {
        if (strcmp(request->method, "OPTIONS") != 0)
            return refuse(head, 400, "the target '*' belongs to OPTIONS alone");
        request->path = target;
        request->query = "";
        return true;
    }
    char *path = target;
    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        char *host = strchr(target, ':') + 3;
        size_t host_size = strcspn(host, "/?");
        if (!host_size)
            return refuse(head, 400, "the target has an empty host");
        if (host[host_size] != '/')
            return refuse(head, 400, "the target has no path");
        /* The host moves to the front by one byte, which makes room for its end. */
        memmove(host - 1, host, host_size);
        host[host_size - 1] = 0;
        request->host = host - 1;
        path = host + host_size;
    }
    if (*path != '/')
        return refuse(head, 400, "the target does not begin with '/'");
    char *query = strchr(path, '?');
    if (query)
        *query++ = 0;
    if (strchr(path, '#') || (query && strchr(query, '#')))
        return refuse(head, 400, "the target has a fragment");
    if (!http_decode_percent(path))
        return refuse(head, 400, "the target has a malformed percent-encoding");
    request->path = path;
    request->query = query ? query : "";
    return true;
}

bool http_head_request_line(struct http_head *head, char *line, size_t size)
{
    char *blank = memchr(line, ' ', size);
    if (!blank || blank - line > 32 || !is_token(line, (size_t)(blank - line)))
        return refuse(head, 400, "the request line does not begin with a method");
    *blank = 0;
    char *target = blank + 1;
    char *end = memchr(target, ' ', (size_t)(line + size - target));
    if (!end || end == target)
        return refuse(head, 400, "the request line is not METHOD TARGET VERSION");
    for (const char *c = target; c < end; c++) {
        if (*c < 0x21 || *c > 0x7e)
            return refuse(head, 400, "the target has a byte that must be percent-encoded");
    }
    if (!parse_version(head, end + 1, (size_t)(line + size - (end + 1))))
        return false;
    *end = 0;
    head->request.method = line;
    if (strcmp(line, "HEAD") == 0) {
        head->request.method = "GET";
        head->request.head = true;
    }
    return parse_target(head, target);
}

bool http_head_header_line(struct http_head *head, char *line, size_t size, struct http_header *out)
{
    if (*line == ' ' || *line == '\t')
        return refuse(head, 400, "a header is folded over lines");
    char *colon = memchr(line, ':', size);
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return refuse(head, 400, "a header line is not NAME: VALUE");
    char *value = colon + 1, *end = line + size;
    for (const char *c = value; c < end; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return refuse(head, 400, "a header value has a control character");
    }
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *colon = 0;
    *end = 0;
    *out = (struct http_header){line, value};
    return true;
}

/* Whether a list with commas, such as Connection's, has the word. */
static bool list_has(const char *list, const char *word)
{
    const size_t size = strlen(word);
    for (const char *item = list; *item;) {
        item += strspn(item, " \t,");
        const size_t length = strcspn(item, " \t,");
        if (length == size && strncasecmp(item, word, size) == 0)
            return true;
        item += length;
    }
    return false;
}

/* The only header of that name goes to `out`, NULL if there is none. False if there are several. */
static bool single(const struct http_request *request, const char *name, const char **out)
{
    *out = NULL;
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcasecmp(request->headers[i].name, name) != 0)
            continue;
        if (*out)
            return false;
        *out = request->headers[i].value;
    }
    return true;
}

static bool is_host(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (!is_token_char((unsigned char)*c) && !strchr(":[]()=;,", *c))
            return false;
    }
    return true;
}

static bool finish_host(struct http_head *head)
{
    struct http_request *request = &head->request;
    const char *host = NULL;
    if (!single(request, "Host", &host))
        return refuse(head, 400, "there is more than one Host header");
    if (!host && head->minor)
        return refuse(head, 400, "there is no Host header");
    if (!request->host) /* no absolute target, which goes before the header */
        request->host = host ? host : "";
    if (!is_host(request->host) || (host && !is_host(host)))
        return refuse(head, 400, "the Host header has a character that no host has");
    return true;
}

static bool parse_length(struct http_head *head, const char *text, size_t limit)
{
    uint64_t length = 0;
    const size_t digits = strspn(text, "0123456789");
    if (!digits || text[digits])
        return refuse(head, 400, "Content-Length is not a number");
    for (const char *c = text; *c; c++) {
        if (length > limit) /* also before it overflows */
            break;
        length = length * 10 + (uint64_t)(*c - '0');
    }
    if (length > limit)
        return refuse(head, 413, "the body is larger than the server accepts");
    head->body_size = length;
    return true;
}

static bool finish_framing(struct http_head *head, size_t body_limit)
{
    const char *length = NULL, *encoding = NULL;
    if (!single(&head->request, "Content-Length", &length))
        return refuse(head, 400, "there is more than one Content-Length header");
    if (!single(&head->request, "Transfer-Encoding", &encoding))
        return refuse(head, 400, "there is more than one Transfer-Encoding header");
    if (length && encoding)
        return refuse(head, 400, "the request has both Content-Length and Transfer-Encoding");
    if (encoding) {
        if (!head->minor)
            return refuse(head, 400, "HTTP/1.0 has no Transfer-Encoding");
        if (strcasecmp(encoding, "chunked") != 0)
            return refuse(head, 501, "the only Transfer-Encoding is chunked");
        head->body = HTTP_BODY_CHUNKED;
    } else if (length) {
        if (!parse_length(head, length, body_limit))
            return false;
        head->body = head->body_size ? HTTP_BODY_SIZED : HTTP_BODY_NONE;
    }
    return true;
}

bool http_head_finish(struct http_head *head, size_t body_limit)
{
    if (!finish_host(head) || !finish_framing(head, body_limit))
        return false;
    const char *connection = http_request_header(&head->request, "Connection");
    if (head->minor)
        head->keep_alive = !connection || !list_has(connection, "close");
    else
        head->keep_alive = connection && list_has(connection, "keep-alive");
    const char *expect = http_request_header(&head->request, "Expect");
    if (expect && head->minor) {
        if (strcasecmp(expect, "100-continue") != 0)
            return refuse(head, 417, "the only expectation is 100-continue");
        head->expects_continue = head->body != HTTP_BODY_NONE;
    }
    return true;
}
