/*
 * The scheduler: requests of many threads on one engine. Its thread alone uses the engine, by batches. Files:
 *   scheduler.c         the public functions, called by any thread
 *   scheduler_request.c checks and copies a request
 *   scheduler_work.c    the thread: admission, steps, results
 *   scheduler_choose.c  masks, and the steps that choose with them
 *   scheduler_embed.c   embeddings
 *   scheduler_score.c   log-probabilities of prompts
 *   scheduler_events.c  events, for callbacks or for polling
 *   scheduler_answer.c  progress of prompts; tokens of answers, chosen or forced by a grammar
 *   scheduler_calls.c   functions that borrow a session
 *   scheduler_admit.c   which waiting request gets a free session
 *   scheduler_clock.c   the clock, which tests replace
 *   scheduler_end.c     the end of a request, and what follows when memory is short
 *   scheduler_pace.c    tokens that a request decodes in a step; the first measurement for prompt_pace.h
 */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "engine/pooling.h"
#include "engine/prompt_pace.h"
#include "engine/session.h"

#include <pthread.h>
#include <salvo/scheduler.h>

enum {
    STEPS_AHEAD = 2,       /* most open steps on an asynchronous device */
    LEAST_TOKENS = 4,      /* least prompt tokens of a step */
    LEAST_TOKENS_GPU = 16, /* the same on a GPU, which computes 16 rows in nearly the time of one */
    MEASURED_TOKENS = 64,  /* length of the prompt that is timed when a scheduler is opened */
    MOST_DECODES = 4,      /* most tokens that a request decodes in one step */
};
#define NO_SESSION UINT32_MAX

struct request;

/* A function that waits for a session. */
struct scheduler_call {
    struct scheduler_call *next;
    salvo_session_function function;
    void *user;
};

/* An event that waits to be polled. */
struct event_node {
    struct event_node *next;
    struct request *request;
    struct salvo_event event;
};

struct request {
    /* The request as submitted; constant, except `ids` of a request that was put back. */
    uint64_t handle;
    int32_t *ids;
    uint32_t prompt_count;
    struct sampler_settings sampler; /* without bias */
    int32_t *bias_ids;
    float *biases;
    size_t bias_count;
    int32_t stop_ids[SALVO_STOP_IDS]; /* the request's own, then end tokens */
    uint32_t stop_count;
    bool ends_at_end; /* end tokens end the answer */
    bool has_logprobs, scores_prompt, uses_cache, tells_progress;
    bool length_is_limit; /* `limit` is max_tokens, not the context */
    uint32_t limit;       /* tokens of the answer */
    uint32_t top_count;
    struct pool pool; /* an embedding instead of an answer, unless its width is 0 */
    float *embedding; /* [width] */
    salvo_mask_function mask;
    uint32_t *mask_bits;
    salvo_forced_function forced;
    salvo_event_function event;
    void *user;
    uint32_t wanted; /* session, NO_SESSION: any */
    uint64_t submitted_ns;

    /* Used by all threads, under the scheduler's mutex. */
    struct request *next; /* in the queue */
    uint32_t overtaken;   /* later requests that got a session before it */
    bool was_put_back;
    bool is_cancelled, is_paused, is_waiting; /* is_waiting: in the list of these */
    bool is_over;     /* the last event is on its way; written by the thread of the scheduler alone */
    bool is_released; /* it has no session, and will get none */
    bool is_read;     /* with polling: the last event was polled */
    uint32_t unread;  /* with polling: events that wait */

    /* Used only by the thread of the scheduler. */
    struct salvo_session *session;
    uint32_t slot;          /* slot of its current or last session; NO_SESSION: none yet */
    uint32_t known;         /* tokens in `ids`: the prompt and, after a preemption, the answer so far */
    uint32_t fed;           /* tokens of `ids` that were submitted */
    uint32_t cached_tokens; /* prompt tokens that the prefix cache supplied to its first session */
    uint32_t scored;        /* prompt tokens whose event was sent */
    uint32_t tokens;        /* answer tokens whose event was sent */
    int32_t last_id;        /* the last answer token whose event was sent */
    uint32_t runs;          /* its runs in open steps */
    uint32_t choosing;      /* ids that these runs may choose */
    uint32_t room;          /* copied when a round begins: events that may be added before they are read */
    bool is_blocked;        /* copied when a round begins: paused, or too many events are unread */
    bool must_end;          /* copied when a round begins: cancelled */
    bool must_wait;         /* copied when a round begins: paused */
    bool is_starved; /* its last run found no KV pages; it waits until the scheduler's `releases` changes */
    bool starved_alone; /* it was starved while no other request had a session */
    bool goes_back;     /* preempted: returns to the queue when its last run has completed */
    uint64_t starved_at;
    uint64_t begun_ns, first_ns;
    uint32_t reported; /* 1 + the tokens that the last progress event had; 0: no such event yet */
    char message[BATCH_MESSAGE_BYTES];

    /* With polling: the events in order, and the lists that they point at. */
    struct event_node *nodes; /* [node_count] */
    uint32_t node_count, next_node;
    int32_t *top_ids;    /* [node_count][top_count] */
    float *top_logprobs; /* [node_count][top_count] */
    struct event_node end_node;
};

struct planned_run {
    struct request *request;
    uint32_t fed;     /* tokens of the request, including this run */
    uint32_t chooses; /* ids, at most */
    bool holds;       /* a later step chooses the id, when the mask is known */
    bool is_choice;   /* that later step has a run for the request */
    bool has_failed;  /* the run that keeps its logits failed */
    int32_t ids[MOST_DECODES];
    float logprobs[1 + SALVO_TOP_LOGPROBS];
    int32_t top_ids[SALVO_TOP_LOGPROBS];
};

struct planned_step {
    uint64_t ticket;
    uint32_t count;
    uint32_t decodes, prompt_tokens; /* runs that decode; prompt tokens of the other runs */
    uint32_t tokens;                 /* most tokens that a run decodes */
    uint64_t begun_ns;
    struct planned_run *runs; /* [slots] */
    uint32_t held;            /* runs whose id a later step chooses */
    uint64_t choice_ticket;   /* ticket of that later step */
    uint32_t choice_count;    /* runs of that later step; 0: there is no such step */
};

struct salvo_scheduler {
    struct salvo_engine *engine;
    struct salvo_scheduler_options options; /* without zeros for defaults */
    uint32_t slots;
    const struct tokenizer *tokenizer; /* NULL: the model has none, for the reason in `no_tokenizer` */
    char no_tokenizer[BATCH_MESSAGE_BYTES];
    int32_t end_ids[SALVO_STOP_IDS];
    uint32_t end_id_count;
    bool is_asynchronous;
    pthread_t thread;

    pthread_mutex_t mutex, *lock; /* lock: the mutex, for readers whose scheduler is const */
    pthread_cond_t changed;
    uint64_t changes; /* raised whenever the thread may have work */
    bool closing;
    bool is_halted; /* the device has failed; written by the thread alone */
    struct scheduler_call *first_call, *last_call;
    struct request *first_waiting, *last_waiting;
    uint32_t waiting_cancelled, waiting_paused; /* numbers of such requests in the list, which may be long */
    struct request **running;                   /* [slots]; NULL: the session is free */
    uint64_t last_handle;
    struct salvo_scheduler_counters counters;
    struct event_node *first_event, *last_event, *polled;
    uint32_t unread_ends;
    int pipe[2]; /* contains a byte while events wait; -1 without polling */

    /* Used only by the thread of the scheduler. */
    struct salvo_session **sessions; /* [slots] */
    struct planned_step steps[STEPS_AHEAD];
    uint32_t open_steps, oldest_step;
    struct salvo_run *runs;           /* [slots] */
    struct salvo_run_result *results; /* [slots] */
    uint32_t next_prompt_slot;
    uint32_t next_scoring_slot, next_embedding_slot;
    float *hidden_rows; /* [batch][width], from the first request for an embedding on */
    struct prompt_pace pace;
    uint64_t ended_ns; /* end of the last collected step */
    uint64_t releases; /* number of sessions released so far */
    bool holds_queue;  /* a request was preempted: no request is admitted before a session is free */
};

/* scheduler_clock.c: the clock of all schedulers, which tests replace while none is open. */
extern uint64_t (*scheduler_now)(void);

/* ---- scheduler_request.c ---- */

/* Checks the caller's request and copies it. */
enum salvo_status request_open(
    struct salvo_scheduler *scheduler, const struct salvo_request *given, struct request **out);
void request_close(struct request *request);

/* Positions that one request can fill: the context, or fewer if there are fewer KV pages. */
uint32_t request_most_positions(const struct salvo_engine *engine);

/* ---- scheduler_admit.c, under the mutex, by the thread of the scheduler ---- */

/* Count a request that was added to the waiting list, and a waiting request whose flags change: before and
 * after the change. Any thread may call the first two. */
void waiting_count(struct salvo_scheduler *scheduler, struct request *request);
void waiting_uncount(struct salvo_scheduler *scheduler, struct request *request);
void waiting_cancel_all(struct salvo_scheduler *scheduler);

/* Remove a waiting request: one that is cancelled; the one that is to get the session of the slot now. NULL:
 * none. */
struct request *waiting_take_cancelled(struct salvo_scheduler *scheduler);
struct request *waiting_take_next(struct salvo_scheduler *scheduler, uint32_t slot);

/* Whether a request waits for the session of the slot, or for the pages that it holds. */
bool waiting_wants(struct salvo_scheduler *scheduler, uint32_t slot);

/* ---- scheduler_work.c ---- */

void *scheduler_work(void *user);

/* Wakes the thread. Under the mutex. */
void scheduler_wake(struct salvo_scheduler *scheduler);

/* ---- scheduler_choose.c ---- */

/* Fills the mask of the next token; false: the request has ended. */
bool scheduler_fill_mask(struct salvo_scheduler *scheduler, struct request *request);

/* Fills in the members of a run that chooses: stop ids, mask, lists for ids and log-probabilities. */
void scheduler_describe_choice(struct planned_run *planned, struct salvo_run *run);

/* The device computes `step`, the last one that was submitted, and all results before it are known: makes the
 * masks of its held runs and submits the step that chooses with them. */
void scheduler_choose(struct salvo_scheduler *scheduler, struct planned_step *step);

/* ---- scheduler_answer.c ---- */

/* The tokens of the answer so far, also the last one, which the session may not have appended yet. */
const int32_t *request_answer(const struct request *request);

/* Ends a request that has all tokens that it may have. */
void scheduler_complete(struct salvo_scheduler *scheduler, struct request *request);

/* Appends the answer so far to `ids`, the tokens to compute. */
enum salvo_status request_keep_answer(struct request *request);

/* Tells how many tokens of the prompt have been computed, if the request wants to know and it is news. */
void scheduler_tell_progress(struct salvo_scheduler *scheduler, struct request *request, uint32_t computed);

/* Counts a token of the answer and sends its event, whose id and log-probabilities are set. */
void scheduler_take_token(
    struct salvo_scheduler *scheduler, struct request *request, struct salvo_event *event);

/* If all chosen tokens are known: appends the tokens that need not be chosen. */
void scheduler_force(struct salvo_scheduler *scheduler, struct request *request);

/* ---- scheduler_calls.c ---- */

/* Removes all tokens of a session. The prefix cache keeps them; a recurrent state is copied for it while the
 * device is idle. Otherwise other sessions go on meanwhile. */
void scheduler_empty_session(struct salvo_session *session);

/* Whether a call waits. */
bool scheduler_has_calls(struct salvo_scheduler *scheduler);

/* Does the first call, if one waits and it can be done now; no step is open. */
bool scheduler_do_call(struct salvo_scheduler *scheduler);

/* ---- scheduler_end.c ---- */

/* Ends a request: its last event. With `message` NULL: salvo_error(), unless the status is SALVO_OK. */
void scheduler_end(struct salvo_scheduler *scheduler, struct request *request, enum salvo_status status,
    enum salvo_finish finish, int32_t id, const char *message);

/* Fills the numbers of the request so far. */
void event_describe(const struct request *request, struct salvo_event *event);

/* Whether the request, which may be NULL, can have a run in the next step. */
bool request_may_run(const struct salvo_scheduler *scheduler, const struct request *request);

/* A run found no memory for its tokens, for the reason in `message`. */
void scheduler_starve(struct salvo_scheduler *scheduler, struct request *request, const char *message);

/* ---- scheduler_score.c ---- */

/* Tokens that runs compute before anything else is done: none for an embedding; for a prompt that is to be
 * scored, the tokens that were scored before the request was preempted; otherwise all known tokens. */
uint32_t request_feed_end(const struct request *request);

/* Whether the next tokens of the prompt are to be scored. */
bool request_scores_next(const struct request *request);

/* Scores a part of the prompt of one request, if any asks for it. */
bool scheduler_score(struct salvo_scheduler *scheduler);

/* ---- scheduler_embed.c ---- */

/* Computes a part of the texts that are to become embeddings, if there are any, in a step of their own. */
bool scheduler_embed(struct salvo_scheduler *scheduler);

/* ---- scheduler_events.c ---- */

/* Hands an event over: `event` has all but request, user and size. */
void event_send(struct salvo_scheduler *scheduler, struct request *request, struct salvo_event *event);

/* Events of the request that fit until it must pause; UINT32_MAX without polling. Under the mutex. */
uint32_t event_room(const struct salvo_scheduler *scheduler, const struct request *request);

/* Takes the oldest event; false: none. Under the mutex. */
bool event_take(struct salvo_scheduler *scheduler, struct salvo_event *out);

/* Frees a request that has neither a session nor an event left. Under the mutex. */
void request_free_if_done(struct salvo_scheduler *scheduler, struct request *request);

/* Frees all that wait. */
void events_close(struct salvo_scheduler *scheduler);

/* ---- scheduler_pace.c ---- */

/* Tokens that each request may decode in the next step, whose results come together: several, if the device
 * works by itself, a token takes little time and no request needs the host between two tokens. */
uint32_t scheduler_tokens_at_once(struct salvo_scheduler *scheduler);

/* Opens `pace`. */
enum salvo_status scheduler_measure(struct salvo_scheduler *scheduler);

#endif
