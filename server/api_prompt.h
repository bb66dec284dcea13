/* From a request to tokens: templates, tokenizing, biases. Any thread. */
#ifndef SERVER_API_PROMPT_H
#define SERVER_API_PROMPT_H

#include "api_model.h"

struct api_prompt {
    int32_t *ids; /* freed by free() */
    size_t count;
};

struct api_prepared {
    struct api_prompt *prompts; /* one, or several of one request */
    size_t prompt_count;
    int32_t *bias_ids;
    float *biases;
    size_t bias_count;
    const char *stops[2 * API_MAX_STOPS]; /* of the request, then of the template */
    size_t stop_count;
    const int32_t *stop_ids; /* of the template */
    size_t stop_id_count;
};

bool api_prepare(
    struct api_model *model, struct api_request *request, struct api_prepared *out, struct api_error *error);
void api_prepared_free(struct api_prepared *prepared);

/* Add to a prompt, api_tokens.c. */
bool api_append_ids(struct api_prompt *prompt, const int32_t *ids, size_t count, struct api_error *error);
bool api_append_text(struct api_model *model, struct salvo_text text, unsigned flags,
    struct api_prompt *prompt, struct api_error *error);

/* The prompt of an infill, api_infill.c. 501 if the vocabulary has no tokens for it. */
bool api_read_infill(struct api_model *model, const struct api_request *request, struct api_prompt *prompt,
    struct api_error *error);

/* Whether the vocabulary has them. */
bool api_has_infill(struct salvo_model *model);

/* The text of a request's messages, for /apply-template. *out is freed by free(). */
bool api_render_text(
    struct api_model *model, struct api_request *request, struct buffer *out, struct api_error *error);

#endif
