/* /v1/messages of Anthropic. */
#include "api_build.h"
#include "api_dialect.h"

#include <stdio.h>
#include <string.h>

/* ---- Requests ---- */

static bool wrong_block(const char *field, const struct api_value *type, struct api_error *error)
{
    if (!type || type->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s': expected a string or blocks with a 'type'", field);
    return api_fail(
        error, 400, field, "'%s': blocks of the type '%.32s' are not supported", field, type->text.data);
}

static bool read_text(
    const struct api_value *block, const char *field, struct salvo_text *out, struct api_error *error)
{
    const struct api_value *type = api_member(block, "type"), *text = api_member(block, "text");
    if (!api_is_text(type, "text"))
        return wrong_block(field, type, error);
    if (!text || text->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s': expected a string as 'text' of each block", field);
    *out = text->text;
    return true;
}

/* The result of a tool is a string, or blocks that become lines. */
static bool read_result(
    struct api_builder *builder, const struct api_value *block, const char *field, struct api_error *error)
{
    const struct api_value *content = api_member(block, "content"), *id = api_member(block, "tool_use_id");
    struct buffer all = {0};
    bool ok = true, is_error = false; /* the text of the result tells it to the model */
    if (!api_get_bool(block, "is_error", &is_error, error))
        return false;
    if (!id || id->kind != JSON_STRING || !id->text.size)
        return api_fail(error, 400, field, "'%s': expected a string as 'tool_use_id'", field);
    if (!content || content->kind == JSON_STRING)
        return api_build_result(
            builder, field, id, NULL, content ? content->text : (struct salvo_text){"", 0}, error);
    if (content->kind != JSON_ARRAY_BEGIN)
        return api_fail(
            error, 400, field, "'%s': expected a string or blocks as the result of a tool", field);
    for (const struct api_value *part = content->first; part && ok; part = part->next) {
        struct salvo_text text = {0};
        ok = read_text(part, field, &text, error);
        if (ok && ((all.size && buffer_append(&all, "\n", 1) != SALVO_OK) ||
                      buffer_append(&all, text.data, text.size) != SALVO_OK))
            ok = api_out_of_memory(error);
    }
    char *kept = ok ? api_document_take(builder->document, all.size + 1) : NULL;
    if (kept) {
        if (all.size)
            memcpy(kept, all.data, all.size);
        kept[all.size] = 0;
        ok = api_build_result(builder, field, id, NULL, (struct salvo_text){kept, all.size}, error);
    } else if (ok) {
        ok = api_out_of_memory(error);
    }
    buffer_free(&all);
    return ok;
}

static bool read_call(
    struct api_builder *builder, const struct api_value *block, const char *field, struct api_error *error)
{
    const struct api_value *id = api_member(block, "id"), *input = api_member(block, "input");
    if (!id || id->kind != JSON_STRING || !id->text.size)
        return api_fail(error, 400, field, "'%s': expected a string as 'id' of a call", field);
    if (!input || input->kind != JSON_OBJECT_BEGIN)
        return api_fail(error, 400, field, "'%s': expected an object as 'input' of a call", field);
    return api_build_call(builder, field, id, api_member(block, "name"), input, error);
}

static bool read_block(struct api_builder *builder, const char *role, const char *field,
    const struct api_value *block, struct api_error *error)
{
    const struct api_value *type = api_member(block, "type"), *thoughts = api_member(block, "thinking");
    const bool is_assistant = strcmp(role, "assistant") == 0;
    struct salvo_text text = {0};
    if (api_is_text(type, "redacted_thinking"))
        return true; /* only Anthropic can read these */
    if (api_is_text(type, "thinking") && is_assistant && thoughts && thoughts->kind == JSON_STRING) {
        api_build_reasoning(builder, thoughts->text);
        return true;
    }
    if (api_is_text(type, "tool_use") && is_assistant)
        return read_call(builder, block, field, error);
    if (api_is_text(type, "tool_result") && strcmp(role, "user") == 0)
        return read_result(builder, block, field, error);
    if (!read_text(block, field, &text, error))
        return false;
    api_build_text(builder, role, text);
    return true;
}

static bool read_content(struct api_builder *builder, const char *role, const char *field,
    const struct api_value *content, struct api_error *error)
{
    if (content && content->kind == JSON_STRING) {
        api_build_text(builder, role, content->text);
        return true;
    }
    if (!content || content->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, field, "'%s': expected a string or an array of blocks", field);
    for (const struct api_value *block = content->first; block; block = block->next) {
        if (!read_block(builder, role, field, block, error))
            return false;
    }
    return true;
}

/* Claude Code's first block has a number that changes with every request: no prompt would be found in the
 * cache. */
static bool is_billing_block(const struct api_value *block)
{
    static const char start[] = "x-anthropic-billing-header:";
    const struct api_value *text = api_member(block, "text");
    return text && text->kind == JSON_STRING && strncmp(text->text.data, start, sizeof start - 1) == 0;
}

static bool read_system(struct api_builder *builder, const struct api_value *system, struct api_error *error)
{
    if (!system || system->kind != JSON_ARRAY_BEGIN)
        return !system || read_content(builder, "system", "system", system, error);
    for (const struct api_value *block = system->first; block; block = block->next) {
        if (!is_billing_block(block) && !read_block(builder, "system", "system", block, error))
            return false;
    }
    return true;
}

/* Tools of a type are programs of Anthropic's servers or clients: they are left out. */
static bool read_tools(struct api_builder *builder, struct api_request *request, struct api_error *error)
{
    const struct api_value *root = request->document.root, *tools = api_member(root, "tools"),
                           *asked = api_member(root, "tool_choice"), *type = api_member(asked, "type");
    struct api_tool_choice choice = {0};
    if (tools && tools->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "tools", "'tools': expected an array of tools");
    for (const struct api_value *tool = tools ? tools->first : NULL; tool; tool = tool->next) {
        const struct api_value *kind = api_member(tool, "type");
        if (tool->kind != JSON_OBJECT_BEGIN || (kind && kind->kind != JSON_STRING))
            return api_fail(error, 400, "tools", "'tools': expected objects");
        if (!kind || api_is_text(kind, "custom"))
            api_build_tool(builder, tool, "input_schema");
    }
    choice.none = api_is_text(type, "none");
    choice.required = api_is_text(type, "any");
    choice.name = api_is_text(type, "tool") ? api_member(asked, "name") : NULL;
    if (asked && !choice.none && !choice.required && !choice.name && !api_is_text(type, "auto"))
        return api_fail(error, 400, "tool_choice",
            "'tool_choice.type': expected \"auto\", \"any\", \"none\", or \"tool\" with a 'name'");
    return api_get_bool(asked, "disable_parallel_tool_use", &choice.one_call, error) &&
           api_build_tools(builder, &choice, request, error);
}

static bool read_messages(struct api_request *request, struct api_error *error)
{
    const struct api_value *root = request->document.root, *messages = api_member(root, "messages");
    struct api_builder builder = api_builder_new(&request->document);
    size_t index = 0;
    if (!messages || messages->kind != JSON_ARRAY_BEGIN || messages->count == 0)
        return api_fail(error, 400, "messages", "'messages': expected an array of messages");
    if (!read_system(&builder, api_member(root, "system"), error))
        return false;
    for (const struct api_value *message = messages->first; message; message = message->next, index++) {
        const struct api_value *role = api_member(message, "role");
        const bool is_user = api_is_text(role, "user");
        char field[48];
        if (!is_user && !api_is_text(role, "assistant")) {
            snprintf(field, sizeof field, "messages.%zu.role", index);
            return api_fail(error, 400, field, "'%s': expected \"user\" or \"assistant\"", field);
        }
        snprintf(field, sizeof field, "messages.%zu.content", index);
        if (!read_content(
                &builder, is_user ? "user" : "assistant", field, api_member(message, "content"), error))
            return false;
    }
    return api_build_messages(&builder, request, error) && read_tools(&builder, request, error);
}

/* Templates that know thoughts have this variable. */
static bool read_thinking(struct api_request *request, struct api_error *error)
{
    const struct api_value *thinking = api_member(request->document.root, "thinking"),
                           *type = api_member(thinking, "type");
    struct api_builder builder = api_builder_new(&request->document);
    struct api_list variables = api_list_new(JSON_OBJECT_BEGIN);
    if (!thinking)
        return true;
    const bool off = api_is_text(type, "disabled");
    if (!off && !api_is_text(type, "enabled") && !api_is_text(type, "adaptive"))
        return api_fail(
            error, 400, "thinking", "'thinking.type': expected \"enabled\", \"adaptive\" or \"disabled\"");
    api_list_add_bool(&builder, &variables, "enable_thinking", !off);
    struct api_value *kept = api_document_take(&request->document, sizeof *kept);
    if (!kept || builder.failed)
        return api_out_of_memory(error);
    *kept = variables.value;
    request->template_variables = kept;
    return true;
}

static bool read_limit(
    struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *root = request->document.root;
    int64_t most = -1;
    if (!api_get_integer(root, "max_tokens", 1, UINT32_MAX - 1, &most, error))
        return false;
    if (most < 0 && request->style == API_ANTHROPIC)
        return api_fail(error, 400, "max_tokens", "'max_tokens': expected an integer, it is required");
    api_limit_tokens(request, defaults, most);
    return true;
}

static bool read(struct api_request *request, const struct api_defaults *defaults, struct api_error *error)
{
    const struct api_value *root = request->document.root;
    return read_limit(request, defaults, error) && read_messages(request, error) &&
           read_thinking(request, error) && api_read_sampler(root, &request->sampler, error) &&
           api_read_stops(api_member(root, "stop_sequences"), "stop_sequences", request, error) &&
           api_get_bool(root, "stream", &request->stream, error);
}

/* ---- Answers ---- */

/* Stop strings of the request come first; the template's stop strings end a turn. */
static const char *stop_sequence(const struct api_answer *answer, const struct api_choice *choice)
{
    if (choice->finish != SALVO_FINISH_STOP)
        return NULL;
    for (size_t i = 0; i < answer->request->stop_count; i++) {
        if (strcmp(choice->stop_word, answer->request->stops[i]) == 0)
            return choice->stop_word;
    }
    return NULL;
}

static void write_stop(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    const char *sequence = choice ? stop_sequence(answer, choice) : NULL;
    const char *reason = !choice                                                ? NULL
                         : sequence                                             ? "stop_sequence"
                         : strcmp(api_choice_finish(choice), "tool_calls") == 0 ? "tool_use"
                         : strcmp(api_choice_finish(choice), "length") == 0     ? "max_tokens"
                                                                                : "end_turn";
    api_write_text(json, "stop_reason", reason);
    api_write_text(json, "stop_sequence", sequence);
}

/* Input tokens are the computed ones, without the cached ones, as Anthropic counts; at the beginning of a
 * stream their number is not known. */
static void write_usage(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    const uint64_t cached = choice ? choice->cached_tokens : 0;
    json_key(json, "usage");
    json_begin(json, '{');
    api_write_number(json, "input_tokens", answer->prepared->prompts[0].count - cached);
    api_write_number(json, "cache_creation_input_tokens", 0);
    api_write_number(json, "cache_read_input_tokens", cached);
    api_write_number(json, "output_tokens", choice ? choice->tokens : 0);
    json_end(json, '}');
}

/* A block of text or of thoughts. */
static void write_block(struct json_writer *json, enum api_part_kind kind, struct salvo_text text)
{
    const char *name = kind == API_PART_TEXT ? "text" : "thinking";
    json_begin(json, '{');
    api_write_text(json, "type", name);
    json_key(json, name);
    json_text(json, text);
    if (kind == API_PART_REASONING)
        api_write_text(json, "signature", "");
    json_end(json, '}');
}

/* In a stream the arguments come later. */
static void write_call(struct json_writer *json, const struct api_call_texts *call, bool with_input)
{
    json_begin(json, '{');
    api_write_text(json, "type", "tool_use");
    api_write_text(json, "id", call->id);
    json_key(json, "name");
    json_text(json, call->name);
    json_key(json, "input");
    if (with_input)
        api_write_parsed(json, call->arguments);
    else
        json_raw(json, "{}");
    json_end(json, '}');
}

static void write_content(struct json_writer *json, const struct api_choice *choice)
{
    const size_t calls = api_calls_count(&choice->calls);
    if (choice->calls.reasoning.size)
        write_block(json, API_PART_REASONING, api_text_of(&choice->calls.reasoning));
    if (choice->text.size || !calls)
        write_block(json, API_PART_TEXT, api_text_of(&choice->text));
    for (size_t i = 0; i < calls; i++) {
        const struct api_call_texts call = api_calls_get(&choice->calls, i);
        write_call(json, &call, true);
    }
}

/* `choice` is NULL at the beginning of a stream. */
static void write_message(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    json_begin(json, '{');
    api_write_text(json, "id", answer->id);
    api_write_text(json, "type", "message");
    api_write_text(json, "role", "assistant");
    api_write_text(json, "model", answer->model->id);
    json_key(json, "content");
    json_begin(json, '[');
    if (choice)
        write_content(json, choice);
    json_end(json, ']');
    write_stop(json, answer, choice);
    write_usage(json, answer, choice);
    json_end(json, '}');
}

static void write_answer(struct json_writer *json, const struct api_answer *answer)
{
    write_message(json, answer, &answer->choices[0]);
}

/* ---- Streams ---- */

static struct json_writer begin_event(struct api_stream *stream, const char *type)
{
    struct json_writer json = api_event_begin(stream, type);
    json_begin(&json, '{');
    api_write_text(&json, "type", type);
    return json;
}

static void end_event(struct api_stream *stream, struct json_writer *json)
{
    json_end(json, '}');
    api_event_end(stream, json);
}

static void write_start(struct api_stream *stream, const struct api_answer *answer)
{
    struct json_writer json = begin_event(stream, "message_start");
    json_key(&json, "message");
    write_message(&json, answer, NULL);
    end_event(stream, &json);
}

static struct json_writer begin_block_event(struct api_stream *stream, const char *type)
{
    struct json_writer json = begin_event(stream, type);
    api_write_number(&json, "index", stream->parts - 1);
    return json;
}

static void close_block(struct api_stream *stream)
{
    if (stream->open == API_PART_NONE)
        return;
    struct json_writer json = begin_block_event(stream, "content_block_stop");
    end_event(stream, &json);
    stream->open = API_PART_NONE;
}

static void open_block(struct api_stream *stream, enum api_part_kind kind)
{
    if (stream->open == kind)
        return;
    close_block(stream);
    stream->open = kind;
    stream->parts++;
    struct json_writer json = begin_block_event(stream, "content_block_start");
    json_key(&json, "content_block");
    write_block(&json, kind, (struct salvo_text){"", 0});
    end_event(stream, &json);
}

static void write_delta(struct api_stream *stream, const char *type, const char *key, struct salvo_text text)
{
    struct json_writer json = begin_block_event(stream, "content_block_delta");
    json_key(&json, "delta");
    json_begin(&json, '{');
    api_write_text(&json, "type", type);
    json_key(&json, key);
    json_text(&json, text);
    json_end(&json, '}');
    end_event(stream, &json);
}

/* Writes the part of a call that was not sent yet. */
static void write_call_news(struct api_stream *stream, const struct api_call_texts *call)
{
    if (!call->is_known) {
        close_block(stream);
        stream->open = API_PART_CALL;
        stream->parts++;
        struct json_writer json = begin_block_event(stream, "content_block_start");
        json_key(&json, "content_block");
        write_call(&json, call, false);
        end_event(stream, &json);
    }
    if (call->news.size)
        write_delta(stream, "input_json_delta", "partial_json", call->news);
    if (call->ended)
        close_block(stream);
}

static void write_news(struct api_stream *stream, const struct api_choice *choice)
{
    if (choice->calls.reasoning.size) {
        open_block(stream, API_PART_REASONING);
        write_delta(stream, "thinking_delta", "thinking", api_text_of(&choice->calls.reasoning));
    }
    if (choice->text.size) {
        open_block(stream, API_PART_TEXT);
        write_delta(stream, "text_delta", "text", api_text_of(&choice->text));
    }
    for (size_t i = choice->calls.sent; i < api_calls_count(&choice->calls); i++) {
        const struct api_call_texts call = api_calls_get(&choice->calls, i);
        write_call_news(stream, &call);
    }
}

static void write_last(
    struct api_stream *stream, const struct api_answer *answer, const struct api_choice *choice)
{
    if (!stream->parts) /* an empty answer has an empty block, with and without a stream */
        open_block(stream, API_PART_TEXT);
    close_block(stream);
    struct json_writer json = begin_event(stream, "message_delta");
    json_key(&json, "delta");
    json_begin(&json, '{');
    write_stop(&json, answer, choice);
    json_end(&json, '}');
    write_usage(&json, answer, choice);
    end_event(stream, &json);

    json = begin_event(stream, "message_stop");
    end_event(stream, &json);
}

static void write_object(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
    const struct api_choice *choice, struct salvo_text echo)
{
    (void)echo;
    if (object == API_OBJECT_FIRST)
        write_start(stream, answer);
    else if (object == API_OBJECT_PART)
        write_news(stream, choice);
    else if (object == API_OBJECT_LAST)
        write_last(stream, answer, choice);
}

static void write_error(struct api_stream *stream, const struct api_error *error)
{
    struct json_writer json = api_event_begin(stream, "error");
    api_write_anthropic_error(&json, error, NULL);
    api_event_end(stream, &json);
}

const struct api_dialect api_anthropic = {
    .id_prefix = "msg_",
    .stream_type = "text/event-stream",
    .calls_in_pieces = true,
    .silence = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    .read = read,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = write_error,
};
