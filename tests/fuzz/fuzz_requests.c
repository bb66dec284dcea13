/*
 * Bodies of requests, after a byte that chooses the dialect: a body is refused with a status and a message,
 * or becomes a request that keeps what the code behind it relies on.
 */
#include "../../server/api_dialect.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static bool is_text(const struct api_value *value)
{
    return value && value->kind == JSON_STRING && value->text.data;
}

static void check_content(const struct api_value *content)
{
    if (!content || content->kind == JSON_STRING)
        return;
    expect(content->kind == JSON_ARRAY_BEGIN);
    for (const struct api_value *part = content->first; part; part = part->next)
        expect(is_text(api_member(part, "text")));
}

static void check_request(const struct api_request *request)
{
    size_t count = 0;
    expect(request->model && request->n >= 1 && request->n <= API_MAX_CHOICES);
    expect(request->max_tokens >= -1 && request->stop_count <= API_MAX_STOPS);
    for (size_t i = 0; i < request->stop_count; i++)
        expect(request->stops[i] != NULL);
    expect(request->grammar.size == 0 || !request->schema);
    if (request->grammar.size || request->schema || request->any_object)
        expect(request->constraint_field != NULL);
    if (!request->is_chat) {
        expect(
            request->only_load || request->prompt || (is_text(request->prefix) && is_text(request->suffix)));
        return;
    }
    expect(request->messages && request->messages->kind == JSON_ARRAY_BEGIN);
    for (const struct api_value *message = request->messages->first; message; message = message->next) {
        expect(is_text(api_member(message, "role")));
        check_content(api_member(message, "content"));
        count++;
    }
    expect(count > 0 && count == request->messages->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum api_style styles[] = {API_CHAT, API_TEXT, API_LLAMA, API_INFILL, API_TEMPLATE,
        API_ANTHROPIC, API_ANTHROPIC_COUNT, API_OLLAMA_CHAT, API_OLLAMA_GENERATE, API_RESPONSES};
    const struct api_defaults defaults = {.sampler = SALVO_SAMPLER_INIT, .max_tokens = -1};
    struct api_request request;
    struct api_error error = {0};
    if (!size)
        return 0;
    const enum api_style style = styles[data[0] % (sizeof styles / sizeof *styles)];
    if (api_dialect_parse((const char *)data + 1, size - 1, style, &defaults, &request, &error))
        check_request(&request);
    else
        expect(error.status >= 400 && error.status < 600 && *error.message);
    api_request_free(&request);
    return 0;
}
