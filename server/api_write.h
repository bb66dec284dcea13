/* Answers as JSON. */
#ifndef SERVER_API_WRITE_H
#define SERVER_API_WRITE_H

#include "api_choice.h"

/* A request and its answers. */
struct api_answer {
    const struct api_model *model;
    const struct api_request *request;
    const struct api_prepared *prepared;
    const struct api_choice *choices;
    size_t choice_count;
    const char *id; /* "chatcmpl-..." */
    int64_t created;
    bool both_forms; /* /completions: `content` as llama.cpp beside `choices` as OpenAI */
};

/* "b" and a number, as llama.cpp writes it. */
const char *api_fingerprint(void);

/* The whole answer, when all choices have ended. */
void api_write_answer(struct json_writer *json, const struct api_answer *answer);

/* Objects of a stream: the first one of a chat; what has not been sent of a choice, a part of `echo` before
 * it; the last one of a choice; the usage. */
void api_write_first(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice);
void api_write_part(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text echo);
void api_write_last(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice);
void api_write_usage(struct json_writer *json, const struct api_answer *answer);

/* llama.cpp's form, api_write_llama.c. */
void api_write_llama_answer(struct json_writer *json, const struct api_answer *answer);
void api_write_llama_part(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice);
void api_write_llama_last(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice);
/* Members of an open object: settings of a request or of the server. */
void api_write_settings(struct json_writer *json, const struct salvo_sampler *sampler, int64_t max_tokens);

/* Parts of both, api_write_parts.c. */
void api_write_token(struct json_writer *json, struct salvo_model *model, const struct api_token *token);
void api_write_tokens(struct json_writer *json, struct salvo_model *model, const struct buffer *details);
void api_write_ids(struct json_writer *json, const struct buffer *ids);
/* The key and an object. */
void api_write_timings(struct json_writer *json, const struct api_choice *choice);
/* A token's text as a string that names it alone, also where it is no valid UTF-8. */
void api_write_token_name(struct json_writer *json, struct salvo_model *model, int32_t id, bool is_key);
bool api_is_utf8(const char *text, size_t size);

#endif
