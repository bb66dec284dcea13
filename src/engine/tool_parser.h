/* Inside of the parser of tools.h, which its files share. */
#ifndef ENGINE_TOOL_PARSER_H
#define ENGINE_TOOL_PARSER_H

#include "engine/tool_form.h"

enum parser_state {
    AT_BEGIN,   /* white space so far */
    IN_THOUGHT, /* within a reasoning part */
    IN_TEXT,
    IN_HEAD,  /* at a marker */
    IN_JSON,  /* within arguments that are JSON */
    AT_KEY,   /* at the key of a parameter */
    IN_VALUE, /* within its value */
    AFTER_VALUE,
    AT_END,     /* the arguments are complete */
    AFTER_CALL, /* behind the arguments of a call */
    IN_HEADER,  /* channels: before <|message|> */
    IN_MESSAGE, /* channels: behind it */
};

enum match { MATCHES, NEEDS_MORE, DIFFERS };

struct salvo_tool_parser {
    const struct salvo_tool_form *form, *call_form; /* call_form: the form of the call being read */
    bool has_tools, last;
    bool begins_thinking;
    bool skips_space; /* white space that follows is left out */
    bool has_content; /* some was handed over */
    enum parser_state state;
    struct buffer text;
    size_t at; /* offset in `text`; the part before it was handled */
    struct buffer tools;

    /* The call that is being read. */
    struct buffer call; /* its text so far */
    struct buffer name, arguments;
    size_t reported;            /* bytes of `arguments` that events have handed over */
    size_t depth;               /* number of open objects and arrays */
    bool in_string, is_escaped; /* within JSON */
    const char *next, *end;     /* the texts that may follow */
    struct buffer key;          /* name of the parameter */
    enum tool_value_kind kind;  /* kind of the parameter's value */
    bool is_text;               /* its value is a string for certain */
    uint32_t message;           /* form `channels`: the kind of event that the message becomes */
};

static inline struct salvo_text parser_rest(const struct salvo_tool_parser *parser)
{
    return (struct salvo_text){parser->text.data + parser->at, parser->text.size - parser->at};
}

/* Takes `size` bytes as an event, if there are any. */
bool parser_take(struct salvo_tool_parser *parser, enum salvo_tool_event_kind kind, size_t size,
    struct salvo_tool_event *out);

/* The bytes before a word; if it is not there, before an ending of the text that may begin it. */
size_t parser_size_before(struct salvo_text text, const char *word, bool last, bool *out_found);

/* Whether the text goes on with a text of a form; white space in both does not count. *at moves behind it. */
enum match parser_match(struct salvo_text text, const char *expected, size_t *at);

/* Begins a call: its text so far has `size` bytes. */
enum salvo_status parser_begin_call(
    struct salvo_tool_parser *parser, struct salvo_text name, size_t size, struct salvo_tool_event *out);

/* Moves over text of the call. */
enum salvo_status parser_skip(struct salvo_tool_parser *parser, size_t size);

/* Hands new arguments over; false: there are none. */
bool parser_report(struct salvo_tool_parser *parser, struct salvo_tool_event *out);

/* Goes on with content. */
void parser_go_to_text(struct salvo_tool_parser *parser);

/* The text is not a call: it is handed over as content. */
bool parser_cut(struct salvo_tool_parser *parser, struct salvo_tool_event *out);

/* Each of these reads in one state. *stays is true if *out is an event or more text is needed. */
enum salvo_status parser_key(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays);
enum salvo_status parser_value(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays);
enum salvo_status parser_after_value(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays);
enum salvo_status parser_header(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays);
enum salvo_status parser_message(struct salvo_tool_parser *parser, struct salvo_tool_event *out, bool *stays);

#endif
