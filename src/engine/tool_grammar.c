/* Grammars of answers with tool calls, and the texts of calls and tools in prompts. */
#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "engine/tool_form.h"

#include <string.h>

enum { MOST_CONTROLS = 32 };

static enum salvo_status add(struct buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text));
}

/* A text of a form as elements of GBNF. */
static enum salvo_status add_literal(struct buffer *out, const char *text)
{
    enum salvo_status status = SALVO_OK;
    TRY(add(out, " \""));
    for (; *text; text++) {
        if (*text == TOOL_ID)
            TRY(add(out, "\" [a-zA-Z0-9]{9} \""));
        else if (*text == '\n')
            TRY(add(out, "\\n"));
        else if (*text == '\r')
            TRY(add(out, "\\r"));
        else if (*text == '"' || *text == '\\')
            TRY(buffer_append(out, (const char[]){'\\', *text}, 2));
        else
            TRY(buffer_append(out, text, 1));
    }
    TRY(add(out, "\""));
cleanup:
    return status;
}

/* ---- Tools ---- */

struct tool {
    struct salvo_text parameters; /* empty: none */
    struct buffer name;
    bool strict, is_function;
};

static bool is_true(struct salvo_text object, const char *key)
{
    struct salvo_text value;
    return json_slice_member(object, key, &value) && value.size == 4 && memcmp(value.data, "true", 4) == 0;
}

static enum salvo_status read_tool(struct salvo_text text, size_t number, struct tool *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text type, function, name;
    bool is_string = false;
    struct buffer kind = {0};
    if (json_slice_member(text, "type", &type))
        TRY(json_slice_string(type, &is_string, &kind));
    out->is_function = is_string && kind.size == 8 && memcmp(kind.data, "function", 8) == 0;
    if (!out->is_function)
        goto cleanup;
    is_string = false;
    if (json_slice_member(text, "function", &function) && json_slice_member(function, "name", &name))
        TRY(json_slice_string(name, &is_string, &out->name));
    bool fits = is_string && out->name.size > 0 && out->name.size <= TOOL_NAME_LONGEST;
    for (size_t i = 0; fits && i < out->name.size; i++)
        fits = is_tool_name(out->name.data[i]);
    if (!fits) {
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "tool %zu needs a function with a name of at most %d letters, digits, '_', '-' and '.'", number,
            TOOL_NAME_LONGEST));
    }
    if (!json_slice_member(function, "parameters", &out->parameters))
        out->parameters = (struct salvo_text){0};
    out->strict = is_true(function, "strict");
cleanup:
    buffer_free(&kind);
    return status;
}

/* The schema of a tool's arguments, which are an object. */
static enum salvo_status add_schema(struct buffer *out, const struct tool *tool)
{
    static const char any[] = "{\"type\":\"object\"}";
    enum salvo_status status = SALVO_OK;
    struct salvo_text type;
    struct buffer text = {0};
    struct salvo_grammar *grammar = NULL;
    if (tool->parameters.size == 0)
        return add(out, " %json {\"type\":\"object\",\"additionalProperties\":false}");
    TRY(add(&text, "root ::= %json "));
    const size_t begin = text.size;
    if (tool->parameters.data[0] == '{' && !json_slice_member(tool->parameters, "type", &type)) {
        const char *rest = tool->parameters.data + 1;
        while (*rest == ' ' || *rest == '\n' || *rest == '\r' || *rest == '\t')
            rest++;
        TRY(add(&text, *rest == '}' ? "{\"type\":\"object\"" : "{\"type\":\"object\","));
        TRY(buffer_append(&text, tool->parameters.data + 1, tool->parameters.size - 1));
    } else {
        TRY(buffer_append(&text, tool->parameters.data, tool->parameters.size));
    }
    const enum salvo_status compiled =
        salvo_grammar_compile(NULL, SALVO_GRAMMAR_GBNF, text.data, text.size, NULL, &grammar);
    if (compiled == SALVO_ERROR_MEMORY || (compiled != SALVO_OK && tool->strict)) {
        fail_within(compiled, "tool '%.*s': ", (int)tool->name.size, tool->name.data);
        TRY(compiled);
    }
    TRY(add(out, " %json "));
    TRY(compiled == SALVO_OK ? buffer_append(out, text.data + begin, text.size - begin) : add(out, any));
cleanup:
    salvo_grammar_free(grammar);
    buffer_free(&text);
    return status;
}

/* call ::= a name, the text behind it and arguments, for each tool that may be called. */
static enum salvo_status add_calls(struct buffer *out, const struct salvo_tool_form *form,
    struct salvo_text tools, const struct salvo_tool_grammar_options *options)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text item;
    struct tool tool = {0};
    size_t at = 0, number = 1, count = 0;
    TRY(add(out, "call ::="));
    for (; json_slice_item(tools, &at, &item); number++) {
        buffer_free(&tool.name);
        tool = (struct tool){0};
        TRY(read_tool(item, number, &tool));
        TRY(buffer_append(&tool.name, "", 1));
        if (!tool.is_function || (options->name && strcmp(options->name, tool.name.data) != 0))
            continue;
        tool.name.size--;
        TRY(add(out, count++ ? " |" : ""));
        TRY(add_literal(out, tool.name.data));
        TRY(add_literal(out, form->info.middle));
        TRY(add_schema(out, &tool));
    }
    if (count == 0 && options->name)
        TRY(fail(SALVO_ERROR_ARGUMENT, "there is no tool '%s'", options->name));
    if (count == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "there is no tool of type 'function'"));
    TRY(add(out, "\n"));
cleanup:
    buffer_free(&tool.name);
    return status;
}

static enum salvo_status write_grammar(struct buffer *out, const struct salvo_tool_form *form,
    struct salvo_text tools, const struct salvo_tool_grammar_options *options)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_tool_form_info *info = &form->info;
    const char *before = info->before;
    if (!options->required) /* behind the trigger */
        before = strstr(info->before, info->marker) + strlen(info->marker);
    TRY(add(out, options->required && info->begins_thinking ? "root ::= [ \\n]{0,4}" : "root ::="));
    TRY(add_literal(out, before));
    TRY(add(out, " call"));
    if (options->parallel && *info->between) {
        TRY(add(out, " ("));
        TRY(add_literal(out, info->between));
        TRY(add(out, " call)*"));
    }
    TRY(add_literal(out, info->after));
    TRY(add(out, "\n"));
    TRY(add_calls(out, form, tools, options));
cleanup:
    return status;
}

/* The control tokens in the texts of a form, each once. */
static enum salvo_status find_controls(struct salvo_model *model, const struct salvo_tool_form *form,
    int32_t out[MOST_CONTROLS], size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    const struct tokenizer *tokenizer;
    struct token_list list = {0};
    *out_count = 0;
    TRY(model_tokenizer(model, &tokenizer));
    for (size_t i = 0; i < TOOL_TEXTS; i++)
        TRY(tokenizer_encode(
            tokenizer, form->texts[i].data, form->texts[i].size - 1, TOKENIZE_SPECIAL, &list));
    for (size_t i = 0; i < list.count; i++) {
        bool known =
            !tokenizer_is_control(tokenizer, list.ids[i]) || tokenizer_is_end(tokenizer, list.ids[i]);
        for (size_t k = 0; k < *out_count; k++)
            known |= out[k] == list.ids[i];
        if (!known && *out_count < MOST_CONTROLS)
            out[(*out_count)++] = list.ids[i];
    }
cleanup:
    token_list_free(&list);
    return status;
}

static enum salvo_status check_list(const char *what, struct salvo_text text)
{
    size_t at = 0;
    while (at < text.size && strchr(" \t\r\n", text.data[at]))
        at++;
    if (at < text.size && text.data[at] == '[' && json_slice_is_valid(text))
        return SALVO_OK;
    return fail(SALVO_ERROR_ARGUMENT, "the %s are no JSON array", what);
}

enum salvo_status salvo_tool_grammar(struct salvo_model *model, const struct salvo_tool_form *form,
    const char *tools, size_t size, const struct salvo_tool_grammar_options *options,
    struct salvo_grammar **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_tool_grammar_options known;
    struct salvo_grammar_options grammar = SALVO_GRAMMAR_OPTIONS_INIT;
    struct buffer text = {0};
    int32_t controls[MOST_CONTROLS];
    REQUIRE(out);
    *out = NULL;
    REQUIRE(form);
    REQUIRE(tools);
    TRY(options_read("salvo_tool_grammar_options", options, sizeof known, &known));
    TRY(check_list("tools", (struct salvo_text){tools, size}));
    TRY(write_grammar(&text, form, (struct salvo_text){tools, size}, &known));
    const char *marker = known.required ? form->info.think_end : form->info.marker;
    const struct salvo_text trigger = {marker, strlen(marker)};
    if (!known.required || form->info.begins_thinking) {
        grammar.triggers = &trigger;
        grammar.trigger_count = 1;
        grammar.trigger_required = known.required;
    }
    if (model) {
        TRY(find_controls(model, form, controls, &grammar.control_token_count));
        grammar.control_tokens = controls;
    }
    TRY(salvo_grammar_compile(model, SALVO_GRAMMAR_GBNF, text.data, text.size, &grammar, out));
cleanup:
    buffer_free(&text);
    return status;
}

/* ---- Prompts ---- */

/* One allocation, freed by salvo_free. */
static enum salvo_status hand_over(const struct buffer *text, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(out_text, text->size + 1));
    if (text->size)
        memcpy(*out_text, text->data, text->size);
    *out_size = text->size;
cleanup:
    return status;
}

enum salvo_status salvo_tool_form_prompt(
    const struct salvo_tool_form *form, const char *tools, size_t size, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    struct salvo_text item, function;
    size_t at = 0;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(form);
    REQUIRE(tools);
    TRY(check_list("tools", (struct salvo_text){tools, size}));
    TRY(add(&text, "You can call these functions, each described by a JSON object:\n"));
    while (json_slice_item((struct salvo_text){tools, size}, &at, &item)) {
        if (!json_slice_member(item, "function", &function))
            continue;
        TRY(buffer_append(&text, function.data, function.size));
        TRY(add(&text, "\n"));
    }
    TRY(add(&text, "To call a function, write its name and its arguments like this:\n"));
    TRY(add(&text, form->info.before));
    TRY(add(&text, "FUNCTION"));
    TRY(add(&text, form->info.middle));
    TRY(add(&text, "{\"ARGUMENT\": VALUE}"));
    TRY(add(&text, form->info.after));
    TRY(hand_over(&text, out_text, out_size));
cleanup:
    buffer_free(&text);
    return status;
}

/* Arguments are a string with JSON, or JSON. */
static enum salvo_status add_arguments(struct buffer *out, struct salvo_text arguments)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    bool is_string = false;
    TRY(json_slice_string(arguments, &is_string, &text));
    TRY(is_string ? buffer_append(out, text.data, text.size)
                  : buffer_append(out, arguments.data, arguments.size));
cleanup:
    buffer_free(&text);
    return status;
}

enum salvo_status salvo_tool_form_calls(
    const struct salvo_tool_form *form, const char *calls, size_t size, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    struct salvo_text item, function, name, arguments;
    size_t at = 0, count = 0;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(form);
    REQUIRE(calls);
    TRY(check_list("calls", (struct salvo_text){calls, size}));
    while (json_slice_item((struct salvo_text){calls, size}, &at, &item)) {
        bool is_string = false;
        if (!json_slice_member(item, "function", &function) || !json_slice_member(function, "name", &name) ||
            !json_slice_member(function, "arguments", &arguments))
            TRY(fail(SALVO_ERROR_ARGUMENT, "call %zu has no function with a name and arguments", count + 1));
        TRY(add(&text, count++ ? form->info.between : form->info.before));
        TRY(json_slice_string(name, &is_string, &text));
        TRY(add(&text, form->info.middle));
        TRY(add_arguments(&text, arguments));
    }
    if (count)
        TRY(add(&text, form->info.after));
    TRY(hand_over(&text, out_text, out_size));
cleanup:
    buffer_free(&text);
    return status;
}
