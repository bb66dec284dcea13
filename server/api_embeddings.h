/* Requests for embeddings, read from JSON, and their answers: /v1/embeddings of OpenAI, /embedding of
 * llama.cpp. */
#ifndef SERVER_API_EMBEDDINGS_H
#define SERVER_API_EMBEDDINGS_H

#include "api_prompt.h"

#include <salvo/embed.h>

enum { API_MAX_INPUTS = 2048 }; /* texts of one request, as of OpenAI */

/* Forms of requests and answers. */
enum api_embedding_form {
    API_EMBED_OPENAI,
    API_EMBED_LLAMA,
    API_EMBED,    /* /api/embed of Ollama */
    API_EMBED_ONE /* /api/embeddings of Ollama */
};

struct api_embedding_request {
    struct api_prompt *inputs;
    size_t count;
    struct salvo_embed_options options;
    uint32_t width;      /* numbers of an embedding */
    uint32_t dimensions; /* number of answered ones among them */
    bool base64;
    bool truncate; /* to the context, which the request asks for */
    enum api_embedding_form form;
};

/* Checks a body, of which the form is set, and tokenizes its texts. False after an error. The request is
 * freed in both cases. */
bool api_embedding_request_read(struct api_model *model, const struct api_value *root,
    struct api_embedding_request *out, struct api_error *error);

/* False with both numbers if a text is longer than the context and is not to be cut. */
bool api_embedding_request_fits(
    struct api_embedding_request *request, uint32_t context, struct api_error *error);
void api_embedding_request_free(struct api_embedding_request *request);

/* The whole answer. `values`: [count][width]. With fewer dimensions than the model's, embeddings are cut and
 * then normalised again. */
void api_write_embeddings(struct json_writer *json, const struct api_model *model,
    const struct api_embedding_request *request, const float *values);

#endif
