#include "serve.h"

#include "api_server.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 2 };

struct serving {
    struct api_server api; /* first */
    const struct serve_options *options;
    struct http_timer *timer;
    unsigned signals;
    bool draining; /* no further connections */
    pthread_t loader;
    bool has_loader;
    atomic_bool loaded; /* the loader has ended */
    const struct api_model *failed;
};

/* ---- Models ---- */

static void note_failure(void *argument)
{
    struct serving *serving = argument;
    http_server_stop(serving->api.http);
}

static void *load_models(void *argument)
{
    struct serving *serving = argument;
    for (size_t i = 0; i < serving->api.model_count; i++) {
        struct api_model *model = &serving->api.models[i];
        api_model_load(model);
        if (atomic_load(&model->state) == API_MODEL_FAILED) {
            serving->failed = model;
            break;
        }
        if (!serving->options->quiet)
            fprintf(stderr, "%s is ready\n", model->id);
    }
    atomic_store(&serving->loaded, true);
    if (serving->failed)
        (void)http_post(serving->api.http, note_failure, serving);
    return NULL;
}

/* The option's template; for a model without one ChatML, as in llama-server; otherwise none: the model's own.
 */
static struct salvo_text choose_template(const struct api_model *model, const struct serve_options *options)
{
    static const char chatml[] =
        "{%- for message in messages -%}"
        "{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' -}}"
        "{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}";
    const struct salvo_text given = {options->template_text, options->template_size};
    const bool named = given.size == strlen("chatml") && memcmp(given.data, "chatml", given.size) == 0;
    if (!named && (given.data || salvo_model_info(model->model)->has_chat_template))
        return given;
    if (!named && !options->quiet)
        fprintf(stderr, "%s has no chat template: chats are written as ChatML\n", model->id);
    return (struct salvo_text){chatml, sizeof chatml - 1};
}

static bool open_models(struct serving *serving, char *error, size_t room)
{
    const struct serve_options *options = serving->options;
    serving->api.models = calloc(options->model_count, sizeof *serving->api.models);
    if (!serving->api.models) {
        snprintf(error, room, "out of memory");
        return false;
    }
    for (size_t i = 0; i < options->model_count; i++) {
        struct api_model *model = &serving->api.models[serving->api.model_count++];
        model->id = options->models[i].id;
        model->model = options->models[i].model;
        model->options = &options->engine;
        model->defaults = (struct api_defaults){.sampler = options->models[i].sampler,
            .max_tokens = options->max_tokens,
            .verbose = options->verbose};
        model->template_text = choose_template(model, options);
        atomic_init(&model->state, API_MODEL_LOADING);
        if (salvo_template_open(model->model, model->template_text.data, model->template_text.size,
                &model->chat) != SALVO_OK ||
            salvo_tool_form_open(model->chat, &model->form) != SALVO_OK) {
            snprintf(error, room, "%s: %s", model->id, salvo_error());
            return false;
        }
    }
    return true;
}

/* ---- The end ---- */

static void stop_now(void *argument)
{
    struct serving *serving = argument;
    http_server_stop(serving->api.http);
}

/* Running requests may end. */
static void begin_drain(void *argument)
{
    struct serving *serving = argument;
    http_timer_free(serving->timer);
    serving->timer = http_timer_new(serving->api.http, stop_now, serving);
    if (!serving->timer || serving->options->drain == 0) {
        http_server_stop(serving->api.http);
        return;
    }
    http_timer_start(serving->timer, serving->options->drain * 1000);
    http_server_drain(serving->api.http);
}

/* The first signal makes /health tell that the server is leaving, so that others send no more requests. */
static void on_signal(void *argument, int number)
{
    struct serving *serving = argument;
    (void)number;
    serving->api.draining = true;
    if (serving->signals++) {
        http_server_stop(serving->api.http);
        return;
    }
    if (serving->options->drain_delay == 0) {
        begin_drain(serving);
        return;
    }
    serving->timer = http_timer_new(serving->api.http, begin_drain, serving);
    if (serving->timer)
        http_timer_start(serving->timer, serving->options->drain_delay * 1000);
    else
        begin_drain(serving);
}

/* ---- The beginning ---- */

static bool open_http(struct serving *serving, char *error, size_t room)
{
    const struct serve_options *options = serving->options;
    const struct http_options http = {
        .host = options->host,
        .port = options->port,
        .second_port = options->second_port,
        .unix_socket = options->unix_socket,
        .systemd = true,
        .tls_key_file = options->tls_key_file,
        .tls_cert_file = options->tls_cert_file,
        .body_limit = options->body_limit,
        .body_ms = options->timeout * 1000,
        .write_ms = options->timeout * 1000,
        .user = &serving->api,
        .check = api_check,
        .handle = api_handle,
        .describe = api_describe,
        .describe_type = "application/json; charset=utf-8",
    };
    /* A signal between the two would leave a Unix socket behind. */
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    serving->api.http = http_server_open(&http, error, room);
    const bool handled = serving->api.http && http_signal(serving->api.http, SIGTERM, on_signal, serving) &&
                         http_signal(serving->api.http, SIGINT, on_signal, serving);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (serving->api.http && !handled)
        snprintf(error, room, "cannot handle signals");
    return handled;
}

static bool start_threads(struct serving *serving, char *error, size_t room)
{
    sigset_t all, before;
    serving->api.workers = api_workers_open(WORKERS);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    serving->has_loader =
        serving->api.workers && pthread_create(&serving->loader, NULL, load_models, serving) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!serving->has_loader)
        snprintf(error, room, "cannot start a thread");
    return serving->has_loader;
}

static void announce(const struct serving *serving)
{
    const struct serve_options *options = serving->options;
    char address[1024];
    if (options->unix_socket)
        snprintf(address, sizeof address, "unix:%s", options->unix_socket);
    else
        snprintf(address, sizeof address, "%s://%s:%d", options->tls_key_file ? "https" : "http",
            options->host ? options->host : "127.0.0.1", http_server_port(serving->api.http));
    fprintf(stderr, "listening on %s\n", address);
    if (options->second_port)
        fprintf(stderr, "also on port %d\n", options->second_port);
    if (options->listening)
        options->listening(options->user, address);
}

/* Threads end before the objects that they use. */
static void close_all(struct serving *serving)
{
    struct api_server *api = &serving->api;
    bool opening = serving->has_loader && !atomic_load(&serving->loaded);
    for (size_t i = 0; i < api->model_count; i++)
        opening |= api->models[i].has_opener;
    if (opening)
        _exit(0); /* opening a model cannot be interrupted, and nothing is left to do */
    if (serving->has_loader)
        pthread_join(serving->loader, NULL);
    api_workers_close(api->workers);
    for (size_t i = 0; i < api->model_count; i++)
        api_model_close(&api->models[i]);
    if (serving->timer)
        http_timer_free(serving->timer);
    if (api->http)
        http_server_close(api->http);
    while (api->tasks)
        api_task_end(api->tasks);
    for (size_t i = 0; i < api->model_count; i++) {
        salvo_tool_form_close(api->models[i].form);
        salvo_template_close(api->models[i].chat);
    }
    free(api->models);
}

bool serve(const struct serve_options *options, char *error, size_t room)
{
    struct serving serving = {
        .options = options,
        .api = {.access = {.keys = options->keys,
                    .key_count = options->key_count,
                    .host = options->host,
                    .any_host = options->unix_socket != NULL,
                    .cors_origins = options->cors_origins},
            .metrics = options->metrics,
            .slots = !options->no_slots,
            .webui = !options->no_webui,
            .slot_folder = options->slot_folder,
            .started = (int64_t)time(NULL)},
    };
    bool ok = open_models(&serving, error, room) && open_http(&serving, error, room) &&
              start_threads(&serving, error, room);
    if (ok) {
        announce(&serving);
        http_server_run(serving.api.http);
        if (atomic_load(&serving.loaded) && serving.failed) {
            snprintf(error, room, "%s: %s", serving.failed->id, serving.failed->message);
            ok = false;
        } else if (serving.api.failed) {
            snprintf(error, room, "%s: the device has failed: %s", serving.api.failed->id,
                serving.api.failed->message);
            ok = false;
        }
    }
    close_all(&serving);
    return ok;
}
