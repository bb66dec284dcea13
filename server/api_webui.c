/* The web page: files of server/webui, which the build writes to webui_files.h. */
#include "api_server.h"

#include <string.h>

struct webui_file {
    const char *path, *type, *etag;
    const unsigned char *data;
    size_t size;
};

#include "webui_files.h"

static const struct webui_file *find(const char *path)
{
    for (size_t i = 0; i < sizeof webui_files / sizeof *webui_files; i++) {
        if (strcmp(webui_files[i].path, path) == 0)
            return &webui_files[i];
    }
    return NULL;
}

bool api_webui_has(const char *path)
{
    return find(path) != NULL;
}

void api_get_webui(struct api_server *server, struct http_exchange *exchange)
{
    const struct http_request *request = http_exchange_request(exchange);
    const struct webui_file *file = find(request->path);
    const char *known = http_request_header(request, "If-None-Match");
    const struct http_header headers[] = {
        {"Content-Type", file->type},
        /* Nothing but the files and endpoints of this server, and no code from text. */
        {"Content-Security-Policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
            "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-cache"}, /* a browser keeps the file and asks whether its ETag is current */
        {"ETag", file->etag},
        {NULL, NULL},
    };
    (void)server;
    /* The ETag has its quotes, so it is found in a list and behind W/. */
    if (known && (strcmp(known, "*") == 0 || strstr(known, file->etag)))
        http_reply(exchange, 304, headers, "", 0);
    else
        http_reply(exchange, 200, headers, file->data, file->size);
}
