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
 * Learns the form by rendering conversations with calls. A template whose calls are not understood gets a
 * form of its own: <tool_call> with JSON, which salvo_tool_form_prompt describes to the model. `chat` is used
 * during the call.
 */
SALVO_API enum salvo_status salvo_tool_form_open(
    const struct salvo_template *chat, struct salvo_tool_form **out);
SALVO_API void salvo_tool_form_close(struct salvo_tool_form *form);

struct salvo_tool_form_info {
    size_t size;
    /*
     * "json": a name and arguments as JSON.
     * "parameters": a name, and each parameter between texts of its own, as Qwen3-Coder writes them.
     * "recipients": an answer begins with the name of a tool or a word for content, as functionary's.
     * "channels": every message has a header with a channel and a recipient, as gpt-oss's.
     */
    const char *name;
    uint32_t described;    /* 1: the template does not list tools; the prompt has to describe them */
    uint32_t writes_calls; /* 1: the template writes calls of earlier messages and their results */
    /* Text of calls: before, name, middle, arguments, then `between` and the next name, or `after`; "\1" is
     * an id and "\2" a number. `marker` begins a call. */
    const char *marker, *before, *middle, *between, *after;
    const char *think_begin, *think_end; /* of a reasoning part */
    uint32_t begins_thinking;            /* 1: an answer begins within a reasoning part */
    uint32_t arguments_are_text;         /* 1: the template takes the arguments of calls as a string */
    uint32_t content_is_null;            /* 1: it takes calls only in messages whose content is null */
    uint32_t id_has_name;                /* 1: ids of calls are functions.NAME:NUMBER, as Kimi's */
};
SALVO_API const struct salvo_tool_form_info *salvo_tool_form_info(const struct salvo_tool_form *form);

/* Whether the name of a control token is a part of calls or reasoning parts: then it counts as text. */
SALVO_API bool salvo_tool_form_has(const struct salvo_tool_form *form, const char *token, size_t size);

/* `described`: the text for a system message with the tools, a JSON array as in OpenAI's requests. *out_text
 * is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tool_form_prompt(
    const struct salvo_tool_form *form, const char *tools, size_t size, char **out_text, size_t *out_size);

/* An assistant's `tool_calls`, a JSON array as in OpenAI's requests, as the form writes them: for templates
 * that do not, without `writes_calls`. *out_text is freed by salvo_free. */
SALVO_API enum salvo_status salvo_tool_form_calls(
    const struct salvo_tool_form *form, const char *calls, size_t size, char **out_text, size_t *out_size);

/* Whether an answer begins within a reasoning part. It depends on the end of the prompt, which variables of
 * the template may change: the function finds the beginning of a reasoning part there, before white space. */
enum salvo_tool_thinking {
    SALVO_TOOL_THINKING_USUAL = 0, /* as `begins_thinking` says */
    SALVO_TOOL_THINKING_YES = 1,
    SALVO_TOOL_THINKING_NO = 2
};
SALVO_API enum salvo_tool_thinking salvo_tool_form_thinking(
    const struct salvo_tool_form *form, const char *prompt, size_t size);

struct salvo_tool_grammar_options {
    size_t size;
    uint32_t required; /* 1: the answer is a call; 0: text, calls behind text, or both */
    uint32_t parallel; /* 1: several calls are possible */
    const char *name;  /* the only tool that may be called; NULL: any */
    uint32_t thinking; /* enum salvo_tool_thinking */
};
#define SALVO_TOOL_GRAMMAR_OPTIONS_INIT                       \
    {                                                         \
        sizeof(struct salvo_tool_grammar_options), 0, 0, 0, 0 \
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
    SALVO_TOOL_CALL = 3,      /* a call begins: its name */
    SALVO_TOOL_ARGUMENTS = 4, /* more text of its arguments, which are JSON */
    SALVO_TOOL_CALL_END = 5,  /* the whole call: its name and arguments, a JSON object */
    SALVO_TOOL_CALL_CUT = 6   /* instead of CALL_END: the answer ends within the call, or its arguments are no
                                 JSON. The text is all of it, as the model wrote it. */
};

struct salvo_tool_event {
    uint32_t kind;                     /* enum salvo_tool_event_kind */
    struct salvo_text text;            /* CONTENT, REASONING, ARGUMENTS, CALL_CUT */
    struct salvo_text name, arguments; /* CALL, CALL_END */
};

struct salvo_tool_parser;

/* `form` must stay open as long as the parser. `tools` is a JSON array as in OpenAI's requests, read during
 * the call; NULL: reasoning parts alone are looked for. */
SALVO_API enum salvo_status salvo_tool_parser_open(
    const struct salvo_tool_form *form, const char *tools, size_t size, struct salvo_tool_parser **out);
SALVO_API void salvo_tool_parser_close(struct salvo_tool_parser *parser);

/* Before the first text: a value of enum salvo_tool_thinking. */
SALVO_API enum salvo_status salvo_tool_parser_set_thinking(
    struct salvo_tool_parser *parser, uint32_t thinking);

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
