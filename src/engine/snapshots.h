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
    uint8_t *state;
};

struct snapshots {
    struct snapshot items[MOST_SNAPSHOTS]; /* sorted by position; from `count` on only memory */
    uint32_t count;
    uint32_t wanted; /* a snapshot is due after so many tokens; 0: none */
};

struct salvo_engine;
struct salvo_session;

/* Memory for the snapshots of all sessions; pages are not used until written. */
enum salvo_status snapshots_open(struct salvo_engine *engine);
void snapshots_close(struct salvo_engine *engine);

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

/* Stores a saved state of `position` tokens as a snapshot, unless there is one at least as new. */
void snapshots_keep(struct salvo_session *session, uint32_t position, const uint8_t *state);

/* Replaces the snapshots of `to` by copies. Both sessions belong to one engine. */
void snapshots_copy(struct salvo_session *to, const struct salvo_session *from);

/* Restores a state of at most `position` tokens; session->computed is then their number. */
enum salvo_status snapshots_go_back(struct salvo_session *session, uint32_t position);

/* Removes all snapshots, and the wish for one, because the session's tokens are replaced. */
void snapshots_forget(struct salvo_session *session);

#endif
