#include "api_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- Tasks ---- */

static void task_ready(void *argument)
{
    struct api_task *task = argument;
    task->is_ready = true;
    task->ready(task);
}

static void task_work(struct api_work *work)
{
    struct api_task *task = (struct api_task *)(void *)work;
    task->prepare(task);
    free(task->body);
    task->body = NULL;
    /* If the loop has ended, the task stays in the list and is destroyed with it. */
    (void)http_post(task->server->http, task_ready, task);
}

static void task_closed(void *argument)
{
    struct api_task *task = argument;
    task->exchange = NULL;
    if (task->is_ready && task->closed)
        task->closed(task);
}

void api_task_start(struct api_task *task, struct api_server *server, struct http_exchange *exchange)
{
    task->work.run = task_work;
    task->server = server;
    task->exchange = exchange;
    task->next = server->tasks;
    task->link = &server->tasks;
    if (task->next)
        task->next->link = &task->next;
    server->tasks = task;
    task->body = http_take_body(exchange, &task->body_size);
    if (task->begin)
        task->begin(task, http_exchange_request(exchange));
    http_on_close(exchange, task_closed, task);
    api_workers_add(server->workers, &task->work);
}

void api_task_end(struct api_task *task)
{
    *task->link = task->next;
    if (task->next)
        task->next->link = task->link;
    free(task->body);
    task->destroy(task);
}

/* ---- Answers ---- */

void api_add_header(struct http_header headers[API_HEADERS], const char *name, const char *value)
{
    size_t count = 0;
    while (headers[count].name)
        count++;
    if (count + 1 >= API_HEADERS)
        return;
    headers[count] = (struct http_header){name, value};
    headers[count + 1] = (struct http_header){NULL, NULL};
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_anthropic(const struct http_exchange *exchange)
{
    return has_prefix(http_exchange_request(exchange)->path, "/v1/messages");
}

static bool is_ollama(const struct http_exchange *exchange)
{
    return has_prefix(http_exchange_request(exchange)->path, "/api/");
}

void api_headers(struct api_server *server, struct http_exchange *exchange, const char *type,
    struct http_header out[API_HEADERS])
{
    out[0] = (struct http_header){"Content-Type", type};
    out[1] = (struct http_header){NULL, NULL};
    http_access_cors(&server->access, http_exchange_request(exchange), out, API_HEADERS);
    if (is_anthropic(exchange)) {
        uint64_t random = 0;
        (void)getrandom(&random, sizeof random, 0); /* a name, no secret */
        snprintf(server->request_id, sizeof server->request_id, "req_%016" PRIx64, random);
        api_add_header(out, "request-id", server->request_id);
    }
}

void api_reply(
    struct api_server *server, struct http_exchange *exchange, int status, const struct buffer *json)
{
    struct http_header headers[API_HEADERS];
    api_headers(server, exchange, "application/json; charset=utf-8", headers);
    http_reply(exchange, status, headers, json->data, json->size);
}

void api_reply_error(struct api_server *server, struct http_exchange *exchange, const struct api_error *error)
{
    static const char out_of_memory[] = "{\"error\":{\"code\":503,\"message\":\"not enough memory\","
                                        "\"type\":\"unavailable_error\",\"param\":null}}";
    struct http_header headers[API_HEADERS];
    struct buffer buffer = {0};
    struct json_writer json = api_json(&buffer);
    char retry[16];
    api_headers(server, exchange, "application/json; charset=utf-8", headers);
    if (is_anthropic(exchange))
        api_write_anthropic_error(&json, error, server->request_id);
    else if (is_ollama(exchange))
        api_write_ollama_error(&json, error);
    else
        api_write_error(&json, error);
    snprintf(retry, sizeof retry, "%u", error->retry_after);
    if (error->retry_after)
        api_add_header(headers, "Retry-After", retry);
    if (error->status == 401)
        api_add_header(headers, "WWW-Authenticate", "Bearer");
    if (error->allow)
        api_add_header(headers, "Allow", error->allow);
    if (json.status == SALVO_OK)
        http_reply(exchange, error->status, headers, buffer.data, buffer.size);
    else
        http_reply(exchange, 503, headers, out_of_memory, sizeof out_of_memory - 1);
    buffer_free(&buffer);
}

size_t api_describe(void *user, int status, const char *reason, char *out, size_t room)
{
    struct buffer buffer = {0};
    struct json_writer json = api_json(&buffer);
    struct api_error error;
    size_t size = 0;
    (void)user;
    api_fail(&error, status, NULL, "%s", reason);
    api_write_error(&json, &error);
    if (json.status == SALVO_OK && buffer.size <= room) {
        memcpy(out, buffer.data, buffer.size);
        size = buffer.size;
    }
    buffer_free(&buffer);
    return size;
}

/* ---- Models ---- */

static struct api_model *ready_model(struct api_model *model, struct api_error *error)
{
    if (atomic_load(&model->state) == API_MODEL_READY)
        return model;
    if (atomic_load(&model->state) == API_MODEL_FAILED) {
        api_fail(error, 503, NULL, "the model cannot be loaded: %s", model->message);
        error->retry_after = 10;
        return NULL;
    }
    const unsigned long long done = atomic_load(&model->loaded), total = atomic_load(&model->to_load);
    api_fail(error, 503, NULL, "Loading model: %d %%", total ? (int)(done * 100 / total) : 0);
    error->retry_after = 1;
    return NULL;
}

/* Ollama's clients add ":latest" to a name. */
static bool is_named(const char *id, const char *name)
{
    const size_t size = strlen(id);
    return strncmp(name, id, size) == 0 && (!name[size] || strcmp(name + size, ":latest") == 0);
}

struct api_model *api_find_model(struct api_server *server, const char *name, struct api_error *error)
{
    if (server->model_count == 1)
        return ready_model(&server->models[0], error);
    for (size_t i = 0; i < server->model_count; i++) {
        if (is_named(server->models[i].id, name))
            return ready_model(&server->models[i], error);
    }
    if (!*name)
        api_fail(error, 400, "model", "'model': expected the name of a model; /v1/models lists them");
    else
        api_fail(error, 404, "model", "'model': there is no model '%.100s'; /v1/models lists them", name);
    return NULL;
}
