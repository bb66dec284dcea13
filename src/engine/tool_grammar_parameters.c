/*
 * Grammars of calls with a text for each parameter. The text behind a value depends on its kind, so there is
 * a rule for each place of the list of properties and each kind of the value before it: RULE-TOOL-PLACE-KIND.
 * Required properties cannot be left out, and all are written in the order of the schema.
 */
#include "base/json_slice.h"
#include "engine/tool_grammar.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PROPERTIES = 64 };

static const char kind_letters[VALUE_KINDS] = {'s', 'j'};

struct properties {
    size_t count;
    struct salvo_text names[MOST_PROPERTIES], schemas[MOST_PROPERTIES];
    enum tool_value_kind kinds[MOST_PROPERTIES];
    bool required[MOST_PROPERTIES];
};

/* The names of the rules for a property, and for the place behind a value. */
static enum salvo_status add_property_name(struct buffer *out, const char *rule, size_t tool, size_t index)
{
    char name[96];
    snprintf(name, sizeof name, " %s-%zu-p%zu", rule, tool, index);
    return grammar_add(out, name);
}

static enum salvo_status add_place_name(
    struct buffer *out, const char *rule, size_t tool, size_t place, enum tool_value_kind kind)
{
    char name[96];
    snprintf(name, sizeof name, " %s-%zu-%zu-%c", rule, tool, place, kind_letters[kind]);
    return grammar_add(out, name);
}

enum salvo_status grammar_add_tails(
    struct buffer *rules, const char *rule, const struct salvo_tool_form *form, bool parallel)
{
    enum salvo_status status = SALVO_OK;
    char name[64];
    for (int kind = 0; kind <= VALUE_KINDS; kind++) {
        const bool none = kind == VALUE_KINDS;
        const enum tool_value_kind known = none ? VALUE_STRING : (enum tool_value_kind)kind;
        const char *next = none ? tool_text(form, TEXT_NONE_NEXT) : tool_value_text(form, known, VALUE_NEXT);
        const char *end = none ? tool_text(form, TEXT_NONE_END) : tool_value_text(form, known, VALUE_END);
        snprintf(name, sizeof name, "%s-tail-%c ::=", rule, none ? 'n' : kind_letters[known]);
        TRY(grammar_add(rules, name));
        TRY(grammar_add_literal(rules, end));
        if (parallel && *next) {
            TRY(grammar_add(rules, " |"));
            TRY(grammar_add_literal(rules, next));
            snprintf(name, sizeof name, " %s", rule);
            TRY(grammar_add(rules, name));
        }
        TRY(grammar_add(rules, "\n"));
    }
cleanup:
    return status;
}

static bool is_required(struct salvo_text parameters, struct salvo_text name)
{
    struct salvo_text list, item;
    size_t at = 0;
    if (!json_slice_member(parameters, "required", &list))
        return false;
    while (json_slice_item(list, &at, &item)) {
        if (item.size == name.size && memcmp(item.data, name.data, name.size) == 0)
            return true;
    }
    return false;
}

static enum salvo_status read_properties(const struct tool *tool, struct properties *out)
{
    struct salvo_text all, name, schema;
    size_t at = 0;
    *out = (struct properties){0};
    if (!tool->parameters.size || !json_slice_member(tool->parameters, "properties", &all))
        return SALVO_OK;
    while (json_slice_pair(all, &at, &name, &schema)) {
        if (out->count == MOST_PROPERTIES)
            return fail(SALVO_ERROR_UNSUPPORTED, "tool '%.*s' has more than %d properties",
                (int)tool->name.size, tool->name.data, MOST_PROPERTIES);
        out->names[out->count] = name;
        out->schemas[out->count] = schema;
        out->kinds[out->count] = tool_value_kind(schema);
        out->required[out->count++] = is_required(tool->parameters, name);
    }
    return SALVO_OK;
}

/* A JSON string as a literal. */
static enum salvo_status add_string(struct buffer *out, struct salvo_text string)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    bool is_string = false;
    TRY(json_slice_string(string, &is_string, &text));
    TRY(buffer_append(&text, "", 1));
    TRY(grammar_add_literal(out, text.data));
cleanup:
    buffer_free(&text);
    return status;
}

static enum salvo_status add_value(struct buffer *out, const struct salvo_tool_form *form,
    const struct properties *all, size_t index, const struct tool *tool)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text list, item;
    size_t at = 0, count = 0;
    if (all->kinds[index] == VALUE_JSON)
        return grammar_add_json(out, all->schemas[index], "{}", tool);
    if (!json_slice_member(all->schemas[index], "enum", &list))
        return grammar_add_text_without(out, tool_value_text(form, VALUE_STRING, VALUE_CLOSE));
    TRY(grammar_add(out, " ("));
    while (json_slice_item(list, &at, &item)) {
        TRY(grammar_add(out, count++ ? " |" : ""));
        TRY(add_string(out, item));
    }
    TRY(grammar_add(out, " )"));
cleanup:
    return status;
}

/* The alternatives at a place: the next property, a later one if the properties before it are not required,
 * or the end. `before` is the text that begins a property here. */
static enum salvo_status add_place(struct buffer *out, const char *rule, size_t number,
    const struct properties *all, size_t place, const char *before, char tail)
{
    enum salvo_status status = SALVO_OK;
    char name[64];
    size_t i = place;
    bool stops = false;
    for (; i < all->count && !stops; i++) {
        TRY(grammar_add(out, i > place ? " |" : ""));
        TRY(grammar_add_literal(out, before));
        TRY(add_property_name(out, rule, number, i));
        TRY(add_place_name(out, rule, number, i + 1, all->kinds[i]));
        stops = all->required[i];
    }
    if (!stops) {
        snprintf(name, sizeof name, "%s %s-tail-%c", i > place ? " |" : "", rule, tail);
        TRY(grammar_add(out, name));
    }
    TRY(grammar_add(out, "\n"));
cleanup:
    return status;
}

enum salvo_status grammar_add_parameters(struct buffer *out, struct buffer *rules, const char *rule,
    const struct salvo_tool_form *form, const struct tool *tool, size_t number)
{
    enum salvo_status status = SALVO_OK;
    struct properties all;
    char name[64];
    TRY(read_properties(tool, &all));
    snprintf(name, sizeof name, " %s-%zu", rule, number);
    TRY(grammar_add(out, name));
    TRY(grammar_add(rules, name + 1));
    TRY(grammar_add(rules, " ::="));
    TRY(add_place(rules, rule, number, &all, 0, tool_text(form, TEXT_MIDDLE), 'n'));
    for (size_t i = 0; i < all.count; i++) {
        TRY(add_property_name(rules, rule, number, i));
        TRY(grammar_add(rules, " ::="));
        TRY(add_string(rules, all.names[i]));
        TRY(grammar_add_literal(rules, tool_value_text(form, all.kinds[i], VALUE_BEGIN)));
        TRY(add_value(rules, form, &all, i, tool));
        TRY(grammar_add(rules, "\n"));
        for (int kind = 0; kind < VALUE_KINDS; kind++) {
            const enum tool_value_kind known = (enum tool_value_kind)kind;
            TRY(add_place_name(rules, rule, number, i + 1, known));
            TRY(grammar_add(rules, " ::="));
            TRY(add_place(rules, rule, number, &all, i + 1, tool_value_text(form, known, VALUE_MORE),
                kind_letters[known]));
        }
    }
cleanup:
    return status;
}
