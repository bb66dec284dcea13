#include "text/jinja/lexer.h"

#include "text/jinja/literals.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct lexer {
    struct heap *heap;
    struct string source;
    size_t at;
    uint32_t line, column; /* of `at` */
    struct lexeme *items;
    size_t count, capacity;
    char open[256]; /* brackets that are to be closed */
    size_t open_count;
};

enum salvo_status(fail_at)(uint32_t line, uint32_t column, const char *format, ...)
{
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fail(SALVO_ERROR_FORMAT, "chat template: line %u, column %u: %s", line, column, message);
}

static enum salvo_status fail_here(const struct lexer *lexer, const char *message)
{
    return fail_at(lexer->line, lexer->column, "%s", message);
}

static uint32_t peek(const struct lexer *lexer, size_t ahead)
{
    return ahead < lexer->source.size - lexer->at ? lexer->source.chars[lexer->at + ahead] : 0;
}

static bool at_end(const struct lexer *lexer)
{
    return lexer->at == lexer->source.size;
}

static void advance(struct lexer *lexer, size_t count)
{
    for (size_t i = 0; i < count && !at_end(lexer); i++) {
        bool feed = lexer->source.chars[lexer->at++] == '\n';
        lexer->line += feed;
        lexer->column = feed ? 1 : lexer->column + 1;
    }
}

static bool follows(const struct lexer *lexer, size_t ahead, const char *ascii)
{
    for (size_t i = 0; ascii[i]; i++) {
        if (peek(lexer, ahead + i) != (unsigned char)ascii[i])
            return false;
    }
    return true;
}

static size_t spaces_at(const struct lexer *lexer, size_t ahead)
{
    size_t count = 0;
    while (ahead + count < lexer->source.size - lexer->at && char_is_space(peek(lexer, ahead + count)))
        count++;
    return count;
}

static enum salvo_status add(struct lexer *lexer, struct lexeme lexeme)
{
    enum salvo_status status = SALVO_OK;
    if (lexer->count == lexer->capacity) {
        struct lexeme *larger;
        size_t capacity = lexer->capacity ? 2 * lexer->capacity : 64;
        TRY(HEAP_NEW(lexer->heap, &larger, capacity));
        if (lexer->count)
            memcpy(larger, lexer->items, lexer->count * sizeof *larger);
        lexer->items = larger;
        lexer->capacity = capacity;
    }
    lexer->items[lexer->count++] = lexeme;

cleanup:
    return status;
}

static struct lexeme here(const struct lexer *lexer, enum lexeme_kind kind)
{
    return (struct lexeme){.kind = kind, .line = lexer->line, .column = lexer->column};
}

/* ---- Text between tags ------------------------------------------------------------------------------- */

/* The end of the text between `begin` and the tag at `end`, after whitespace control; `sign` is the
 * character after the tag's bracket. */
static size_t kept_before(
    const struct lexer *lexer, size_t begin, size_t end, uint32_t sign, bool strips_blanks)
{
    const uint32_t *chars = lexer->source.chars;
    size_t kept = end;
    if (sign == '-') {
        while (kept > begin && char_is_space(chars[kept - 1]))
            kept--;
        return kept;
    }
    if (sign == '+' || !strips_blanks)
        return kept;
    while (kept > begin && char_is_space(chars[kept - 1]) && chars[kept - 1] != '\n')
        kept--;
    bool starts_line = kept == 0 || chars[kept - 1] == '\n';
    return starts_line ? kept : end;
}

static enum salvo_status add_text(struct lexer *lexer, struct lexeme lexeme, size_t begin, size_t end)
{
    if (begin == end)
        return SALVO_OK;
    lexeme.string = string_part(lexer->source, begin, end);
    return add(lexer, lexeme);
}

/* The size of `name` as a whole tag at the place, from its bracket on; 0 when it is not there. */
static size_t word_tag_size(const struct lexer *lexer, const char *name, bool ends_line)
{
    if (!follows(lexer, 0, "{%"))
        return 0;
    size_t size = 2;
    size += peek(lexer, size) == '-' || peek(lexer, size) == '+';
    size += spaces_at(lexer, size);
    if (!follows(lexer, size, name))
        return 0;
    size += strlen(name);
    size += spaces_at(lexer, size);
    if (follows(lexer, size, "-%}")) {
        size += 3;
        return size + spaces_at(lexer, size);
    }
    if (ends_line && follows(lexer, size, "+%}"))
        return size + 3;
    if (!follows(lexer, size, "%}"))
        return 0;
    size += 2;
    return size + (ends_line && peek(lexer, size) == '\n');
}

static enum salvo_status lex_raw(struct lexer *lexer)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme lexeme = here(lexer, LEX_TEXT);
    size_t begin = lexer->at, size;
    while (!(size = word_tag_size(lexer, "endraw", true))) {
        if (at_end(lexer))
            TRY(fail_at(lexeme.line, lexeme.column, "{%% raw %%} without {%% endraw %%}"));
        advance(lexer, 1);
    }
    TRY(add_text(lexer, lexeme, begin, kept_before(lexer, begin, lexer->at, peek(lexer, 2), true)));
    advance(lexer, size);

cleanup:
    return status;
}

static enum salvo_status skip_comment(struct lexer *lexer)
{
    uint32_t line = lexer->line, column = lexer->column;
    advance(lexer, 2);
    if (peek(lexer, 0) == '-' || peek(lexer, 0) == '+')
        advance(lexer, 1);
    for (; !at_end(lexer); advance(lexer, 1)) {
        if (follows(lexer, 0, "+#}")) {
            advance(lexer, 3);
            return SALVO_OK;
        }
        if (follows(lexer, 0, "-#}")) {
            advance(lexer, 3);
            advance(lexer, spaces_at(lexer, 0));
            return SALVO_OK;
        }
        if (follows(lexer, 0, "#}")) {
            advance(lexer, 2);
            advance(lexer, peek(lexer, 0) == '\n');
            return SALVO_OK;
        }
    }
    return fail_at(line, column, "unterminated comment");
}

/* ---- Words inside of tags ---------------------------------------------------------------------------- */

static bool is_digit(uint32_t character)
{
    return character >= '0' && character <= '9';
}

static enum salvo_status lex_number(struct lexer *lexer)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme lexeme = here(lexer, LEX_INTEGER);
    size_t size;
    bool after_dot = lexer->at > 0 && lexer->source.chars[lexer->at - 1] == '.';
    struct string rest = string_part(lexer->source, lexer->at, lexer->source.size);
    if (!after_dot && (size = float_literal(rest, &lexeme.number)))
        lexeme.kind = LEX_FLOAT;
    else if (!(size = integer_literal(rest, &lexeme.integer)))
        TRY(fail_here(lexer, "number too large"));
    advance(lexer, size);
    TRY(add(lexer, lexeme));

cleanup:
    return status;
}

static enum salvo_status lex_string(struct lexer *lexer)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme lexeme = here(lexer, LEX_STRING);
    uint32_t quote = peek(lexer, 0);
    const char *problem = NULL;
    advance(lexer, 1);
    size_t begin = lexer->at;
    while (peek(lexer, 0) != quote) {
        if (at_end(lexer))
            TRY(fail_at(lexeme.line, lexeme.column, "unterminated string"));
        advance(lexer, peek(lexer, 0) == '\\' ? 2 : 1);
    }
    TRY(unescape_literal(
        lexer->heap, string_part(lexer->source, begin, lexer->at), &lexeme.string, &problem));
    if (problem)
        TRY(fail_at(lexeme.line, lexeme.column, "%s", problem));
    advance(lexer, 1);
    TRY(add(lexer, lexeme));

cleanup:
    return status;
}

static enum salvo_status lex_name(struct lexer *lexer)
{
    struct lexeme lexeme = here(lexer, LEX_NAME);
    size_t begin = lexer->at;
    while (!at_end(lexer) && char_is_word(peek(lexer, 0)))
        advance(lexer, 1);
    lexeme.string = string_part(lexer->source, begin, lexer->at);
    return add(lexer, lexeme);
}

static enum salvo_status note_bracket(struct lexer *lexer, char sign)
{
    static const char opening[] = "([{", closing[] = ")]}";
    if (strchr(opening, sign)) {
        if (lexer->open_count == sizeof lexer->open)
            return fail_here(lexer, "brackets are nested too deeply");
        lexer->open[lexer->open_count++] = closing[strchr(opening, sign) - opening];
    } else if (strchr(closing, sign)) {
        if (!lexer->open_count)
            return fail_at(lexer->line, lexer->column, "unexpected '%c'", sign);
        char expected = lexer->open[--lexer->open_count];
        if (expected != sign)
            return fail_at(lexer->line, lexer->column, "unexpected '%c', expected '%c'", sign, expected);
    }
    return SALVO_OK;
}

static enum salvo_status lex_operator(struct lexer *lexer)
{
    static const char *const doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    enum salvo_status status = SALVO_OK;
    struct lexeme lexeme = here(lexer, LEX_OPERATOR);
    uint32_t first = peek(lexer, 0);
    size_t size = 1;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        if (follows(lexer, 0, doubles[i]))
            size = 2;
    }
    if (size == 1 && (first == 0 || first >= 0x80 || !strchr("+-/*%~[](){}><=.:|,;", (char)first))) {
        char shown[8] = {0};
        char_encode(first, shown);
        TRY(fail_at(lexer->line, lexer->column, "unexpected character '%s'", shown));
    }
    TRY(note_bracket(lexer, (char)first));
    lexeme.sign = size == 2 ? OPERATOR2(first, peek(lexer, 1)) : first;
    advance(lexer, size);
    TRY(add(lexer, lexeme));

cleanup:
    return status;
}

/* The size of the end of the tag with the blanks that it removes; 0: the tag does not end here. */
static size_t tag_end_size(const struct lexer *lexer, enum lexeme_kind end)
{
    const char *close = end == LEX_BLOCK_END ? "%}" : "}}";
    if (lexer->open_count)
        return 0;
    if (peek(lexer, 0) == '-' && follows(lexer, 1, close))
        return 3 + spaces_at(lexer, 3);
    if (end == LEX_BLOCK_END && follows(lexer, 0, "+%}"))
        return 3;
    if (!follows(lexer, 0, close))
        return 0;
    return 2 + (end == LEX_BLOCK_END && peek(lexer, 2) == '\n');
}

static enum salvo_status lex_tag(struct lexer *lexer, enum lexeme_kind begin, enum lexeme_kind end)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme first = here(lexer, begin);
    TRY(add(lexer, first));
    advance(lexer, 2);
    if (peek(lexer, 0) == '-' || peek(lexer, 0) == '+')
        advance(lexer, 1);
    lexer->open_count = 0;
    for (;;) {
        size_t size = tag_end_size(lexer, end);
        if (size) {
            TRY(add(lexer, here(lexer, end)));
            advance(lexer, size);
            break;
        }
        uint32_t next = peek(lexer, 0);
        if (at_end(lexer))
            TRY(fail_at(first.line, first.column, "unterminated tag"));
        if (char_is_space(next))
            advance(lexer, 1);
        else if (is_digit(next))
            TRY(lex_number(lexer));
        else if (next == '\'' || next == '"')
            TRY(lex_string(lexer));
        else if (char_is_word(next))
            TRY(lex_name(lexer));
        else
            TRY(lex_operator(lexer));
    }

cleanup:
    return status;
}

/* ---- The whole --------------------------------------------------------------------------------------- */

static bool at_tag(const struct lexer *lexer)
{
    uint32_t next = peek(lexer, 1);
    return peek(lexer, 0) == '{' && (next == '{' || next == '%' || next == '#');
}

static enum salvo_status lex_next(struct lexer *lexer)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme text = here(lexer, LEX_TEXT);
    size_t begin = lexer->at, end;
    while (!at_end(lexer) && !at_tag(lexer))
        advance(lexer, 1);
    end = lexer->at;
    if (!at_end(lexer))
        end = kept_before(lexer, begin, end, peek(lexer, 2), peek(lexer, 1) != '{');
    TRY(add_text(lexer, text, begin, end));
    if (at_end(lexer))
        goto cleanup;

    size_t raw = word_tag_size(lexer, "raw", false);
    if (raw) {
        advance(lexer, raw);
        TRY(lex_raw(lexer));
    } else if (follows(lexer, 0, "{#")) {
        TRY(skip_comment(lexer));
    } else if (follows(lexer, 0, "{%")) {
        TRY(lex_tag(lexer, LEX_BLOCK_BEGIN, LEX_BLOCK_END));
    } else {
        TRY(lex_tag(lexer, LEX_PRINT_BEGIN, LEX_PRINT_END));
    }

cleanup:
    return status;
}

/* Turns all line ends into line feeds and removes one at the end of the template. */
static enum salvo_status read_source(struct heap *heap, const char *bytes, size_t size, struct string *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = heap};
    TRY(text_utf8(&text, bytes, size, 0));
    size_t kept = 0;
    for (size_t i = 0; i < text.size; i++) {
        bool carriage = text.chars[i] == '\r';
        i += carriage && i + 1 < text.size && text.chars[i + 1] == '\n';
        text.chars[kept++] = carriage ? '\n' : text.chars[i];
    }
    text.size = kept;
    if (text.size && text.chars[text.size - 1] == '\n')
        text.size--;
    *out = text_take(&text);

cleanup:
    return status;
}

enum salvo_status lex(struct heap *heap, const char *source, size_t size, struct lexemes *out)
{
    enum salvo_status status = SALVO_OK;
    struct lexer lexer = {.heap = heap, .line = 1, .column = 1};
    TRY(read_source(heap, source, size, &lexer.source));
    while (!at_end(&lexer))
        TRY(lex_next(&lexer));
    TRY(add(&lexer, here(&lexer, LEX_END)));
    *out = (struct lexemes){lexer.items, lexer.count};

cleanup:
    return status;
}
