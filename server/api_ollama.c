/* /api/chat and /api/generate of Ollama. */
#include "api_ollama.h"

#include "api_build.h"
#include "api_dialect.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- Requests ---- */

/* Models of Ollama have no images here; an empty list is what some clients send. */
static bool refuse_images(const struct api_value *object, struct api_error *error)
{
    const struct api_value *images = api_member(object, "images");
    if (!images || (images->kind == JSON_ARRAY_BEGIN && images->count == 0))
        return true;
    return api_fail(error, 400, "images", "'images': the model reads text alone");
}

static bool read_message(
    struct api_builder *builder, const struct api_value *message, size_t index, struct api_error *error)
{
    const struct api_value *role = api_member(message, "role"), *content = api_member(message, "content"),
                           *thoughts = api_member(message, "thinking"),
                           *calls = api_member(message, "tool_calls");
    char field[48];
    snprintf(field, sizeof field, "messages[%zu]", index);
    if (!role || role->kind != JSON_STRING || strlen(role->text.data) != role->text.size)
        return api_fail(error, 400, field, "'%s.role': expected a string", field);
    if (content && content->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s.content': expected a string", field);
    if (!refuse_images(message, error))
        return false;
    if (thoughts && thoughts->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s.thinking': expected a string", field);
    if (api_is_text(role, "tool"))
        return api_build_result(builder, field, api_member(message, "tool_call_id"),
            api_member(message, "tool_name"), content ? content->text : (struct salvo_text){"", 0}, error);
    if (thoughts && thoughts->text.size && api_is_text(role, "assistant"))
        api_build_reasoning(builder, thoughts->text);
    if (!calls || (content && content->text.size))
        api_build_text(builder, role->text.data, content ? content->text : (struct salvo_text){"", 0});
    if (calls && calls->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, field, "'%s.tool_calls': expected an array of calls", field);
    if (calls && calls->count && !api_is_text(role, "assistant"))
        return api_fail(error, 400, field, "'%s.tool_calls': only the assistant calls tools", field);
    for (const struct api_value *call = calls ? calls->first : NULL; call; call = call->next) {
        const struct api_value *function = api_member(call, "function");
        if (!api_build_call(builder, field, api_member(call, "id"), api_member(function, "name"),
                api_member(function, "arguments"), error))
            return false;
    }
    return true;
}

/* They have OpenAI's form. */
static bool read_tools(struct api_builder *builder, struct api_request *request, struct api_error *error)
{
    const struct api_value *tools = api_member(request->document.root, "tools");
    const struct api_tool_choice any = {0};
    if (tools && tools->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "tools", "'tools': expected an array of tools");
    for (const struct api_value *tool = tools ? tools->first : NULL; tool; tool = tool->next)
        api_list_add(builder, &builder->tools, "", tool);
    return api_build_tools(builder, &any, request, error);
}

static bool read_chat(struct api_request *request, struct api_error *error)
{
    const struct api_value *messages = api_member(request->document.root, "messages");
    struct api_builder builder = api_builder_new(&request->document);
    size_t index = 0;
    if (messages && messages->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "messages", "'messages': expected an array of messages");
    if (!messages || messages->count == 0) {
        request->only_load = true;
        return true;
    }
    builder.history.ids_are_optional = true;
    for (const struct api_value *message = messages->first; message; message = message->next, index++) {
        if (!read_message(&builder, message, index, error))
            return false;
    }
    return api_build_messages(&builder, request, error) && read_tools(&builder, request, error);
}

static bool read_text(
    const struct api_value *root, const char *name, const struct api_value **out, struct api_error *error)
{
    *out = api_member(root, name);
    if (*out && (*out)->kind != JSON_STRING)
        return api_fail(error, 400, name, "'%s': expected a string", name);
    if (*out && (*out)->text.size == 0)
        *out = NULL;
    return true;
}

/* The prompt is a message unless it is raw or has a suffix. */
static bool read_prompt(struct api_request *request, struct api_error *error)
{
    const struct api_value *root = request->document.root, *prompt, *system, *suffix, *template;
    struct api_builder builder = api_builder_new(&request->document);
    bool raw = false;
    if (!read_text(root, "prompt", &prompt, error) || !read_text(root, "system", &system, error) ||
        !read_text(root, "suffix", &suffix, error) || !read_text(root, "template", &template, error) ||
        !api_get_bool(root, "raw", &raw, error) || !refuse_images(root, error) ||
        !api_refuse_list(root, "context", error))
        return false;
    if (template)
        return api_fail(error, 501, "template", "'template' is not supported: the model's own one is used");
    if (!prompt && !suffix) {
        request->only_load = true;
        return true;
    }
    if (suffix) {
        request->is_infill = true;
        request->prefix = prompt;
        request->suffix = suffix;
        if (!prompt)
            return api_fail(error, 400, "prompt", "'prompt': expected a string beside 'suffix'");
        return true;
    }
    if (raw) {
        request->prompt = prompt;
        return true;
    }
    if (system)
        api_build_text(&builder, "system", system->text);
    api_build_text(&builder, "user", prompt->text);
    return api_build_messages(&builder, request, error);
}

static bool read_format(struct api_request *request, struct api_error *error)
{
    const struct api_value *format = api_member(request->document.root, "format");
    if (!format || api_is_text(format, ""))
        return true;
    if (format->kind == JSON_OBJECT_BEGIN)
        return api_read_schema(request, format, "format", error);
    if (!api_is_text(format, "json"))
        return api_fail(error, 400, "format", "'format': expected \"json\" or a JSON Schema");
    request->any_object = true;
    request->constraint_field = "format";
    return true;
}

/* The server's context counts: a longer prompt is refused, whatever num_ctx says. */
static bool read_options(
    struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *options = api_member(request->document.root, "options");
    int64_t most = -1, context = 0;
    if (options && options->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, "options", "'options': expected an object");
    if (!api_get_integer(options, "num_predict", -2, UINT32_MAX - 1, &most, error) ||
        !api_get_integer(options, "num_ctx", 0, INT64_MAX, &context, error))
        return false;
    api_limit_tokens(request, defaults, most < 0 ? -1 : most);
    return api_read_sampler(options, &request->sampler, error) &&
           api_read_stops(api_member(options, "stop"), "stop", request, error);
}

/* Templates that know thoughts have this variable. Some models have levels, which are words. */
static bool read_think(struct api_request *request, struct api_error *error)
{
    const struct api_value *think = api_member(request->document.root, "think");
    struct api_builder builder = api_builder_new(&request->document);
    struct api_list variables = api_list_new(JSON_OBJECT_BEGIN);
    if (!think)
        return true;
    if (think->kind == JSON_STRING)
        api_list_add(&builder, &variables, "reasoning_effort", think);
    else if (think->kind != JSON_TRUE && think->kind != JSON_FALSE)
        return api_fail(error, 400, "think", "'think': expected true, false or a level");
    api_list_add_bool(&builder, &variables, "enable_thinking", think->kind != JSON_FALSE);
    struct api_value *kept = api_document_take(&request->document, sizeof *kept);
    if (!kept || builder.failed)
        return api_out_of_memory(error);
    *kept = variables.value;
    request->template_variables = kept;
    return true;
}

static bool check_keep_alive(const struct api_value *root, struct api_error *error)
{
    const struct api_value *time = api_member(root, "keep_alive");
    if (!time || time->kind == JSON_STRING || time->kind == JSON_INTEGER || time->kind == JSON_NUMBER)
        return true;
    return api_fail(error, 400, "keep_alive", "'keep_alive': expected a number of seconds or a duration");
}

static bool read(struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *root = request->document.root;
    request->stream = true; /* unless the request says otherwise */
    return check_keep_alive(root, error) && read_format(request, error) &&
           (request->style == API_OLLAMA_CHAT ? read_chat(request, error) : read_prompt(request, error)) &&
           read_options(request, defaults, error) && read_think(request, error) &&
           api_get_bool(root, "stream", &request->stream, error);
}

/* ---- Answers ---- */

void api_write_ollama_time(struct json_writer *json, const char *key, int64_t seconds)
{
    const time_t when = (time_t)seconds;
    struct tm parts;
    char text[32] = "1970-01-01T00:00:00Z";
    if (gmtime_r(&when, &parts))
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    api_write_text(json, key, text);
}

static const char *done_reason(const struct api_choice *choice)
{
    const bool is_cut = choice && strcmp(api_choice_finish(choice), "length") == 0;
    return !choice ? "load" : is_cut ? "length" : "stop";
}

static void write_duration(struct json_writer *json, const char *key, double seconds)
{
    api_write_number(json, key, seconds > 0 ? (uint64_t)(seconds * 1e9) : 0);
}

static void write_calls(struct json_writer *json, const struct api_calls *calls)
{
    json_key(json, "tool_calls");
    json_begin(json, '[');
    for (size_t i = calls->sent; i < api_calls_count(calls); i++) {
        const struct api_call_texts call = api_calls_get(calls, i);
        json_begin(json, '{');
        api_write_text(json, "id", call.id);
        json_key(json, "function");
        json_begin(json, '{');
        api_write_number(json, "index", i);
        json_key(json, "name");
        json_text(json, call.name);
        json_key(json, "arguments");
        api_write_parsed(json, call.arguments);
        json_end(json, '}');
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void write_thoughts(struct json_writer *json, const struct api_choice *choice)
{
    if (!choice || !choice->calls.reasoning.size)
        return;
    json_key(json, "thinking");
    json_text(json, api_text_of(&choice->calls.reasoning));
}

/* Text, then the end if `is_done`. `choice` is NULL if the request only asked for the model. */
static void write_line(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text, bool is_done)
{
    const bool is_chat = answer->request->style == API_OLLAMA_CHAT;
    json_begin(json, '{');
    api_write_text(json, "model", answer->model->id);
    api_write_ollama_time(json, "created_at", answer->created);
    json_key(json, is_chat ? "message" : "response");
    if (is_chat) {
        json_begin(json, '{');
        api_write_text(json, "role", "assistant");
        json_key(json, "content");
    }
    json_text(json, text);
    write_thoughts(json, choice);
    if (is_chat && choice && api_calls_count(&choice->calls) > choice->calls.sent)
        write_calls(json, &choice->calls);
    if (is_chat)
        json_end(json, '}');
    json_key(json, "done");
    json_bool(json, is_done);
    if (is_done)
        api_write_text(json, "done_reason", done_reason(choice));
    if (is_done && choice) {
        const double first = choice->tokens ? choice->first_seconds : choice->end_seconds;
        write_duration(json, "total_duration", choice->end_seconds);
        write_duration(json, "load_duration", 0);
        api_write_number(json, "prompt_eval_count", choice->prompt_tokens);
        write_duration(json, "prompt_eval_duration", first - choice->queue_seconds);
        api_write_number(json, "eval_count", choice->tokens);
        write_duration(json, "eval_duration", choice->end_seconds - first);
    }
    json_end(json, '}');
}

static void write_answer(struct json_writer *json, const struct api_answer *answer)
{
    const struct api_choice *choice = answer->choice_count ? &answer->choices[0] : NULL;
    write_line(json, answer, choice, choice ? api_text_of(&choice->text) : (struct salvo_text){"", 0}, true);
}

static void write_object(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
    const struct api_choice *choice, struct salvo_text echo)
{
    const bool only_load = object == API_OBJECT_END && answer->choice_count == 0;
    (void)echo;
    if (object != API_OBJECT_PART && object != API_OBJECT_LAST && !only_load)
        return;
    struct json_writer json = api_line_begin(stream);
    if (object == API_OBJECT_PART)
        write_line(&json, answer, choice, api_text_of(&choice->text), false);
    else
        write_line(&json, answer, choice, (struct salvo_text){"", 0}, true);
    api_line_end(stream, &json);
}

static void write_error(struct api_stream *stream, const struct api_error *error)
{
    struct json_writer json = api_line_begin(stream);
    api_write_ollama_error(&json, error);
    api_line_end(stream, &json);
}

const struct api_dialect api_ollama = {
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .read = read,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = write_error,
};
