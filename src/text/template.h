/*
 * Chat templates: they render a conversation to a text in which every byte is marked as the template's or the
 * conversation's. The interpreter is in jinja/.
 */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/buffer.h"
#include "base/status.h"

struct template;

/* The template of models without one: "User: ...", a blank line, "Assistant:". */
extern const char template_plain[];

enum salvo_status template_open(const char *text, size_t size, struct template **out);
void template_close(struct template *template);

/* Appends all texts and string literals of the template, each terminated by a NUL. */
enum salvo_status template_literals(const struct template *template, struct buffer *out);

/*
 * Templates build control tokens from roles, as in '<|' + message.role + '|>'. These roles are therefore
 * marked as the template's text; any other role is data. Terminated by NULL.
 */
extern const char *const template_roles[];

/* A variable whose value is the template's own text, such as bos_token. */
struct template_word {
    const char *name;
    struct salvo_text text;
};

/* Limits of a rendering; exceeding one is an error. */
struct template_limits {
    size_t memory, output; /* bytes */
    uint64_t work;         /* nodes, items and characters */
};

/* The default limits, enough for a conversation of a million words. */
extern const struct template_limits template_limits;

struct template_input {
    const struct salvo_conversation *conversation;
    const struct template_word *words;
    size_t word_count;
    const struct template_limits *limits; /* NULL: template_limits */
    bool joins_parts;                     /* pass a content that is a list of texts as one text */
};

/* `text` and, for each byte of it, `marks`: 1 where it came from the conversation. */
struct marked_text {
    struct buffer text, marks;
};

void marked_text_free(struct marked_text *marked);

enum salvo_status template_render(
    const struct template *template, const struct template_input *input, struct marked_text *out);

#endif
