#include "api_tools.h"

#include <stdio.h>
#include <string.h>

/* ---- Requests ---- */

static bool is_word(const struct api_value *value, const char *word)
{
    return value && value->kind == JSON_STRING && strcmp(value->text.data, word) == 0;
}

static bool read_choice(const struct api_value *choice, struct api_request *request, struct api_error *error)
{
    static const char field[] = "tool_choice";
    const struct api_value *name = api_member(api_member(choice, "function"), "name");
    if (!choice || is_word(choice, "auto"))
        return true;
    if (is_word(choice, "none")) {
        request->tools = NULL;
        return true;
    }
    if (!is_word(choice, "required") && (!name || name->kind != JSON_STRING))
        return api_fail(error, 400, field,
            "'tool_choice': expected \"auto\", \"none\", \"required\" or an object with a function's name");
    if (!request->tools)
        return api_fail(error, 400, field, "'tool_choice': there are no tools");
    request->tool_required = true;
    request->tool_name = name ? name->text.data : NULL;
    return true;
}

/* Members of functions whose names the library does not check. */
static bool check_tools(const struct api_value *tools, struct api_error *error)
{
    for (const struct api_value *tool = tools ? tools->first : NULL; tool; tool = tool->next) {
        const struct api_value *function = api_member(tool, "function"),
                               *description = api_member(function, "description"),
                               *parameters = api_member(function, "parameters");
        bool strict = false; /* the library reads it */
        if (description && description->kind != JSON_STRING)
            return api_fail(error, 400, "tools", "'tools': expected a string as the description of a tool");
        if (parameters && parameters->kind != JSON_OBJECT_BEGIN)
            return api_fail(error, 400, "tools",
                "'tools': expected a JSON Schema, an object, for the parameters of a tool");
        if (!api_get_bool(function, "strict", &strict, error))
            return false;
    }
    return true;
}

bool api_read_tools(const struct api_value *root, struct api_request *request, struct api_error *error)
{
    const struct api_value *tools = api_member(root, "tools");
    if (tools && tools->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "tools", "'tools': expected an array of tools");
    if (!check_tools(tools, error))
        return false;
    request->tools = tools && tools->count ? tools : NULL;
    request->tool_parallel = true;
    if (!read_choice(api_member(root, "tool_choice"), request, error) ||
        !api_get_bool(root, "parallel_tool_calls", &request->tool_parallel, error))
        return false;
    if (request->tools && request->constraint_field)
        return api_fail(
            error, 400, "tools", "'tools' and '%s' cannot be combined", request->constraint_field);
    return true;
}

static bool write_tools(const struct api_request *request, struct buffer *out, struct api_error *error)
{
    struct json_writer json = api_json(out);
    api_write_value(&json, request->tools);
    return json.status == SALVO_OK || api_out_of_memory(error);
}

bool api_tools_compile(const struct api_model *model, const struct api_request *request,
    struct salvo_grammar **out, struct api_error *error)
{
    struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    struct buffer tools = {0};
    *out = NULL;
    if (!request->tools)
        return true;
    options.required = request->tool_required;
    options.parallel = request->tool_parallel;
    options.name = request->tool_name;
    options.thinking = request->thinking;
    bool ok = write_tools(request, &tools, error);
    if (ok) {
        const enum salvo_status status =
            salvo_tool_grammar(model->model, model->form, tools.data, tools.size, &options, out);
        ok = status == SALVO_OK;
        if (status == SALVO_ERROR_ARGUMENT || status == SALVO_ERROR_UNSUPPORTED)
            api_fail(error, 400, "tools", "'tools': %s", salvo_error());
        else if (!ok)
            api_fail_library(error, status, salvo_error());
    }
    buffer_free(&tools);
    return ok;
}

/* ---- Prompts ---- */

/* The arguments of a call as the template takes them: a string with JSON, or the JSON itself. */
static bool write_arguments(struct json_writer *json, const struct api_model *model,
    const struct api_value *arguments, struct api_error *error)
{
    struct api_document document = {0};
    struct buffer text = {0};
    static const struct api_value none = {.kind = JSON_OBJECT_BEGIN};
    if (arguments->kind == JSON_STRING && !arguments->text.size)
        arguments = &none;
    const bool is_text = arguments->kind == JSON_STRING;
    if (is_text == (bool)salvo_tool_form_info(model->form)->arguments_are_text) {
        api_write_value(json, arguments);
        return true;
    }
    if (!is_text) {
        struct json_writer own = api_json(&text);
        api_write_value(&own, arguments);
        json_text(json, (struct salvo_text){text.data, text.size});
        buffer_free(&text);
        return own.status == SALVO_OK || api_out_of_memory(error);
    }
    /* It was checked that the text is JSON. */
    const bool ok = api_document_parse(arguments->text.data, arguments->text.size, &document, error);
    if (ok)
        api_write_value(json, document.root);
    api_document_free(&document);
    return ok;
}

/* An id for a call or a result that has none, as in the dialect of Ollama: many templates need one, some of
 * nine letters and digits. */
static void write_missing_id(struct json_writer *json, const struct api_model *model, const char *key,
    const struct api_value *name, size_t number)
{
    char id[96];
    if (salvo_tool_form_info(model->form)->id_has_name && name && name->kind == JSON_STRING)
        snprintf(id, sizeof id, "functions.%.64s:%zu", name->text.data, number);
    else
        snprintf(id, sizeof id, "call%05zu", number % 100000);
    json_key(json, key);
    json_string(json, id);
}

static bool write_call(struct json_writer *json, const struct api_model *model, const struct api_value *call,
    size_t number, struct api_error *error)
{
    bool ok = true;
    json_begin(json, '{');
    if (!api_member(call, "id"))
        write_missing_id(json, model, "id", api_member(api_member(call, "function"), "name"), number);
    for (const struct api_value *member = call->first; member && ok; member = member->next) {
        json_key_text(json, member->key);
        if (strcmp(member->key.data, "function") != 0) {
            api_write_value(json, member);
            continue;
        }
        json_begin(json, '{');
        for (const struct api_value *part = member->first; part && ok; part = part->next) {
            json_key_text(json, part->key);
            if (strcmp(part->key.data, "arguments") == 0)
                ok = write_arguments(json, model, part, error);
            else
                api_write_value(json, part);
        }
        json_end(json, '}');
    }
    json_end(json, '}');
    return ok;
}

bool api_tools_write_message(struct json_writer *json, const struct api_model *model,
    const struct api_value *message, size_t *out_count, struct api_error *error)
{
    const struct api_value *calls = api_member(message, "tool_calls"),
                           *content = api_member(message, "content");
    bool ok = true;
    *out_count = 0;
    json_begin(json, '{');
    if (is_word(api_member(message, "role"), "tool") && !api_member(message, "tool_call_id")) {
        const struct api_value *name = api_member(message, "name");
        write_missing_id(json, model, "tool_call_id", name ? name : api_member(message, "tool_name"), 0);
        ++*out_count;
    }
    if (calls && calls->count && salvo_tool_form_info(model->form)->content_is_null &&
        (!content || (content->kind == JSON_STRING && !content->text.size))) {
        json_key(json, "content");
        json_null(json);
        ++*out_count;
    }
    for (const struct api_value *member = message->first; member && ok; member = member->next) {
        if (strcmp(member->key.data, "role") == 0 || strcmp(member->key.data, "content") == 0 ||
            member->kind == JSON_NULL)
            continue;
        ++*out_count;
        json_key_text(json, member->key);
        if (strcmp(member->key.data, "tool_calls") != 0 || member->kind != JSON_ARRAY_BEGIN) {
            api_write_value(json, member);
            continue;
        }
        json_begin(json, '[');
        size_t number = 0;
        for (const struct api_value *call = member->first; call && ok; call = call->next)
            ok = write_call(json, model, call, number++, error);
        json_end(json, ']');
    }
    json_end(json, '}');
    return ok;
}

/* Two texts with a blank line between them, in memory of the document. */
static bool join(struct api_document *document, struct salvo_text first, struct salvo_text second,
    struct salvo_text *out, struct api_error *error)
{
    const size_t between = first.size && second.size ? 2 : 0;
    char *text = api_document_take(document, first.size + between + second.size + 1);
    if (!text)
        return api_out_of_memory(error);
    if (first.size)
        memcpy(text, first.data, first.size);
    memcpy(text + first.size, "\n\n", between);
    if (second.size)
        memcpy(text + first.size + between, second.data, second.size);
    *out = (struct salvo_text){text, first.size + between + second.size};
    text[out->size] = 0;
    return true;
}

bool api_tools_describe_message(const struct api_model *model, struct api_document *document,
    const struct api_value *message, struct salvo_message *out, struct api_error *error)
{
    static const char result[] = "Result of the call:";
    const struct api_value *calls = api_member(message, "tool_calls");
    struct buffer list = {0};
    char *text = NULL;
    size_t size = 0;
    if (salvo_tool_form_info(model->form)->writes_calls)
        return true;
    if (strcmp(out->role, "tool") == 0) {
        out->role = "user";
        return join(
            document, (struct salvo_text){result, sizeof result - 1}, out->content, &out->content, error);
    }
    if (!calls)
        return true;
    struct json_writer json = api_json(&list);
    api_write_value(&json, calls);
    bool ok = json.status == SALVO_OK || api_out_of_memory(error);
    if (ok && salvo_tool_form_calls(model->form, list.data, list.size, &text, &size) != SALVO_OK)
        ok = api_fail(error, 400, "messages", "'messages': %s", salvo_error());
    ok = ok && join(document, out->content, (struct salvo_text){text, size}, &out->content, error);
    salvo_free(text);
    buffer_free(&list);
    return ok;
}

bool api_tools_describe(const struct api_model *model, struct api_request *request, struct salvo_text system,
    struct salvo_text *out, struct api_error *error)
{
    struct buffer tools = {0};
    char *text = NULL;
    size_t size = 0;
    bool ok = write_tools(request, &tools, error);
    if (ok && salvo_tool_form_prompt(model->form, tools.data, tools.size, &text, &size) != SALVO_OK)
        ok = api_fail(error, 400, "tools", "'tools': %s", salvo_error());
    ok = ok && join(&request->document, system, (struct salvo_text){text, size}, out, error);
    salvo_free(text);
    buffer_free(&tools);
    return ok;
}
