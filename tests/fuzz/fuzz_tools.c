/*
 * Answers with tool calls: a byte that chooses the sizes of the pieces, and the answer. All pieces give the
 * same events as the whole; calls have names and valid arguments; without reasoning and calls, the content is
 * the answer.
 */
#include "base/json_slice.h"
#include "engine/tool_form.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static const struct salvo_tool_form form = {.info = {.size = sizeof form.info,
                                                .marker = "<t>",
                                                .before = "<t>{\"name\": \"",
                                                .middle = "\", \"arguments\": ",
                                                .between = ", \"id\": \"\x01\"}, {\"name\": \"",
                                                .after = ", \"id\": \"\x01\"}</t>",
                                                .think_begin = "<think>",
                                                .think_end = "</think>"}};

static void append(struct buffer *out, const void *data, size_t size)
{
    if (size)
        expect(buffer_append(out, data, size) == SALVO_OK);
}

/* Appends all events: texts of one kind are one, however many pieces they have. */
static void take_events(struct salvo_tool_parser *parser, uint32_t *last, struct buffer *out)
{
    struct salvo_tool_event event;
    for (;;) {
        expect(salvo_tool_parser_next(parser, &event) == SALVO_OK);
        if (event.kind == SALVO_TOOL_NOTHING)
            return;
        if (event.kind != *last || event.kind == SALVO_TOOL_CALL)
            append(out, &(const char){(char)(1 + event.kind)}, 1);
        *last = event.kind;
        append(out, event.text.data, event.text.size);
        if (event.kind == SALVO_TOOL_CALL) {
            expect(event.name.size > 0 && event.arguments.size > 1 && event.arguments.data[0] == '{');
            expect(json_slice_is_valid(event.arguments));
            append(out, event.name.data, event.name.size);
            append(out, event.arguments.data, event.arguments.size);
        } else {
            expect(event.text.size > 0);
        }
    }
}

static void parse(const char *text, size_t size, size_t step, struct buffer *out)
{
    struct salvo_tool_parser *parser;
    uint32_t last = SALVO_TOOL_NOTHING;
    expect(salvo_tool_parser_open(&form, 1, &parser) == SALVO_OK);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < step ? size - at : step;
        expect(salvo_tool_parser_push(parser, text + at, piece, at + piece == size) == SALVO_OK);
        take_events(parser, &last, out);
    }
    salvo_tool_parser_close(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer whole = {0}, pieces = {0};
    if (size < 2 || size > 400)
        return 0;
    const char *text = (const char *)data + 1;
    parse(text, size - 1, size, &whole);
    parse(text, size - 1, 1 + data[0] % 8, &pieces);
    expect(whole.size == pieces.size);
    if (whole.data && pieces.data)
        expect(memcmp(whole.data, pieces.data, whole.size) == 0);
    if (!memmem(text, size - 1, "<t", 2))
        expect(whole.data && whole.size == size && memcmp(whole.data + 1, text, size - 1) == 0);
    buffer_free(&whole);
    buffer_free(&pieces);
    return 0;
}
