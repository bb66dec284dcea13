/* The part that all endpoints of `salvo serve` share. A request with a body becomes a task. Its body is read
 * and its prompt tokenized on a worker; everything else happens on the loop of the HTTP server. A task is in
 * the server's list from its beginning to its end, and only the loop uses the list. */
#ifndef SERVER_API_SERVER_H
#define SERVER_API_SERVER_H

#include "api_model.h"
#include "api_workers.h"
#include "http.h"
#include "http_access.h"

struct api_server {
    struct http_server *http;
    struct http_access access;
    struct api_model *models;
    size_t model_count;
    struct api_workers *workers;
    struct api_task *tasks;
    bool metrics, slots, webui; /* these endpoints are on */
    bool draining;
    int64_t started;                /* seconds since 1970 */
    const char *slot_folder;        /* for files of /slots; NULL: none */
    const struct api_model *failed; /* its engine could not be opened again; ends the server */
    char request_id[32];            /* of the answer that is being written, for Anthropic's clients */
};

struct api_task {
    struct api_work work; /* first: the worker gives it back */
    struct api_server *server;
    struct http_exchange *exchange; /* NULL when the client has gone away */
    struct api_task *next, **link;
    char *body;
    size_t body_size;
    bool ok; /* of the worker */
    struct api_error error;
    /* On the loop: reads path and query for the task; may be NULL. */
    void (*begin)(struct api_task *task, const struct http_request *request);
    void (*prepare)(struct api_task *task); /* on a worker; sets `ok` or `error` */
    void (*ready)(struct api_task *task);   /* then on the loop, also if the client has gone away */
    void (*closed)(struct api_task *task);  /* the client has gone away, after `ready`; may be NULL */
    void (*destroy)(struct api_task *task);
    bool is_ready;
};

/* Takes the body and hands the task, zeroed but for its functions, to a worker. */
void api_task_start(struct api_task *task, struct api_server *server, struct http_exchange *exchange);
/* Removes the task from the list and destroys it; its exchange has ended or is NULL. */
void api_task_end(struct api_task *task);

/* ---- Answers ---- */

/* Replies with JSON of a buffer. */
void api_reply(
    struct api_server *server, struct http_exchange *exchange, int status, const struct buffer *json);
void api_reply_error(
    struct api_server *server, struct http_exchange *exchange, const struct api_error *error);
/* Fills the headers of an answer: content type, CORS, an id where Anthropic's clients want one. */
enum { API_HEADERS = 12 };
void api_headers(struct api_server *server, struct http_exchange *exchange, const char *type,
    struct http_header out[API_HEADERS]);
void api_add_header(struct http_header headers[API_HEADERS], const char *name, const char *value);

/* ---- Models ---- */

/* The model of that name that is ready; "" is the only one. NULL after an error: 404, or 503 while it is
 * loading. Any thread. */
struct api_model *api_find_model(struct api_server *server, const char *name, struct api_error *error);

/* ---- Endpoints ---- */

struct api_route;
/* Answers at once, on the loop. */
typedef void (*api_get_function)(struct api_server *server, struct http_exchange *exchange);
/* Makes a task, NULL if memory is short. */
typedef struct api_task *(*api_post_function)(const struct api_route *route);

struct api_route {
    const char *path; /* ends with '/': the rest is a name */
    api_get_function get;
    api_post_function post;
    int number; /* enum api_style, or which of several similar ones */
    bool both_forms;
};

/* The route of a path, NULL if there is none. */
const struct api_route *api_find_route(const char *path);

struct api_task *api_generation_new(const struct api_route *route);
/* api_text.c */
enum {
    API_TOKENIZE,
    API_DETOKENIZE,
    API_APPLY_TEMPLATE,
    API_COUNT_TOKENS, /* of API_ANTHROPIC */
    API_COUNT_CHAT,
    API_COUNT_RESPONSES,
    API_SHOW,
    API_RERANK /* 501 */
};
struct api_task *api_text_new(const struct api_route *route);
/* api_embeddings.c */
struct api_task *api_embeddings_new(const struct api_route *route);
/* api_info.c */
void api_get_health(struct api_server *server, struct http_exchange *exchange);
void api_get_adapters(struct api_server *server, struct http_exchange *exchange); /* LoRA: none */
void api_get_models(struct api_server *server, struct http_exchange *exchange);
void api_get_model(struct api_server *server, struct http_exchange *exchange);
void api_get_props(struct api_server *server, struct http_exchange *exchange);
void api_get_slots(struct api_server *server, struct http_exchange *exchange);
/* Replies with 200, or 503 if the writer had no memory; frees the buffer. */
void api_reply_json(struct api_server *server, struct http_exchange *exchange, const struct json_writer *json,
    struct buffer *out);
/* api_ollama_info.c */
void api_get_version(struct api_server *server, struct http_exchange *exchange);
void api_get_tags(struct api_server *server, struct http_exchange *exchange);
void api_get_running(struct api_server *server, struct http_exchange *exchange);
void api_write_show(struct json_writer *json, const struct api_model *model, bool verbose, int64_t time);
/* api_slots.c */
struct api_task *api_slots_new(const struct api_route *route);
/* Records the tokens that a request has computed; copies `ids`. */
void api_slot_note(struct api_model *model, uint32_t slot, const int32_t *prompt, size_t prompt_count,
    const int32_t *answer, size_t answer_count);
/* api_webui.c */
bool api_webui_has(const char *path);
void api_get_webui(struct api_server *server, struct http_exchange *exchange);
/* api_metrics.c */
void api_get_metrics(struct api_server *server, struct http_exchange *exchange);

/* Callbacks of the HTTP server. */
void api_check(void *user, struct http_exchange *exchange);
void api_handle(void *user, struct http_exchange *exchange);
size_t api_describe(void *user, int status, const char *reason, char *out, size_t room);

#endif
