/* Tools of chat requests: `tools`, `tool_choice`, calls in messages, and calls in answers. */
#ifndef SERVER_API_TOOLS_H
#define SERVER_API_TOOLS_H

#include "api_model.h"

#include <salvo/tools.h>

/* Reads the fields of a request. False after an error. */
bool api_read_tools(const struct api_value *root, struct api_request *request, struct api_error *error);

/* The grammar of answers to a request with tools. *out is NULL if calls are not possible. Any thread. */
bool api_tools_compile(const struct api_model *model, const struct api_request *request,
    struct salvo_grammar **out, struct api_error *error);

/* Members of a message beside role and content, as JSON for the template. */
bool api_tools_write_message(struct json_writer *json, const struct api_model *model,
    const struct api_value *message, size_t *out_count, struct api_error *error);

/* For templates that do not write calls: replaces the text of a message with calls, and the role of a
 * message with a result. */
bool api_tools_describe_message(const struct api_model *model, struct api_document *document,
    const struct api_value *message, struct salvo_message *out, struct api_error *error);

/* The text for the system message of such a template; memory of the document. */
bool api_tools_describe(const struct api_model *model, struct api_request *request, struct salvo_text system,
    struct salvo_text *out, struct api_error *error);

/* ---- Answers ---- */

struct api_call {
    char id[96];
    size_t name, name_size, arguments, arguments_size; /* within `call_texts` */
    size_t sent;                                       /* bytes of the arguments that were sent */
    bool is_known;                                     /* its name was sent */
    bool ended, is_cut;                                /* nothing follows; the arguments are not complete */
};

/* The tool calls and the reasoning of an answer. All zeros: the answer is not searched for them. */
struct api_calls {
    struct salvo_tool_parser *parser; /* NULL: the whole answer is text */
    const struct salvo_tool_form *form;
    struct buffer reasoning; /* not sent yet */
    struct buffer calls;     /* struct api_call, all of them */
    struct buffer call_texts;
    bool in_pieces; /* calls are sent as they arrive, not when they are complete */
    size_t sent;    /* number of calls that were sent */
};

/* For the answer to a request whose prompt is prepared. */
bool api_calls_open(
    struct api_calls *calls, const struct salvo_tool_form *form, const struct api_request *request);
void api_calls_close(struct api_calls *calls);

/* Divides text of an answer; content is appended to `content`. False if memory is short. */
bool api_calls_take(struct api_calls *calls, struct salvo_text text, bool last, struct buffer *content);

/* Whether a control token is a part of calls: then its name counts as text. */
bool api_calls_has_token(const struct api_calls *calls, const char *name, size_t size);

size_t api_calls_count(const struct api_calls *calls);
bool api_calls_has_news(const struct api_calls *calls); /* that were not sent */

/* The id, name and arguments of a call. */
struct api_call_texts {
    const char *id;
    struct salvo_text name, arguments;
    struct salvo_text news; /* the arguments that were not sent */
    bool is_known;          /* its name was sent */
    bool ended, is_cut;     /* nothing follows; the arguments are not complete */
};
struct api_call_texts api_calls_get(const struct api_calls *calls, size_t index);
void api_calls_sent(struct api_calls *calls); /* forgets the parts that were sent */

/* Members `reasoning_content` and `tool_calls`, if there are any; in a stream only their unsent part. */
void api_write_calls(struct json_writer *json, const struct api_calls *calls, bool stream);

#endif
