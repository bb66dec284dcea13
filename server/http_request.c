#include "http_request.h"

#include <string.h>
#include <strings.h>

const char *http_request_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcasecmp(request->headers[i].name, name) == 0)
            return request->headers[i].value;
    }
    return NULL;
}

int http_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool http_decode_percent(char *text)
{
    char *out = text;
    for (const char *c = text; *c; c++) {
        if (*c == '%') {
            const int high = http_hex_digit(c[1]), low = high < 0 ? -1 : http_hex_digit(c[2]);
            if (low < 0 || high * 16 + low == 0)
                return false;
            *out++ = (char)(high * 16 + low);
            c += 2;
        } else {
            *out++ = *c;
        }
    }
    *out = 0;
    return true;
}

bool http_request_query(const struct http_request *request, const char *name, char *out, size_t room)
{
    const size_t name_size = strlen(name);
    const char *member = request->query;
    while (*member) {
        const size_t size = strcspn(member, "&");
        if (size >= name_size && memcmp(member, name, name_size) == 0 &&
            (size == name_size || member[name_size] == '=')) {
            const size_t skipped = size == name_size ? size : name_size + 1;
            if (size - skipped >= room)
                return false;
            memcpy(out, member + skipped, size - skipped);
            out[size - skipped] = 0;
            for (char *c = out; *c; c++) {
                if (*c == '+')
                    *c = ' ';
            }
            return http_decode_percent(out);
        }
        member += size + (member[size] == '&');
    }
    return false;
}
