/* Takes the results of steps of a batch over into their sessions, in the order of submission. */
#ifndef ENGINE_BATCH_COMPLETE_H
#define ENGINE_BATCH_COMPLETE_H

#include "base/status.h"

struct batch_run;
struct salvo_engine;
struct salvo_session;

/* The highest bit of a run's handle: the run is cancelled. */
#define batch_cancelled_bit (UINT64_C(1) << 63)

/* Completes the oldest step in flight; all steps up to the ticket; all steps. */
void batch_complete_next(struct salvo_engine *engine);
void batch_complete_to(struct salvo_engine *engine, uint64_t ticket);
void batch_complete(struct salvo_engine *engine);

/* A run that does not count has changed the session's recurrent state. */
void batch_mark_stale(struct salvo_session *session);

void batch_record_failure(struct batch_run *run, enum salvo_status status);

/* Errors: an earlier run of the session failed; every logit at a position is NaN or -infinity. */
enum salvo_status batch_not_computed(enum salvo_status status);
enum salvo_status batch_no_id_at(uint32_t position);

#endif
