/* Parts of grammars of tool calls, as GBNF. */
#ifndef ENGINE_TOOL_GRAMMAR_H
#define ENGINE_TOOL_GRAMMAR_H

#include "engine/tool_form.h"

enum salvo_status grammar_add(struct buffer *out, const char *text);

/* A text of a form as elements of a rule. */
enum salvo_status grammar_add_literal(struct buffer *out, const char *text);

/* Elements for any text without a word; where the word overlaps itself, without its first character. */
enum salvo_status grammar_add_text_without(struct buffer *out, const char *word);

/* The schema of a tool's arguments, which are an object. */
enum salvo_status grammar_add_schema(struct buffer *out, const struct tool *tool);

/* A schema as an element, behind `%json`; one that cannot be enforced becomes `any`, or an error of a strict
 * tool. */
enum salvo_status grammar_add_json(
    struct buffer *out, struct salvo_text schema, const char *any, const struct tool *tool);

/* Forms with parameters: the rules that all tools share, and the element for what follows a tool's name, with
 * its rules. `rule` is the name of the rule with all calls, and the beginning of the other names. */
enum salvo_status grammar_add_tails(
    struct buffer *rules, const char *rule, const struct salvo_tool_form *form, bool parallel);
enum salvo_status grammar_add_parameters(struct buffer *out, struct buffer *rules, const char *rule,
    const struct salvo_tool_form *form, const struct tool *tool, size_t number);

#endif
