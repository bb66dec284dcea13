/* Functions that all states of the parser use. */
#include "engine/tool_parser.h"

#include <string.h>

static bool is_id(char c)
{
    return is_tool_name(c) || c == ':';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* An id or a number, at least one character. */
static enum match match_run(struct salvo_text text, bool (*fits)(char), size_t *at)
{
    const size_t first = *at;
    while (*at < text.size && fits(text.data[*at]))
        ++*at;
    if (*at == text.size)
        return NEEDS_MORE;
    return *at == first ? DIFFERS : MATCHES;
}

enum match parser_match(struct salvo_text text, const char *expected, size_t *at)
{
    size_t place = *at;
    for (; *expected; expected++) {
        if (tool_is_space(*expected))
            continue;
        while (place < text.size && tool_is_space(text.data[place]))
            place++;
        if (place == text.size)
            return NEEDS_MORE;
        if (*expected == TOOL_ID || *expected == TOOL_NUMBER) {
            const enum match run = match_run(text, *expected == TOOL_ID ? is_id : is_digit, &place);
            if (run != MATCHES)
                return run;
        } else if (text.data[place++] != *expected) {
            return DIFFERS;
        }
    }
    *at = place;
    return MATCHES;
}

bool parser_take(struct salvo_tool_parser *parser, enum salvo_tool_event_kind kind, size_t size,
    struct salvo_tool_event *out)
{
    if (size == 0)
        return false;
    *out = (struct salvo_tool_event){.kind = kind, .text = {parser_rest(parser).data, size}};
    parser->at += size;
    return true;
}

size_t parser_size_before(struct salvo_text text, const char *word, bool last, bool *out_found)
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

enum salvo_status parser_skip(struct salvo_tool_parser *parser, size_t size)
{
    const enum salvo_status status =
        size ? buffer_append(&parser->call, parser_rest(parser).data, size) : SALVO_OK;
    if (status == SALVO_OK)
        parser->at += size;
    return status;
}

enum salvo_status parser_begin_call(
    struct salvo_tool_parser *parser, struct salvo_text name, size_t size, struct salvo_tool_event *out)
{
    enum salvo_status status = SALVO_OK;
    parser->name.size = parser->arguments.size = parser->call.size = 0;
    parser->reported = parser->depth = 0;
    parser->in_string = parser->is_escaped = false;
    TRY(buffer_append(&parser->name, name.data, name.size));
    TRY(parser_skip(parser, size));
    *out = (struct salvo_tool_event){
        .kind = SALVO_TOOL_CALL, .name = {parser->name.data, parser->name.size}, .arguments = {"", 0}};
cleanup:
    return status;
}

bool parser_report(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    const size_t size = parser->arguments.size - parser->reported;
    if (size == 0)
        return false;
    *out = (struct salvo_tool_event){
        .kind = SALVO_TOOL_ARGUMENTS, .text = {parser->arguments.data + parser->reported, size}};
    parser->reported = parser->arguments.size;
    return true;
}

void parser_go_to_text(struct salvo_tool_parser *parser)
{
    const bool has_headers = strcmp(parser->form->info.name, "channels") == 0;
    parser->state = has_headers ? IN_MESSAGE : IN_TEXT;
    parser->message = SALVO_TOOL_CONTENT;
}

bool parser_cut(struct salvo_tool_parser *parser, struct salvo_tool_event *out)
{
    *out = (struct salvo_tool_event){
        .kind = SALVO_TOOL_CALL_CUT, .text = {parser->call.data, parser->call.size}};
    parser_go_to_text(parser);
    return true;
}
