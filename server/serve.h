/* `salvo serve`: a server for models, with the endpoints of OpenAI and of llama.cpp. */
#ifndef SERVER_SERVE_H
#define SERVER_SERVE_H

#include <salvo/salvo.h>

struct serve_model {
    struct salvo_model *model;
    const char *id;               /* the name that requests use */
    struct salvo_sampler sampler; /* of requests that do not say otherwise */
};

struct serve_options {
    const struct serve_model *models;
    size_t model_count;
    struct salvo_engine_options engine; /* of each model; `sessions` is the number of parallel requests */
    int64_t max_tokens;                 /* default and upper limit of an answer; -1: none */
    const char *template_text;          /* instead of the models' own, or "chatml"; NULL: none */
    size_t template_size;

    const char *host;        /* NULL: 127.0.0.1 */
    int port;                /* 0: any free one */
    int second_port;         /* listened on as well; 0: none */
    const char *unix_socket; /* NULL: none */
    const char *tls_key_file, *tls_cert_file;
    size_t body_limit; /* 0: 16 MB */
    uint32_t timeout;  /* seconds of silence of a client within a request or an answer; 0: the defaults */
    const char *const *keys;
    size_t key_count;
    const char *cors_origins;
    const char *slot_folder; /* where /slots saves and restores; NULL: it does not */
    bool metrics, no_slots, no_webui, quiet;
    bool verbose;                                       /* answers of chats have `__verbose` */
    void (*listening)(void *user, const char *address); /* called once, with the server's URL; may be NULL */
    void *user;
    uint32_t drain_delay, drain; /* seconds after SIGTERM: still accepting; until requests are broken off */
};

/* Serves until SIGTERM or SIGINT. False with a readable line in `error` if it cannot begin, or if a model
 * cannot be loaded. */
bool serve(const struct serve_options *options, char *error, size_t room);

#endif
