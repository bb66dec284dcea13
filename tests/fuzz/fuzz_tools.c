/*
 * Answers with tool calls: a byte that chooses the template of a family, a byte that chooses the sizes of the
 * pieces, and the answer. All pieces give the same content, reasoning and calls as the whole; the pieces of
 * arguments are the arguments; calls have names and valid arguments; nothing is lost where there are no
 * calls.
 */
#include "base/buffer.h"
#include "base/json_slice.h"
#include "tool_families.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FAMILIES = 64 };

static struct salvo_tool_form *forms[MOST_FAMILIES];

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void append(struct buffer *out, const void *data, size_t size)
{
    if (size)
        expect(buffer_append(out, data, size) == SALVO_OK);
}

/* The sum of the events of a parser. */
struct seen {
    struct buffer all;     /* content, reasoning and calls, with their kinds */
    struct buffer content; /* with the texts of calls that are none */
    struct buffer pieces;  /* of the arguments of the last call */
    uint32_t last;         /* kind */
    bool in_call;
    size_t calls, thoughts;
};

static void add(struct seen *seen, uint32_t kind, struct salvo_text text)
{
    if (kind != seen->last)
        append(&seen->all, &(const char){(char)(1 + kind)}, 1);
    append(&seen->all, text.data, text.size);
    seen->last = kind;
}

static void see(struct seen *seen, const struct salvo_tool_event *event)
{
    expect((event->kind == SALVO_TOOL_ARGUMENTS || event->kind == SALVO_TOOL_CALL_END ||
               event->kind == SALVO_TOOL_CALL_CUT) == seen->in_call);
    switch (event->kind) {
    case SALVO_TOOL_CALL:
        expect(event->name.size > 0);
        seen->in_call = true;
        seen->pieces.size = 0;
        break;
    case SALVO_TOOL_ARGUMENTS:
        append(&seen->pieces, event->text.data, event->text.size);
        break;
    case SALVO_TOOL_CALL_END:
        expect(event->arguments.size > 1 && event->arguments.data[0] == '{');
        expect(json_slice_is_valid(event->arguments) && seen->pieces.size == event->arguments.size &&
               memcmp(seen->pieces.data, event->arguments.data, seen->pieces.size) == 0);
        seen->in_call = false;
        seen->calls++;
        seen->last = SALVO_TOOL_NOTHING;
        add(seen, SALVO_TOOL_CALL_END, event->name);
        append(&seen->all, event->arguments.data, event->arguments.size);
        break;
    default:
        expect(event->text.size > 0);
        seen->in_call = false;
        seen->thoughts += event->kind == SALVO_TOOL_REASONING;
        add(seen, event->kind == SALVO_TOOL_CALL_CUT ? SALVO_TOOL_CONTENT : event->kind, event->text);
        if (event->kind != SALVO_TOOL_REASONING)
            append(&seen->content, event->text.data, event->text.size);
    }
}

static void parse(
    const struct salvo_tool_form *form, const char *text, size_t size, size_t step, struct seen *seen)
{
    struct salvo_tool_parser *parser;
    struct salvo_tool_event event;
    expect(salvo_tool_parser_open(form, tool_family_tools, strlen(tool_family_tools), &parser) == SALVO_OK);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < step ? size - at : step;
        expect(salvo_tool_parser_push(parser, text + at, piece, at + piece == size) == SALVO_OK);
        do {
            expect(salvo_tool_parser_next(parser, &event) == SALVO_OK);
            if (event.kind != SALVO_TOOL_NOTHING)
                see(seen, &event);
        } while (event.kind != SALVO_TOOL_NOTHING);
    }
    expect(!seen->in_call);
    salvo_tool_parser_close(parser);
}

static void forget(struct seen *seen)
{
    buffer_free(&seen->all);
    buffer_free(&seen->content);
    buffer_free(&seen->pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {0}, pieces = {0};
    if (size < 3 || size > 600)
        return 0;
    const size_t family = data[0] % tool_family_count;
    if (!forms[family])
        forms[family] = tool_family_open(tool_families[family].name);
    const struct salvo_tool_form *form = forms[family];
    const struct salvo_tool_form_info *info = salvo_tool_form_info(form);
    const char *text = (const char *)data + 2;
    size -= 2;
    parse(form, text, size, size, &whole);
    parse(form, text, size, 1 + data[1] % 8, &pieces);
    expect(whole.all.size == pieces.all.size);
    if (whole.all.data && pieces.all.data)
        expect(memcmp(whole.all.data, pieces.all.data, whole.all.size) == 0);
    /* Tags of reasoning parts, headers and words for content are left out. */
    const bool is_plain = !info->begins_thinking && strcmp(info->name, "channels") != 0 &&
                          strcmp(info->name, "recipients") != 0 &&
                          !memmem(text, size, info->think_begin, strlen(info->think_begin));
    if (is_plain && !whole.calls)
        expect(whole.content.size == size && memcmp(whole.content.data, text, size) == 0);
    forget(&whole);
    forget(&pieces);
    return 0;
}
