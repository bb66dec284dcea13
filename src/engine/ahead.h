/*
 * Decoding ahead: generation requests several tokens with one submission and, on asynchronous devices,
 * submits the next before the last one is complete. Ids are read as they arrive. Tokens beyond the last one
 * kept are rolled back before any other function can see them, so the result is the same as token by token:
 * only generation has submissions in flight, and every other call completes them first.
 */
#ifndef ENGINE_AHEAD_H
#define ENGINE_AHEAD_H

#include "base/status.h"

enum { MOST_FLIGHTS = 4 };

struct salvo_engine;
struct salvo_session;

/* A submission in flight: tokens from position `first` on. */
struct flight {
    uint64_t ticket;
    uint32_t first, count;
    uint32_t seen; /* number of ids appended so far */
};

struct ahead {
    struct salvo_session *session; /* the session that generates; NULL: none */
    struct flight flights[MOST_FLIGHTS];
    uint32_t flight_count;
    bool stopped; /* the last submission stopped early */
    bool failed;  /* no id could be chosen at `failed_position` */
    uint32_t failed_position;
    /* The position after the first token of a failed submission, whose tokens are all discarded; 0: none. */
    uint32_t lost;
};

struct ahead_limits {
    uint32_t tokens;         /* per submission, at least 1 */
    uint32_t end;            /* ids are needed up to this position */
    const int32_t *stop_ids; /* no id is needed after one of these */
    uint32_t stop_count;
};

/* Like session_sample: ensures that an id is pending, and keeps the device busy. */
enum salvo_status ahead_sample(struct salvo_session *session, const struct ahead_limits *limits);

/* Ends decoding ahead: rolls back all tokens computed after the session's last one. With `keep_next` the next
 * id stays pending. */
enum salvo_status ahead_finish(struct salvo_session *session, bool keep_next);

/* Ends decoding ahead of any session, when a callback calls another function of the engine. */
enum salvo_status ahead_settle(struct salvo_engine *engine);

#endif
