/* Answers of several messages, each with a header: <|channel|>NAME to=RECIPIENT<|message|>TEXT<|end|>. */
#include "engine/tool_parser.h"

#include <string.h>

enum { HEADER_LONGEST = 300 };

/* Words that end a message; the last one also begins the next. */
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
enum { END_COUNT = sizeof ends / sizeof *ends };

static const char message_word[] = "<|message|>", channel_word[] = "<|channel|>",
                  recipient_word[] = "to=functions.";

static const char *find(struct salvo_text text, const char *word)
{
    return text.size ? memmem(text.data, text.size, word, strlen(word)) : NULL;
}

/* Whether the text begins, or may begin, with a word. */
static enum match match_word(struct salvo_text text, const char *word)
{
    const size_t length = strlen(word), size = text.size < length ? text.size : length;
    if (memcmp(text.data, word, size) != 0)
        return DIFFERS;
    return size == length ? MATCHES : NEEDS_MORE;
}

/* Whether a header begins here: <|start|>, <|channel|>, or a recipient behind white space. */
static enum match match_header(struct salvo_text text)
{
    struct salvo_text inner = text;
    while (inner.size && tool_is_space(inner.data[0]))
        inner = (struct salvo_text){inner.data + 1, inner.size - 1};
    if (!inner.size)
        return NEEDS_MORE;
    const enum match matches[] = {
        match_word(inner, "<|start|>"), match_word(inner, channel_word), match_word(inner, recipient_word)};
    enum match best = DIFFERS;
    for (size_t i = 0; i < sizeof matches / sizeof *matches; i++)
        best = matches[i] < best ? matches[i] : best;
    return best;
}

/* The name of the tool that a header calls; empty: none. */
static struct salvo_text recipient(struct salvo_text header)
{
    const char *found = find(header, recipient_word);
    struct salvo_text name = {0};
    if (found) {
        name.data = found + strlen(recipient_word);
        while (name.data + name.size < header.data + header.size && is_tool_name(name.data[name.size]))
            name.size++;
    }
    return name;
}

/* A call, if arguments follow the header; *out_match says so. */
static enum salvo_status begin_call(struct salvo_tool_parser *parser, struct salvo_text name, size_t size,
    struct salvo_tool_event *out, enum match *out_match)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text text = parser_rest(parser);
    while (size < text.size && tool_is_space(text.data[size]))
        size++;
    *out_match = size == text.size ? NEEDS_MORE : text.data[size] == '{' ? MATCHES : DIFFERS;
    if (*out_match == MATCHES) {
        TRY(parser_begin_call(parser, name, size, out));
        parser->state = IN_JSON;
        parser->next = parser->end = "";
    }
cleanup:
    return status;
}

enum salvo_status parser_header(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text text = parser_rest(parser);
    const enum match match = match_header(text);
    const char *found = match == MATCHES ? find(text, message_word) : NULL;
    *stays = true;
    if (found && found - text.data > HEADER_LONGEST)
        found = NULL;
    if (!found && match != DIFFERS && text.size < HEADER_LONGEST + sizeof message_word && !parser->last)
        goto cleanup;
    parser->message = SALVO_TOOL_CONTENT;
    if (!found) { /* no header: content */
        parser->state = IN_MESSAGE;
        if (match != DIFFERS)
            parser_take(parser, SALVO_TOOL_CONTENT, 1, out);
        *stays = match != DIFFERS;
        goto cleanup;
    }
    const struct salvo_text header = {text.data, (size_t)(found - text.data)};
    const struct salvo_text name = recipient(header);
    const size_t size = header.size + sizeof message_word - 1;
    if (parser->has_tools && name.size && name.size <= TOOL_NAME_LONGEST) {
        enum match call;
        TRY(begin_call(parser, name, size, out, &call));
        if (call == MATCHES || (call == NEEDS_MORE && !parser->last))
            goto cleanup;
        parser->state = IN_MESSAGE; /* no call */
        parser_take(parser, SALVO_TOOL_CONTENT, size, out);
        goto cleanup;
    }
    parser->at += size;
    parser->state = IN_MESSAGE;
    if (find(header, "<|channel|>analysis"))
        parser->message = SALVO_TOOL_REASONING;
    *stays = false;
cleanup:
    return status;
}

enum salvo_status parser_message(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays)
{
    const struct salvo_text text = parser_rest(parser);
    size_t size = text.size;
    const char *end = NULL;
    for (size_t i = 0; i < END_COUNT; i++) {
        bool found;
        const size_t before = parser_size_before(text, ends[i], parser->last, &found);
        if (before < size || (found && before == size)) {
            size = before;
            end = found ? ends[i] : NULL;
        }
    }
    *stays = true;
    if (parser_take(parser, parser->message, size, out))
        return SALVO_OK;
    if (end) {
        parser->at += end == ends[END_COUNT - 1] ? 0 : strlen(end);
        parser->state = IN_HEADER;
    }
    *stays = !end;
    return SALVO_OK;
}
