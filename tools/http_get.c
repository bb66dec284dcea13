#include "http_get.h"

#include "curl_library.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <salvo/salvo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_REDIRECTS = 10, SLOWEST = 100 /* bytes in a second */, CONNECT_SECONDS = 10 };

struct exchange {
    const struct http_request *request;
    struct http_reply reply;
    bool begun, stopped;
};

bool url_origin(const char *url, char *out, size_t room)
{
    const bool is_secure = strncasecmp(url, "https://", 8) == 0;
    if (!is_secure && strncasecmp(url, "http://", 7) != 0)
        return false;
    const char *host = url + (is_secure ? 8 : 7);
    const size_t length = strcspn(host, "/?#");
    bool has_port = false;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)host[i]) && !strchr("-._:[]", host[i]))
            return false;
        has_port = host[i] == ':' ? true : host[i] == ']' ? false : has_port;
    }
    int used = snprintf(out, room, "http%s://%.*s%s", is_secure ? "s" : "", (int)length, host,
        has_port    ? ""
        : is_secure ? ":443"
                    : ":80");
    for (char *at = out; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    return length > 0 && used > 0 && (size_t)used < room;
}

/* Whether the token may be sent with a request for this URL. */
static bool may_have_token(const struct http_request *request, const char *url)
{
    char mine[HTTP_TEXT], other[HTTP_TEXT];
    return request->token && request->endpoint && url_origin(request->endpoint, mine, sizeof mine) &&
           url_origin(url, other, sizeof other) && strcmp(mine, other) == 0 &&
           strncmp(mine, "https://", 8) == 0;
}

/* ---- Headers ---- */

static bool parse_number(const char *text, char end, uint64_t *out, const char **rest)
{
    char *after;
    errno = 0;
    *out = strtoull(text, &after, 10);
    if (!isdigit((unsigned char)*text) || errno || *after != end || *out > INT64_MAX)
        return false;
    if (rest)
        *rest = after + 1;
    return true;
}

/* The value of an ETag without quotes: a weak one does not promise equal bytes. */
static void copy_etag(char out[HTTP_TEXT], const char *value)
{
    const size_t length = strlen(value);
    out[0] = 0;
    if (length > 2 && length < HTTP_TEXT && value[0] == '"' && value[length - 1] == '"')
        snprintf(out, HTTP_TEXT, "%.*s", (int)(length - 2), value + 1);
}

/* Link: <https://...>; rel="next" */
static void find_next(char out[HTTP_URL], const char *value)
{
    const char *open = strchr(value, '<'), *close = open ? strchr(open, '>') : NULL;
    if (close && strstr(close, "rel=\"next\"") && close - open < HTTP_URL)
        snprintf(out, HTTP_URL, "%.*s", (int)(close - open - 1), open + 1);
}

static void take_range(struct http_reply *reply, const char *value)
{
    uint64_t last;
    if (strncasecmp(value, "bytes ", 6) == 0 && parse_number(value + 6, '-', &reply->from, &value) &&
        parse_number(value, '/', &last, &value) && parse_number(value, 0, &reply->total, NULL))
        reply->has_range = reply->from <= last && last < reply->total;
}

static void take_header(struct http_reply *reply, const char *name, const char *value)
{
    uint64_t number;
    if (strcasecmp(name, "content-length") == 0) {
        reply->has_length = parse_number(value, 0, &reply->length, NULL);
    } else if (strcasecmp(name, "content-range") == 0) {
        take_range(reply, value);
    } else if (strcasecmp(name, "content-encoding") == 0) {
        reply->is_encoded = strcasecmp(value, "identity") != 0;
    } else if (strcasecmp(name, "etag") == 0) {
        copy_etag(reply->etag, value);
    } else if (strcasecmp(name, "x-linked-etag") == 0 && !*reply->linked_etag) {
        copy_etag(reply->linked_etag, value);
    } else if (strcasecmp(name, "x-linked-size") == 0 && !reply->has_linked_size) {
        reply->has_linked_size = parse_number(value, 0, &reply->linked_size, NULL);
    } else if (strcasecmp(name, "x-error-message") == 0) {
        snprintf(reply->message, sizeof reply->message, "%s", value);
    } else if (strcasecmp(name, "link") == 0) {
        find_next(reply->next, value);
    } else if (strcasecmp(name, "retry-after") == 0 && parse_number(value, 0, &number, NULL)) {
        reply->retry_after = number < 86400 ? (uint32_t)number : 86400;
    }
}

/* A line of the header. Each answer, also one of a proxy, begins with its status. */
static size_t on_header(const char *data, size_t one, size_t size, void *user)
{
    struct exchange *exchange = user;
    char line[HTTP_URL + HTTP_TEXT];
    (void)one;
    if (size >= sizeof line)
        return size;
    memcpy(line, data, size);
    size_t length = size;
    while (length && isspace((unsigned char)line[length - 1]))
        length--;
    line[length] = 0;
    if (strncmp(line, "HTTP/", 5) == 0) {
        struct http_reply fresh = {
            .linked_size = exchange->reply.linked_size, .has_linked_size = exchange->reply.has_linked_size};
        memcpy(fresh.linked_etag, exchange->reply.linked_etag, sizeof fresh.linked_etag);
        const char *status = strchr(line, ' ');
        fresh.status = status ? strtol(status + 1, NULL, 10) : 0;
        exchange->reply = fresh;
        return size;
    }
    char *colon = strchr(line, ':');
    if (colon) {
        *colon = 0;
        take_header(&exchange->reply, line, colon + 1 + strspn(colon + 1, " \t"));
    }
    return size;
}

/* ---- Body ---- */

static bool begin_body(struct exchange *exchange)
{
    if (!exchange->begun)
        exchange->stopped = !exchange->request->begin(exchange->request->user, &exchange->reply);
    exchange->begun = true;
    return !exchange->stopped;
}

static size_t on_body(const char *data, size_t one, size_t size, void *user)
{
    struct exchange *exchange = user;
    (void)one;
    if (exchange->reply.status != 200 && exchange->reply.status != 206)
        return size; /* the page of an error or a redirect */
    if (!begin_body(exchange))
        return 0;
    exchange->stopped = !exchange->request->body(exchange->request->user, data, size);
    return exchange->stopped ? 0 : size;
}

/* ---- Requests ---- */

/* Certificates are found as the program curl finds them. */
static void set_certificates(const struct curl_library *curl, void *easy)
{
    const char *file = getenv("CURL_CA_BUNDLE");
    const char *folder = getenv("SSL_CERT_DIR");
    if (!file || !*file)
        file = getenv("SSL_CERT_FILE");
    if (file && *file) {
        curl->easy_setopt(easy, CURL_CA_FILE, file);
        curl->easy_setopt(easy, CURL_PROXY_CA_FILE, file);
    }
    if (folder && *folder)
        curl->easy_setopt(easy, CURL_CA_FOLDER, folder);
}

static void *add_header(const struct curl_library *curl, void *list, const char *name, const char *value)
{
    char line[HTTP_URL + HTTP_TEXT];
    snprintf(line, sizeof line, "%s: %s", name, value);
    void *longer = curl->slist_append(list, line);
    return longer ? longer : list;
}

static void *headers_of(const struct curl_library *curl, const struct http_request *request, const char *url)
{
    char text[HTTP_URL];
    void *list = add_header(curl, NULL, "Accept-Encoding", "identity");
    if (may_have_token(request, url)) {
        snprintf(text, sizeof text, "Bearer %s", request->token);
        list = add_header(curl, list, "Authorization", text);
    }
    if (request->if_range && *request->if_range && request->from) {
        snprintf(text, sizeof text, "\"%s\"", request->if_range);
        list = add_header(curl, list, "If-Range", text);
    }
    return list;
}

static enum http_result classify(const struct exchange *exchange, int code, bool connected)
{
    if (exchange->stopped)
        return HTTP_STOPPED;
    switch (code) {
    case CURL_OK:
        return HTTP_DONE;
    case CURL_NO_PROXY_ADDRESS:
    case CURL_NO_ADDRESS:
    case CURL_NO_CONNECTION:
        return HTTP_UNREACHABLE;
    case CURL_TIMED_OUT:
        return connected ? HTTP_BROKEN : HTTP_UNREACHABLE;
    case CURL_UNSUPPORTED_PROTOCOL:
    case CURL_MALFORMED_URL:
    case CURL_BAD_CERTIFICATE:
    case CURL_BAD_CA_FILE:
        return HTTP_REFUSED;
    default:
        return HTTP_BROKEN;
    }
}

/* One answer. `next` gets the target of a redirect, or "". */
static enum http_result perform(const struct curl_library *curl, struct exchange *exchange, const char *url,
    char next[HTTP_URL], char *error, size_t room)
{
    const struct http_request *request = exchange->request;
    const long timeout = request->timeout;
    char range[32], detail[CURL_ERROR_SIZE] = "";
    const char *redirect = NULL;
    void *easy = curl->easy_init(), *headers = headers_of(curl, request, url);
    next[0] = 0;
    exchange->reply.status = 0;
    if (!easy || !headers) {
        snprintf(error, room, "out of memory");
        curl->slist_free_all(headers);
        return HTTP_REFUSED;
    }
    curl->easy_setopt(easy, CURL_URL, url);
    curl->easy_setopt(easy, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
    curl->easy_setopt(easy, CURL_NO_SIGNAL, 1L);
    curl->easy_setopt(easy, CURL_ERROR_BUFFER, detail);
    curl->easy_setopt(easy, CURL_HTTP_HEADER, headers);
    curl->easy_setopt(easy, CURL_CONNECT_TIMEOUT, timeout < CONNECT_SECONDS ? timeout : CONNECT_SECONDS);
    curl->easy_setopt(easy, CURL_LOW_SPEED_LIMIT, (long)SLOWEST);
    curl->easy_setopt(easy, CURL_LOW_SPEED_TIME, timeout);
    curl->easy_setopt(easy, CURL_WRITE_FUNCTION, on_body);
    curl->easy_setopt(easy, CURL_WRITE_DATA, exchange);
    curl->easy_setopt(easy, CURL_HEADER_FUNCTION, on_header);
    curl->easy_setopt(easy, CURL_HEADER_DATA, exchange);
    char agent[64];
    snprintf(agent, sizeof agent, "salvo/%s", salvo_version());
    curl->easy_setopt(easy, CURL_USER_AGENT, agent);
    set_certificates(curl, easy);
    snprintf(range, sizeof range, "%" PRIu64 "-", request->from);
    if (request->from)
        curl->easy_setopt(easy, CURL_RANGE, range);

    const int code = curl->easy_perform(easy);
    double connected = 0; /* seconds until then; 0: never */
    curl->easy_getinfo(easy, CURL_CONNECT_TIME, &connected);
    enum http_result result = classify(exchange, code, connected > 0);
    if (code != CURL_OK)
        snprintf(error, room, "%s", *detail ? detail : curl->easy_strerror(code));
    curl->easy_getinfo(easy, CURL_REDIRECT_URL, &redirect);
    if (result == HTTP_DONE && redirect && strlen(redirect) >= HTTP_URL) {
        snprintf(error, room, "a redirect to a URL of %zu bytes", strlen(redirect));
        result = HTTP_REFUSED;
    } else if (result == HTTP_DONE && redirect) {
        snprintf(next, HTTP_URL, "%s", redirect);
    }
    curl->easy_cleanup(easy);
    curl->slist_free_all(headers);
    return result;
}

static bool is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

enum http_result http_get(
    const struct http_request *request, struct http_reply *out_reply, char error[HTTP_URL + HTTP_TEXT])
{
    enum { ROOM = HTTP_URL + HTTP_TEXT };
    const struct curl_library *curl = curl_library();
    struct exchange exchange = {.request = request};
    char url[HTTP_URL], next[HTTP_URL];
    enum http_result result = HTTP_NO_LIBRARY;
    error[0] = 0;
    *out_reply = exchange.reply;
    if (!curl)
        return result;
    if (snprintf(url, sizeof url, "%s", request->url) >= (int)sizeof url) {
        snprintf(error, ROOM, "the URL has more than %d bytes", HTTP_URL - 1);
        return HTTP_REFUSED;
    }
    for (int redirects = 0;; redirects++) {
        result = perform(curl, &exchange, url, next, error, ROOM);
        if (result != HTTP_DONE || !*next || !is_redirect(exchange.reply.status))
            break;
        if (redirects == MOST_REDIRECTS) {
            snprintf(error, ROOM, "more than %d redirects", MOST_REDIRECTS);
            result = HTTP_REFUSED;
            break;
        }
        if (strncasecmp(url, "https:", 6) == 0 && strncasecmp(next, "https:", 6) != 0) {
            snprintf(error, ROOM, "a redirect from HTTPS to %s, which is not secure", next);
            result = HTTP_REFUSED;
            break;
        }
        memcpy(url, next, sizeof url);
    }
    const bool has_body = exchange.reply.status == 200 || exchange.reply.status == 206;
    if (result == HTTP_DONE && has_body && !begin_body(&exchange))
        result = HTTP_STOPPED;
    *out_reply = exchange.reply;
    return result;
}
