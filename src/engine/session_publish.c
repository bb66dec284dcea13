#include "engine/session_publish.h"
#include "backend/common/state.h"

bool session_keeps_states(const struct salvo_session *session)
{
    return session->engine->prefix_cache.is_on && session->engine->has_recurrent_state;
}

void session_publish_state(struct salvo_session *session, uint32_t position, uint32_t state)
{
    struct prefix_cache *cache = &session->engine->prefix_cache;
    if (!session_keeps_states(session) || position == 0)
        return;
    const uint32_t node = prefix_cache_add(cache, session->tokens, position, session->pages, true);
    if (prefix_cache_takes_state(cache, node) && !cache->states->is_cached[state])
        prefix_cache_add_state(cache, node, state);
}

/* The state that the device has. Keeping it is not required, so a failure is no error of the session. */
static void publish_device_state(struct salvo_session *session)
{
    struct salvo_engine *engine = session->engine;
    struct prefix_cache *cache = &engine->prefix_cache;
    const uint32_t node = prefix_cache_add(cache, session->tokens, session->computed, session->pages, true);
    if (!prefix_cache_takes_state(cache, node))
        return;
    const uint32_t state = snapshots_take_state(engine);
    if (state_copy_recurrent(
            engine->backend, engine->executor, snapshots_place(engine, state), session->slot) == SALVO_OK)
        prefix_cache_add_state(cache, node, state);
    page_pool_drop(&engine->state_pool, state);
}

void session_publish(struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    if (!engine->prefix_cache.is_on || session->computed == 0 || session->computed > session->position)
        return;
    if (!engine->has_recurrent_state) {
        (void)prefix_cache_add(
            &session->engine->prefix_cache, session->tokens, session->computed, session->pages, false);
        return;
    }
    for (uint32_t i = 0; i < session->snapshots.count; i++)
        session_publish_state(
            session, session->snapshots.items[i].position, session->snapshots.items[i].state);
    publish_device_state(session);
}

void session_publish_full_pages(struct salvo_session *session, uint32_t first)
{
    const struct salvo_engine *engine = session->engine;
    const uint32_t pages = session->computed / PAGE_POSITIONS;
    if (engine->prefix_cache.is_on && !engine->has_recurrent_state && pages > first / PAGE_POSITIONS)
        (void)prefix_cache_add(
            &session->engine->prefix_cache, session->tokens, pages * PAGE_POSITIONS, session->pages, false);
}
