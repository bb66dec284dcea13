/* Calls and reasoning parts of an answer. */
#include "api_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

bool api_calls_open(struct api_calls *calls, const struct salvo_tool_form *form, bool has_tools)
{
    calls->form = salvo_tool_form_info(form);
    return salvo_tool_parser_open(form, has_tools, &calls->parser) == SALVO_OK;
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

struct api_call_texts api_calls_get(const struct api_calls *calls, size_t index)
{
    const struct api_call *call = (const struct api_call *)(const void *)calls->calls.data + index;
    const char *texts = calls->call_texts.data ? calls->call_texts.data : "";
    return (struct api_call_texts){.id = call->id,
        .name = {texts + call->name, call->name_size},
        .arguments = {texts + call->arguments, call->arguments_size}};
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
    if (!append(&calls->call_texts, event->name))
        return false;
    call.arguments = calls->call_texts.size;
    call.arguments_size = event->arguments.size;
    return append(&calls->call_texts, event->arguments) &&
           buffer_append(&calls->calls, &call, sizeof call) == SALVO_OK;
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
        ok = salvo_tool_parser_next(calls->parser, &event) == SALVO_OK;
        if (ok && event.kind == SALVO_TOOL_CALL)
            ok = add_call(calls, &event);
        else if (ok)
            ok = append(event.kind == SALVO_TOOL_REASONING ? &calls->reasoning : content, event.text);
    } while (ok && event.kind != SALVO_TOOL_NOTHING);
    return ok;
}

static bool contains(const char *text, const char *name, size_t size)
{
    return memmem(text, strlen(text), name, size) != NULL;
}

bool api_calls_has_token(const struct api_calls *calls, const char *name, size_t size)
{
    const struct salvo_tool_form_info *form = calls->form;
    return calls->parser &&
           (contains(form->before, name, size) || contains(form->middle, name, size) ||
               contains(form->between, name, size) || contains(form->after, name, size) ||
               contains(form->think_begin, name, size) || contains(form->think_end, name, size));
}

void api_calls_sent(struct api_calls *calls)
{
    calls->reasoning.size = 0;
    calls->sent = api_calls_count(calls);
}

static void write_call(struct json_writer *json, const struct api_calls *calls, const struct api_call *call,
    size_t index, bool stream)
{
    json_begin(json, '{');
    if (stream) {
        json_key(json, "index");
        json_unsigned(json, index);
    }
    json_key(json, "id");
    json_string(json, call->id);
    json_key(json, "type");
    json_string(json, "function");
    json_key(json, "function");
    json_begin(json, '{');
    json_key(json, "name");
    json_text(json, (struct salvo_text){calls->call_texts.data + call->name, call->name_size});
    json_key(json, "arguments");
    json_text(json, (struct salvo_text){calls->call_texts.data + call->arguments, call->arguments_size});
    json_end(json, '}');
    json_end(json, '}');
}

void api_write_calls(struct json_writer *json, const struct api_calls *calls, bool stream)
{
    const struct api_call *list = (const struct api_call *)(const void *)calls->calls.data;
    const size_t first = stream ? calls->sent : 0;
    if (calls->reasoning.size) {
        json_key(json, "reasoning_content");
        json_text(json, (struct salvo_text){calls->reasoning.data, calls->reasoning.size});
    }
    if (api_calls_count(calls) == first)
        return;
    json_key(json, "tool_calls");
    json_begin(json, '[');
    for (size_t i = first; i < api_calls_count(calls); i++)
        write_call(json, calls, &list[i], i, stream);
    json_end(json, ']');
}
