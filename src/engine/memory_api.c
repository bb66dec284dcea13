/* The functions of salvo/memory.h. */
#include "backend/common/state.h"
#include "engine/arguments.h"
#include "engine/engine.h"

#include <salvo/memory.h>

enum salvo_status salvo_engine_memory(const struct salvo_engine *engine, struct salvo_memory *out)
{
    REQUIRE(engine);
    REQUIRE(out);
    const struct page_pool *pool = &engine->page_pool;
    const struct prefix_cache *cache = &engine->prefix_cache;
    const uint32_t cached = pool->lone_count;
    const struct salvo_memory result = {
        .page_positions = PAGE_POSITIONS,
        .pages = pool->count,
        .free_pages = pool->free_count,
        .used_pages = pool->count - pool->free_count - cached,
        .cached_pages = cached,
        .states = cache->state_limit,
        .cached_states = cache->state_count,
        .state_bytes = engine->has_recurrent_state ? state_size(engine->backend, engine->executor, 0) : 0,
        .lookups = cache->lookups,
        .hits = cache->hits,
        .reused_tokens = cache->reused_tokens,
        .evictions = cache->evictions,
        .kept_states = engine->state_pool.count,
        .used_states = engine->state_pool.count - engine->state_pool.free_count,
    };
    return result_write("salvo_memory", &result, sizeof result, out);
}

enum salvo_status salvo_engine_forget(struct salvo_engine *engine, const int32_t *ids, size_t count)
{
    REQUIRE(engine);
    REQUIRE(ids || !count);
    if (engine->prefix_cache.is_on && count <= UINT32_MAX)
        prefix_cache_forget(&engine->prefix_cache, ids, (uint32_t)count);
    return SALVO_OK;
}
