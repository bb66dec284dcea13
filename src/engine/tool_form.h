/* Inside of salvo/tools.h: the form, which its files share. */
#ifndef ENGINE_TOOL_FORM_H
#define ENGINE_TOOL_FORM_H

#include "base/buffer.h"

#include <salvo/tools.h>

/* Stand for the id of a call and for its number in the texts of a form. */
enum { TOOL_ID = 1, TOOL_NUMBER = 2 };

enum { TOOL_NAME_LONGEST = 64, TOOL_KEY_LONGEST = 128 };

/* Texts around the value of a parameter, for each kind of value. */
enum tool_value_text {
    VALUE_BEGIN, /* from the key to the value */
    VALUE_CLOSE, /* ends the value, without white space; "": the value is JSON, which ends by itself */
    VALUE_MORE,  /* from the value to the next key */
    VALUE_NEXT,  /* from the value to the name of the next call; "": one call alone */
    VALUE_END,   /* from the value to the end of the calls */
    VALUE_TEXTS
};

enum tool_value_kind { VALUE_STRING, VALUE_JSON, VALUE_KINDS };

enum tool_text {
    TEXT_MARKER,
    TEXT_BEFORE,
    TEXT_MIDDLE, /* from the name to the arguments, or to the first key */
    TEXT_BETWEEN,
    TEXT_AFTER,
    TEXT_CONTENT,   /* recipients: what begins content; "": answers are not addressed */
    TEXT_NONE_NEXT, /* parameters: from the name of a call without any to the name of the next one */
    TEXT_NONE_END,
    TEXT_VALUES,
    TOOL_TEXTS = TEXT_VALUES + VALUE_KINDS * VALUE_TEXTS
};

struct salvo_tool_form {
    struct salvo_tool_form_info info;
    struct buffer texts[TOOL_TEXTS]; /* each with a NUL at its end */
    struct salvo_tool_form *tagged;  /* the same model's calls of tools that it has built in, or NULL */
};

static inline const char *tool_text(const struct salvo_tool_form *form, enum tool_text text)
{
    return form->texts[text].data;
}

static inline const char *tool_value_text(
    const struct salvo_tool_form *form, enum tool_value_kind kind, enum tool_value_text text)
{
    return form->texts[TEXT_VALUES + (int)kind * VALUE_TEXTS + (int)text].data;
}

static inline bool tool_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool tool_begins_thinking(const struct salvo_tool_form *form, uint32_t thinking)
{
    return thinking == SALVO_TOOL_THINKING_USUAL ? form->info.begins_thinking != 0
                                                 : thinking == SALVO_TOOL_THINKING_YES;
}

/* A character of the name of a tool. */
static inline bool is_tool_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* ---- Tools as JSON ---- */

struct tool {
    struct salvo_text parameters; /* empty: none */
    struct buffer name;
    bool strict, is_function;
};

/* Reads a tool of an array; `number` is for errors. The name is freed by the caller. */
enum salvo_status tool_read(struct salvo_text text, size_t number, struct tool *out);

/* Whether a text is a JSON array. */
enum salvo_status tool_check_list(const char *what, struct salvo_text text);

/* How a parameter with this schema is written where parameters have texts of their own. */
enum tool_value_kind tool_value_kind(struct salvo_text schema);

#endif
