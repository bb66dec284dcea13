/* Shared by the files that parse: the words of a template and where parsing is. */
#ifndef TEXT_JINJA_PARSER_H
#define TEXT_JINJA_PARSER_H

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

struct parser {
    struct heap *heap;
    struct lexeme *at; /* the next one */
    unsigned depth, loops;
    struct text *literals;      /* texts and strings are collected here, each ended by a NUL */
    struct extras mentioned;    /* in the macro that is being parsed */
    const struct node *unknown; /* the first filter or test of the current frame that does not exist */
    uint64_t work_left;         /* for expressions that are computed while parsing */
};

enum salvo_status parser_enter(struct parser *parser);
void parser_leave(struct parser *parser);

enum salvo_status node_new(
    const struct parser *parser, enum node_kind kind, const struct lexeme *place, struct node **out);
enum salvo_status note_literal(struct parser *parser, struct string string);
enum salvo_status unexpected(const struct parser *parser, const char *wanted);

bool next_is(const struct parser *parser, enum lexeme_kind kind);
bool next_is_sign(const struct parser *parser, uint32_t sign);
bool next_is_word(const struct parser *parser, const char *word);
bool skip_sign(struct parser *parser, uint32_t sign);
bool skip_word(struct parser *parser, const char *word);
enum salvo_status expect_sign(struct parser *parser, uint32_t sign);
enum salvo_status expect_name(struct parser *parser, struct string *out);

/*
 * Filters and tests that do not exist. jinja2 refuses the template, unless they stand in {% if %} or in "a if
 * b else c": templates test for features of newer versions. There it is an error only if it is executed. Nor
 * does jinja2 refuse them behind constants that decide, as in "false and x|nope", which it computes first. A
 * frame is a body that such a condition does not cover: a loop, a macro or the like.
 */
const struct node *frame_begin(struct parser *parser);
enum salvo_status frame_end(struct parser *parser, const struct node *outer);

/* An expression; `conditions`: "a if b else c" is allowed. */
enum salvo_status parse_expression(struct parser *parser, bool conditions, struct node **out);

/* One expression, or several without brackets, which are a tuple. The word `end`, unless NULL, ends
 * them. */
enum salvo_status parse_row(struct parser *parser, bool conditions, const char *end, struct node **out);

/* A literal, name, list, dict or expression in brackets. `members`: "name.member" is a target. */
enum salvo_status parse_primary(struct parser *parser, bool members, struct node **out);

/* "(a, b=c)" and "| name(a) | ..." behind `left`; `inline_first`: the first has no "|" before it. */
enum salvo_status parse_arguments(struct parser *parser, struct node **out);
enum salvo_status parse_filters(
    struct parser *parser, struct node *left, bool inline_first, struct node **out);

#endif
