#include "http_access.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { HOST_ROOM = 256 };

bool http_access_equal(const char *given, const char *secret)
{
    const size_t given_size = strlen(given), secret_size = strlen(secret);
    /* Volatile: the compiler must not leave the loop at the first difference. */
    volatile unsigned char difference = given_size != secret_size || !secret_size;
    for (size_t i = 0; i < given_size; i++) {
        const unsigned char expected = (unsigned char)secret[secret_size ? i % secret_size : 0];
        difference = (unsigned char)(difference | (expected ^ (unsigned char)given[i]));
    }
    return difference == 0;
}

static const char *given_key(const struct http_request *request)
{
    const char *bearer = http_request_header(request, "Authorization");
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
        return bearer + 7 + strspn(bearer + 7, " ");
    return http_request_header(request, "X-Api-Key");
}

static bool key_is_right(const struct http_access *access, const char *key)
{
    bool right = false;
    for (size_t i = 0; i < access->key_count; i++) /* all of them: the time does not tell which one */
        right = http_access_equal(key, access->keys[i]) || right;
    return right;
}

/* "name", "name:port" and "[address]:port" without brackets, port and a final dot. False if it is malformed.
 */
static bool host_name(const char *host, char *out)
{
    const char *end = NULL;
    if (*host == '[') {
        host++;
        end = strchr(host, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
    } else {
        end = host + strcspn(host, ":");
    }
    if (*end) {
        const char *port = *end == ']' ? end + 1 : end;
        if (*port == ':' && port[1 + strspn(port + 1, "0123456789")])
            return false;
    }
    size_t size = (size_t)(end - host);
    if (size && host[size - 1] == '.')
        size--;
    if (!size || size >= HOST_ROOM)
        return false;
    memcpy(out, host, size);
    out[size] = 0;
    return true;
}

static bool is_loopback(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    const size_t size = strlen(name), suffix = strlen(".localhost");
    if (strcasecmp(name, "localhost") == 0 ||
        (size > suffix && strcasecmp(name + size - suffix, ".localhost") == 0))
        return true;
    if (inet_pton(AF_INET, name, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &six) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}

static bool is_address(const char *name)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

/*
 * A page of another site can reach a server on this machine by a host name that resolves to this machine (DNS
 * rebinding). The Host of such a request is the name of that site. An IP address cannot be used this way, so
 * a server that listens on all addresses accepts any address.
 */
static bool host_is_right(const struct http_access *access, const struct http_request *request)
{
    char name[HOST_ROOM], own[HOST_ROOM];
    if (access->any_host)
        return true;
    if (!*request->host && !http_request_header(request, "Host")) /* no browser speaks HTTP/1.0 */
        return true;
    if (!host_name(request->host, name))
        return false;
    if (is_loopback(name))
        return true;
    if (!access->host || !*access->host)
        return false;
    if (strcmp(access->host, "0.0.0.0") == 0 || strcmp(access->host, "::") == 0)
        return is_address(name);
    if (strcasecmp(name, access->host) == 0)
        return true;
    struct in6_addr left, right; /* an address of IPv6 has many forms */
    return (inet_pton(AF_INET6, name, &left) == 1 && inet_pton(AF_INET6, access->host, &right) == 1 &&
               memcmp(&left, &right, sizeof left) == 0) ||
           (host_name(access->host, own) && strcasecmp(name, own) == 0);
}

int http_access_check(const struct http_access *access, const struct http_request *request, bool needs_key,
    const char **out_message)
{
    *out_message = "";
    if (access->key_count == 0) {
        if (host_is_right(access, request))
            return 0;
        *out_message = "this Host is not served: it is neither loopback nor the server's --host";
        return 403;
    }
    if (!needs_key || strcmp(request->method, "OPTIONS") == 0)
        return 0;
    const char *key = given_key(request);
    if (key && key_is_right(access, key))
        return 0;
    *out_message = key ? "the API key is wrong" : "an API key is missing: Authorization: Bearer KEY";
    return 401;
}

static bool origin_allowed(const char *origins, const char *origin)
{
    const size_t size = strlen(origin);
    while (*origins) {
        origins += strspn(origins, " ,");
        const size_t length = strcspn(origins, " ,");
        if (length == size && strncasecmp(origins, origin, size) == 0)
            return true;
        origins += length;
    }
    return false;
}

static void append(struct http_header *headers, size_t room, const char *name, const char *value)
{
    size_t count = 0;
    while (headers[count].name)
        count++;
    if (count + 1 >= room)
        return;
    headers[count] = (struct http_header){name, value};
    headers[count + 1] = (struct http_header){NULL, NULL};
}

void http_access_cors(const struct http_access *access, const struct http_request *request,
    struct http_header *headers, size_t room)
{
    const char *origin = http_request_header(request, "Origin");
    if (!access->cors_origins || !*access->cors_origins)
        return;
    const bool any = strcmp(access->cors_origins, "*") == 0;
    if (!any) /* also for other origins: caches store an answer for each origin */
        append(headers, room, "Vary", "Origin");
    if (!origin || (!any && !origin_allowed(access->cors_origins, origin)))
        return;
    append(headers, room, "Access-Control-Allow-Origin", any ? "*" : origin);
    if (strcmp(request->method, "OPTIONS") != 0)
        return;
    const char *asked = http_request_header(request, "Access-Control-Request-Headers");
    append(headers, room, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    append(headers, room, "Access-Control-Allow-Headers", asked ? asked : "Authorization, Content-Type");
    append(headers, room, "Access-Control-Max-Age", "600");
}
