/* Errors of the endpoints, as OpenAI's and llama.cpp's servers write them. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include "base/json.h"

#include <stdbool.h>

struct api_error {
    int status;           /* of HTTP; 0: no error */
    const char *type;     /* NULL: the one that belongs to the status */
    char message[320];    /* one line */
    char param[48];       /* the field at fault, or "" */
    const char *allow;    /* methods, with 405 */
    unsigned retry_after; /* seconds; 0: none */
    /* A prompt beyond the context: both numbers are written where n_ctx is not 0. */
    uint64_t n_prompt_tokens, n_ctx;
};

/* Fills the error and returns false, so that a check can end with it. */
bool api_fail(struct api_error *error, int status, const char *param, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* 503, to be tried again later. */
bool api_out_of_memory(struct api_error *error);

/* The failure of a library function, described by `message`. Its status follows from what failed. */
bool api_fail_library(struct api_error *error, enum salvo_status status, const char *message);

/* "not_found_error" for 404 and so on. */
const char *api_error_type(int status);

/* {"error": {...}} */
void api_write_error(struct json_writer *json, const struct api_error *error);
/* As Anthropic and Ollama write it. `request_id` may be NULL. */
void api_write_anthropic_error(
    struct json_writer *json, const struct api_error *error, const char *request_id);
void api_write_ollama_error(struct json_writer *json, const struct api_error *error);

#endif
