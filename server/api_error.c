#include "api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool api_fail(struct api_error *error, int status, const char *param, const char *format, ...)
{
    *error = (struct api_error){.status = status};
    if (param)
        snprintf(error->param, sizeof error->param, "%s", param);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

bool api_out_of_memory(struct api_error *error)
{
    api_fail(error, 503, NULL, "not enough memory for the request");
    error->retry_after = 1;
    return false;
}

bool api_fail_library(struct api_error *error, enum salvo_status status, const char *message)
{
    if (status == SALVO_ERROR_MEMORY && strcmp(message, "the queue is full") == 0) {
        api_fail(error, 429, NULL, "too many requests wait: %s", message);
        error->retry_after = 1;
        return false;
    }
    switch (status) {
    case SALVO_ERROR_ARGUMENT:
    case SALVO_ERROR_CONTEXT:
        return api_fail(error, 400, NULL, "%s", message);
    case SALVO_ERROR_UNSUPPORTED:
        return api_fail(error, 501, NULL, "%s", message);
    case SALVO_ERROR_MEMORY:
        api_fail(error, 503, NULL, "%s", message);
        error->retry_after = 1;
        return false;
    case SALVO_ERROR_CANCELLED:
        api_fail(error, 503, NULL, "the server is stopping");
        error->retry_after = 1;
        return false;
    default:
        return api_fail(error, 500, NULL, "%s", message);
    }
}

const char *api_error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 500:
        return "server_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return "invalid_request_error";
    }
}

void api_write_error(struct json_writer *json, const struct api_error *error)
{
    json_begin(json, '{');
    json_key(json, "error");
    json_begin(json, '{');
    json_key(json, "code");
    json_signed(json, error->status);
    json_key(json, "message");
    json_string(json, error->message);
    json_key(json, "type");
    json_string(json, error->type ? error->type : api_error_type(error->status));
    json_key(json, "param");
    if (*error->param)
        json_string(json, error->param);
    else
        json_null(json);
    if (error->n_ctx) {
        json_key(json, "n_prompt_tokens");
        json_unsigned(json, error->n_prompt_tokens);
        json_key(json, "n_ctx");
        json_unsigned(json, error->n_ctx);
    }
    json_end(json, '}');
    json_end(json, '}');
}

void api_write_anthropic_error(
    struct json_writer *json, const struct api_error *error, const char *request_id)
{
    const int status = error->status;
    json_begin(json, '{');
    json_key(json, "type");
    json_string(json, "error");
    json_key(json, "error");
    json_begin(json, '{');
    json_key(json, "type");
    json_string(json, status == 413                    ? "request_too_large"
                      : status == 503                  ? "overloaded_error"
                      : status == 500 || status == 501 ? "api_error"
                                                       : api_error_type(status));
    json_key(json, "message");
    json_string(json, error->message);
    json_end(json, '}');
    if (request_id) {
        json_key(json, "request_id");
        json_string(json, request_id);
    }
    json_end(json, '}');
}

void api_write_ollama_error(struct json_writer *json, const struct api_error *error)
{
    json_begin(json, '{');
    json_key(json, "error");
    json_string(json, error->message);
    json_end(json, '}');
}
