/*
 * salvo/tools.h: tool calls. A form is how a model writes them, learned from its chat template. A grammar
 * from the form lets the model write nothing but correct calls, and a parser finds calls and reasoning parts
 * in an answer as it grows. The rules of salvo.h for ownership, errors and structs hold here.
 */
#ifndef SALVO_TOOLS_H
#define SALVO_TOOLS_H

#include <salvo/grammar.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the answers of a model contain calls and reasoning. Immutable: any thread may use it. */
struct salvo_tool_form;

/*
 * Learns the form by rendering conversations with calls. A template that does not write tools, or whose calls
 * are not understood, gets a form of its own: <tool_call> with JSON, which salvo_tool_form_prompt describes
 * to the model. `chat` is used during the call.
 */
SALVO_API enum salvo_status salvo_tool_form_open(
    const struct salvo_template *chat, struct salvo_tool_form **out);
SALVO_API void salvo_tool_form_close(struct salvo_tool_form *form);

struct salvo_tool_form_info {
    size_t size;
    uint32_t described; /* 1: the template does not write calls; the prompt has to describe them */
    /* Text of calls: before, name, middle, arguments as JSON, then `between` and the next name, or `after`.
     * `marker` begins a call. */
    const char *marker, *before, *middle, *between, *after;
    const char *think_begin, *think_end; /* of a reasoning part; "": the template has none */
    uint32_t begins_thinking;            /* 1: an answer begins within a reasoning part */
    uint32_t arguments_are_text;         /* 1: the template takes the arguments of calls as a string */
};
SALVO_API const struct salvo_tool_form_info *salvo_tool_form_info(const struct salvo_tool_form *form);

/* `described`: the text for a system message with the tools, a JSON array as in OpenAI's requests. *out_text
 * is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tool_form_prompt(
    const struct salvo_tool_form *form, const char *tools, size_t size, char **out_text, size_t *out_size);

/* An assistant's `tool_calls`, a JSON array as in OpenAI's requests, as the form writes them: for templates
 * that do not. *out_text is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tool_form_calls(
    const struct salvo_tool_form *form, const char *calls, size_t size, char **out_text, size_t *out_size);

struct salvo_tool_grammar_options {
    size_t size;
    uint32_t required; /* 1: the answer is a call; 0: text, calls behind text, or both */
    uint32_t parallel; /* 1: several calls are possible */
    const char *name;  /* the only tool that may be called; NULL: any */
};
#define SALVO_TOOL_GRAMMAR_OPTIONS_INIT                    \
    {                                                      \
        sizeof(struct salvo_tool_grammar_options), 0, 0, 0 \
    }

/*
 * Compiles the grammar of answers with calls of `tools`, a JSON array as in OpenAI's requests; tools of other
 * types than "function" are skipped. Arguments fit the tool's `parameters`. Where these have keywords that
 * cannot be enforced, a tool with "strict": true is an error, and the arguments of others are any object.
 */
SALVO_API enum salvo_status salvo_tool_grammar(struct salvo_model *model, const struct salvo_tool_form *form,
    const char *tools, size_t size, const struct salvo_tool_grammar_options *options,
    struct salvo_grammar **out);

/* ---- Parser ---- */

enum salvo_tool_event_kind {
    SALVO_TOOL_NOTHING = 0,   /* more text is needed */
    SALVO_TOOL_CONTENT = 1,   /* text of the answer */
    SALVO_TOOL_REASONING = 2, /* text of a reasoning part */
    SALVO_TOOL_CALL = 3       /* a whole call */
};

struct salvo_tool_event {
    uint32_t kind;                     /* enum salvo_tool_event_kind */
    struct salvo_text text;            /* CONTENT, REASONING */
    struct salvo_text name, arguments; /* CALL; the arguments are a JSON object */
};

struct salvo_tool_parser;

/* `form` must stay open as long as the parser. `has_tools` 0: reasoning parts alone are looked for. */
SALVO_API enum salvo_status salvo_tool_parser_open(
    const struct salvo_tool_form *form, uint32_t has_tools, struct salvo_tool_parser **out);
SALVO_API void salvo_tool_parser_close(struct salvo_tool_parser *parser);

/* Appends text of the answer, with the names of control tokens; `last` says that none follows. */
SALVO_API enum salvo_status salvo_tool_parser_push(
    struct salvo_tool_parser *parser, const char *text, size_t size, bool last);

/* Takes the next event; texts are valid until the next call with the parser. Text that begins like a call and
 * is none is content: nothing is lost. */
SALVO_API enum salvo_status salvo_tool_parser_next(
    struct salvo_tool_parser *parser, struct salvo_tool_event *out);

#ifdef __cplusplus
}
#endif

#endif
