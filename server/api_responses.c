/* /v1/responses of OpenAI. Nothing is stored: each request brings its whole conversation. */
#include "api_build.h"
#include "api_dialect.h"

#include <stdio.h>
#include <string.h>

/* ---- Requests ---- */

static const char *role_of(const struct api_value *role)
{
    static const char *const names[] = {"user", "assistant", "system"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (api_is_text(role, names[i]))
            return names[i];
    }
    return api_is_text(role, "developer") ? "system" : NULL;
}

static bool read_content(struct api_builder *builder, const char *role, const char *field,
    const struct api_value *content, struct api_error *error)
{
    if (content && content->kind == JSON_STRING) {
        api_build_text(builder, role, content->text);
        return true;
    }
    if (!content || content->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, field, "'%s.content': expected a string or an array of parts", field);
    for (const struct api_value *part = content->first; part; part = part->next) {
        const struct api_value *type = api_member(part, "type"), *text = api_member(part, "text");
        if (!type || type->kind != JSON_STRING)
            return api_fail(error, 400, field, "'%s.content': expected parts with a 'type'", field);
        if (api_is_text(type, "refusal"))
            text = api_member(part, "refusal");
        else if (!api_is_text(type, "input_text") && !api_is_text(type, "output_text") &&
                 !api_is_text(type, "text"))
            return api_fail(error, 400, field, "'%s.content': parts of the type '%.32s' are not supported",
                field, type->text.data);
        if (!text || text->kind != JSON_STRING)
            return api_fail(error, 400, field, "'%s.content': expected a string in each part", field);
        api_build_text(builder, role, text->text);
    }
    return true;
}

static bool read_result(
    struct api_builder *builder, const struct api_value *item, const char *field, struct api_error *error)
{
    const struct api_value *id = api_member(item, "call_id"), *output = api_member(item, "output");
    if (!id || id->kind != JSON_STRING || !output || output->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s': expected strings as 'call_id' and 'output'", field);
    return api_build_result(builder, field, id, NULL, output->text, error);
}

static bool read_call(
    struct api_builder *builder, const struct api_value *item, const char *field, struct api_error *error)
{
    const struct api_value *id = api_member(item, "call_id");
    if (!id || id->kind != JSON_STRING || !id->text.size)
        return api_fail(error, 400, field, "'%s': expected a string as 'call_id' of a call", field);
    return api_build_call(builder, field, id, api_member(item, "name"), api_member(item, "arguments"), error);
}

static bool read_item(
    struct api_builder *builder, const struct api_value *item, size_t index, struct api_error *error)
{
    const struct api_value *type = api_member(item, "type");
    char field[48];
    snprintf(field, sizeof field, "input[%zu]", index);
    if (item->kind != JSON_OBJECT_BEGIN || (type && type->kind != JSON_STRING))
        return api_fail(error, 400, field, "'%s': expected an object", field);
    if (api_is_text(type, "reasoning"))
        return true; /* of an earlier answer */
    if (api_is_text(type, "function_call"))
        return read_call(builder, item, field, error);
    if (api_is_text(type, "function_call_output"))
        return read_result(builder, item, field, error);
    if (type && !api_is_text(type, "message"))
        return api_fail(
            error, 400, field, "'%s': items of the type '%.32s' are not supported", field, type->text.data);
    const char *role = role_of(api_member(item, "role"));
    if (!role)
        return api_fail(error, 400, field,
            "'%s.role': expected \"user\", \"assistant\", \"system\" or \"developer\"", field);
    return read_content(builder, role, field, api_member(item, "content"), error);
}

/* Tools that are no functions belong to OpenAI's servers: they are skipped. */
static bool read_tools(struct api_builder *builder, struct api_request *request, struct api_error *error)
{
    const struct api_value *root = request->document.root, *tools = api_member(root, "tools"),
                           *asked = api_member(root, "tool_choice");
    struct api_tool_choice choice = {0};
    bool several = true;
    if (tools && tools->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "tools", "'tools': expected an array of tools");
    for (const struct api_value *tool = tools ? tools->first : NULL; tool; tool = tool->next) {
        const struct api_value *type = api_member(tool, "type");
        if (!type || type->kind != JSON_STRING)
            return api_fail(error, 400, "tools", "'tools': expected objects with a 'type'");
        if (api_is_text(type, "function"))
            api_build_tool(builder, tool, "parameters");
    }
    if (!api_get_bool(root, "parallel_tool_calls", &several, error))
        return false;
    choice.none = api_is_text(asked, "none");
    choice.required = api_is_text(asked, "required");
    choice.name = api_is_text(api_member(asked, "type"), "function") ? api_member(asked, "name") : NULL;
    choice.one_call = !several;
    if (asked && !choice.none && !choice.required && !choice.name && !api_is_text(asked, "auto")) {
        return api_fail(error, 400, "tool_choice",
            "'tool_choice': expected \"auto\", \"none\", \"required\" or an object of the type \"function\" "
            "with a 'name'");
    }
    return api_build_tools(builder, &choice, request, error);
}

static bool read_input(struct api_request *request, struct api_error *error)
{
    const struct api_value *root = request->document.root, *input = api_member(root, "input"),
                           *instructions = api_member(root, "instructions");
    struct api_builder builder = api_builder_new(&request->document);
    size_t index = 0;
    if (instructions && instructions->kind != JSON_STRING)
        return api_fail(error, 400, "instructions", "'instructions': expected a string");
    if (instructions)
        api_build_text(&builder, "system", instructions->text);
    if (!input || (input->kind != JSON_STRING && (input->kind != JSON_ARRAY_BEGIN || input->count == 0)))
        return api_fail(error, 400, "input", "'input': expected a string or an array of items");
    if (input->kind == JSON_STRING)
        api_build_text(&builder, "user", input->text);
    for (const struct api_value *item = input->kind == JSON_STRING ? NULL : input->first; item;
         item = item->next, index++) {
        if (!read_item(&builder, item, index, error))
            return false;
    }
    return api_build_messages(&builder, request, error) && read_tools(&builder, request, error);
}

static bool read_format(struct api_request *request, struct api_error *error)
{
    const struct api_value *text = api_member(request->document.root, "text"),
                           *format = api_member(text, "format"), *type = api_member(format, "type");
    if (text && text->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, "text", "'text': expected an object");
    if (!format || api_is_text(type, "text"))
        return true;
    if (api_is_text(type, "json_schema"))
        return api_read_schema(request, api_member(format, "schema"), "text.format.schema", error);
    if (!api_is_text(type, "json_object"))
        return api_fail(error, 400, "text.format",
            "'text.format.type': expected \"text\", \"json_object\" or \"json_schema\"");
    request->any_object = true;
    request->constraint_field = "text.format";
    return true;
}

static bool refuse_stored(const struct api_value *root, struct api_error *error)
{
    static const char *const names[] = {"previous_response_id", "conversation", "prompt"};
    bool background = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (api_member(root, names[i]))
            return api_fail(error, 501, names[i],
                "'%s' is not supported: no answers are stored, 'input' has the whole conversation", names[i]);
    }
    if (!api_get_bool(root, "background", &background, error))
        return false;
    return !background || api_fail(error, 501, "background", "'background' is not supported");
}

/* Variables of the template, as in a chat request of llama.cpp. */
static bool read_variables(struct api_request *request, struct api_error *error)
{
    static const char field[] = "chat_template_kwargs";
    const struct api_value *variables = api_member(request->document.root, field);
    if (variables && variables->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, field, "'%s': expected an object", field);
    request->template_variables = variables;
    return true;
}

static bool read(struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *root = request->document.root;
    int64_t most = -1;
    if (!api_get_integer(root, "max_output_tokens", 1, UINT32_MAX - 1, &most, error))
        return false;
    api_limit_tokens(request, defaults, most);
    return refuse_stored(root, error) && read_format(request, error) && read_input(request, error) &&
           read_variables(request, error) && api_read_sampler(root, &request->sampler, error) &&
           api_get_bool(root, "stream", &request->stream, error);
}

/* ---- Answers ---- */

/* The status of the answer; `choice` is NULL at the beginning of a stream. */
static bool is_cut(const struct api_choice *choice)
{
    return choice && strcmp(api_choice_finish(choice), "length") == 0;
}

static const char *status_of(const struct api_choice *choice)
{
    return !choice ? "in_progress" : is_cut(choice) ? "incomplete" : "completed";
}

static void write_part(struct json_writer *json, struct salvo_text text)
{
    json_begin(json, '{');
    api_write_text(json, "type", "output_text");
    json_key(json, "text");
    json_text(json, text);
    json_key(json, "annotations");
    json_raw(json, "[]");
    json_key(json, "logprobs");
    json_raw(json, "[]");
    json_end(json, '}');
}

/* The ids of an answer's parts are derived from the id of the answer. */
static void write_item_id(
    struct json_writer *json, const char *key, const struct api_answer *answer, const char *prefix)
{
    char id[48];
    snprintf(id, sizeof id, "%s_%s", prefix, answer->id + strlen(api_responses.id_prefix));
    api_write_text(json, key, id);
}

static void write_message(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text)
{
    json_begin(json, '{');
    write_item_id(json, "id", answer, "msg");
    api_write_text(json, "type", "message");
    api_write_text(json, "role", "assistant");
    api_write_text(json, "status", status_of(choice));
    json_key(json, "content");
    json_begin(json, '[');
    if (choice)
        write_part(json, text);
    json_end(json, ']');
    json_end(json, '}');
}

/* At the beginning of a call in a stream its arguments are still empty. */
static void write_call(struct json_writer *json, const struct api_call_texts *call, bool is_done)
{
    json_begin(json, '{');
    api_write_text(json, "id", call->id);
    api_write_text(json, "type", "function_call");
    api_write_text(json, "status", !is_done ? "in_progress" : call->is_cut ? "incomplete" : "completed");
    api_write_text(json, "call_id", call->id);
    json_key(json, "name");
    json_text(json, call->name);
    json_key(json, "arguments");
    json_text(json, is_done ? call->arguments : (struct salvo_text){"", 0});
    json_end(json, '}');
}

/* The items of an answer, the message at the place that it has in the stream. Thoughts are left out, as by
 * OpenAI. */
static void write_output(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text, const struct api_stream *stream)
{
    const size_t calls = choice ? api_calls_count(&choice->calls) : 0;
    const bool has_text = stream ? stream->has_text : choice && (text.size || !calls);
    const size_t place = stream ? stream->text_part : 0;
    json_key(json, "output");
    json_begin(json, '[');
    for (size_t i = 0; choice && i <= calls; i++) {
        if (has_text && i == place)
            write_message(json, answer, choice, text);
        if (i == calls)
            break;
        const struct api_call_texts call = api_calls_get(&choice->calls, i);
        write_call(json, &call, true);
    }
    json_end(json, ']');
}

static void write_usage(struct json_writer *json, const struct api_choice *choice)
{
    json_key(json, "usage");
    if (!choice) {
        json_null(json);
        return;
    }
    json_begin(json, '{');
    api_write_number(json, "input_tokens", choice->prompt_tokens);
    json_key(json, "input_tokens_details");
    json_begin(json, '{');
    api_write_number(json, "cached_tokens", choice->cached_tokens);
    json_end(json, '}');
    api_write_number(json, "output_tokens", choice->tokens);
    json_key(json, "output_tokens_details");
    json_raw(json, "{\"reasoning_tokens\":0}");
    api_write_number(json, "total_tokens", (uint64_t)choice->prompt_tokens + choice->tokens);
    json_end(json, '}');
}

/* A member of the request unchanged, or a default if the request does not have it. */
static void write_asked(
    struct json_writer *json, const struct api_answer *answer, const char *name, const char *otherwise)
{
    const struct api_value *value = api_member(answer->request->document.root, name);
    json_key(json, name);
    if (value)
        api_write_value(json, value);
    else
        json_raw(json, otherwise);
}

/* `stream` is NULL for an answer that is not streamed. */
static void write_response(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text, const struct api_stream *stream)
{
    json_begin(json, '{');
    api_write_text(json, "id", answer->id);
    api_write_text(json, "object", "response");
    json_key(json, "created_at");
    json_signed(json, answer->created);
    api_write_text(json, "status", status_of(choice));
    json_key(json, "error");
    json_null(json);
    json_key(json, "incomplete_details");
    json_raw(json, is_cut(choice) ? "{\"reason\":\"max_output_tokens\"}" : "null");
    write_asked(json, answer, "instructions", "null");
    write_asked(json, answer, "max_output_tokens", "null");
    api_write_text(json, "model", answer->model->id);
    write_output(json, answer, choice, text, stream);
    write_asked(json, answer, "parallel_tool_calls", "true");
    api_write_text(json, "previous_response_id", NULL);
    json_key(json, "store");
    json_bool(json, false);
    json_key(json, "temperature");
    json_float(json, (double)answer->request->sampler.temperature, true);
    write_asked(json, answer, "text", "{\"format\":{\"type\":\"text\"}}");
    write_asked(json, answer, "tool_choice", "\"auto\"");
    write_asked(json, answer, "tools", "[]");
    json_key(json, "top_p");
    json_float(json, (double)answer->request->sampler.top_p, true);
    api_write_text(json, "truncation", "disabled");
    write_usage(json, choice);
    write_asked(json, answer, "metadata", "{}");
    json_end(json, '}');
}

static void write_answer(struct json_writer *json, const struct api_answer *answer)
{
    write_response(json, answer, &answer->choices[0], api_text_of(&answer->choices[0].text), NULL);
}

/* ---- Streams ---- */

static struct json_writer begin_event(struct api_stream *stream, const char *type)
{
    const unsigned number = stream->events;
    struct json_writer json = api_event_begin(stream, type);
    json_begin(&json, '{');
    api_write_text(&json, "type", type);
    api_write_number(&json, "sequence_number", number);
    return json;
}

static void end_event(struct api_stream *stream, struct json_writer *json)
{
    json_end(json, '}');
    api_event_end(stream, json);
}

static void send_response(struct api_stream *stream, const char *type, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text)
{
    struct json_writer json = begin_event(stream, type);
    json_key(&json, "response");
    write_response(&json, answer, choice, text, stream);
    end_event(stream, &json);
}

static void send_message(struct api_stream *stream, const char *type, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text text)
{
    struct json_writer json = begin_event(stream, type);
    api_write_number(&json, "output_index", stream->text_part);
    json_key(&json, "item");
    write_message(&json, answer, choice, text);
    end_event(stream, &json);
}

/* An event of the only part of the message. */
static struct json_writer begin_part(
    struct api_stream *stream, const char *type, const struct api_answer *answer)
{
    struct json_writer json = begin_event(stream, type);
    write_item_id(&json, "item_id", answer, "msg");
    api_write_number(&json, "output_index", stream->text_part);
    api_write_number(&json, "content_index", 0);
    return json;
}

static void send_part(
    struct api_stream *stream, const char *type, const struct api_answer *answer, struct salvo_text text)
{
    struct json_writer json = begin_part(stream, type, answer);
    json_key(&json, "part");
    write_part(&json, text);
    end_event(stream, &json);
}

static void send_text(struct api_stream *stream, const char *type, const char *key,
    const struct api_answer *answer, struct salvo_text text)
{
    struct json_writer json = begin_part(stream, type, answer);
    json_key(&json, key);
    json_text(&json, text);
    json_key(&json, "logprobs");
    json_raw(&json, "[]");
    end_event(stream, &json);
}

static void begin_message(struct api_stream *stream, const struct api_answer *answer)
{
    static const struct salvo_text none = {"", 0};
    if (stream->has_text)
        return;
    stream->has_text = true;
    stream->text_part = stream->parts++;
    send_message(stream, "response.output_item.added", answer, NULL, none);
    send_part(stream, "response.content_part.added", answer, none);
}

static void end_message(
    struct api_stream *stream, const struct api_answer *answer, const struct api_choice *choice)
{
    const struct salvo_text text = api_text_of(&choice->whole);
    send_text(stream, "response.output_text.done", "text", answer, text);
    send_part(stream, "response.content_part.done", answer, text);
    send_message(stream, "response.output_item.done", answer, choice, text);
}

static void send_arguments(struct api_stream *stream, const char *type, const char *key,
    const struct api_call_texts *call, struct salvo_text arguments)
{
    struct json_writer json = begin_event(stream, type);
    api_write_text(&json, "item_id", call->id);
    api_write_number(&json, "output_index", stream->call_part);
    json_key(&json, "name");
    json_text(&json, call->name);
    json_key(&json, key);
    json_text(&json, arguments);
    end_event(stream, &json);
}

static void send_call_item(
    struct api_stream *stream, const char *type, const struct api_call_texts *call, bool is_done)
{
    struct json_writer json = begin_event(stream, type);
    api_write_number(&json, "output_index", stream->call_part);
    json_key(&json, "item");
    write_call(&json, call, is_done);
    end_event(stream, &json);
}

static void send_calls(struct api_stream *stream, const struct api_calls *calls)
{
    for (size_t i = calls->sent; i < api_calls_count(calls); i++) {
        const struct api_call_texts call = api_calls_get(calls, i);
        if (!call.is_known) {
            stream->call_part = stream->parts++;
            send_call_item(stream, "response.output_item.added", &call, false);
        }
        if (call.news.size)
            send_arguments(stream, "response.function_call_arguments.delta", "delta", &call, call.news);
        if (!call.ended)
            break;
        send_arguments(stream, "response.function_call_arguments.done", "arguments", &call, call.arguments);
        send_call_item(stream, "response.output_item.done", &call, true);
    }
}

static void write_object(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
    const struct api_choice *choice, struct salvo_text echo)
{
    static const struct salvo_text none = {"", 0};
    (void)echo;
    if (object == API_OBJECT_FIRST) {
        send_response(stream, "response.created", answer, NULL, none);
        send_response(stream, "response.in_progress", answer, NULL, none);
    } else if (object == API_OBJECT_PART) {
        if (choice->text.size) {
            begin_message(stream, answer);
            send_text(stream, "response.output_text.delta", "delta", answer, api_text_of(&choice->text));
        }
        send_calls(stream, &choice->calls);
    } else if (object == API_OBJECT_LAST) {
        if (!stream->parts)
            begin_message(stream, answer);
        if (stream->has_text)
            end_message(stream, answer, choice);
        send_response(stream, is_cut(choice) ? "response.incomplete" : "response.completed", answer, choice,
            api_text_of(&choice->whole));
    }
}

static void write_error(struct api_stream *stream, const struct api_error *error)
{
    char code[16];
    struct json_writer json = begin_event(stream, "error");
    snprintf(code, sizeof code, "%d", error->status);
    api_write_text(&json, "code", code);
    api_write_text(&json, "message", error->message);
    api_write_text(&json, "param", *error->param ? error->param : NULL);
    end_event(stream, &json);
}

const struct api_dialect api_responses = {
    .id_prefix = "resp_",
    .stream_type = "text/event-stream",
    .calls_in_pieces = true,
    .silence = ": still here\n\n",
    .keeps_text = true,
    .read = read,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = write_error,
};
