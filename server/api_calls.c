/* Calls and reasoning parts of an answer. */
#include "api_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

bool api_calls_open(
    struct api_calls *calls, const struct salvo_tool_form *form, const struct api_request *request)
{
    struct buffer text = {0};
    struct json_writer json = api_json(&text);
    calls->form = form;
    if (request->tools)
        api_write_value(&json, request->tools);
    const bool ok = json.status == SALVO_OK &&
                    salvo_tool_parser_open(
                        form, request->tools ? text.data : NULL, text.size, &calls->parser) == SALVO_OK &&
                    salvo_tool_parser_set_thinking(calls->parser, request->thinking) == SALVO_OK;
    buffer_free(&text);
    return ok;
}

void api_calls_close(struct api_calls *calls)
{
    salvo_tool_parser_close(calls->parser);
    buffer_free(&calls->reasoning);
    buffer_free(&calls->calls);
    buffer_free(&calls->call_texts);
}

size_t api_calls_count(const struct api_calls *calls)
{
    return calls->calls.size / sizeof(struct api_call);
}

static struct api_call *call_at(const struct api_calls *calls, size_t index)
{
    return (struct api_call *)(void *)calls->calls.data + index;
}

struct api_call_texts api_calls_get(const struct api_calls *calls, size_t index)
{
    const struct api_call *call = call_at(calls, index);
    const char *texts = calls->call_texts.data ? calls->call_texts.data : "";
    return (struct api_call_texts){.id = call->id,
        .name = {texts + call->name, call->name_size},
        .arguments = {texts + call->arguments, call->arguments_size},
        .news = {texts + call->arguments + call->sent, call->arguments_size - call->sent},
        .is_known = call->is_known,
        .ended = call->ended,
        .is_cut = call->is_cut};
}

bool api_calls_has_news(const struct api_calls *calls)
{
    if (calls->sent == api_calls_count(calls))
        return false;
    const struct api_call_texts last = api_calls_get(calls, api_calls_count(calls) - 1);
    return !last.is_known || last.ended || last.news.size;
}

static bool append(struct buffer *out, struct salvo_text text)
{
    return !text.size || buffer_append(out, text.data, text.size) == SALVO_OK;
}

static bool add_call(struct api_calls *calls, const struct salvo_tool_event *event)
{
    struct api_call call = {.name = calls->call_texts.size, .name_size = event->name.size};
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) < 0)
        random = api_calls_count(calls); /* a name, no secret */
    snprintf(call.id, sizeof call.id, "call_%016" PRIx64, random);
    if (salvo_tool_form_info(calls->form)->id_has_name)
        snprintf(call.id, sizeof call.id, "functions.%.*s:%zu", (int)event->name.size, event->name.data,
            api_calls_count(calls));
    if (!append(&calls->call_texts, event->name))
        return false;
    call.arguments = calls->call_texts.size;
    call.arguments_size = event->arguments.size;
    call.ended = event->kind == SALVO_TOOL_CALL_END;
    return append(&calls->call_texts, event->arguments) &&
           buffer_append(&calls->calls, &call, sizeof call) == SALVO_OK;
}

static struct api_call *last_call(struct api_calls *calls)
{
    return call_at(calls, api_calls_count(calls) - 1);
}

/* A text that began as a call and is not one. If its beginning was sent as a call, it stays one. */
static bool cut_call(struct api_calls *calls, struct salvo_text text, struct buffer *content)
{
    if (calls->in_pieces && last_call(calls)->is_known) {
        last_call(calls)->ended = last_call(calls)->is_cut = true;
        return true;
    }
    if (calls->in_pieces)
        calls->calls.size -= sizeof(struct api_call);
    return append(content, text);
}

static bool take_event(struct api_calls *calls, const struct salvo_tool_event *event, struct buffer *content)
{
    switch (event->kind) {
    case SALVO_TOOL_CALL:
        return !calls->in_pieces || add_call(calls, event);
    case SALVO_TOOL_ARGUMENTS:
        if (calls->in_pieces)
            last_call(calls)->arguments_size += event->text.size;
        return !calls->in_pieces || append(&calls->call_texts, event->text);
    case SALVO_TOOL_CALL_END:
        if (calls->in_pieces)
            last_call(calls)->ended = true;
        return calls->in_pieces || add_call(calls, event);
    case SALVO_TOOL_CALL_CUT:
        return cut_call(calls, event->text, content);
    default:
        return append(event->kind == SALVO_TOOL_REASONING ? &calls->reasoning : content, event->text);
    }
}

bool api_calls_take(struct api_calls *calls, struct salvo_text text, bool last, struct buffer *content)
{
    struct salvo_tool_event event;
    bool ok = true;
    if (!calls->parser)
        return append(content, text);
    if (salvo_tool_parser_push(calls->parser, text.data, text.size, last) != SALVO_OK)
        return false;
    do {
        ok = salvo_tool_parser_next(calls->parser, &event) == SALVO_OK && take_event(calls, &event, content);
    } while (ok && event.kind != SALVO_TOOL_NOTHING);
    return ok;
}

bool api_calls_has_token(const struct api_calls *calls, const char *name, size_t size)
{
    return calls->parser && salvo_tool_form_has(calls->form, name, size);
}

void api_calls_sent(struct api_calls *calls)
{
    calls->reasoning.size = 0;
    for (; calls->sent < api_calls_count(calls); calls->sent++) {
        struct api_call *call = call_at(calls, calls->sent);
        call->is_known = true;
        call->sent = call->arguments_size;
        if (!call->ended)
            return;
    }
}

/* In a stream a call that was begun goes on with its arguments. */
static void write_call(struct json_writer *json, const struct api_calls *calls, size_t index, bool stream)
{
    const struct api_call_texts call = api_calls_get(calls, index);
    const bool goes_on = stream && call.is_known;
    json_begin(json, '{');
    if (stream) {
        json_key(json, "index");
        json_unsigned(json, index);
    }
    if (!goes_on) {
        json_key(json, "id");
        json_string(json, call.id);
        json_key(json, "type");
        json_string(json, "function");
    }
    json_key(json, "function");
    json_begin(json, '{');
    if (!goes_on) {
        json_key(json, "name");
        json_text(json, call.name);
    }
    json_key(json, "arguments");
    json_text(json, stream ? call.news : call.arguments);
    json_end(json, '}');
    json_end(json, '}');
}

void api_write_calls(struct json_writer *json, const struct api_calls *calls, bool stream)
{
    const size_t first = stream ? calls->sent : 0;
    if (calls->reasoning.size) {
        json_key(json, "reasoning_content");
        json_text(json, (struct salvo_text){calls->reasoning.data, calls->reasoning.size});
    }
    if (stream ? !api_calls_has_news(calls) : api_calls_count(calls) == first)
        return;
    json_key(json, "tool_calls");
    json_begin(json, '[');
    for (size_t i = first; i < api_calls_count(calls); i++)
        write_call(json, calls, i, stream);
    json_end(json, ']');
}
