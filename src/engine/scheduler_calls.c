/* Functions that borrow a session of the scheduler. */
#include "base/memory.h"
#include "engine/scheduler.h"

void scheduler_empty_session(struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    enum salvo_status status = SALVO_OK;
    if (engine->has_recurrent_state && engine->prefix_cache.is_on)
        status = salvo_session_rollback(session, 0);
    batch_forget(session);
    if (status != SALVO_OK)
        session->computed = 0; /* the state of the device is not known */
    (void)session_rollback(session, 0);
    session->position = session->computed = 0;
    snapshots_forget(session);
}

bool scheduler_has_calls(struct salvo_scheduler *scheduler)
{
    pthread_mutex_lock(&scheduler->mutex);
    const bool found = scheduler->first_call != NULL;
    pthread_mutex_unlock(&scheduler->mutex);
    return found;
}

/* A session without a request; NULL: there is none, or nothing may be computed. */
static struct salvo_session *free_session(const struct salvo_scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->slots && !scheduler->closing && !scheduler->is_halted; i++) {
        if (!scheduler->running[i])
            return scheduler->sessions[i];
    }
    return NULL;
}

bool scheduler_do_call(struct salvo_scheduler *scheduler)
{
    struct salvo_session *session = NULL;
    pthread_mutex_lock(&scheduler->mutex);
    struct scheduler_call *call = scheduler->first_call;
    if (call) {
        session = free_session(scheduler);
        if (!session && !scheduler->closing && !scheduler->is_halted)
            call = NULL; /* waits for the first session that is free */
    }
    if (call) {
        scheduler->first_call = call->next;
        if (!call->next)
            scheduler->last_call = NULL;
    }
    pthread_mutex_unlock(&scheduler->mutex);
    if (!call)
        return false;
    call->function(call->user, session);
    if (session)
        scheduler_empty_session(session);
    memory_free(call);
    return true;
}
