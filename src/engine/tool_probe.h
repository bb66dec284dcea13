/* Renderings of made-up calls, from which a form is read. The words of the calls are toolname0, argkey0,
 * argvalue0, callid000 and the same with 1. */
#ifndef ENGINE_TOOL_PROBE_H
#define ENGINE_TOOL_PROBE_H

#include "engine/tool_form.h"

struct probe {
    const struct salvo_template *chat;
    bool builtin; /* the tools are built into the model */
    struct salvo_prompt *question, *answer;
    bool lists_tools;
    const char *think_begin, *think_end; /* of reasoning parts */
    bool begins_thinking;
};

/* How templates want calls in messages. */
struct probe_style {
    bool arguments_are_text; /* JSON in a string, instead of an object */
    bool content_is_null;    /* instead of an empty text */
    bool id_has_name;        /* functions.NAME:NUMBER */
};

/* Renders a question, and a question with an answer. A rendering that the template refuses is NULL. */
enum salvo_status probe_open(struct probe *probe);
void probe_close(struct probe *probe);

/* Renders a question with one call or two as its answer; `second` may be NULL. Arguments are JSON. */
enum salvo_status probe_calls(const struct probe *probe, struct probe_style style, const char *first,
    const char *second, struct salvo_prompt **out);

/* The part of a rendering that an answer writes; empty for NULL. */
struct salvo_text probe_answer(const struct probe *probe, const struct salvo_prompt *rendering);

/* The end of the calls in the text behind the last one: the rest ends the answer. */
const char *probe_end(const struct probe *probe, struct salvo_text tail);

const char *probe_find(struct salvo_text text, const char *part); /* NULL: not there */
struct salvo_text probe_behind(struct salvo_text text, const char *place);

/* Stores a text with the ids of calls replaced. */
enum salvo_status probe_keep(struct buffer *out, const char *begin, const char *end);

/* Replaces digits that differ by TOOL_NUMBER, in texts of equal size, or in their equal endings. */
void probe_number(struct buffer *first, const struct buffer *second);
void probe_number_ends(struct buffer *first, struct buffer *second);

/* Finds the beginning of the text before a call that is enough to know one: a tag that answers do not have,
 * or all of it. */
enum salvo_status probe_marker(const struct probe *probe, struct salvo_tool_form *form, bool *out_found);

/* Calls whose parameters have texts of their own; tool_parameters.c. */
enum salvo_status probe_parameters(
    const struct probe *probe, struct probe_style style, struct salvo_tool_form *form, bool *out_found);

/* Whether a prompt ends with the beginning of a reasoning part. */
bool tool_prompt_thinks(struct salvo_text prompt, const char *think_begin);

#endif
