/* One answer as it grows: tokens become text, stop strings end it. Belongs to one thread. */
#ifndef SERVER_API_CHOICE_H
#define SERVER_API_CHOICE_H

#include "api_constraint.h"
#include "api_prompt.h"
#include "api_tools.h"

/* A token with log-probabilities. */
struct api_token {
    int32_t id;
    uint32_t top_count;
    float logprob; /* NaN: none */
    int32_t top_ids[SALVO_TOP_LOGPROBS];
    float top_logprobs[SALVO_TOP_LOGPROBS];
    size_t offset; /* characters of the text before it */
};

struct api_choice {
    void *owner; /* the generation that receives the events */
    struct salvo_model *model;
    size_t prompt; /* number of its prompt */
    uint32_t index;
    uint64_t handle; /* the scheduler's handle of the request; 0: not submitted */
    struct salvo_scheduler
        *scheduler;    /* the scheduler of that request; only the scheduler's thread reads it */
    size_t queued;     /* events that the loop has not seen; under the lock of the owner */
    unsigned failures; /* failures of the device before the request was submitted */
    bool is_parked;    /* waits for the model to be opened again, api_recovery.h */
    struct api_choice *next_parked, **parked_link;
    struct salvo_text_filter *filter;
    struct api_constraint constraint;
    struct api_calls calls;
    const char *const *stops;
    size_t stop_count;

    /* Bytes that were not sent yet: the whole answer, if it is not streamed. */
    struct buffer text;
    struct buffer ids;     /* int32_t */
    struct buffer all_ids; /* of the whole answer, if keeps_ids */
    bool keeps_ids;
    struct buffer whole; /* the text of the whole answer, if keeps_text */
    bool keeps_text;
    struct buffer details; /* struct api_token, if the request wants log-probabilities */
    bool wants_details;

    struct buffer held; /* bytes of tokens that the filter holds back */
    size_t characters;  /* characters of all tokens so far */
    size_t dropped;  /* characters removed from the beginning: a blank that the prompt's text does not have */
    uint32_t tokens; /* of the answer */
    bool has_new_line, echoed; /* echoed: the prompt was sent */
    bool stopped;              /* a stop string was found; later tokens are ignored */
    const char *stop_word;     /* the stop string that was found, or "" */

    uint32_t session; /* current or last session; UINT32_MAX: none */

    /* From the last event; the members of the second line also after each token. */
    bool ended;
    uint32_t finish, status;
    char message[256];
    uint32_t prompt_tokens, cached_tokens, computed_tokens; /* the last one: while the prompt is computed */
    double queue_seconds, first_seconds, end_seconds;
};

bool api_choice_open(
    struct api_choice *choice, struct salvo_model *model, const char *const *stops, size_t stop_count);
void api_choice_close(struct api_choice *choice);

/* Takes an event over. False if memory is short. After a stop string `stopped` is set: the caller cancels the
 * request. */
bool api_choice_take(struct api_choice *choice, const struct salvo_event *event);

/* Forgets what was sent. */
void api_choice_sent(struct api_choice *choice);

/* "stop", "length" or "tool_calls"; for llama.cpp "eos", "word" or "limit". */
const char *api_choice_finish(const struct api_choice *choice);
const char *api_choice_stop_type(const struct api_choice *choice);

#endif
