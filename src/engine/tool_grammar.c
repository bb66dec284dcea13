/* Grammars of answers with tool calls. */
#include "engine/tool_grammar.h"

#include "base/json_slice.h"
#include "engine/arguments.h"
#include "engine/model.h"

#include <string.h>

enum { MOST_CONTROLS = 32 };

#define CHANNEL_THOUGHT "<|channel|>analysis<|message|>"
#define CHANNEL_NEXT    "<|end|><|start|>assistant"

/* RULE-call ::= a name, the text behind it and arguments, for each tool that may be called; RULE: calls and
 * what ends them. */
static enum salvo_status add_calls(struct buffer *out, const char *rule, const struct salvo_tool_form *form,
    struct salvo_text tools, const struct salvo_tool_grammar_options *options)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text item;
    struct tool tool = {0};
    struct buffer rules = {0};
    size_t at = 0, number = 1, count = 0;
    const bool has_parameters = strcmp(form->info.name, "parameters") == 0;
    TRY(grammar_add(out, rule));
    TRY(grammar_add(out, has_parameters ? " ::=" : "-call ::="));
    for (; json_slice_item(tools, &at, &item); number++) {
        buffer_free(&tool.name);
        tool = (struct tool){0};
        TRY(tool_read(item, number, &tool));
        TRY(buffer_append(&tool.name, "", 1));
        if (!tool.is_function || (options->name && strcmp(options->name, tool.name.data) != 0))
            continue;
        tool.name.size--;
        TRY(grammar_add(out, count++ ? " |" : ""));
        TRY(grammar_add_literal(out, tool.name.data));
        if (has_parameters) {
            TRY(grammar_add_parameters(out, &rules, rule, form, &tool, number));
        } else {
            TRY(grammar_add(out, " middle"));
            TRY(grammar_add_schema(out, &tool));
        }
    }
    if (count == 0 && options->name)
        TRY(fail(SALVO_ERROR_ARGUMENT, "there is no tool '%s'", options->name));
    if (count == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "there is no tool of type 'function'"));
    TRY(grammar_add(out, "\n"));
    if (rules.size)
        TRY(buffer_append(out, rules.data, rules.size));
    if (has_parameters)
        TRY(grammar_add_tails(out, rule, form, options->parallel));
cleanup:
    buffer_free(&rules);
    buffer_free(&tool.name);
    return status;
}

/* calls ::= calls with JSON, and what ends them. */
static enum salvo_status add_list(
    struct buffer *out, const struct salvo_tool_form *form, const struct salvo_tool_grammar_options *options)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_tool_form_info *info = &form->info;
    TRY(grammar_add(out, "calls ::= calls-call"));
    if (options->parallel && *info->between) {
        TRY(grammar_add(out, " ("));
        TRY(grammar_add_literal(out, info->between));
        TRY(grammar_add(out, " calls-call)*"));
    }
    TRY(grammar_add_literal(out, info->after));
    if (strcmp(info->name, "channels") == 0) {
        TRY(grammar_add(out,
            "\nmiddle ::= (\"<|channel|>commentary\")? (\" <|constrain|>json\" | \" json\")? "
            "\"<|message|>\""));
    } else {
        TRY(grammar_add(out, "\nmiddle ::="));
        TRY(grammar_add_literal(out, info->middle));
    }
    TRY(grammar_add(out, "\n"));
cleanup:
    return status;
}

/* The text of a form before a call, behind its marker. */
static const char *behind_marker(const struct salvo_tool_form *form)
{
    return strstr(form->info.before, form->info.marker) + strlen(form->info.marker);
}

/* root: an answer from its beginning on. */
static enum salvo_status add_required(
    struct buffer *out, const struct salvo_tool_form *form, uint32_t thinking)
{
    enum salvo_status status = SALVO_OK;
    if (strcmp(form->info.name, "channels") == 0) {
        TRY(grammar_add(out, " (\"" CHANNEL_THOUGHT "\""));
        TRY(grammar_add_text_without(out, "<|end|>"));
        TRY(grammar_add(out, " \"" CHANNEL_NEXT "\")? (\" to=functions.\" |"));
        TRY(grammar_add_literal(out, form->info.before));
        TRY(grammar_add(out, ")"));
    } else {
        TRY(grammar_add(out, tool_begins_thinking(form, thinking) ? " [ \\n]{0,4}" : ""));
        TRY(grammar_add_literal(out, form->info.before));
    }
    TRY(grammar_add(out, " calls\n"));
cleanup:
    return status;
}

/* root: an answer from a marker on; answers with recipients have no marker at their beginning. */
static enum salvo_status add_possible(struct buffer *out, const struct salvo_tool_form *form)
{
    enum salvo_status status = SALVO_OK;
    if (strcmp(form->info.name, "recipients") == 0) {
        TRY(grammar_add(out, " calls |"));
        TRY(grammar_add_literal(out, tool_text(form, TEXT_CONTENT)));
        TRY(grammar_add_text_without(out, form->info.marker));
        TRY(grammar_add(out, " ("));
        TRY(grammar_add_literal(out, form->info.marker));
        TRY(grammar_add(out, " calls)?\n"));
        goto cleanup;
    }
    if (strcmp(form->info.name, "channels") != 0)
        TRY(grammar_add_literal(out, behind_marker(form)));
    TRY(grammar_add(out, " calls"));
    if (form->tagged) {
        TRY(grammar_add(out, " |"));
        TRY(grammar_add_literal(out, behind_marker(form->tagged)));
        TRY(grammar_add(out, " tagged |"));
        TRY(grammar_add_literal(out, form->info.before));
        TRY(grammar_add(out, " calls"));
    }
    TRY(grammar_add(out, "\n"));
cleanup:
    return status;
}

static enum salvo_status write_grammar(struct buffer *out, const struct salvo_tool_form *form,
    struct salvo_text tools, const struct salvo_tool_grammar_options *options)
{
    enum salvo_status status = SALVO_OK;
    TRY(grammar_add(out, "root ::="));
    TRY(options->required ? add_required(out, form, options->thinking) : add_possible(out, form));
    TRY(add_calls(out, "calls", form, tools, options));
    if (strcmp(form->info.name, "parameters") != 0)
        TRY(add_list(out, form, options));
    if (form->tagged && !options->required)
        TRY(add_calls(out, "tagged", form->tagged, tools, options));
cleanup:
    return status;
}

static size_t find_triggers(const struct salvo_tool_form *form,
    const struct salvo_tool_grammar_options *options, struct salvo_text out[2])
{
    const struct salvo_tool_form_info *info = &form->info;
    const char *words[2] = {0};
    size_t count = 0;
    if (options->required) {
        words[0] = tool_begins_thinking(form, options->thinking) ? info->think_end : NULL;
    } else if (strcmp(info->name, "recipients") != 0) {
        words[0] = info->marker;
        words[1] = form->tagged ? form->tagged->info.marker : NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        if (words[i])
            out[count++] = (struct salvo_text){words[i], strlen(words[i])};
    }
    return count;
}

/* The control tokens in the texts of a form, each once. */
static enum salvo_status find_controls(struct salvo_model *model, const struct salvo_tool_form *form,
    int32_t out[MOST_CONTROLS], size_t *out_count)
{
    static const char channels[] = CHANNEL_THOUGHT CHANNEL_NEXT;
    enum salvo_status status = SALVO_OK;
    const struct tokenizer *tokenizer;
    struct token_list list = {0};
    *out_count = 0;
    TRY(model_tokenizer(model, &tokenizer));
    for (; form; form = form->tagged) {
        for (size_t i = 0; i < TOOL_TEXTS; i++)
            TRY(tokenizer_encode(
                tokenizer, form->texts[i].data, form->texts[i].size - 1, TOKENIZE_SPECIAL, &list));
    }
    TRY(tokenizer_encode(tokenizer, channels, sizeof channels - 1, TOKENIZE_SPECIAL, &list));
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
    if (known.thinking > SALVO_TOOL_THINKING_NO)
        TRY(fail(SALVO_ERROR_ARGUMENT, "thinking %u is no value of salvo_tool_thinking", known.thinking));
    TRY(tool_check_list("tools", (struct salvo_text){tools, size}));
    TRY(write_grammar(&text, form, (struct salvo_text){tools, size}, &known));
    struct salvo_text triggers[2];
    grammar.triggers = triggers;
    grammar.trigger_count = find_triggers(form, &known, triggers);
    grammar.trigger_required = known.required;
    if (model) {
        TRY(find_controls(model, form, controls, &grammar.control_token_count));
        grammar.control_tokens = controls;
    }
    TRY(salvo_grammar_compile(model, SALVO_GRAMMAR_GBNF, text.data, text.size, &grammar, out));
cleanup:
    buffer_free(&text);
    return status;
}
