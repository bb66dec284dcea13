/* Finds calls and reasoning parts in an answer as it grows. */
#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/tool_form.h"

#include <string.h>

enum parser_state {
    AT_BEGIN,   /* white space so far */
    IN_THOUGHT, /* within a reasoning part */
    IN_TEXT,
    IN_CALL,    /* at a marker */
    AFTER_CALL, /* behind the arguments of a call */
};

struct salvo_tool_parser {
    const struct salvo_tool_form *form;
    bool has_tools, last;
    bool skips_space; /* white space that follows is left out */
    enum parser_state state;
    struct buffer text;
    size_t at; /* of `text`: the part before it was taken */
};

enum match { MATCHES, NEEDS_MORE, DIFFERS };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_id(char c)
{
    return is_tool_name(c) || c == ':';
}

/* Whether the text goes on with a text of the form; white space in both does not count. *at moves behind it.
 */
static enum match match_text(struct salvo_text text, const char *expected, size_t *at)
{
    size_t place = *at;
    for (; *expected; expected++) {
        if (is_space(*expected))
            continue;
        while (place < text.size && is_space(text.data[place]))
            place++;
        if (place == text.size)
            return NEEDS_MORE;
        if (*expected == TOOL_ID) {
            const size_t first = place;
            while (place < text.size && is_id(text.data[place]))
                place++;
            if (place == text.size)
                return NEEDS_MORE;
            if (place == first)
                return DIFFERS;
        } else if (text.data[place++] != *expected) {
            return DIFFERS;
        }
    }
    *at = place;
    return MATCHES;
}

/* Reads the name and the arguments of a call at *at. */
static enum match match_call(
    struct salvo_text text, const struct salvo_tool_form_info *form, size_t *at, struct salvo_tool_event *out)
{
    while (*at < text.size && is_space(text.data[*at]))
        ++*at;
    const size_t name = *at;
    while (*at < text.size && is_tool_name(text.data[*at]))
        ++*at;
    out->name = (struct salvo_text){text.data + name, *at - name};
    if (out->name.size > TOOL_NAME_LONGEST)
        return DIFFERS;
    if (*at == text.size)
        return NEEDS_MORE;
    const enum match middle = out->name.size ? match_text(text, form->middle, at) : DIFFERS;
    if (middle != MATCHES)
        return middle;
    while (*at < text.size && is_space(text.data[*at]))
        ++*at;
    if (*at == text.size)
        return NEEDS_MORE;
    if (text.data[*at] != '{')
        return DIFFERS;
    out->arguments = (struct salvo_text){text.data + *at, text.size - *at};
    out->arguments.size = json_slice_end(out->arguments);
    if (out->arguments.size == 0)
        return NEEDS_MORE;
    *at += out->arguments.size;
    out->kind = SALVO_TOOL_CALL;
    return json_slice_is_valid(out->arguments) ? MATCHES : DIFFERS;
}

static struct salvo_text rest_of(const struct salvo_tool_parser *parser)
{
    return (struct salvo_text){parser->text.data + parser->at, parser->text.size - parser->at};
}

/* Takes `size` bytes as an event, if there are any. */
static bool take(struct salvo_tool_parser *parser, enum salvo_tool_event_kind kind, size_t size,
    struct salvo_tool_event *out)
{
    if (size == 0)
        return false;
    *out = (struct salvo_tool_event){.kind = kind, .text = {rest_of(parser).data, size}};
    parser->at += size;
    return true;
}

/* The bytes before a word; if it is not there, before an ending of the text that may begin it. */
static size_t size_before(struct salvo_text text, const char *word, bool last, bool *out_found)
{
    const size_t length = strlen(word);
    const char *found = text.size ? memmem(text.data, text.size, word, length) : NULL;
    *out_found = found != NULL;
    if (found)
        return (size_t)(found - text.data);
    size_t held = length - 1 < text.size ? length - 1 : text.size;
    while (held > 0 && (last || memcmp(text.data + text.size - held, word, held) != 0))
        held--;
    return text.size - held;
}

/* Each function returns true if *out is an event or nothing can be done before there is more text. */

static bool begin(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const struct salvo_tool_form_info *form = &parser->form->info;
    const struct salvo_text text = rest_of(parser);
    const size_t length = strlen(form->think_begin);
    size_t space = 0;
    (void)out;
    while (space < text.size && is_space(text.data[space]))
        space++;
    const size_t size = text.size - space < length ? text.size - space : length;
    const bool thinks = memcmp(text.data + space, form->think_begin, size) == 0;
    if (thinks && size < length && !parser->last)
        return true;
    parser->state = IN_TEXT;
    if (form->begins_thinking || (thinks && size == length)) {
        parser->state = IN_THOUGHT;
        parser->skips_space = true;
    }
    if (thinks && size == length)
        parser->at += space + length;
    return false;
}

static bool skip_space(struct salvo_tool_parser *parser)
{
    while (parser->skips_space && parser->at < parser->text.size) {
        parser->skips_space = is_space(parser->text.data[parser->at]);
        parser->at += parser->skips_space;
    }
    return parser->at == parser->text.size;
}

static bool read_thought(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    bool found;
    if (skip_space(parser))
        return true;
    const char *end = parser->form->info.think_end;
    const size_t size = size_before(rest_of(parser), end, parser->last, &found);
    if (take(parser, SALVO_TOOL_REASONING, size, out))
        return true;
    if (found) {
        parser->at += strlen(end);
        parser->state = IN_TEXT;
        parser->skips_space = true;
    }
    return !found;
}

static bool read_text(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    bool found = false;
    if (skip_space(parser))
        return true;
    const struct salvo_text text = rest_of(parser);
    const size_t size =
        parser->has_tools ? size_before(text, parser->form->info.marker, parser->last, &found) : text.size;
    if (take(parser, SALVO_TOOL_CONTENT, size, out))
        return true;
    if (found)
        parser->state = IN_CALL;
    return !found;
}

/* A call after one of the texts that come before a call. */
static enum match match_whole_call(
    const struct salvo_tool_parser *parser, const char *before, size_t *out_at, struct salvo_tool_event *out)
{
    const struct salvo_text text = rest_of(parser);
    *out_at = 0;
    enum match match = match_text(text, before, out_at);
    if (match == MATCHES)
        match = match_call(text, &parser->form->info, out_at, out);
    if (match != MATCHES)
        *out = (struct salvo_tool_event){.kind = SALVO_TOOL_NOTHING};
    return match;
}

static bool read_call(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const struct salvo_tool_form_info *form = &parser->form->info;
    size_t at;
    const enum match match = match_whole_call(parser, form->before, &at, out);
    if (match == MATCHES) {
        parser->at += at;
        parser->state = AFTER_CALL;
        return true;
    }
    if (match == NEEDS_MORE && !parser->last)
        return true;
    /* No call: its marker is content, and so is the rest, unless there is a call in it. */
    parser->state = IN_TEXT;
    return take(parser, SALVO_TOOL_CONTENT, strlen(form->marker), out);
}

/* Behind a call: the next one, or what ends the calls. */
static bool read_after(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const struct salvo_tool_form_info *form = &parser->form->info;
    size_t next = 0, end = 0;
    const enum match between = *form->between ? match_whole_call(parser, form->between, &next, out) : DIFFERS;
    if (between == MATCHES) {
        parser->at += next;
        return true;
    }
    const enum match after = match_text(rest_of(parser), form->after, &end);
    if (!parser->last && (between == NEEDS_MORE || after == NEEDS_MORE))
        return true;
    parser->state = IN_TEXT;
    parser->skips_space = true;
    if (after == MATCHES)
        parser->at += end;
    else if (after == NEEDS_MORE) /* the answer was cut behind the call */
        parser->at = parser->text.size;
    return parser->at == parser->text.size;
}

enum salvo_status salvo_tool_parser_next(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    REQUIRE(out);
    *out = (struct salvo_tool_event){.kind = SALVO_TOOL_NOTHING};
    REQUIRE(parser);
    for (bool stays = false; !stays && parser->at < parser->text.size;) {
        switch (parser->state) {
        case AT_BEGIN:
            stays = begin(parser, out);
            break;
        case IN_THOUGHT:
            stays = read_thought(parser, out);
            break;
        case IN_TEXT:
            stays = read_text(parser, out);
            break;
        case IN_CALL:
            stays = read_call(parser, out);
            break;
        case AFTER_CALL:
            stays = read_after(parser, out);
            break;
        }
    }
    return SALVO_OK;
}

enum salvo_status salvo_tool_parser_push(
    struct salvo_tool_parser *parser, const char *text, size_t size, bool last)
{
    enum salvo_status status = SALVO_OK;
    REQUIRE(parser);
    if (size)
        REQUIRE(text);
    if (parser->at) {
        parser->text.size -= parser->at;
        if (parser->text.size)
            memmove(parser->text.data, parser->text.data + parser->at, parser->text.size);
        parser->at = 0;
    }
    if (size)
        TRY(buffer_append(&parser->text, text, size));
    parser->last |= last;
cleanup:
    return status;
}

enum salvo_status salvo_tool_parser_open(
    const struct salvo_tool_form *form, uint32_t has_tools, struct salvo_tool_parser **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(form);
    const enum salvo_status status = NEW(out, 1);
    if (status == SALVO_OK) {
        (*out)->form = form;
        (*out)->has_tools = has_tools != 0;
    }
    return status;
}

void salvo_tool_parser_close(struct salvo_tool_parser *parser)
{
    if (!parser)
        return;
    buffer_free(&parser->text);
    memory_free(parser);
}
