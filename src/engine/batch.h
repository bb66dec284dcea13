/*
 * Batches: runs of many sessions in one submission, the functions salvo_engine_submit, salvo_engine_wait and
 * salvo_engine_cancel. A step is in flight until its results are taken over into the sessions (completed),
 * and open until the caller has got them. Steps complete in the order of submission. A backend that computes
 * within `submit` has no step in flight.
 */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "program/step.h"

#include <salvo/salvo.h>

enum { BATCH_MESSAGE_BYTES = 256 };

struct salvo_engine;
struct salvo_session;

struct batch_run {
    struct salvo_session *session; /* NULL: closed since */
    uint32_t first, count;         /* positions to compute; count 0: not part of the step */
    uint32_t tokens;               /* to decode, from `first` on; 1 for a part of a prompt */
    uint32_t logits_row;
    bool decodes; /* has no ids of its own */
    bool samples;
    bool holds;        /* leaves its logits for the next run of the session */
    bool only_chooses; /* computes nothing: chooses from the logits of a run that holds them */
    bool follows;      /* submitted while an earlier run of the session was open */
    enum run_source source;
    const uint32_t *mask; /* the caller's, during submit, or a resident one; NULL: none */
    uint32_t mask_number; /* number of a resident mask; 0 for other masks */
    float *logits;        /* memory of the caller, or NULL; also the next two */
    float *logprobs;
    int32_t *top_ids;
    uint32_t top_count;
    float *hidden;       /* memory of the caller, or NULL; also the next one */
    int32_t *chosen_ids; /* [tokens] */
    uint32_t first_row;  /* index of its first row in the backend's step */
    int32_t stop_ids[MAX_STOP_IDS];
    uint32_t stop_count;
    struct salvo_run_result result;
    char message[BATCH_MESSAGE_BYTES]; /* the text of result.message */
};

struct batch_step {
    uint64_t ticket;            /* 0: not open */
    uint64_t device_ticket;     /* while in flight */
    uint64_t step;              /* engine->steps of its submission */
    bool in_flight, wants_rows; /* wants_rows: logits and the like, which the next step replaces */
    bool repeats;               /* its runs may decode several tokens */
    uint32_t run_count;
    struct batch_run *runs; /* [slots] */
    uint64_t *handles;      /* [slots], only by atomic operations; 0: none, or the run has ended */
};

struct batch {
    struct batch_step steps[SALVO_OPEN_STEPS]; /* ticket t is at index t % SALVO_OPEN_STEPS */
    uint64_t last_ticket, completed;           /* tickets up to `completed` are not in flight */
    uint64_t held_step;     /* engine->steps of the last step with runs that hold logits; 0: these are gone */
    uint64_t checks;        /* lists of runs checked */
    uint32_t stale_count;   /* sessions whose device state must be restored */
    struct salvo_run *runs; /* [slots]: for salvo_engine_next */
};

/* The part of a session that belongs to its runs in batches. */
struct batch_session {
    uint64_t checked;      /* the list of runs that it was last found in */
    uint32_t open, flying; /* number of open runs; number of runs in flight */
    uint32_t planned;      /* while runs are in flight: positions that the session will have */
    bool chooses;          /* while runs are in flight: the last one chooses an id */
    uint64_t held_step;    /* the step of the session's last run that held its logits */
    uint32_t held_row;     /* row of these logits */
    uint32_t held_end;     /* positions after that run */
    bool may_stop;         /* while runs are in flight: the next decode may find that a stop id was chosen */
    bool may_end_early;    /* while runs are in flight: one of them may find a stop id; `planned` is then too
                              large */
    bool is_planned;       /* has pages for a run that is about to be submitted */

    /* The recurrent state on the device does not belong to the session's `computed` tokens: a run whose
     * results were dropped has changed it. */
    bool is_stale;

    /* Each of these makes the session's later runs do nothing, until no run of it is open. */
    bool stopped;              /* the last completed run chose a stop id */
    enum salvo_status failed;  /* status of the first run that failed in a step */
    enum salvo_status refused; /* status of the first run that could not be submitted */
};

enum salvo_status batch_open(struct salvo_engine *engine);
void batch_close(struct salvo_engine *engine); /* waits for steps in flight and drops their results */

/* Checks that no session is NULL, of another engine or given twice. */
enum salvo_status batch_check_sessions(
    struct salvo_engine *engine, struct salvo_session *const *sessions, size_t count);

enum salvo_status batch_submit(
    struct salvo_engine *engine, const struct salvo_run *runs, size_t count, uint64_t *out_ticket);

/* Completes a step of `count` runs and returns it, with their results. The step stays open. */
enum salvo_status batch_wait(
    struct salvo_engine *engine, uint64_t ticket, size_t count, const struct batch_step **out);

/* Ends a step whose results the caller has. */
void batch_release(struct salvo_engine *engine, uint64_t ticket);

void batch_cancel(struct salvo_engine *engine, uint64_t handle);

/* Completes all steps in flight and restores sessions whose recurrent state is stale, before anything else
 * uses them. */
enum salvo_status batch_settle(struct salvo_engine *engine);

/* Forgets a session that is closed, when nothing is in flight. */
void batch_forget(struct salvo_session *session);

#endif
