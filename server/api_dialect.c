#include "api_dialect.h"

const struct api_dialect *api_dialect_of(enum api_style style)
{
    switch (style) {
    case API_LLAMA:
    case API_INFILL:
        return &api_llama;
    case API_ANTHROPIC:
    case API_ANTHROPIC_COUNT:
        return &api_anthropic;
    case API_OLLAMA_CHAT:
    case API_OLLAMA_GENERATE:
        return &api_ollama;
    case API_RESPONSES:
        return &api_responses;
    default:
        return &api_openai;
    }
}

bool api_dialect_parse(const char *body, size_t size, enum api_style style,
    const struct api_defaults *defaults, struct api_request *out, struct api_error *error)
{
    api_request_begin(style, defaults, out);
    if (!api_document_parse(body, size, &out->document, error))
        return false;
    if (out->document.root->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, NULL, "the body: expected a JSON object");
    return api_get_string(out->document.root, "model", &out->model, error) &&
           api_dialect_of(style)->read(out, defaults, error);
}
