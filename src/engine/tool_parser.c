/* Finds calls and reasoning parts in an answer as it grows. */
#include "engine/tool_parser.h"

#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"

#include <string.h>

/* ---- Calls ---- */

/* The name of a call at *at, and the text behind it, which may begin with characters of names. */
static enum match match_name(
    struct salvo_text text, const struct salvo_tool_form *form, size_t *at, struct salvo_text *out)
{
    const char *middle = tool_text(form, TEXT_MIDDLE);
    size_t shared = 0;
    while (*at < text.size && tool_is_space(text.data[*at]))
        ++*at;
    const size_t name = *at;
    while (*at < text.size && is_tool_name(text.data[*at]))
        ++*at;
    while (is_tool_name(middle[shared]))
        shared++;
    *out = (struct salvo_text){text.data + name, *at - name};
    if (out->size > TOOL_NAME_LONGEST + shared)
        return DIFFERS;
    if (*at == text.size)
        return NEEDS_MORE;
    if (shared && out->size > shared && memcmp(text.data + *at - shared, middle, shared) == 0) {
        out->size -= shared;
        *at -= shared;
    }
    return out->size ? MATCHES : DIFFERS;
}

static enum match either(enum match left, enum match right)
{
    return left == MATCHES || right == MATCHES         ? MATCHES
           : left == NEEDS_MORE || right == NEEDS_MORE ? NEEDS_MORE
                                                       : DIFFERS;
}

/* Matches the text behind the name of a call without parameters. */
static enum match match_none(struct salvo_text text, const struct salvo_tool_form *form, size_t at)
{
    size_t next = at, end = at;
    const char *between = tool_text(form, TEXT_NONE_NEXT);
    return either(*between ? parser_match(text, between, &next) : DIFFERS,
        parser_match(text, tool_text(form, TEXT_NONE_END), &end));
}

/* A head: the text before a call, its name, and the text behind it. *out_state is where the parser goes on,
 * and *out_at how far the head reaches. */
static enum match match_head(struct salvo_text text, const struct salvo_tool_form *form, const char *before,
    struct salvo_text *out_name, size_t *out_at, enum parser_state *out_state)
{
    size_t at = 0;
    enum match match = parser_match(text, before, &at);
    if (match == MATCHES)
        match = match_name(text, form, &at, out_name);
    if (match != MATCHES)
        return match;
    size_t behind = at;
    match = parser_match(text, tool_text(form, TEXT_MIDDLE), &behind);
    if (strcmp(form->info.name, "parameters") == 0) {
        const enum match none = match_none(text, form, at);
        *out_state = none == MATCHES ? AT_END : AT_KEY;
        *out_at = none == MATCHES ? at : behind;
        return none == DIFFERS ? match : none;
    }
    if (match != MATCHES)
        return match;
    while (behind < text.size && tool_is_space(text.data[behind]))
        behind++;
    *out_state = IN_JSON;
    *out_at = behind;
    return behind == text.size ? NEEDS_MORE : text.data[behind] == '{' ? MATCHES : DIFFERS;
}

/* Reads a head behind `tag` bytes. *out_match says whether there is one; `skipped` bytes of it are not a part
 * of the call. */
static enum salvo_status read_head(struct salvo_tool_parser *parser, const struct salvo_tool_form *form,
    const char *before, size_t tag, size_t skipped, struct salvo_tool_event *out, enum match *out_match)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text name;
    enum parser_state state;
    size_t at;
    const struct salvo_text text = parser_rest(parser);
    *out_match =
        match_head((struct salvo_text){text.data + tag, text.size - tag}, form, before, &name, &at, &state);
    if (*out_match != MATCHES)
        return SALVO_OK;
    skipped = skipped < at ? skipped : 0;
    parser->at += skipped;
    TRY(parser_begin_call(parser, name, tag + at - skipped, out));
    parser->state = state;
    parser->call_form = form;
    parser->next = tool_text(form, state == AT_END ? TEXT_NONE_NEXT : TEXT_BETWEEN);
    parser->end = tool_text(form, state == AT_END ? TEXT_NONE_END : TEXT_AFTER);
    if (state == AT_END)
        TRY(buffer_append(&parser->arguments, "{}", 2));
    else if (state == AT_KEY)
        TRY(buffer_append(&parser->arguments, "{", 1));
cleanup:
    return status;
}

/* The size of JSON up to the end of the object that `depth` counts. */
static size_t scan_json(struct salvo_tool_parser *parser, struct salvo_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        const char c = text.data[i];
        if (parser->in_string) {
            parser->in_string = parser->is_escaped || c != '"';
            parser->is_escaped = !parser->is_escaped && c == '\\';
        } else if (c == '"') {
            parser->in_string = true;
        } else if (c == '{' || c == '[') {
            parser->depth++;
        } else if ((c == '}' || c == ']') && --parser->depth == 0) {
            return i + 1;
        }
    }
    return text.size;
}

static enum salvo_status read_json(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text text = parser_rest(parser);
    const size_t size = scan_json(parser, text);
    TRY(buffer_append(&parser->arguments, text.data, size));
    TRY(parser_skip(parser, size));
    *stays = true;
    if (parser->depth == 0)
        parser->state = AT_END;
    parser_report(parser, out);
cleanup:
    return status;
}

/* All arguments are there. */
static bool end_call(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const struct salvo_text arguments = {parser->arguments.data, parser->arguments.size};
    if (parser_report(parser, out))
        return true;
    if (!json_slice_is_valid(arguments))
        return parser_cut(parser, out);
    *out = (struct salvo_tool_event){
        .kind = SALVO_TOOL_CALL_END, .name = {parser->name.data, parser->name.size}, .arguments = arguments};
    parser->state = AFTER_CALL;
    return true;
}

/* ---- Text ---- */

static bool skip_space(struct salvo_tool_parser *parser)
{
    while (parser->skips_space && parser->at < parser->text.size) {
        parser->skips_space = tool_is_space(parser->text.data[parser->at]);
        parser->at += parser->skips_space;
    }
    return parser->at == parser->text.size;
}

/* Answers that begin with a recipient: a word for content, or the name of a tool. */
static bool begin_recipient(struct salvo_tool_parser *parser)
{
    size_t at = 0;
    const enum match content = parser_match(parser_rest(parser), tool_text(parser->form, TEXT_CONTENT), &at);
    if (content == NEEDS_MORE && !parser->last)
        return true;
    parser->state = content == MATCHES || !parser->has_tools ? IN_TEXT : IN_HEAD;
    parser->at += at;
    parser->skips_space = content == MATCHES;
    return false;
}

static bool begin(struct salvo_tool_parser *parser)
{
    const struct salvo_tool_form_info *form = &parser->form->info;
    const struct salvo_text text = parser_rest(parser);
    const size_t length = strlen(form->think_begin);
    size_t space = 0;
    if (strcmp(form->name, "channels") == 0) {
        parser->state = IN_HEADER;
        return false;
    }
    if (*tool_text(parser->form, TEXT_CONTENT))
        return begin_recipient(parser);
    while (space < text.size && tool_is_space(text.data[space]))
        space++;
    const size_t size = text.size - space < length ? text.size - space : length;
    const bool thinks = memcmp(text.data + space, form->think_begin, size) == 0;
    if (thinks && size < length && !parser->last)
        return true;
    parser->state = IN_TEXT;
    if (parser->begins_thinking || (thinks && size == length)) {
        parser->state = IN_THOUGHT;
        parser->skips_space = true;
    }
    if (thinks && size == length)
        parser->at += space + length;
    return false;
}

static bool read_thought(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    bool found;
    if (skip_space(parser))
        return true;
    const char *end = parser->form->info.think_end;
    const size_t size = parser_size_before(parser_rest(parser), end, parser->last, &found);
    if (parser_take(parser, SALVO_TOOL_REASONING, size, out))
        return true;
    if (found) {
        parser->at += strlen(end);
        parser->state = IN_TEXT;
        parser->skips_space = true;
    }
    return !found;
}

static bool is_all_space(struct salvo_text text, size_t size)
{
    size_t space = 0;
    while (space < size && tool_is_space(text.data[space]))
        space++;
    return space == size;
}

static bool read_text(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const struct salvo_tool_form *tagged = parser->form->tagged;
    bool found = false, found_tag = false;
    if (skip_space(parser))
        return true;
    const struct salvo_text text = parser_rest(parser);
    size_t size = text.size;
    if (parser->has_tools)
        size = parser_size_before(text, parser->form->info.marker, parser->last, &found);
    if (parser->has_tools && tagged) {
        const size_t other = parser_size_before(text, tagged->info.marker, parser->last, &found_tag);
        found = other < size ? found_tag : found;
        size = other < size ? other : size;
    }
    const bool is_blank = parser->has_tools && !parser->has_content && is_all_space(text, size);
    if (is_blank && !found && !parser->last)
        return true;
    if (is_blank && found) /* white space before a call is no content */
        size = 0;
    parser->has_content |= size > 0;
    if (parser_take(parser, SALVO_TOOL_CONTENT, size, out))
        return true;
    if (found)
        parser->state = IN_HEAD;
    return !found;
}

/* ---- Heads ---- */

/* The text before a call in content; the first call of recipients has none. */
static const char *before_call(const struct salvo_tool_parser *parser)
{
    const struct salvo_text text = parser_rest(parser);
    const char *marker = parser->form->info.marker;
    const bool at_marker = text.size >= strlen(marker) && memcmp(text.data, marker, strlen(marker)) == 0;
    return *tool_text(parser->form, TEXT_CONTENT) && at_marker ? marker : parser->form->info.before;
}

/* Calls of the form, calls of built-in tools, and calls of the form after the tag of built-in tools. */
static enum salvo_status read_call(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_tool_form *tagged = parser->form->tagged;
    enum match match, other = DIFFERS;
    *stays = true;
    TRY(read_head(parser, parser->form, before_call(parser), 0, 0, out, &match));
    if (match == DIFFERS && tagged) {
        size_t tag = 0;
        TRY(read_head(parser, tagged, tagged->info.before, 0, 0, out, &match));
        if (match != MATCHES && parser_match(parser_rest(parser), tagged->info.marker, &tag) == MATCHES) {
            TRY(read_head(parser, parser->form, parser->form->info.before, tag, 0, out, &other));
            match = either(match, other);
        }
    }
    if (match == MATCHES || (match == NEEDS_MORE && !parser->last))
        goto cleanup;
    /* No call: its marker is content, and so is the rest, unless there is a call in it. */
    parser->state = IN_TEXT;
    parser->has_content = true;
    const struct salvo_text text = parser_rest(parser);
    const char *marker = tagged && text.size >= strlen(tagged->info.marker) &&
                                 memcmp(text.data, tagged->info.marker, strlen(tagged->info.marker)) == 0
                             ? tagged->info.marker
                             : parser->form->info.marker;
    const size_t size = strlen(marker);
    *stays = text.size >= size && memcmp(text.data, marker, size) == 0 &&
             parser_take(parser, SALVO_TOOL_CONTENT, size, out);
cleanup:
    return status;
}

/* After a call: the next call, or the end of the calls. */
static enum salvo_status read_after(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const char *const next = parser->next, *const end_text = parser->end;
    size_t end = 0;
    const enum match after = parser_match(parser_rest(parser), end_text, &end);
    enum match between = DIFFERS;
    *stays = true;
    if (*next)
        TRY(read_head(parser, parser->call_form, next, 0, after == MATCHES ? end : 0, out, &between));
    if (between == MATCHES || (!parser->last && (between == NEEDS_MORE || after == NEEDS_MORE)))
        goto cleanup;
    parser_go_to_text(parser);
    parser->skips_space = true;
    if (after == MATCHES)
        parser->at += end;
    else if (after == NEEDS_MORE) /* the answer was cut behind the call */
        parser->at = parser->text.size;
    *stays = parser->at == parser->text.size;
cleanup:
    return status;
}

/* ---- Calls of the interface ---- */

static enum salvo_status read_state(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    switch (parser->state) {
    case AT_BEGIN:
        *stays = begin(parser);
        return SALVO_OK;
    case IN_THOUGHT:
        *stays = read_thought(parser, out);
        return SALVO_OK;
    case IN_TEXT:
        *stays = read_text(parser, out);
        return SALVO_OK;
    case IN_HEAD:
        return read_call(parser, out, stays);
    case IN_JSON:
        return read_json(parser, out, stays);
    case AT_KEY:
        return parser_key(parser, out, stays);
    case IN_VALUE:
        return parser_value(parser, out, stays);
    case AFTER_VALUE:
        return parser_after_value(parser, out, stays);
    case AT_END:
        *stays = end_call(parser, out);
        return SALVO_OK;
    case AFTER_CALL:
        return read_after(parser, out, stays);
    case IN_HEADER:
        return parser_header(parser, out, stays);
    case IN_MESSAGE:
        return parser_message(parser, out, stays);
    }
    return SALVO_OK;
}

/* Whether the answer ends within a call. */
static bool is_in_call(const struct salvo_tool_parser *parser)
{
    return parser->state == IN_JSON || parser->state == AT_KEY || parser->state == IN_VALUE ||
           parser->state == AFTER_VALUE;
}

enum salvo_status salvo_tool_parser_next(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    enum salvo_status status = SALVO_OK;
    REQUIRE(out);
    *out = (struct salvo_tool_event){.kind = SALVO_TOOL_NOTHING};
    REQUIRE(parser);
    for (bool stays = false; !stays && (parser->at < parser->text.size || parser->state == AT_END);)
        TRY(read_state(parser, out, &stays));
    if (out->kind == SALVO_TOOL_NOTHING && parser->last && is_in_call(parser)) {
        TRY(parser_skip(parser, parser->text.size - parser->at));
        parser_cut(parser, out);
    }
cleanup:
    return status;
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
    const struct salvo_tool_form *form, const char *tools, size_t size, struct salvo_tool_parser **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_tool_parser *parser = NULL;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(form);
    TRY(NEW(&parser, 1));
    parser->form = parser->call_form = form;
    parser->has_tools = tools != NULL;
    parser->begins_thinking = form->info.begins_thinking;
    if (tools && size)
        TRY(buffer_append(&parser->tools, tools, size));
    *out = parser;
    parser = NULL;
cleanup:
    salvo_tool_parser_close(parser);
    return status;
}

enum salvo_status salvo_tool_parser_set_thinking(struct salvo_tool_parser *parser, uint32_t thinking)
{
    REQUIRE(parser);
    if (thinking > SALVO_TOOL_THINKING_NO)
        return fail(SALVO_ERROR_ARGUMENT, "thinking %u is no value of salvo_tool_thinking", thinking);
    parser->begins_thinking = tool_begins_thinking(parser->form, thinking);
    return SALVO_OK;
}

void salvo_tool_parser_close(struct salvo_tool_parser *parser)
{
    if (!parser)
        return;
    buffer_free(&parser->text);
    buffer_free(&parser->tools);
    buffer_free(&parser->call);
    buffer_free(&parser->name);
    buffer_free(&parser->arguments);
    buffer_free(&parser->key);
    memory_free(parser);
}
