#include "tool_flags.h"

#include "input.h"
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

struct tool_flags tool_flags;

/* {"tools": [...]} */
static char *variables_of(const char *tools, size_t size)
{
    static const char before[] = "{\"tools\":";
    char *text = malloc(sizeof before + size + 1);
    if (!text)
        return NULL;
    memcpy(text, before, sizeof before - 1);
    memcpy(text + sizeof before - 1, tools, size);
    memcpy(text + sizeof before - 1 + size, "}", 2);
    return text;
}

int tool_use_open(struct salvo_model *model, struct tool_use *out)
{
    struct salvo_template *chat = NULL;
    struct salvo_grammar *grammar = NULL;
    struct input input;
    *out = (struct tool_use){0};
    if (!tool_flags.file)
        return EXIT_DONE;
    int result = input_read(NULL, tool_flags.file, &input);
    if (result != EXIT_DONE)
        return result;
    out->tools = input.data;
    out->size = input.size;
    out->variables = variables_of(input.data, input.size);
    if (!out->variables)
        return failure("out of memory");
    if (salvo_template_open(model, NULL, 0, &chat) != SALVO_OK ||
        salvo_tool_form_open(chat, &out->form) != SALVO_OK) {
        result = library_failure();
    } else if (salvo_tool_grammar(NULL, out->form, out->tools, out->size, NULL, &grammar) != SALVO_OK) {
        result = failure("%s: %s", tool_flags.file, salvo_error()); /* an error of the file */
    }
    salvo_grammar_free(grammar);
    salvo_template_close(chat);
    return result;
}

void tool_use_close(struct tool_use *use)
{
    salvo_tool_form_close(use->form);
    free(use->tools);
    free(use->variables);
    *use = (struct tool_use){0};
}

struct salvo_text tool_use_variables(const struct tool_use *use)
{
    if (!use->form || salvo_tool_form_info(use->form)->described)
        return (struct salvo_text){0};
    return (struct salvo_text){use->variables, strlen(use->variables)};
}

void tool_write_call(struct json_writer *json, struct salvo_text name, struct salvo_text arguments)
{
    json_begin(json, '{');
    json_key(json, "name");
    json_text(json, name);
    json_key(json, "arguments");
    char *copy = strndup(arguments.data, arguments.size);
    if (copy)
        json_raw(json, copy);
    else
        json_null(json);
    free(copy);
    json_end(json, '}');
}

static bool is_key(const struct json_event *event, const char *name)
{
    return event->kind == JSON_KEY && event->text.size == strlen(name) &&
           memcmp(event->text.data, name, event->text.size) == 0;
}

int tool_use_print(const struct tool_use *use)
{
    enum { FUNCTION_DEPTH = 3 }; /* the array, a tool, its function */
    struct json_reader reader = {.longest = use->size};
    struct json_event event;
    size_t depth = 0;
    bool is_name = false, is_description = false, ok;
    json_reader_feed(&reader, use->tools, use->size, true);
    while ((ok = json_reader_next(&reader, &event) == SALVO_OK) && event.kind != JSON_DONE) {
        if (event.kind == JSON_STRING && (is_name || is_description)) {
            fputs(is_name ? "  " : "    ", stderr);
            print_safely(stderr, event.text.data, event.text.size);
            fputc('\n', stderr);
        }
        is_name = depth == FUNCTION_DEPTH && is_key(&event, "name");
        is_description = depth == FUNCTION_DEPTH && is_key(&event, "description");
        depth += event.kind == JSON_ARRAY_BEGIN || event.kind == JSON_OBJECT_BEGIN;
        depth -= event.kind == JSON_ARRAY_END || event.kind == JSON_OBJECT_END;
    }
    json_reader_free(&reader);
    return ok ? EXIT_DONE : library_failure();
}

/* Whether a system message has the description already: the one of a saved conversation may have it. */
static bool ends_with(struct salvo_text text, const char *end, size_t size)
{
    return text.size >= size && memcmp(text.data + text.size - size, end, size) == 0;
}

int tool_use_describe(const struct tool_use *use, struct salvo_chat *chat)
{
    char *text = NULL;
    size_t size = 0;
    if (!use->form || !salvo_tool_form_info(use->form)->described)
        return EXIT_DONE;
    if (salvo_tool_form_prompt(use->form, use->tools, use->size, &text, &size) != SALVO_OK)
        return library_failure();
    const struct salvo_messages messages = salvo_chat_messages(chat);
    const bool has_system = messages.count && strcmp(messages.items[0].role, "system") == 0;
    const struct salvo_text system = has_system ? messages.items[0].content : (struct salvo_text){"", 0};
    const size_t between = system.size ? 2 : 0;
    if (ends_with(system, text, size)) {
        salvo_free(text);
        return EXIT_DONE;
    }
    char *all = malloc(system.size + between + size + 1);
    int result = all ? EXIT_DONE : failure("out of memory");
    if (all) {
        memcpy(all, system.data, system.size);
        memcpy(all + system.size, "\n\n", between);
        memcpy(all + system.size + between, text, size);
        if (salvo_chat_set_system(chat, all, system.size + between + size) != SALVO_OK)
            result = library_failure();
    }
    free(all);
    salvo_free(text);
    return result;
}

int tool_use_grammar(const struct tool_use *use, struct salvo_model *model, struct salvo_grammar **out)
{
    struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    options.parallel = 1;
    return salvo_tool_grammar(model, use->form, use->tools, use->size, &options, out) == SALVO_OK
               ? EXIT_DONE
               : library_failure();
}

int tool_use_read(const struct tool_use *use, struct salvo_text answer, const struct tool_answer *out)
{
    struct salvo_tool_parser *parser = NULL;
    struct salvo_tool_event event = {0};
    if (salvo_tool_parser_open(use->form, use->tools, use->size, &parser) != SALVO_OK)
        return library_failure();
    enum salvo_status status = salvo_tool_parser_push(parser, answer.data, answer.size, true);
    while (status == SALVO_OK) {
        status = salvo_tool_parser_next(parser, &event);
        if (status != SALVO_OK || event.kind == SALVO_TOOL_NOTHING)
            break;
        if (event.kind == SALVO_TOOL_CALL_END)
            out->call(out->user, event.name, event.arguments);
        else if (event.kind != SALVO_TOOL_CALL && event.kind != SALVO_TOOL_ARGUMENTS)
            out->text(out->user, event.text, event.kind == SALVO_TOOL_REASONING);
    }
    salvo_tool_parser_close(parser);
    return status == SALVO_OK ? EXIT_DONE : library_failure();
}
