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

enum api_part_kind { API_PART_NONE, API_PART_TEXT, API_PART_REASONING, API_PART_CALL };

/* The bytes that a stream sends next. */
struct api_stream {
    struct buffer out;
    bool failed;     /* memory was short */
    unsigned events; /* so far; of dialects that number them */
    /* Only for dialects whose answers have several parts. */
    unsigned parts;          /* that have begun */
    enum api_part_kind open; /* the last one, if it has not ended */
    bool has_text;           /* there is a part for the text: */
    unsigned text_part;
    unsigned call_part; /* of the last call */
};

/* An event of server-sent events, with a name or NULL, whose data the writer writes. */
struct json_writer api_event_begin(struct api_stream *stream, const char *name);
void api_event_end(struct api_stream *stream, const struct json_writer *json);
/* {"error": {...}} as an event. */
void api_openai_error(struct api_stream *stream, const struct api_error *error);
/* A line of JSON. */
struct json_writer api_line_begin(struct api_stream *stream);
void api_line_end(struct api_stream *stream, const struct json_writer *json);

/* The whole answer of API_LLAMA, whatever the dialect of the request. */
void api_write_llama_answer(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice);

/* Members of an open object: settings of a request or of the server. */
void api_write_settings(struct json_writer *json, const struct salvo_sampler *sampler, int64_t max_tokens);

/* Parts of several dialects, api_write_parts.c. */
struct salvo_text api_text_of(const struct buffer *buffer);
void api_write_text(struct json_writer *json, const char *key, const char *text); /* NULL: null */
void api_write_number(struct json_writer *json, const char *key, uint64_t number);
/* A text that is JSON, as a value; as a string if it is not. */
void api_write_parsed(struct json_writer *json, struct salvo_text text);
void api_write_token(struct json_writer *json, struct salvo_model *model, const struct api_token *token);
void api_write_tokens(struct json_writer *json, struct salvo_model *model, const struct buffer *details);
void api_write_ids(struct json_writer *json, const struct buffer *ids);
/* The key and an object. */
void api_write_timings(struct json_writer *json, const struct api_choice *choice);
/* The same, of a prompt that is being computed. */
void api_write_progress(struct json_writer *json, const struct api_choice *choice);
/* The text of a token as a string that no other token has, even if its bytes are not valid UTF-8. */
void api_write_token_name(struct json_writer *json, struct salvo_model *model, int32_t id, bool is_key);
bool api_is_utf8(const char *text, size_t size);

#endif
