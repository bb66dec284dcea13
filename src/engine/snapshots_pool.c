/* The states that the device keeps, for snapshots and for the prefix cache. */
#include "engine/session.h"
#include "engine/snapshots.h"

#include <assert.h>
#include <inttypes.h>

enum { MOST_CACHED_STATES = 1 << 16 };

/* Memory for the snapshots of all sessions. If it does not suffice for MOST_SNAPSHOTS of each, each has
 * fewer, at least one. */
static const uint64_t snapshot_budget = UINT64_C(1) << 30;

enum salvo_status snapshots_plan(struct salvo_engine *engine, uint64_t bytes, uint64_t cache_budget)
{
    const uint32_t slots = engine->options.slots;
    if (!bytes)
        return SALVO_OK;
    const uint64_t each = snapshot_budget / bytes / slots, cached = cache_budget / bytes;
    if (cache_budget && !cached) {
        return fail(SALVO_ERROR_ARGUMENT,
            "%" PRIu64 " bytes for states of the prefix cache are too few: one state takes %" PRIu64,
            cache_budget, bytes);
    }
    engine->snapshots_each = each < 1 ? 1 : each > MOST_SNAPSHOTS ? MOST_SNAPSHOTS : (uint32_t)each;
    engine->cached_states = cached < MOST_CACHED_STATES ? (uint32_t)cached : MOST_CACHED_STATES;
    engine->options.states = engine->cached_states + slots * engine->snapshots_each;
    return page_pool_open(&engine->state_pool, engine->options.states);
}

uint32_t snapshots_take_state(struct salvo_engine *engine)
{
    const uint32_t state = page_pool_take(&engine->state_pool);
    assert(state != NO_PAGE);
    return state;
}

uint32_t snapshots_place(const struct salvo_engine *engine, uint32_t state)
{
    return engine->options.slots + state;
}
