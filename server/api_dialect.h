/* A dialect reads requests into struct api_request and writes their answers. api_dialect.c lists all. */
#ifndef SERVER_API_DIALECT_H
#define SERVER_API_DIALECT_H

#include "api_write.h"

/* Objects of a stream: before the first token of a choice; while its prompt is computed, if the request asks
 * for it; its unsent tokens; after its last token; after the last token of all choices. */
enum api_object { API_OBJECT_FIRST, API_OBJECT_PROGRESS, API_OBJECT_PART, API_OBJECT_LAST, API_OBJECT_END };

struct api_dialect {
    const char *id_prefix;   /* of an answer's id */
    const char *stream_type; /* content type of a stream */
    const char *silence;     /* sent into a stream that is silent; NULL: nothing */
    bool last_has_text;      /* the last object has the text that was not sent yet */
    bool keeps_text;         /* the last object has the whole text */
    bool calls_in_pieces;    /* calls are streamed as they arrive */
    /* Reads the document of the request, which has the defaults. False after an error. */
    bool (*read)(struct api_request *request, const struct api_defaults *defaults, struct api_error *error);
    /* The whole answer, when all choices have ended. */
    void (*write_answer)(struct json_writer *json, const struct api_answer *answer);
    /* `echo` is written before the text of a part. `choice` is NULL at the end of all. */
    void (*write_object)(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
        const struct api_choice *choice, struct salvo_text echo);
    /* Within a stream. */
    void (*write_error)(struct api_stream *stream, const struct api_error *error);
};

const struct api_dialect *api_dialect_of(enum api_style style);

/* Parses a body. False after an error. The request is freed in both cases. */
bool api_dialect_parse(const char *body, size_t size, enum api_style style,
    const struct api_defaults *defaults, struct api_request *out, struct api_error *error);

extern const struct api_dialect api_openai, api_llama;
extern const struct api_dialect api_anthropic, api_ollama, api_responses;

#endif
