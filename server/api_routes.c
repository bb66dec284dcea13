#include "api_embeddings.h"
#include "api_server.h"

#include <string.h>
#include <strings.h>

/* In llama.cpp /completions without /v1 is its own form; clients of OpenAI without /v1 ask there as well. */
static const struct api_route routes[] = {
    {"/health", api_get_health, NULL, 0, false},
    {"/v1/health", api_get_health, NULL, 0, false},
    {"/v1/chat/completions", NULL, api_generation_new, API_CHAT, false},
    {"/chat/completions", NULL, api_generation_new, API_CHAT, false},
    {"/v1/completions", NULL, api_generation_new, API_TEXT, false},
    {"/completions", NULL, api_generation_new, API_TEXT, true},
    {"/completion", NULL, api_generation_new, API_LLAMA, false},
    {"/infill", NULL, api_generation_new, API_INFILL, false},
    {"/v1/models", api_get_models, NULL, 0, false},
    {"/models", api_get_models, NULL, 0, false},
    {"/v1/models/", api_get_model, NULL, 0, false},
    {"/models/", api_get_model, NULL, 0, false},
    {"/v1/embeddings", NULL, api_embeddings_new, 0, false},
    {"/embeddings", NULL, api_embeddings_new, 0, false},
    {"/embedding", NULL, api_embeddings_new, API_EMBED_LLAMA, false},
    {"/tokenize", NULL, api_text_new, API_TOKENIZE, false},
    {"/detokenize", NULL, api_text_new, API_DETOKENIZE, false},
    {"/apply-template", NULL, api_text_new, API_APPLY_TEMPLATE, false},
    {"/v1/chat/completions/input_tokens", NULL, api_text_new, API_COUNT_CHAT, false},
    {"/chat/completions/input_tokens", NULL, api_text_new, API_COUNT_CHAT, false},
    {"/v1/responses/input_tokens", NULL, api_text_new, API_COUNT_RESPONSES, false},
    {"/responses/input_tokens", NULL, api_text_new, API_COUNT_RESPONSES, false},
    {"/rerank", NULL, api_text_new, API_RERANK, false},
    {"/reranking", NULL, api_text_new, API_RERANK, false},
    {"/v1/rerank", NULL, api_text_new, API_RERANK, false},
    {"/v1/reranking", NULL, api_text_new, API_RERANK, false},
    {"/lora-adapters", api_get_adapters, NULL, 0, false},
    {"/v1/messages", NULL, api_generation_new, API_ANTHROPIC, false},
    {"/v1/messages/count_tokens", NULL, api_text_new, API_COUNT_TOKENS, false},
    {"/v1/responses", NULL, api_generation_new, API_RESPONSES, false},
    {"/responses", NULL, api_generation_new, API_RESPONSES, false},
    {"/api/version", api_get_version, NULL, 0, false},
    {"/api/tags", api_get_tags, NULL, 0, false},
    {"/api/ps", api_get_running, NULL, 0, false},
    {"/api/show", NULL, api_text_new, API_SHOW, false},
    {"/api/chat", NULL, api_generation_new, API_OLLAMA_CHAT, false},
    {"/api/generate", NULL, api_generation_new, API_OLLAMA_GENERATE, false},
    {"/api/embed", NULL, api_embeddings_new, API_EMBED, false},
    {"/api/embeddings", NULL, api_embeddings_new, API_EMBED_ONE, false},
    {"/props", api_get_props, NULL, 0, false},
    {"/slots", api_get_slots, NULL, 0, false},
    {"/slots/", NULL, api_slots_new, 0, false},
    {"/metrics", api_get_metrics, NULL, 0, false},
};
/* All files of the web page, whatever their path. */
static const struct api_route webui_route = {"/", api_get_webui, NULL, 0, false};

const struct api_route *api_find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const size_t size = strlen(routes[i].path);
        const bool named = routes[i].path[size - 1] == '/';
        if (named ? strncmp(path, routes[i].path, size) == 0 && path[size]
                  : strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return api_webui_has(path) ? &webui_route : NULL;
}

/* The same, unless --no-webui leaves it out. */
static const struct api_route *served_route(const struct api_server *server, const char *path)
{
    const struct api_route *route = api_find_route(path);
    return route == &webui_route && !server->webui ? NULL : route;
}

/* The page asks for the key by itself. */
static bool needs_key(const struct api_route *route)
{
    return !route || (route->get != api_get_health && route != &webui_route);
}

static bool is_json(const char *type)
{
    static const char wanted[] = "application/json";
    const size_t size = sizeof wanted - 1;
    return type && strncasecmp(type, wanted, size) == 0 && (!type[size] || strchr("; \t", type[size]));
}

/* Without a key any page in a browser could send a request, but not of this type. */
static bool check_type(
    const struct api_server *server, const struct http_request *request, struct api_error *error)
{
    const char *type = http_request_header(request, "Content-Type");
    if (server->access.key_count || is_json(type))
        return true;
    /* Clients send no body, and then no type, to erase a slot; a browser would name its page. */
    const struct api_route *route = api_find_route(request->path);
    if (route && route->post == api_slots_new && !type && !http_request_header(request, "Origin"))
        return true;
    return api_fail(error, 415, NULL, "Content-Type: expected application/json");
}

static bool check(
    const struct api_server *server, const struct http_request *request, struct api_error *error)
{
    const struct api_route *route = served_route(server, request->path);
    const char *message = "";
    const bool is_get = strcmp(request->method, "GET") == 0, is_post = strcmp(request->method, "POST") == 0;
    const int status = http_access_check(&server->access, request, needs_key(route), &message);
    if (status)
        return api_fail(error, status, NULL, "%s", message);
    if (strcmp(request->method, "OPTIONS") == 0)
        return true;
    if (!route)
        return api_fail(error, 404, NULL, "there is nothing at %.200s", request->path);
    if (!(is_get && route->get) && !(is_post && route->post)) {
        api_fail(error, 405, NULL, "%.200s does not answer %.20s", request->path, request->method);
        error->allow = route->get && route->post ? "GET, HEAD, POST, OPTIONS"
                       : route->get              ? "GET, HEAD, OPTIONS"
                                                 : "POST, OPTIONS";
        return false;
    }
    return !is_post || check_type(server, request, error);
}

void api_check(void *user, struct http_exchange *exchange)
{
    struct api_server *server = user;
    struct api_error error;
    if (!check(server, http_exchange_request(exchange), &error))
        api_reply_error(server, exchange, &error);
}

void api_handle(void *user, struct http_exchange *exchange)
{
    struct api_server *server = user;
    const struct http_request *request = http_exchange_request(exchange);
    const struct api_route *route = api_find_route(request->path);
    struct api_error error;
    if (strcmp(request->method, "OPTIONS") == 0) {
        struct http_header headers[API_HEADERS];
        api_headers(server, exchange, "text/plain", headers);
        http_reply(exchange, 200, headers, "", 0);
        return;
    }
    if (!check(server, request, &error)) {
        api_reply_error(server, exchange, &error);
        return;
    }
    if (strcmp(request->method, "GET") == 0) {
        route->get(server, exchange);
        return;
    }
    struct api_task *task = route->post(route);
    if (task) {
        api_task_start(task, server, exchange);
        return;
    }
    api_fail(&error, 503, NULL, "not enough memory for the request");
    api_reply_error(server, exchange, &error);
}
