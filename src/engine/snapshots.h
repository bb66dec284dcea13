/*
 * Snapshots of recurrent state. What a model folds its tokens into cannot be rolled back by forgetting
 * positions, so a session of such a model keeps a few earlier states and, when it goes back, computes again
 * from the nearest: the tokens are all there. Others keep none, and everything here does nothing for them.
 */
#ifndef ENGINE_SNAPSHOTS_H
#define ENGINE_SNAPSHOTS_H

#include "base/status.h"

enum { MOST_SNAPSHOTS = 4 };

struct snapshot {
    uint32_t position; /* tokens that are recurrent in */
    uint8_t *state;
};

struct snapshots {
    struct snapshot items[MOST_SNAPSHOTS]; /* by position; those beyond `count` only own their memory */
    uint32_t count;
};

struct salvo_engine;
struct salvo_session;

/* Memory for the snapshots of all sessions, which costs nothing until it is written. */
enum salvo_status snapshots_open(struct salvo_engine *engine);
void snapshots_close(struct salvo_engine *engine);

/* Whether one would be taken if `position` tokens were computed. */
bool snapshots_are_due(const struct salvo_session *session, uint32_t position);

/* Before a session computes more: takes a snapshot if the newest one has become old. */
enum salvo_status snapshots_take_if_due(struct salvo_session *session);

/* Keeps a state of `position` tokens that has been saved, unless there is one at least as new. */
void snapshots_keep(struct salvo_session *session, uint32_t position, const uint8_t *state);

/* Goes back to a state of at most `position` tokens: session->computed says of how many. */
enum salvo_status snapshots_go_back(struct salvo_session *session, uint32_t position);

/* Forgets all of them: the session's tokens become others. */
void snapshots_forget(struct salvo_session *session);

#endif
