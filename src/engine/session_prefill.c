/* The beginning of a session from the prefix cache. */
#include "backend/common/state.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

/* The session is empty and has `count` tokens staged. */
static enum salvo_status begin_with_prefix(struct salvo_session *session, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    uint32_t state;
    const uint32_t found = prefix_cache_find(
        &engine->prefix_cache, session->tokens, count, session->pages, &session->page_count, &state);
    if (found == 0)
        goto cleanup;
    if (state != NO_PAGE) {
        TRY(state_copy_recurrent(
            engine->backend, engine->executor, session->slot, snapshots_place(engine, state)));
        snapshots_keep(session, found, state);
    }
    TRY(state_set_tokens(engine->backend, engine->executor, session->slot, session->tokens, found));
    session->position = session->computed = found;
cleanup:
    if (status != SALVO_OK) {
        session_drop_pages(session);
        snapshots_forget(session);
    }
    return status;
}

static uint32_t count_common(const struct salvo_session *session, const int32_t *ids, size_t count)
{
    uint32_t common = 0;
    while (common < session->position && common < count && session->tokens[common] == ids[common])
        common++;
    return common;
}

enum salvo_status session_prefill_cached(
    struct salvo_session *session, const int32_t *ids, size_t count, uint32_t *out_cached)
{
    enum salvo_status status = SALVO_OK;
    *out_cached = 0;
    if (count == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a prompt needs at least one token"));
    session_publish(session);
    /* The last token is computed in any case, because its logits are needed. */
    const uint32_t common = ids ? count_common(session, ids, count - 1) : 0;
    TRY(session_stage(session, 0, ids, count));
    if (session->engine->prefix_cache.is_on) {
        session_drop_pages(session);
        snapshots_forget(session);
        session->position = session->computed = 0;
        session->pending = -1;
        session->logits_step = 0;
        TRY(begin_with_prefix(session, (uint32_t)count - 1));
    } else if (common < session->position) {
        TRY(session_rollback(session, common));
    }
    *out_cached = session->position;
cleanup:
    return status;
}
