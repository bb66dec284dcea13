/* Cuts a template into text, tags, and the words inside of tags. Whitespace control is done here. */
#ifndef TEXT_JINJA_LEXER_H
#define TEXT_JINJA_LEXER_H

#include "text/jinja/value.h"

enum lexeme_kind {
    LEX_END,
    LEX_TEXT, /* outside of tags */
    LEX_PRINT_BEGIN,
    LEX_PRINT_END,
    LEX_BLOCK_BEGIN,
    LEX_BLOCK_END,
    LEX_NAME,
    LEX_STRING,
    LEX_INTEGER,
    LEX_FLOAT,
    LEX_OPERATOR,
};

/* One or two characters as a number, such as OPERATOR2('=', '='). */
#define OPERATOR1(first)         ((uint32_t)(first))
#define OPERATOR2(first, second) ((uint32_t)(first) | (uint32_t)(second) << 8)

struct lexeme {
    enum lexeme_kind kind;
    uint32_t line, column; /* from 1 */
    uint32_t sign;         /* of an operator */
    union {
        struct string string; /* text, name, or string without its quotes and escapes */
        int64_t integer;
        double number;
    };
};

struct lexemes {
    struct lexeme *items; /* the last one is LEX_END */
    size_t count;
};

/* With the settings of transformers, trim_blocks and lstrip_blocks: the line feed after a block and blanks
 * before it on its line are removed.
 */
enum salvo_status lex(struct heap *heap, const char *source, size_t size, struct lexemes *out);

/* An error about a place in the template. */
enum salvo_status fail_at(uint32_t line, uint32_t column, const char *format, ...) PRINTF_LIKE(3, 4);

#ifdef __clang_analyzer__
#define fail_at(...) (fail_at(__VA_ARGS__), SALVO_ERROR_FORMAT) /* see base/status.h */
#endif

#endif
