/* Calls of tools and their results in the messages of a request: a result needs an earlier call, a call needs
 * one result. */
#ifndef SERVER_API_HISTORY_H
#define SERVER_API_HISTORY_H

#include "api_json.h"

struct api_history {
    struct api_document *document; /* whose memory is used */
    /* Ollama: a result may have the name of the tool instead of an id, or neither; calls need no results. */
    bool ids_are_optional;
    struct api_history_entry *last;
    size_t count;
    bool has_calls, has_calls_without_id;
};

/* `field` is the place of the call in the request, for errors. Other pointers are NULL for what the request
 * lacks. False after an error 400. */
bool api_history_call(struct api_history *history, const char *field, const struct api_value *id,
    const struct api_value *name, const struct api_value *arguments, struct api_error *error);
/* `name` is the name of the tool. */
bool api_history_result(struct api_history *history, const char *field, const struct api_value *id,
    const struct api_value *name, struct api_error *error);
/* After the last message. Calls at the place `open` may lack results; NULL: none may. */
bool api_history_end(struct api_history *history, const char *open, struct api_error *error);

/* All these for messages in the form of OpenAI. The calls of the last message may lack results if
 * `may_end_with_calls`. */
bool api_check_history(struct api_document *document, const struct api_value *messages,
    bool may_end_with_calls, struct api_error *error);

#endif
