/* Values of JSON that a dialect makes in the document of a request: messages in the form of OpenAI. */
#ifndef SERVER_API_BUILD_H
#define SERVER_API_BUILD_H

#include "api_history.h"
#include "api_request.h"

/* An array or object that grows. */
struct api_list {
    struct api_value value; /* of the kind JSON_ARRAY_BEGIN or JSON_OBJECT_BEGIN */
    struct api_value *last;
};

struct api_builder {
    struct api_document *document;
    bool failed; /* memory was short */

    /* Messages. Consecutive messages of one role become one with several parts. */
    struct api_list messages, parts, calls;
    struct api_list tools; /* in the form of OpenAI */
    const char *role;      /* of the message that is not in `messages` yet; NULL: none */
    struct salvo_text reasoning;
    struct api_history history;
};

struct api_builder api_builder_new(struct api_document *document);

struct api_list api_list_new(enum json_kind kind);
/* Appends a copy of the value; `key` is "" in an array. Lists are complete when they are added. */
void api_list_add(
    struct api_builder *builder, struct api_list *list, const char *key, const struct api_value *value);
void api_list_add_text(
    struct api_builder *builder, struct api_list *list, const char *key, struct salvo_text text);
void api_list_add_bool(struct api_builder *builder, struct api_list *list, const char *key, bool value);

/* A piece of a message. */
void api_build_text(struct api_builder *builder, const char *role, struct salvo_text text);
/* The thoughts before the answer of the assistant. */
void api_build_reasoning(struct api_builder *builder, struct salvo_text text);
/* A call of a tool by the assistant, with a JSON object or its text as arguments. `field` is its place in the
 * request, for errors; what the request lacks is NULL. False after an error. */
bool api_build_call(struct api_builder *builder, const char *field, const struct api_value *id,
    const struct api_value *name, const struct api_value *arguments, struct api_error *error);
/* Adds the result of a tool call. */
bool api_build_result(struct api_builder *builder, const char *field, const struct api_value *id,
    const struct api_value *name, struct salvo_text text, struct api_error *error);
/* A tool that the model may call: an object with `name`, `description` and `strict`. `parameters` is the name
 * of its member with their schema. */
void api_build_tool(struct api_builder *builder, const struct api_value *tool, const char *parameters);

/* Which tools must be called. All zeros: the model chooses. */
struct api_tool_choice {
    bool none, required;
    const struct api_value *name; /* this one must; NULL: any */
    bool one_call;                /* of an answer, at most */
};
/* After the messages: hands the tools to the request and checks them. */
bool api_build_tools(struct api_builder *builder, const struct api_tool_choice *choice,
    struct api_request *request, struct api_error *error);

/* Hands the messages to the request and checks them. */
bool api_build_messages(struct api_builder *builder, struct api_request *request, struct api_error *error);

#endif
