/* Requests for answers: one form for all dialects. Here they are read from the JSON of chat and text
 * completions of OpenAI and of /completion of llama.cpp; other dialects have files of their own
 * (api_dialect.h). */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include "api_json.h"

enum api_style {
    API_CHAT,            /* /v1/chat/completions */
    API_TEXT,            /* /v1/completions */
    API_LLAMA,           /* /completion */
    API_INFILL,          /* /infill: API_LLAMA with another prompt */
    API_TEMPLATE,        /* /apply-template: the messages alone */
    API_ANTHROPIC,       /* /v1/messages */
    API_ANTHROPIC_COUNT, /* /v1/messages/count_tokens */
    API_OLLAMA_CHAT,     /* /api/chat */
    API_OLLAMA_GENERATE, /* /api/generate */
    API_RESPONSES        /* /v1/responses */
};

enum {
    API_MAX_CHOICES = 128, /* answers of one request */
    API_MAX_STOPS = 64     /* stop strings of one request */
};

struct api_defaults {
    struct salvo_sampler sampler; /* seed SALVO_SEED_RANDOM: a random one for each request */
    int64_t max_tokens;           /* default and upper limit; -1: none */
    bool verbose;
};

struct api_request {
    enum api_style style;
    struct api_document document; /* the pointers below are into it */
    const char *model;            /* "" if the request names none */
    bool stream, include_usage, echo, return_tokens, timings_per_token;
    bool cache_prompt, ignore_end;
    bool return_progress; /* of a stream: how much of the prompt is computed */
    bool verbose;         /* a chat's answer has `__verbose`, the answer of API_LLAMA */
    bool logprobs;        /* of answer tokens */
    uint32_t top_count;   /* most likely tokens at each place */
    uint32_t n;           /* answers of each prompt */
    int32_t slot;         /* session that it asks for; -1: any */
    int64_t max_tokens;   /* -1: until the end or the context */
    struct salvo_sampler sampler;
    const char *stops[API_MAX_STOPS];
    size_t stop_count;
    bool continue_last; /* the last message is the beginning of the answer */
    bool no_generation_prompt;
    bool only_load; /* asks for no answer: the model is to be ready */

    bool is_chat; /* the template makes the prompt of the messages, which have the form of OpenAI */
    const struct api_value *messages, *template_variables;
    const struct api_value *prompt;                  /* of others */
    bool is_infill;                                  /* then the prompt may be NULL */
    const struct api_value *prefix, *suffix, *extra; /* of an infill */
    const struct api_value *logit_bias;
    const struct api_value *response_fields; /* API_LLAMA */

    /* The constraint of the answer; at most one of the three. */
    struct salvo_text grammar;      /* GBNF; empty: none */
    const struct api_value *schema; /* JSON Schema; NULL: none */
    bool any_object;                /* any JSON object */
    const char *constraint_field;   /* where the request has it: for errors */

    const struct api_value *tools; /* NULL: none, or they may not be called */
    bool tool_required, tool_parallel;
    const char *tool_name; /* the only one that may be called; NULL: any */
    uint32_t thinking;     /* enum salvo_tool_thinking, when the prompt is prepared */
};

void api_request_free(struct api_request *request);

/* ---- Parts of all dialects ---- */

void api_request_begin(enum api_style style, const struct api_defaults *defaults, struct api_request *out);
bool api_read_openai(
    struct api_request *request, const struct api_defaults *defaults, struct api_error *error);
/* `messages` and what belongs to them. */
bool api_read_messages(const struct api_value *root, struct api_request *request, struct api_error *error);
/* Temperature, penalties, seed and so on. */
bool api_read_sampler(const struct api_value *object, struct salvo_sampler *sampler, struct api_error *error);
/* A string or an array of strings; may be NULL. */
bool api_read_stops(
    const struct api_value *stop, const char *field, struct api_request *request, struct api_error *error);
/* The limit that a request asks for, -1: none, under the limit of the server. */
void api_limit_tokens(struct api_request *request, const struct api_defaults *defaults, int64_t asked);
/* A JSON Schema that the answer must fit. */
bool api_read_schema(
    struct api_request *request, const struct api_value *schema, const char *field, struct api_error *error);
/* 501 by name, unless the list is missing or empty. */
bool api_refuse_list(const struct api_value *object, const char *name, struct api_error *error);
bool api_is_text(const struct api_value *value, const char *text); /* `value` may be NULL */

#endif
