#include "api_request.h"

#include "api_history.h"
#include "api_tools.h"

#include <float.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* In the library, 0 switches top-p off; in a request, 0 allows only the most likely token, as in
 * llama.cpp. */
static void close_top_p(const struct api_value *root, struct salvo_sampler *sampler)
{
    if (api_member(root, "top_p") && sampler->top_p == 0)
        sampler->top_p = FLT_MIN;
}

static bool read_seed(const struct api_value *root, struct salvo_sampler *sampler, struct api_error *error)
{
    int64_t seed = -1;
    if (!api_get_integer(root, "seed", -1, INT64_MAX, &seed, error))
        return false;
    if (seed >= 0)
        sampler->seed = (uint64_t)seed;
    else if (api_member(root, "seed"))
        sampler->seed = SALVO_SEED_RANDOM;
    if (sampler->seed == SALVO_SEED_RANDOM) {
        /* Drawn here, so that the answer can tell it. */
        uint32_t random = 0;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            return api_fail(error, 500, NULL, "the system gave no random seed");
        sampler->seed = random;
    }
    return true;
}

bool api_read_sampler(const struct api_value *root, struct salvo_sampler *sampler, struct api_error *error)
{
    int64_t top_k = sampler->top_k, last_n = sampler->repeat_last_n;
    if (!api_get_float(root, "temperature", 0, 1e6, &sampler->temperature, error) ||
        !api_get_float(root, "top_p", 0, 1, &sampler->top_p, error) ||
        !api_get_float(root, "min_p", 0, 1, &sampler->min_p, error) ||
        !api_get_float(root, "repeat_penalty", 1e-6, 1e6, &sampler->repeat_penalty, error) ||
        !api_get_float(root, "presence_penalty", -100, 100, &sampler->presence_penalty, error) ||
        !api_get_float(root, "frequency_penalty", -100, 100, &sampler->frequency_penalty, error) ||
        !api_get_integer(root, "top_k", -1, INT32_MAX, &top_k, error) ||
        !api_get_integer(root, "repeat_last_n", -1, UINT32_MAX, &last_n, error))
        return false;
    sampler->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
    sampler->repeat_last_n = last_n < 0 ? UINT32_MAX : (uint32_t)last_n;
    close_top_p(root, sampler);
    return read_seed(root, sampler, error);
}

static bool add_stop(
    struct api_request *request, const struct api_value *value, const char *field, struct api_error *error)
{
    if (value->kind != JSON_STRING || strlen(value->text.data) != value->text.size)
        return api_fail(error, 400, field, "'%s': expected a string or an array of strings", field);
    if (request->stop_count == API_MAX_STOPS)
        return api_fail(error, 400, field, "'%s': expected at most %d strings", field, (int)API_MAX_STOPS);
    request->stops[request->stop_count++] = value->text.data;
    return true;
}

bool api_read_stops(
    const struct api_value *stop, const char *field, struct api_request *request, struct api_error *error)
{
    if (!stop)
        return true;
    if (stop->kind != JSON_ARRAY_BEGIN)
        return add_stop(request, stop, field, error);
    for (const struct api_value *item = stop->first; item; item = item->next) {
        if (!add_stop(request, item, field, error))
            return false;
    }
    return true;
}

void api_limit_tokens(struct api_request *request, const struct api_defaults *defaults, int64_t asked)
{
    const int64_t most = defaults->max_tokens;
    request->max_tokens = most >= 0 && (asked < 0 || asked > most) ? most : asked;
}

/* The first name that the request has counts; each is checked. */
static bool read_max_tokens(const struct api_value *root, const struct api_defaults *defaults,
    struct api_request *request, struct api_error *error)
{
    static const char *const names[] = {"max_completion_tokens", "max_tokens", "n_predict"};
    int64_t chosen = defaults->max_tokens;
    for (size_t i = sizeof names / sizeof *names; i-- > 0;) {
        if (!api_get_integer(root, names[i], -1, UINT32_MAX - 1, &chosen, error))
            return false;
    }
    api_limit_tokens(request, defaults, chosen);
    return true;
}

/* Chat: a bool and a number; text: a number; llama.cpp: n_probs. */
static bool read_logprobs(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *logprobs = api_member(root, "logprobs");
    int64_t top = 0;
    if (request->style == API_LLAMA) {
        if (!api_get_integer(root, "n_probs", 0, SALVO_TOP_LOGPROBS, &top, error))
            return false;
        request->logprobs = top > 0;
    } else if (request->style == API_CHAT) {
        if (!api_get_bool(root, "logprobs", &request->logprobs, error) ||
            !api_get_integer(root, "top_logprobs", 0, SALVO_TOP_LOGPROBS, &top, error))
            return false;
        if (top > 0 && !request->logprobs)
            return api_fail(error, 400, "top_logprobs", "'top_logprobs': expected with 'logprobs' true");
    } else if (logprobs && (logprobs->kind == JSON_TRUE || logprobs->kind == JSON_FALSE)) {
        request->logprobs = logprobs->kind == JSON_TRUE; /* of some clients, as for a chat */
    } else {
        if (!api_get_integer(root, "logprobs", 0, SALVO_TOP_LOGPROBS, &top, error))
            return false;
        request->logprobs = logprobs != NULL;
    }
    request->top_count = (uint32_t)top;
    return true;
}

static bool read_counts(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    int64_t n = 1, best_of = 1, slot = -1;
    if (!api_get_integer(root, "n", 1, API_MAX_CHOICES, &n, error) ||
        !api_get_integer(root, "best_of", 1, API_MAX_CHOICES, &best_of, error) ||
        !api_get_integer(root, "id_slot", -1, INT32_MAX, &slot, error))
        return false;
    if (api_member(root, "best_of") && best_of != n)
        return api_fail(error, 501, "best_of", "'best_of' is not supported unless it is the same as 'n'");
    request->n = (uint32_t)n;
    request->slot = (int32_t)slot;
    return true;
}

static bool read_stream(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *options = api_member(root, "stream_options");
    if (!api_get_bool(root, "stream", &request->stream, error))
        return false;
    if (options && options->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, "stream_options", "'stream_options': expected an object");
    return api_get_bool(options, "include_usage", &request->include_usage, error);
}

static bool read_flags(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    if (!api_get_bool(root, "echo", &request->echo, error) ||
        !api_get_bool(root, "return_tokens", &request->return_tokens, error) ||
        !api_get_bool(root, "timings_per_token", &request->timings_per_token, error) ||
        !api_get_bool(root, "return_progress", &request->return_progress, error) ||
        !api_get_bool(root, "cache_prompt", &request->cache_prompt, error) ||
        !api_get_bool(root, "verbose", &request->verbose, error) ||
        !api_get_bool(root, "ignore_eos", &request->ignore_end, error))
        return false;
    request->echo = request->echo && request->style == API_TEXT;
    return true;
}

bool api_is_text(const struct api_value *value, const char *text)
{
    return value && value->kind == JSON_STRING && strcmp(value->text.data, text) == 0;
}

bool api_refuse_list(const struct api_value *object, const char *name, struct api_error *error)
{
    const struct api_value *value = api_member(object, name);
    if (!value || (value->kind == JSON_ARRAY_BEGIN && value->count == 0))
        return true;
    return api_fail(error, 501, name, "'%s' is not supported yet", name);
}

/* Fields of other servers that change the answer and that salvo does not have. */
static bool refuse_unsupported(const struct api_value *root, bool has_tools, struct api_error *error)
{
    static const char *const names[] = {"tools", "tool_choice", "functions", "function_call", "grammar_lazy",
        "grammar_triggers", "suffix", "post_sampling_probs"};
    for (size_t i = has_tools ? 2 : 0; i < sizeof names / sizeof *names; i++) {
        const struct api_value *value = api_member(root, names[i]);
        const bool empty_list = value && value->kind == JSON_ARRAY_BEGIN && value->count == 0;
        if (!value || empty_list || api_is_text(value, "") || value->kind == JSON_FALSE)
            continue;
        if ((strcmp(names[i], "tool_choice") == 0 || strcmp(names[i], "function_call") == 0) &&
            (api_is_text(value, "none") || api_is_text(value, "auto")))
            continue;
        return api_fail(error, 501, names[i], "'%s' is not supported yet", names[i]);
    }
    return true;
}

bool api_read_schema(
    struct api_request *request, const struct api_value *schema, const char *field, struct api_error *error)
{
    if (!schema || (schema->kind != JSON_OBJECT_BEGIN && schema->kind != JSON_TRUE))
        return api_fail(error, 400, field, "'%s': expected a JSON Schema, an object", field);
    request->schema = schema;
    request->constraint_field = field;
    return true;
}

static bool read_response_format(
    const struct api_value *format, struct api_request *request, struct api_error *error)
{
    static const char field[] = "response_format";
    const struct api_value *type = api_member(format, "type");
    if (!type || type->kind != JSON_STRING)
        return api_fail(error, 400, field, "'response_format': expected an object with a 'type'");
    if (api_is_text(type, "text"))
        return true;
    if (api_is_text(type, "json_schema"))
        return api_read_schema(request, api_member(api_member(format, "json_schema"), "schema"),
            "response_format.json_schema.schema", error);
    if (!api_is_text(type, "json_object"))
        return api_fail(error, 400, field,
            "'response_format.type': expected \"text\", \"json_object\" or \"json_schema\"");
    if (api_member(format, "schema")) /* of llama.cpp */
        return api_read_schema(request, api_member(format, "schema"), "response_format.schema", error);
    request->any_object = true;
    request->constraint_field = field;
    return true;
}

static bool read_constraint(
    const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *format = api_member(root, "response_format"),
                           *grammar = api_member(root, "grammar"), *schema = api_member(root, "json_schema");
    if (grammar && grammar->kind != JSON_STRING)
        return api_fail(error, 400, "grammar", "'grammar': expected a string, a grammar in GBNF");
    if (format && !read_response_format(format, request, error))
        return false;
    const char *earlier = request->constraint_field;
    if (schema && !api_read_schema(request, schema, "json_schema", error))
        return false;
    if (schema && earlier)
        return api_fail(error, 400, "json_schema", "'json_schema' and '%s' cannot be combined", earlier);
    if (!grammar || grammar->text.size == 0)
        return true;
    if (request->constraint_field)
        return api_fail(
            error, 400, "grammar", "'grammar' and '%s' cannot be combined", request->constraint_field);
    request->grammar = grammar->text;
    request->constraint_field = "grammar";
    return true;
}

static bool has_role(const struct api_value *message, const char *role)
{
    const struct api_value *value = api_member(message, "role");
    return value && api_is_text(value, role);
}

static bool check_content(const struct api_value *content, size_t index, struct api_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "messages[%zu].content", index);
    if (content->kind == JSON_STRING)
        return true;
    if (content->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, name, "'%s': expected a string or an array of parts", name);
    for (const struct api_value *part = content->first; part; part = part->next) {
        const struct api_value *type = api_member(part, "type"), *text = api_member(part, "text");
        if (part->kind != JSON_OBJECT_BEGIN || !type || type->kind != JSON_STRING)
            return api_fail(error, 400, name, "'%s': expected parts that are objects with a 'type'", name);
        if (!api_is_text(type, "text")) {
            return api_fail(error, 400, name,
                "'%s': parts of the type '%.32s' are not supported; expected \"text\"", name,
                type->text.data);
        }
        if (!text || text->kind != JSON_STRING)
            return api_fail(error, 400, name, "'%s': expected a string as 'text' of each part", name);
    }
    return true;
}

static bool check_message(const struct api_value *message, size_t index, struct api_error *error)
{
    static const char *const texts[] = {"name", "reasoning_content"};
    const struct api_value *role = api_member(message, "role"), *content = api_member(message, "content");
    char name[32];
    snprintf(name, sizeof name, "messages[%zu]", index);
    if (message->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, name, "'%s': expected an object with 'role' and 'content'", name);
    if (!role || role->kind != JSON_STRING || !role->text.size || strlen(role->text.data) != role->text.size)
        return api_fail(error, 400, name, "'%s.role': expected a string", name);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct api_value *text = api_member(message, texts[i]);
        if (text && text->kind != JSON_STRING)
            return api_fail(error, 400, name, "'%s.%s': expected a string", name, texts[i]);
    }
    if (content)
        return check_content(content, index, error);
    if (!has_role(message, "assistant") || !api_member(message, "tool_calls"))
        return api_fail(error, 400, name, "'%s.content': expected a string or an array of parts", name);
    return true;
}

bool api_read_messages(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *messages = api_member(root, "messages"), *last = NULL, *before = NULL;
    const struct api_value *variables = api_member(root, "chat_template_kwargs");
    bool add_prompt = true, continues = false;
    size_t index = 0;
    if (!messages || messages->kind != JSON_ARRAY_BEGIN || messages->count == 0)
        return api_fail(error, 400, "messages", "'messages': expected an array of messages");
    for (const struct api_value *message = messages->first; message; message = message->next, index++) {
        if (!check_message(message, index, error))
            return false;
        before = last;
        last = message;
    }
    if (variables && variables->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, "chat_template_kwargs", "'chat_template_kwargs': expected an object");
    if (!api_get_bool(root, "add_generation_prompt", &add_prompt, error) ||
        !api_get_bool(root, "continue_final_message", &continues, error))
        return false;
    const bool can_continue = has_role(last, "assistant") && api_member(last, "content");
    if (continues && add_prompt && api_member(root, "add_generation_prompt"))
        return api_fail(error, 400, "continue_final_message",
            "'continue_final_message' and 'add_generation_prompt' cannot both be true");
    if (continues && !can_continue)
        return api_fail(error, 400, "continue_final_message",
            "'continue_final_message': expected a last message of the assistant with content");
    request->no_generation_prompt = !add_prompt && !continues;
    request->continue_last = (add_prompt || continues) && can_continue;
    if (request->continue_last && before && has_role(before, "assistant"))
        return api_fail(error, 400, "messages", "'messages': the last two messages are of the assistant");
    request->is_chat = true;
    request->messages = messages;
    request->template_variables = variables;
    return true;
}

/* A conversation may end with calls if no answer follows it. */
static bool read_history(struct api_request *request, struct api_error *error)
{
    const bool no_answer = request->style == API_TEMPLATE || request->no_generation_prompt;
    return api_check_history(&request->document, request->messages, no_answer, error);
}

static bool check_logit_bias(const struct api_value *bias, struct api_error *error)
{
    const bool is_list = bias->kind == JSON_ARRAY_BEGIN;
    if (!is_list && bias->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, "logit_bias", "'logit_bias': expected an object or an array of pairs");
    for (const struct api_value *item = bias->first; item; item = item->next) {
        const struct api_value *value = item;
        if (is_list) {
            if (item->kind != JSON_ARRAY_BEGIN || item->count != 2 ||
                (item->first->kind != JSON_INTEGER && item->first->kind != JSON_STRING))
                return api_fail(error, 400, "logit_bias", "'logit_bias': expected pairs [token, bias]");
            value = item->first->next;
        }
        if (value->kind != JSON_INTEGER && value->kind != JSON_NUMBER && value->kind != JSON_FALSE)
            return api_fail(error, 400, "logit_bias", "'logit_bias': expected numbers as biases");
    }
    return true;
}

static bool is_string(const struct api_value *value)
{
    return value && value->kind == JSON_STRING;
}

static bool read_infill(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    request->prompt = api_member(root, "prompt");
    request->prefix = api_member(root, "input_prefix");
    request->suffix = api_member(root, "input_suffix");
    request->extra = api_member(root, "input_extra");
    if (!is_string(request->prefix))
        return api_fail(error, 400, "input_prefix", "'input_prefix': expected a string");
    if (!is_string(request->suffix))
        return api_fail(error, 400, "input_suffix", "'input_suffix': expected a string");
    if (request->prompt && !is_string(request->prompt))
        return api_fail(error, 400, "prompt", "'prompt': expected a string");
    if (request->extra && request->extra->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "input_extra", "'input_extra': expected an array of objects");
    for (const struct api_value *item = request->extra ? request->extra->first : NULL; item;
         item = item->next) {
        const struct api_value *name = api_member(item, "filename");
        if (!is_string(api_member(item, "text")) || (name && !is_string(name)))
            return api_fail(error, 400, "input_extra",
                "'input_extra': expected objects with a string as 'text' and, if it is there, as 'filename'");
    }
    return true;
}

static bool read_prompt(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    request->prompt = api_member(root, "prompt");
    if (!request->prompt)
        return api_fail(error, 400, "prompt", "'prompt': expected a string, token ids, or an array of these");
    return true;
}

static bool read_response_fields(
    const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *fields = api_member(root, "response_fields");
    if (fields && fields->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "response_fields", "'response_fields': expected an array of strings");
    for (const struct api_value *item = fields ? fields->first : NULL; item; item = item->next) {
        if (item->kind != JSON_STRING)
            return api_fail(error, 400, "response_fields", "'response_fields': expected an array of strings");
    }
    request->response_fields = fields && fields->count ? fields : NULL;
    return true;
}

bool api_read_openai(
    struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *root = request->document.root;
    const bool has_messages = request->style == API_CHAT || request->style == API_TEMPLATE;
    request->logit_bias = api_member(root, "logit_bias");
    return refuse_unsupported(root, has_messages, error) && read_constraint(root, request, error) &&
           (has_messages            ? api_read_messages(root, request, error)
               : request->is_infill ? read_infill(root, request, error)
                                    : read_prompt(root, request, error)) &&
           (!has_messages || (read_history(request, error) && api_read_tools(root, request, error))) &&
           api_read_sampler(root, &request->sampler, error) &&
           api_read_stops(api_member(root, "stop"), "stop", request, error) &&
           read_max_tokens(root, defaults, request, error) && read_logprobs(root, request, error) &&
           read_counts(root, request, error) && read_stream(root, request, error) &&
           read_flags(root, request, error) && read_response_fields(root, request, error) &&
           (!request->logit_bias || check_logit_bias(request->logit_bias, error));
}

void api_request_begin(enum api_style style, const struct api_defaults *defaults, struct api_request *out)
{
    *out = (struct api_request){.style = style == API_INFILL ? API_LLAMA : style,
        .is_infill = style == API_INFILL,
        .model = "",
        .cache_prompt = true,
        .verbose = defaults->verbose,
        .sampler = defaults->sampler,
        .n = 1,
        .slot = -1};
}

void api_request_free(struct api_request *request)
{
    api_document_free(&request->document);
}
