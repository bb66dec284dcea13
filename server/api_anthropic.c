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
    return api_fail(error, strncmp(type->text.data, "tool_", 5) == 0 ? 501 : 400, field,
        "'%s': blocks of the type '%.32s' are not supported", field, type->text.data);
}

static bool read_block(struct api_builder *builder, const char *role, const char *field,
    const struct api_value *block, struct api_error *error)
{
    const struct api_value *type = api_member(block, "type"), *text = api_member(block, "text"),
                           *thoughts = api_member(block, "thinking");
    if (api_is_text(type, "redacted_thinking"))
        return true; /* which only Anthropic can read */
    if (api_is_text(type, "thinking") && strcmp(role, "assistant") == 0 && thoughts &&
        thoughts->kind == JSON_STRING) {
        api_build_reasoning(builder, thoughts->text);
        return true;
    }
    if (!api_is_text(type, "text"))
        return wrong_block(field, type, error);
    if (!text || text->kind != JSON_STRING)
        return api_fail(error, 400, field, "'%s': expected a string as 'text' of each block", field);
    api_build_text(builder, role, text->text);
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
    return api_build_messages(&builder, request, error);
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
    return api_refuse_list(root, "tools", error) && read_limit(request, defaults, error) &&
           read_messages(request, error) && read_thinking(request, error) &&
           api_read_sampler(root, &request->sampler, error) &&
           api_read_stops(api_member(root, "stop_sequences"), "stop_sequences", request, error) &&
           api_get_bool(root, "stream", &request->stream, error);
}

/* ---- Answers ---- */

/* Stop strings of the request come first; those of the template end a turn. */
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
    const char *reason = !choice                                            ? NULL
                         : sequence                                         ? "stop_sequence"
                         : strcmp(api_choice_finish(choice), "length") == 0 ? "max_tokens"
                                                                            : "end_turn";
    api_write_text(json, "stop_reason", reason);
    api_write_text(json, "stop_sequence", sequence);
}

/* Input tokens are those that were computed, as Anthropic counts; at the beginning of a stream it is not
 * known which. */
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

static void write_block(struct json_writer *json, struct salvo_text text)
{
    json_begin(json, '{');
    api_write_text(json, "type", "text");
    json_key(json, "text");
    json_text(json, text);
    json_end(json, '}');
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
        write_block(json, api_text_of(&choice->text));
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

    json = begin_event(stream, "content_block_start");
    api_write_number(&json, "index", 0);
    json_key(&json, "content_block");
    write_block(&json, (struct salvo_text){"", 0});
    end_event(stream, &json);
}

static void write_delta(struct api_stream *stream, const struct api_choice *choice)
{
    struct json_writer json = begin_event(stream, "content_block_delta");
    api_write_number(&json, "index", 0);
    json_key(&json, "delta");
    json_begin(&json, '{');
    api_write_text(&json, "type", "text_delta");
    json_key(&json, "text");
    json_text(&json, api_text_of(&choice->text));
    json_end(&json, '}');
    end_event(stream, &json);
}

static void write_last(
    struct api_stream *stream, const struct api_answer *answer, const struct api_choice *choice)
{
    struct json_writer json = begin_event(stream, "content_block_stop");
    api_write_number(&json, "index", 0);
    end_event(stream, &json);

    json = begin_event(stream, "message_delta");
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
        write_delta(stream, choice);
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
    .silence = "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    .read = read,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = write_error,
};
