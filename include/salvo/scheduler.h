/*
 * salvo/scheduler.h: many requests on one engine.
 *
 * A scheduler owns an engine's sessions and a thread. Requests come from any thread; each gets a session when
 * one is free and there is KV memory for its prompt, in the order of arrival; with a prefix cache, a request
 * that begins with a cached page may overtake others; each is overtaken at most 16 times. Its tokens are
 * computed together with those of the other requests: every step contains one token of each request that
 * decodes and parts of prompts up to a limit that keeps the step short. While a scheduler is open, no other
 * function may use its engine or the engine's sessions.
 *
 * The tokens of a request do not depend on other requests: on the CPU they are the ones that the request gets
 * alone, on GPUs they may differ within the tolerances of salvo_verify.
 */
#ifndef SALVO_SCHEDULER_H
#define SALVO_SCHEDULER_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

struct salvo_scheduler;
struct salvo_embed_options; /* salvo/embed.h */

struct salvo_scheduler_options {
    size_t size;
    uint32_t queue; /* requests that may wait for a session; 0: 256. One more is refused */
    /* Beside sessions that decode, prompts are divided so that a step takes about this long; 0: twice a step
     * without prompts. */
    uint32_t latency_us;
    /* 1: events are kept for salvo_scheduler_poll, and callbacks are not called. */
    uint32_t poll;
    uint32_t unread; /* with `poll`: events of one request that may wait; 0: 64. The request then pauses */
    /* 1: nothing is computed any more after the device has failed (SALVO_ERROR_DEVICE). Requests in flight
     * and in the queue end with this status, and no further ones are accepted, until the caller has closed
     * scheduler and engine and opened them again. Events tell which requests had not begun. */
    uint32_t halts;
};
#define SALVO_SCHEDULER_OPTIONS_INIT                          \
    {                                                         \
        sizeof(struct salvo_scheduler_options), 0, 0, 0, 0, 0 \
    }

/* The engine stays the caller's and must stay open as long as the scheduler. */
SALVO_API enum salvo_status salvo_scheduler_open(
    struct salvo_engine *engine, const struct salvo_scheduler_options *options, struct salvo_scheduler **out);

/* Cancels all requests, waits until each has had its last event, and ends the thread. Not from a callback. */
SALVO_API void salvo_scheduler_close(struct salvo_scheduler *scheduler);

/* ---- Events ---- */

enum salvo_event_kind {
    SALVO_EVENT_PROMPT = 0, /* a token of the prompt was scored, in order; only with `prompt_logprobs` */
    SALVO_EVENT_TOKEN = 1,  /* a token of the answer */
    SALVO_EVENT_END = 2,    /* the last event of every request that was accepted */
    /* The request got a session, or a part of its prompt was computed; only with `progress`. Polled events of
     * this kind are left out while too many others wait. */
    SALVO_EVENT_PROGRESS = 3
};

struct salvo_event {
    size_t size;
    uint64_t request; /* the handle */
    void *user;       /* of the request */
    uint32_t kind;    /* enum salvo_event_kind */
    int32_t id;       /* the token; END: the end token or stop id that ended the answer, or -1 */
    /* Log-probabilities, if the request asked for them: of `id`, and of the most likely ids in order. They
     * are computed before mask, bias, penalties and filters. The first prompt token has none: NaN.
     */
    float logprob;
    uint32_t top_count;
    const int32_t *top_ids;
    const float *top_logprobs;

    /* END: */
    uint32_t finish;     /* enum salvo_finish, if status is SALVO_OK */
    uint32_t status;     /* enum salvo_status; SALVO_ERROR_CANCELLED after a cancel */
    const char *message; /* why it failed, or "" */

    /* TOKEN, END and PROGRESS: the request so far. */
    uint32_t prompt_tokens; /* of the request */
    uint32_t cached_tokens; /* of the prompt that were not computed again */
    uint32_t tokens;        /* number of SALVO_EVENT_TOKEN */
    /* Seconds from submission to the session, to the first token and to this event. */
    double queue_seconds, first_seconds, end_seconds;
    uint32_t session; /* number of the session that it had last; UINT32_MAX: it had none */

    /* END of a request with `embed` and SALVO_OK: the embedding, [width]; otherwise NULL. */
    const float *embedding;
    uint32_t width;

    /* PROGRESS: tokens of the prompt that need not be computed any more, with the cached ones. */
    uint32_t computed_tokens;
};

/* Pointers in the event are valid during the call. Called on the scheduler's thread: it may submit, cancel,
 * pause and resume, but must not wait or close. */
typedef void (*salvo_event_function)(void *user, const struct salvo_event *event);

/* Fills the mask for the token after `tokens`, the answer so far; the layout is the same as in struct
 * salvo_run. Returns false to end the answer: its finish is SALVO_FINISH_CALLBACK. Called on the scheduler's
 * thread. */
typedef bool (*salvo_mask_function)(
    void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words);

/* Stores tokens that follow `tokens`, the answer so far, without being chosen, at most `capacity`, and
 * returns their number; 0: the next token is to be chosen. Each has its SALVO_EVENT_TOKEN, like a chosen
 * token; the model computes them together. From the first end token or stop id among them on, tokens are
 * chosen instead. Called on the scheduler's thread. */
typedef size_t (*salvo_forced_function)(
    void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity);

/* ---- Requests ---- */

struct salvo_request {
    size_t size;
    const int32_t *ids; /* the prompt, at least one token; copied */
    size_t count;
    const struct salvo_sampler *sampler; /* copied; NULL: the model's default */
    const int32_t *bias_ids;             /* logit bias as in salvo_session_set_bias; copied */
    const float *biases;
    size_t bias_count;
    const int32_t *stop_ids; /* end the answer in addition to the model's end tokens; copied */
    size_t stop_id_count;    /* at most SALVO_STOP_IDS with the model's end tokens */
    uint32_t ignore_end;     /* 1: end tokens do not end the answer, stop_ids do */
    /* Tokens of the answer. 0: until the end or the context. UINT32_MAX: none, for scoring a prompt. */
    uint32_t max_tokens;
    uint32_t logprobs;          /* 1: tokens of the answer have log-probabilities */
    uint32_t prompt_logprobs;   /* 1: SALVO_EVENT_PROMPT for each prompt token */
    uint32_t top_count;         /* most likely ids, at most SALVO_TOP_LOGPROBS */
    uint32_t no_cache;          /* 1: compute the whole prompt, also where the engine has a prefix of it */
    salvo_mask_function mask;   /* NULL: every token is allowed */
    salvo_event_function event; /* required, unless the scheduler is polled */
    void *user;                 /* passed to both */
    uint32_t session;           /* 1 + the number of the session that it waits for; 0: any */
    /* NULL, or: an embedding of the prompt is computed instead of an answer (salvo/embed.h); copied. Members
     * for answers have no effect. */
    const struct salvo_embed_options *embed;
    salvo_forced_function forced; /* NULL: none; only with `mask` and without `logprobs` */
    uint32_t progress;            /* 1: SALVO_EVENT_PROGRESS while the prompt is computed for an answer */
};
#define SALVO_REQUEST_INIT                                                                          \
    {                                                                                               \
        sizeof(struct salvo_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/*
 * Hands over a request. *out_handle names it in events and in the functions below; handles count from 1 and
 * are never used again. A request that can never run is refused with a message that names the reason: a
 * prompt that does not fit into the context is SALVO_ERROR_CONTEXT. A full queue is SALVO_ERROR_MEMORY with
 * the message "the queue is full".
 */
SALVO_API enum salvo_status salvo_scheduler_submit(
    struct salvo_scheduler *scheduler, const struct salvo_request *request, uint64_t *out_handle);

/* Ends a request, waiting or running, within one step. Does nothing for a request that has ended. */
SALVO_API void salvo_scheduler_cancel(struct salvo_scheduler *scheduler, uint64_t handle);

/* A paused request computes nothing; for readers that are slower than the model. It keeps its session unless
 * another request waits for one; then it is computed again when it goes on. */
SALVO_API void salvo_scheduler_pause(struct salvo_scheduler *scheduler, uint64_t handle);
SALVO_API void salvo_scheduler_resume(struct salvo_scheduler *scheduler, uint64_t handle);

/* ---- Sessions ---- */

/* Called on the scheduler's thread while the device does nothing, with an empty session that no request has.
 * It may compute, save and load; the prefix cache keeps what is left in the session. `session` is NULL if the
 * scheduler is closed before, or has halted. */
typedef void (*salvo_session_function)(void *user, struct salvo_session *session);

/* Has the function called once, before the requests that wait. All requests stand still meanwhile. */
SALVO_API enum salvo_status salvo_scheduler_call(
    struct salvo_scheduler *scheduler, salvo_session_function function, void *user);

/* The handles of the requests that have the sessions from `first` on now; 0: none. */
SALVO_API void salvo_scheduler_sessions(
    const struct salvo_scheduler *scheduler, uint32_t first, size_t count, uint64_t *out_handles);

/* ---- Polling ---- */

/* With `poll`: a descriptor that is readable while events wait; -1 without. */
SALVO_API int salvo_scheduler_descriptor(const struct salvo_scheduler *scheduler);

/* Takes the oldest event; false if there is none, or if out->size is not valid. Its pointers are valid until
 * the next call. One thread at a time. */
SALVO_API bool salvo_scheduler_poll(struct salvo_scheduler *scheduler, struct salvo_event *out);

/* ---- Counters, readable from any thread ---- */

struct salvo_scheduler_counters {
    size_t size;
    uint64_t submitted, refused, finished, failed, cancelled; /* requests */
    uint64_t steps, prompt_tokens, cached_tokens, tokens;
    /* Now. Paused requests are also among the running ones, if they have kept their sessions. */
    uint32_t waiting, running, paused, sessions;
    uint32_t step_tokens; /* prompt tokens of a step at most, now */
};
#define SALVO_SCHEDULER_COUNTERS_INIT                                                     \
    {                                                                                     \
        sizeof(struct salvo_scheduler_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

SALVO_API enum salvo_status salvo_scheduler_counters(
    const struct salvo_scheduler *scheduler, struct salvo_scheduler_counters *out);

#ifdef __cplusplus
}
#endif

#endif
