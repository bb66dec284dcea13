#include "http_answer.h"

#include <event2/buffer.h>
#include <string.h>
#include <time.h>

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].status == status)
            return table[i].text;
    }
    return "Status";
}

bool http_status_has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

/* A line break in a value would begin another header. */
static bool is_safe(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return false;
    }
    return true;
}

/* The text of this second, in English whatever the locale is. */
static const char *date_text(char *out, size_t room)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    char form[40] = "???, %d ??? %Y %H:%M:%S GMT";
    memcpy(form, days + (ptrdiff_t)3 * parts.tm_wday, 3);
    memcpy(form + 8, months + (ptrdiff_t)3 * parts.tm_mon, 3);
    strftime(out, room, form, &parts);
    return out;
}

bool http_answer_head(struct evbuffer *out, const struct http_answer *answer)
{
    char date[64];
    bool good = evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: salvo\r\n", answer->status,
                    http_status_text(answer->status), date_text(date, sizeof date)) >= 0;
    for (const struct http_header *header = answer->headers; header && header->name; header++) {
        if (header->value && is_safe(header->name) && is_safe(header->value))
            good = evbuffer_add_printf(out, "%s: %s\r\n", header->name, header->value) >= 0 && good;
    }
    if (answer->chunked)
        good = evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n") >= 0 && good;
    if (answer->sized && http_status_has_body(answer->status))
        good = evbuffer_add_printf(out, "Content-Length: %zu\r\n", answer->size) >= 0 && good;
    if (!answer->keep_alive)
        good = evbuffer_add_printf(out, "Connection: close\r\n") >= 0 && good;
    else if (answer->old_client)
        good = evbuffer_add_printf(out, "Connection: keep-alive\r\n") >= 0 && good;
    return evbuffer_add(out, "\r\n", 2) == 0 && good;
}
