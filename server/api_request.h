/* Requests for answers, read from JSON: chat and text completions of OpenAI, /completion of llama.cpp. */
#ifndef SERVER_API_REQUEST_H
#define SERVER_API_REQUEST_H

#include "api_json.h"

enum api_style {
    API_CHAT,    /* /v1/chat/completions */
    API_TEXT,    /* /v1/completions */
    API_LLAMA,   /* /completion */
    API_INFILL,  /* /infill: API_LLAMA with another prompt */
    API_TEMPLATE /* /apply-template: the messages alone */
};

enum {
    API_MAX_CHOICES = 128, /* answers of one request */
    API_MAX_STOPS = 64     /* stop strings of one request */
};

struct api_defaults {
    struct salvo_sampler sampler; /* seed SALVO_SEED_RANDOM: a random one for each request */
    int64_t max_tokens;           /* default and upper limit; -1: none */
};

struct api_request {
    enum api_style style;
    struct api_document document; /* the pointers below are into it */
    const char *model;            /* "" if the request names none */
    bool stream, include_usage, echo, return_tokens, timings_per_token;
    bool cache_prompt, ignore_end;
    bool logprobs;      /* of answer tokens */
    uint32_t top_count; /* most likely tokens at each place */
    uint32_t n;         /* answers of each prompt */
    int32_t slot;       /* session that it asks for; -1: any */
    int64_t max_tokens; /* -1: until the end or the context */
    struct salvo_sampler sampler;
    const char *stops[API_MAX_STOPS];
    size_t stop_count;
    bool continue_last; /* the last message is the beginning of the answer */
    bool no_generation_prompt;

    const struct api_value *messages, *template_variables; /* API_CHAT, API_TEMPLATE */
    const struct api_value *prompt;                        /* others */
    bool is_infill;                                        /* then the prompt may be NULL */
    const struct api_value *prefix, *suffix, *extra;       /* of an infill */
    const struct api_value *logit_bias;
    const struct api_value *response_fields; /* API_LLAMA */

    /* The constraint of the answer; at most one of the three. */
    struct salvo_text grammar;      /* GBNF; empty: none */
    const struct api_value *schema; /* JSON Schema; NULL: none */
    bool any_object;                /* any JSON object */
    const char *constraint_field;   /* where the request has it: for errors */
};

/* Checks a body. False after an error. The request is freed in both cases. */
bool api_request_parse(const char *body, size_t size, enum api_style style,
    const struct api_defaults *defaults, struct api_request *out, struct api_error *error);
void api_request_free(struct api_request *request);

#endif
