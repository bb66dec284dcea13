/*
 * Decoding ahead: generation hands over several tokens with one submission and, where the device works by
 * itself, the next submission before the last one is done. Ids are taken as they come. What was computed
 * beyond the last token that is kept is undone before anybody could see it, so that everything is as if the
 * tokens had been computed one by one: only generation has anything in flight, and every other call settles
 * it first.
 */
#ifndef ENGINE_AHEAD_H
#define ENGINE_AHEAD_H

#include "base/status.h"

enum { MOST_FLIGHTS = 4 };

struct salvo_engine;
struct salvo_session;

/* A submission on its way: tokens from position `first` on. */
struct flight {
    uint64_t ticket;
    uint32_t first, count;
    uint32_t seen; /* ids taken over so far */
};

struct ahead {
    struct salvo_session *session; /* that generates; NULL: none */
    struct flight flights[MOST_FLIGHTS];
    uint32_t flight_count;
    bool stopped; /* the last one did not come to its end */
    bool failed;  /* there was no id to choose at `failed_position` */
    uint32_t failed_position;
    uint32_t lost; /* position after the first token of a submission that has gone wrong: nothing of it
                      counts; 0: none */
};

struct ahead_limits {
    uint32_t tokens;         /* of one submission, at least 1 */
    uint32_t end;            /* positions that ids are wanted for */
    const int32_t *stop_ids; /* no id is wanted after one of these */
    uint32_t stop_count;
};

/* Like session_sample: makes sure that an id is pending, and keeps the device busy meanwhile. */
enum salvo_status ahead_sample(struct salvo_session *session, const struct ahead_limits *limits);

/* Ends decoding ahead: all that was computed after the session's last token is undone, except, where
 * `keep_next` says so, that the next id is known. */
enum salvo_status ahead_finish(struct salvo_session *session, bool keep_next);

/* The same for whichever session decodes ahead, when something else is asked of the engine from a callback.
 */
enum salvo_status ahead_settle(struct salvo_engine *engine);

#endif
