/*
 * Chat templates: a conversation becomes one text, in which every byte knows whether it came from the
 * template or from the conversation. The interpreter is in jinja/.
 */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/buffer.h"
#include "base/status.h"

struct template;

/* For conversations with models that have none: "User: ...", a blank line, "Assistant:". */
extern const char template_plain[];

enum salvo_status template_open(const char *text, size_t size, struct template **out);
void template_close(struct template *template);

/* Appends all texts and strings of the template, each ended by a NUL. */
enum salvo_status template_literals(const struct template *template, struct buffer *out);

/*
 * Templates make control tokens out of roles, as in '<|' + message.role + '|>'. So a role that is one of
 * these counts as the template's own word; any other one is data. NULL after the last.
 */
extern const char *const template_roles[];

/* A variable whose value is the template's own text, such as bos_token. */
struct template_word {
    const char *name;
    struct salvo_text text;
};

/* A rendering that would take more is an error. */
struct template_limits {
    size_t memory, output; /* bytes */
    uint64_t work;         /* nodes, items and characters looked at */
};

/* A conversation of a million words keeps within these. */
extern const struct template_limits template_limits;

struct template_input {
    const struct salvo_conversation *conversation;
    const struct template_word *words;
    size_t word_count;
    const struct template_limits *limits; /* NULL: template_limits */
    bool joins_parts; /* a content that is a list of texts is given to the template as one text */
};

/* `text` and, for each byte of it, `marks`: 1 where it came from the conversation. */
struct marked_text {
    struct buffer text, marks;
};

void marked_text_free(struct marked_text *marked);

enum salvo_status template_render(
    const struct template *template, const struct template_input *input, struct marked_text *out);

#endif
