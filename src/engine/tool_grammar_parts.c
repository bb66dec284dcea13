/* Elements of grammars of tool calls. */
#include "base/json_slice.h"
#include "engine/tool_grammar.h"

#include <stdio.h>
#include <string.h>

enum salvo_status grammar_add(struct buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text));
}

enum salvo_status grammar_add_literal(struct buffer *out, const char *text)
{
    enum salvo_status status = SALVO_OK;
    TRY(grammar_add(out, " \""));
    for (; *text; text++) {
        if (*text == TOOL_ID)
            TRY(grammar_add(out, "\" [a-zA-Z0-9]{9} \""));
        else if (*text == TOOL_NUMBER)
            TRY(grammar_add(out, "\" [0-9]{1,3} \""));
        else if (*text == '\n')
            TRY(grammar_add(out, "\\n"));
        else if (*text == '\r')
            TRY(grammar_add(out, "\\r"));
        else if (*text == '"' || *text == '\\')
            TRY(buffer_append(out, (const char[]){'\\', *text}, 2));
        else
            TRY(buffer_append(out, text, 1));
    }
    TRY(grammar_add(out, "\""));
cleanup:
    return status;
}

/* The character at *text as an escape, which a class or a literal may have; *text moves on. */
static enum salvo_status add_character(struct buffer *out, const char **text)
{
    const unsigned char *byte = (const unsigned char *)*text;
    const unsigned more = *byte >= 0xf0 ? 3 : *byte >= 0xe0 ? 2 : *byte >= 0xc0 ? 1 : 0;
    uint32_t code = more ? *byte & (0x3fU >> more) : *byte;
    char escape[16];
    for (unsigned i = 0; i < more && byte[i + 1]; i++)
        code = code << 6 | (byte[i + 1] & 0x3fU);
    for (unsigned i = 0; i <= more && **text; i++)
        ++*text;
    snprintf(escape, sizeof escape, "\\U%08x", code);
    return grammar_add(out, escape);
}

/* Any character but the first of the word, and but the one at `place`. */
static enum salvo_status add_other(struct buffer *out, const char *word, const char *place)
{
    enum salvo_status status = SALVO_OK;
    TRY(grammar_add(out, "[^"));
    if (place != word)
        TRY(add_character(out, &place));
    TRY(add_character(out, &word));
    TRY(grammar_add(out, "]"));
cleanup:
    return status;
}

/* The part of a word from its second character to a place. */
static enum salvo_status add_part(struct buffer *out, const char *word, const char *end)
{
    enum salvo_status status = SALVO_OK;
    struct buffer first = {0};
    TRY(add_character(&first, &word));
    TRY(grammar_add(out, " \""));
    while (word < end)
        TRY(add_character(out, &word));
    TRY(grammar_add(out, "\""));
cleanup:
    buffer_free(&first);
    return status;
}

/* Parts of the word that go on with its first character, or with a character that is not the next. `close` is
 * what such a part goes on with. */
enum part_end { PART_AGAIN, PART_OTHER, PART_LAST };

static enum salvo_status add_parts(struct buffer *out, const char *word, enum part_end end)
{
    enum salvo_status status = SALVO_OK;
    struct buffer ignored = {0};
    const char *place = word, *first = word;
    TRY(grammar_add(out, " ("));
    TRY(add_character(&ignored, &place));
    for (bool begins = true; *place; begins = false) {
        TRY(grammar_add(out, begins ? "" : " |"));
        TRY(add_part(out, word, place));
        if (end == PART_OTHER) {
            TRY(grammar_add(out, " "));
            TRY(add_other(out, word, place));
        } else if (end == PART_AGAIN) {
            TRY(grammar_add(out, " \""));
            first = word;
            TRY(add_character(out, &first));
            TRY(grammar_add(out, "\""));
        }
        TRY(add_character(&ignored, &place));
    }
    TRY(grammar_add(out, " )"));
cleanup:
    buffer_free(&ignored);
    return status;
}

/* The first character of the word, then parts that begin it again. */
static enum salvo_status add_start(struct buffer *out, const char *word)
{
    enum salvo_status status = SALVO_OK;
    TRY(grammar_add(out, " \""));
    const char *first = word;
    TRY(add_character(out, &first));
    TRY(grammar_add(out, "\""));
    TRY(add_parts(out, word, PART_AGAIN));
    TRY(grammar_add(out, "*"));
cleanup:
    return status;
}

/*
 * The first character of the word occurs in it once: ([^w] | start part other)* (start part)?, where `start`
 * is the first character and parts of the word that go on with it. A word of one repeated character: at most
 * that many less one of it, then another.
 */
enum salvo_status grammar_add_text_without(struct buffer *out, const char *word)
{
    enum salvo_status status = SALVO_OK;
    const char *again = strchr(word + 1, *word);
    const size_t length = strlen(word), repeated = strspn(word, (const char[]){*word, 0});
    TRY(grammar_add(out, " ("));
    TRY(add_other(out, word, word));
    if (length > 1 && repeated == length) {
        char most[32];
        const char *first = word;
        TRY(grammar_add(out, " | \""));
        TRY(add_character(out, &first));
        snprintf(most, sizeof most, "\"{1,%zu} ", length - 1);
        TRY(grammar_add(out, most));
        TRY(add_other(out, word, word));
        TRY(grammar_add(out, ")* \""));
        first = word;
        TRY(add_character(out, &first));
        snprintf(most, sizeof most, "\"{0,%zu}", length - 1);
        TRY(grammar_add(out, most));
    } else if (length > 1 && !again) {
        TRY(grammar_add(out, " |"));
        TRY(add_start(out, word));
        TRY(add_parts(out, word, PART_OTHER));
        TRY(grammar_add(out, ")* ("));
        TRY(add_start(out, word));
        TRY(add_parts(out, word, PART_LAST));
        TRY(grammar_add(out, ")?"));
    } else {
        TRY(grammar_add(out, ")*"));
    }
cleanup:
    return status;
}

enum salvo_status grammar_add_json(
    struct buffer *out, struct salvo_text schema, const char *any, const struct tool *tool)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    struct salvo_grammar *grammar = NULL;
    TRY(grammar_add(&text, "root ::= %json "));
    const size_t begin = text.size;
    TRY(buffer_append(&text, schema.data, schema.size));
    const enum salvo_status compiled =
        salvo_grammar_compile(NULL, SALVO_GRAMMAR_GBNF, text.data, text.size, NULL, &grammar);
    if (compiled == SALVO_ERROR_MEMORY || (compiled != SALVO_OK && tool->strict)) {
        fail_within(compiled, "tool '%.*s': ", (int)tool->name.size, tool->name.data);
        TRY(compiled);
    }
    TRY(grammar_add(out, " %json "));
    TRY(compiled == SALVO_OK ? buffer_append(out, text.data + begin, text.size - begin)
                             : grammar_add(out, any));
cleanup:
    salvo_grammar_free(grammar);
    buffer_free(&text);
    return status;
}

enum salvo_status grammar_add_schema(struct buffer *out, const struct tool *tool)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text type;
    struct buffer text = {0};
    if (tool->parameters.size == 0)
        return grammar_add(out, " %json {\"type\":\"object\",\"additionalProperties\":false}");
    if (tool->parameters.data[0] == '{' && !json_slice_member(tool->parameters, "type", &type)) {
        const char *rest = tool->parameters.data + 1;
        while (tool_is_space(*rest))
            rest++;
        TRY(grammar_add(&text, *rest == '}' ? "{\"type\":\"object\"" : "{\"type\":\"object\","));
        TRY(buffer_append(&text, tool->parameters.data + 1, tool->parameters.size - 1));
    } else {
        TRY(buffer_append(&text, tool->parameters.data, tool->parameters.size));
    }
    TRY(grammar_add_json(out, (struct salvo_text){text.data, text.size}, "{\"type\":\"object\"}", tool));
cleanup:
    buffer_free(&text);
    return status;
}
