/*
 * Snapshots of recurrent state. Recurrent state cannot be rolled back by removing positions, so a session of
 * a recurrent model keeps a few earlier states. A rollback restores the nearest earlier one and computes the
 * tokens after it again. For other models these functions do nothing.
 */
#ifndef ENGINE_SNAPSHOTS_H
#define ENGINE_SNAPSHOTS_H

#include "base/status.h"

enum { MOST_SNAPSHOTS = 4 };

struct snapshot {
    uint32_t position; /* tokens that the state contains */
    uint32_t state;    /* number of a kept state, without the slots before it */
};

struct snapshots {
    struct snapshot items[MOST_SNAPSHOTS]; /* sorted by position */
    uint32_t count;
    uint32_t wanted; /* a snapshot is due after so many tokens; 0: none */
};

struct salvo_engine;
struct salvo_session;

/* Decides how many states the device keeps: for the snapshots of all sessions, and as many as `cache_budget`
 * bytes hold for the prefix cache. `bytes`: of one state, 0 if the model has none. */
enum salvo_status snapshots_plan(struct salvo_engine *engine, uint64_t bytes, uint64_t cache_budget);

/* A kept state with one holder. There is always one for a snapshot or, if prefix_cache_takes_state, for the
 * prefix cache. */
uint32_t snapshots_take_state(struct salvo_engine *engine);

/* The number of a kept state for functions of the backend. */
uint32_t snapshots_place(const struct salvo_engine *engine, uint32_t state);

/* Whether a snapshot would be taken after `position` tokens. */
bool snapshots_are_due(const struct salvo_session *session, uint32_t position);

/* Tokens that a step may compute from `position` on, at most `most`, if the prefix cache shall get the states
 * at the ends of pages and before the last token of a prompt, which ends at `end`. */
uint32_t snapshots_divide(
    const struct salvo_session *session, uint32_t position, uint32_t end, uint32_t most);

/* Makes a snapshot due before the last token of a prompt of `count` tokens, if the prefix cache keeps states.
 */
void snapshots_want(struct salvo_session *session, uint32_t count);

/* Called before a session computes more tokens: takes a snapshot if the newest one is old enough. */
enum salvo_status snapshots_take_if_due(struct salvo_session *session);

/* Makes a kept state of `position` tokens a snapshot, unless there is one at least as new. */
void snapshots_keep(struct salvo_session *session, uint32_t position, uint32_t state);

/* The same with a saved state. */
enum salvo_status snapshots_restore(struct salvo_session *session, uint32_t position, const uint8_t *saved);

/* Replaces the snapshots of `to` by the snapshots of `from`. Both sessions belong to one engine. */
void snapshots_copy(struct salvo_session *to, const struct salvo_session *from);

/* Restores a state of at most `position` tokens; session->computed is then their number. */
enum salvo_status snapshots_go_back(struct salvo_session *session, uint32_t position);

/* Removes all snapshots, and a request for one, because the session's tokens are replaced. */
void snapshots_forget(struct salvo_session *session);

#endif
