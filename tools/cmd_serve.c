#include "commands.h"
#include "engine_flags.h"
#include "input.h"
#include "models.h"
#include "running.h"
#include "sampler_flags.h"
#include "server/serve.h"

#include <salvo/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_KEYS = 256, DEFAULT_PARALLEL = 4, OLLAMA_PORT = 11434 };

static struct {
    struct text_list models, aliases, keys;
    const char *host, *unix_socket, *key_file, *tls_key, *tls_cert, *cors, *template_text, *template_file,
        *slot_folder;
    uint32_t port, parallel, tokens, timeout, drain_delay, drain, body_limit;
    bool metrics, slots, no_slots, no_webui, ollama, verbose;
} options = {.port = 8080, .tokens = UINT32_MAX, .drain = 30};

static const uint32_t no_limit = UINT32_MAX;

static const struct option option_table[] = {
    {'m', "model", "FILE", OPTION_TEXTS, &options.models,
        "model file, or a name from `salvo list`; several models: once for each, and requests name one"},
    {'a', "alias", "NAME", OPTION_TEXTS, &options.aliases,
        "name of a model for requests, in the order of the models (default: its file's name)"},
    {0, "host", "ADDRESS", OPTION_TEXT, &options.host,
        "address to listen on, or the path of a Unix socket (default: 127.0.0.1)"},
    {0, "port", "N", OPTION_NUMBER, &options.port, "port to listen on; 0: any free one (default: 8080)"},
    {0, "ollama", NULL, OPTION_FLAG, &options.ollama, "listen on Ollama's port as well, 11434"},
    {0, "unix-socket", "PATH", OPTION_FILE, &options.unix_socket, "listen on a Unix socket"},
    {0, "parallel", "N", OPTION_COUNT, &options.parallel,
        "requests that are computed at once; others wait (default: 4)", .also = "-np --n-parallel"},
    CONTEXT_OPTION("context size of each request, in tokens; in llama-server all requests share this number "
                   "(default: the model's, at most 8192; recurrent models: no such limit)"),
    {'n', "n-predict", "N", OPTION_NUMBER, &options.tokens,
        "default and upper limit of the tokens of an answer; -1: none (default)",
        .also = "--predict --tokens", .minus_one = &no_limit},
    {0, "api-key", "KEY", OPTION_TEXTS, &options.keys, "key that requests must have; repeatable"},
    {0, "api-key-file", "FILE", OPTION_FILE, &options.key_file, "file with a key on each line"},
    {0, "cors-origins", "LIST", OPTION_TEXT, &options.cors,
        "web pages that may ask: origins with commas between, or * (default: none)"},
    {0, "ssl-key-file", "FILE", OPTION_FILE, &options.tls_key, "private key for HTTPS, PEM"},
    {0, "ssl-cert-file", "FILE", OPTION_FILE, &options.tls_cert, "certificate for HTTPS, PEM"},
    {0, "chat-template", "TEXT", OPTION_TEXT, &options.template_text,
        "chat template, in Jinja, to use instead of the models' own, or chatml, which models without one "
        "have"},
    {0, "chat-template-file", "FILE", OPTION_FILE, &options.template_file, "file with such a template"},
    {0, "metrics", NULL, OPTION_FLAG, &options.metrics, "answer /metrics, for Prometheus"},
    {0, "slots", NULL, OPTION_FLAG, &options.slots, "answer /slots (default)"},
    {0, "no-slots", NULL, OPTION_FLAG, &options.no_slots, "do not answer /slots"},
    {0, "no-webui", NULL, OPTION_FLAG, &options.no_webui, "leave out the web page at /", .also = "--no-ui"},
    {0, "slot-save-path", "FOLDER", OPTION_FILE, &options.slot_folder,
        "where /slots saves and restores prompts (default: it does not)"},
    {0, "timeout", "SECONDS", OPTION_NUMBER, &options.timeout,
        "silence of a client after which its connection is closed (default: 60 in a request, 600 in an "
        "answer)",
        .also = "-to"},
    {0, "body-limit", "MB", OPTION_COUNT, &options.body_limit, "largest body of a request (default: 16)"},
    {0, "drain-delay", "SECONDS", OPTION_NUMBER, &options.drain_delay,
        "after SIGTERM, go on accepting for so long while /health tells 503 (default: 0)"},
    {0, "drain", "SECONDS", OPTION_NUMBER, &options.drain,
        "then wait so long for running requests (default: 30)"},
    {0, "jinja", NULL, OPTION_ALWAYS, NULL, "always on, as are these options of llama.cpp",
        .also =
            "-cb --cont-batching --no-context-shift --no-warmup --embedding --embeddings -kvu --kv-unified"},
    {0, "no-jinja", NULL, OPTION_ALWAYS, NULL,
        "of llama.cpp, without effect: chat templates are Jinja in any case"},
    {0, "reasoning-format", "deepseek", OPTION_ALWAYS, NULL,
        "only deepseek or auto: reasoning parts of chats are `reasoning_content`",
        .choices = "deepseek auto"},
    {'v', "verbose", NULL, OPTION_FLAG, &options.verbose,
        "answers of chats have a member `__verbose` with the prompt and the answer as /completion writes "
        "them"},
    {0},
};

struct model_list {
    struct serve_model items[sizeof options.models.items / sizeof *options.models.items];
    char *names[sizeof options.models.items / sizeof *options.models.items];
    size_t count;
};

/* The file's name without folder and ending. */
static char *name_of(const struct salvo_model *model)
{
    const char *path = salvo_model_info(model)->path, *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path);
    char *ending = name ? strrchr(name, '.') : NULL;
    if (ending && strcasecmp(ending, ".gguf") == 0)
        *ending = 0;
    return name;
}

static int open_models(struct model_list *list)
{
    const size_t count = options.models.count ? options.models.count : 1;
    for (size_t i = 0; i < count; i++) {
        struct serve_model *item = &list->items[i];
        int result = open_model(options.models.count ? options.models.items[i] : NULL, &item->model);
        if (result != EXIT_DONE)
            return result;
        list->names[i] = name_of(item->model);
        list->count = i + 1;
        if (!list->names[i])
            return failure("out of memory");
        item->id = i < options.aliases.count ? options.aliases.items[i] : list->names[i];
        item->sampler = sampler_default_from_flags(item->model);
        result = check_gpu_layers(item->model);
        for (size_t k = 0; k < i && result == EXIT_DONE; k++) {
            if (strcmp(list->items[k].id, item->id) == 0)
                result =
                    usage_error("serve: two models have the name '%s'; --alias gives other names", item->id);
        }
        if (result != EXIT_DONE)
            return result;
    }
    return EXIT_DONE;
}

static void close_models(struct model_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        salvo_model_close(list->items[i].model);
        free(list->names[i]);
    }
}

/* Adds the lines of the key file, which stay in `text`. */
static int read_keys(struct input *text, const char *keys[MOST_KEYS], size_t *count)
{
    for (size_t i = 0; i < options.keys.count; i++)
        keys[(*count)++] = options.keys.items[i];
    if (options.key_file) {
        char *rest = NULL;
        if (input_read(NULL, options.key_file, text) != EXIT_DONE)
            return EXIT_FAILED;
        char *end = realloc(text->data, text->size + 1);
        if (!end)
            return failure("out of memory");
        text->data = end;
        text->data[text->size] = 0;
        for (char *line = strtok_r(text->data, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
            if (*count == MOST_KEYS)
                return usage_error("serve: more than %d keys", (int)MOST_KEYS);
            keys[(*count)++] = line;
        }
        if (*count == options.keys.count)
            return usage_error("serve: %s has no key", options.key_file);
    }
    for (size_t i = 0; i < *count; i++) {
        if (!*keys[i])
            return usage_error("serve: --api-key is empty");
    }
    return EXIT_DONE;
}

static int check_options(int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        if (options.models.count == sizeof options.models.items / sizeof *options.models.items)
            return usage_error("serve: too many models");
        options.models.items[options.models.count++] = arguments[i];
    }
    if (options.port > 65535)
        return usage_error("invalid --port %u: expected 0 to 65535", options.port);
    if (!options.tls_key != !options.tls_cert)
        return usage_error("serve: --ssl-key-file and --ssl-cert-file belong together");
    if (options.slots && options.no_slots)
        return usage_error("serve: --slots and --no-slots cannot be combined");
    if (options.template_text && options.template_file)
        return usage_error("serve: --chat-template and --chat-template-file cannot be combined");
    if (options.template_text && !strchr(options.template_text, '{') &&
        strcmp(options.template_text, "chatml") != 0) {
        return usage_error(
            "invalid --chat-template '%s': expected a template in Jinja, or chatml, the only one with a name",
            options.template_text);
    }
    if (sampler_flags_have_bias())
        return usage_error("serve: --logit-bias is not supported; requests have their own");
    if (options.aliases.count > (options.models.count ? options.models.count : 1))
        return usage_error("serve: more names (--alias) than models");
    if (options.timeout > 1000000 || options.drain > 1000000 || options.drain_delay > 1000000 ||
        options.body_limit > 1000000)
        return usage_error("serve: --timeout, --drain, --drain-delay and --body-limit are at most 1000000");
    if (options.host && strchr(options.host, '/')) {
        options.unix_socket = options.host;
        options.host = NULL;
    }
    return EXIT_DONE;
}

#ifdef SALVO_SERVER
/* Notes the server for `salvo ps`. */
static void note_listening(void *user, const char *address)
{
    const struct model_list *models = user;
    char names[RUNNING_TEXT];
    size_t used = 0;
    names[0] = 0;
    for (size_t i = 0; i < models->count && used < sizeof names; i++)
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", models->items[i].id);
    running_begin(address, names);
}

static int run_server(struct model_list *models, const struct salvo_engine_options *engine,
    const struct input *chat, const char *const *keys, size_t key_count)
{
    char error[512] = "";
    struct serve_options own = {
        .models = models->items,
        .model_count = models->count,
        .engine = *engine,
        .max_tokens = options.tokens == UINT32_MAX ? -1 : (int64_t)options.tokens,
        .template_text = chat->data,
        .template_size = chat->size,
        .host = options.host,
        .port = (int)options.port,
        .second_port = options.ollama ? OLLAMA_PORT : 0,
        .unix_socket = options.unix_socket,
        .tls_key_file = options.tls_key,
        .tls_cert_file = options.tls_cert,
        .body_limit = (size_t)options.body_limit << 20,
        .timeout = options.timeout,
        .keys = keys,
        .key_count = key_count,
        .cors_origins = options.cors,
        .slot_folder = options.slot_folder,
        .metrics = options.metrics,
        .no_slots = options.no_slots,
        .no_webui = options.no_webui,
        .verbose = options.verbose,
        .quiet = output_flags.quiet,
        .drain_delay = options.drain_delay,
        .drain = options.drain,
        .listening = note_listening,
        .user = models,
    };
    own.engine.prefix_cache = 1;
    /* The prompt cache may have all memory that is left. Several models would have to share it. */
    if (!own.engine.kv_memory && models->count == 1)
        own.engine.kv_memory = SALVO_KV_MEMORY_MOST;
    own.engine.sessions = options.parallel ? options.parallel : DEFAULT_PARALLEL;
    const bool served = serve(&own, error, sizeof error);
    running_end();
    return served ? EXIT_DONE : failure("%s", error);
}
#else
static int run_server(struct model_list *models, const struct salvo_engine_options *engine,
    const struct input *chat, const char *const *keys, size_t key_count)
{
    (void)models;
    (void)engine;
    (void)chat;
    (void)keys;
    (void)key_count;
    return failure("this salvo was built without libevent, which `salvo serve` needs");
}
#endif

static int run(int count, char **arguments)
{
    struct model_list models = {.count = 0};
    struct salvo_engine_options engine;
    struct input key_text = {0}, chat = {0};
    const char *keys[MOST_KEYS];
    size_t key_count = 0;
    int result = check_options(count, arguments);
    if (result == EXIT_DONE)
        result = engine_options_from_flags(&engine);
    if (result == EXIT_DONE)
        result = read_keys(&key_text, keys, &key_count);
    if (result == EXIT_DONE && (options.template_text || options.template_file))
        result = input_read(options.template_text, options.template_file, &chat);
    if (result == EXIT_DONE)
        result = open_models(&models);
    if (result == EXIT_DONE)
        result = run_server(&models, &engine, &chat, keys, key_count);
    close_models(&models);
    input_free(&key_text);
    input_free(&chat);
    return result;
}

const struct command serve_command = {
    .name = "serve",
    .arguments = "[MODEL...]",
    .summary = "answer requests over HTTP, with the endpoints of OpenAI, llama.cpp, Anthropic and Ollama",
    .details =
        "A browser shows a page to chat at http://127.0.0.1:8080/.\n"
        "GET /health tells 200 when the models are loaded. SIGTERM lets running requests end, a second "
        "one does not.\n"
        "Without --api-key only programs that name the server by a loopback address or --host are "
        "answered, and POST\n"
        "needs the type application/json. Sampling options are the defaults of requests.",
    .options = option_table,
    .shared = {sampler_flag_table, engine_flag_table + ENGINE_FLAGS_AFTER_CONTEXT,
        output_flag_table + 2 /* --quiet */},
    .run = run,
};
