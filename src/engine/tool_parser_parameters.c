/* Calls with a text for each parameter: their arguments become JSON as they arrive. */
#include "base/json_slice.h"
#include "engine/tool_parser.h"

#include <stdio.h>
#include <string.h>

static enum salvo_status add(struct salvo_tool_parser *parser, const char *text)
{
    return buffer_append(&parser->arguments, text, strlen(text));
}

/* Appends a part of a JSON string. */
static enum salvo_status add_escaped(struct salvo_tool_parser *parser, struct salvo_text text)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        char escape[8];
        if (c == '\n') {
            TRY(add(parser, "\\n"));
        } else if (c == '"' || c == '\\') {
            TRY(buffer_append(&parser->arguments, (const char[]){'\\', (char)c}, 2));
        } else if (c < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            TRY(add(parser, escape));
        } else {
            TRY(buffer_append(&parser->arguments, text.data + i, 1));
        }
    }
cleanup:
    return status;
}

/* The schema of a parameter of the call; empty: it is not known. */
static enum salvo_status find_schema(struct salvo_tool_parser *parser, struct salvo_text *out)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text tools = {parser->tools.data, parser->tools.size};
    struct salvo_text item, function, name, properties;
    struct buffer text = {0};
    size_t at = 0;
    *out = (struct salvo_text){0};
    TRY(buffer_append(&parser->key, "", 1));
    parser->key.size--;
    while (tools.size && json_slice_is_valid(tools) && json_slice_item(tools, &at, &item)) {
        bool is_string = false;
        text.size = 0;
        if (!json_slice_member(item, "function", &function) || !json_slice_member(function, "name", &name))
            continue;
        TRY(json_slice_string(name, &is_string, &text));
        if (!is_string || text.size != parser->name.size ||
            memcmp(text.data, parser->name.data, text.size) != 0)
            continue;
        if (!json_slice_member(function, "parameters", &properties) ||
            !json_slice_member(properties, "properties", &properties) ||
            !json_slice_member(properties, parser->key.data, out))
            *out = (struct salvo_text){0};
        break;
    }
cleanup:
    buffer_free(&text);
    return status;
}

/* The key ends before white space and before the text that goes on to a value. */
static size_t key_size(struct salvo_text text, const struct salvo_tool_form *form)
{
    size_t size = 0;
    char ends[VALUE_KINDS] = {0};
    for (int kind = 0; kind < VALUE_KINDS; kind++) {
        const char *begin = tool_value_text(form, (enum tool_value_kind)kind, VALUE_BEGIN);
        while (tool_is_space(*begin))
            begin++;
        ends[kind] = *begin;
    }
    while (size < text.size && !tool_is_space(text.data[size]) && text.data[size] != ends[VALUE_STRING] &&
           text.data[size] != ends[VALUE_JSON])
        size++;
    return size;
}

/* Moves over the line feed that a text of the form ends with. */
static enum match match_begin(struct salvo_text text, const char *begin, size_t *at)
{
    size_t end = *at;
    const enum match match = parser_match(text, begin, &end);
    const size_t size = strlen(begin);
    if (match != MATCHES)
        return match;
    if (size && begin[size - 1] == '\n' && end == text.size)
        return NEEDS_MORE;
    if (size && begin[size - 1] == '\n' && text.data[end] == '\n')
        end++;
    *at = end;
    return MATCHES;
}

enum salvo_status parser_key(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_tool_form *form = parser->call_form;
    struct salvo_text text = parser_rest(parser);
    size_t space = 0;
    while (space < text.size && tool_is_space(text.data[space]))
        space++;
    text = (struct salvo_text){text.data + space, text.size - space};
    const char *const string = tool_value_text(form, VALUE_STRING, VALUE_BEGIN), *const json =
                                                                                     tool_value_text(form,
                                                                                         VALUE_JSON,
                                                                                         VALUE_BEGIN);
    const size_t size = key_size(text, form);
    size_t at = size, other = size;
    struct salvo_text schema;
    *stays = true;
    const enum match as_string = size < text.size ? match_begin(text, string, &at) : NEEDS_MORE,
                     as_json = size < text.size ? match_begin(text, json, &other) : NEEDS_MORE;
    const bool too_long = (size == 0 && text.size) || size > TOOL_KEY_LONGEST;
    if (!too_long && !parser->last && (as_string == NEEDS_MORE || as_json == NEEDS_MORE))
        goto cleanup;
    if (too_long || (as_string != MATCHES && as_json != MATCHES)) {
        *stays = parser_cut(parser, out);
        goto cleanup;
    }
    parser->key.size = 0;
    TRY(buffer_append(&parser->key, text.data, size));
    TRY(find_schema(parser, &schema));
    const bool alike = strcmp(string, json) == 0;
    parser->kind =
        as_string == MATCHES && (!alike || (schema.size && tool_value_kind(schema) == VALUE_STRING))
            ? VALUE_STRING
            : VALUE_JSON;
    TRY(add(parser, parser->arguments.size > 1 ? ", \"" : "\""));
    TRY(add_escaped(parser, (struct salvo_text){parser->key.data, size}));
    TRY(add(parser, parser->kind == VALUE_STRING ? "\": \"" : "\": "));
    TRY(parser_skip(parser, space + (parser->kind == VALUE_STRING ? at : other)));
    parser->state = IN_VALUE;
    *stays = parser_report(parser, out);
cleanup:
    return status;
}

/* Without the white space at its ends. */
static struct salvo_text trimmed(struct salvo_text text)
{
    while (text.size && tool_is_space(text.data[0]))
        text = (struct salvo_text){text.data + 1, text.size - 1};
    while (text.size && tool_is_space(text.data[text.size - 1]))
        text.size--;
    return text;
}

/* A value that is JSON, or Python's word for one, or else a string. */
static enum salvo_status add_value(struct salvo_tool_parser *parser, struct salvo_text text)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    enum salvo_status status = SALVO_OK;
    const struct salvo_text inner = trimmed(text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (inner.size == strlen(words[i][0]) && memcmp(inner.data, words[i][0], inner.size) == 0)
            return add(parser, words[i][1]);
    }
    if (json_slice_is_valid(inner))
        return buffer_append(&parser->arguments, inner.data, inner.size);
    TRY(add(parser, "\""));
    TRY(add_escaped(parser, text));
    TRY(add(parser, "\""));
cleanup:
    return status;
}

/* The value without the line feed that the form puts before its end. */
static size_t value_size(const struct salvo_tool_parser *parser, struct salvo_text value)
{
    const char *end = tool_value_text(parser->call_form, parser->kind, VALUE_END);
    return value.size && *end == '\n' && value.data[value.size - 1] == '\n' ? value.size - 1 : value.size;
}

/* JSON that ends by itself: the size of the value, 0 if more text is needed. */
static size_t json_size(struct salvo_text text, bool last)
{
    size_t size = 0;
    if (text.size && (text.data[0] == '{' || text.data[0] == '[' || text.data[0] == '"'))
        return json_slice_end(text);
    while (size < text.size && (is_tool_name(text.data[size]) || text.data[size] == '+'))
        size++;
    return size == text.size && !last ? 0 : size;
}

enum salvo_status parser_value(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const char *close = tool_value_text(parser->call_form, parser->kind, VALUE_CLOSE);
    struct salvo_text text = parser_rest(parser);
    bool found = false;
    size_t size = 0;
    *stays = true;
    if (*close) {
        size = parser_size_before(text, close, false, &found);
    } else {
        size = json_size(text, parser->last);
        found = size > 0;
    }
    if (!found && (parser->kind == VALUE_JSON || parser->last))
        goto cleanup; /* the whole value is needed */
    if (!found) {
        while (size && tool_is_space(text.data[size - 1])) /* which may belong to the end */
            size--;
    }
    text.size = size;
    text.size = found ? value_size(parser, text) : size;
    TRY(parser->kind == VALUE_STRING ? add_escaped(parser, text) : add_value(parser, text));
    if (found && parser->kind == VALUE_STRING)
        TRY(add(parser, "\""));
    TRY(parser_skip(parser, text.size));
    if (found)
        parser->state = AFTER_VALUE;
    *stays = parser_report(parser, out) || !found;
cleanup:
    return status;
}

enum salvo_status parser_after_value(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_tool_form *form = parser->call_form;
    const struct salvo_text text = parser_rest(parser);
    const char *const next = tool_value_text(form, parser->kind, VALUE_NEXT), *const end = tool_value_text(
                                                                                  form, parser->kind,
                                                                                  VALUE_END);
    size_t more = 0, ignored = 0, last = 0;
    *stays = true;
    const enum match to_key = parser_match(text, tool_value_text(form, parser->kind, VALUE_MORE), &more);
    if (to_key == MATCHES) {
        TRY(parser_skip(parser, more));
        parser->state = AT_KEY;
        *stays = false;
        goto cleanup;
    }
    const enum match to_call = *next ? parser_match(text, next, &ignored) : DIFFERS,
                     to_end = parser_match(text, end, &last);
    const bool ends = to_call == MATCHES || to_end == MATCHES,
               may_end = to_call != DIFFERS || to_end != DIFFERS;
    /* An answer may be cut behind its last parameter. */
    if (!ends && (to_key == NEEDS_MORE || may_end) && !(parser->last && to_key == DIFFERS))
        goto cleanup;
    if (!may_end) {
        *stays = parser_cut(parser, out);
        goto cleanup;
    }
    TRY(add(parser, "}"));
    parser->next = next;
    parser->end = end;
    parser->state = AT_END;
    *stays = false;
cleanup:
    return status;
}
