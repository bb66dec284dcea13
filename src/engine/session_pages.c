#include "engine/session_pages.h"
#include "backend/common/state.h"

#include <inttypes.h>

uint32_t session_pages_of(uint32_t positions)
{
    return positions / PAGE_POSITIONS + (positions % PAGE_POSITIONS > 0);
}

static bool is_shared(const struct salvo_session *session, uint32_t index)
{
    return index < session->page_count &&
           page_pool_is_shared(&session->engine->page_pool, session->pages[index]);
}

bool session_must_copy_page(const struct salvo_session *session, uint32_t first)
{
    return session->engine->has_caches && first % PAGE_POSITIONS &&
           is_shared(session, first / PAGE_POSITIONS);
}

/* The number of pages to take so that the session alone holds the pages of entries `begin` to `end` - 1. */
static uint32_t count_needed(const struct salvo_session *session, uint32_t begin, uint32_t end)
{
    uint32_t needed = 0;
    for (uint32_t i = begin; i < end; i++)
        needed += i >= session->page_count || is_shared(session, i);
    return needed;
}

/* Pages among these that the session shares with the prefix cache alone, which can give them up. */
static uint32_t give_up_shared(struct salvo_session *session, uint32_t begin, uint32_t end)
{
    struct salvo_engine *engine = session->engine;
    uint32_t given_up = 0;
    for (uint32_t i = end < session->page_count ? end : session->page_count; i > begin; i--) {
        if (engine->page_pool.holders[session->pages[i - 1]] == 2)
            given_up += prefix_cache_give_up(&engine->prefix_cache, session->pages[i - 1]);
    }
    return given_up;
}

/* Removes pages from the prefix cache until `needed` are free, unless that cannot suffice. */
static void evict_pages(struct salvo_engine *engine, uint32_t needed)
{
    const struct page_pool *pool = &engine->page_pool;
    if (needed > pool->free_count + pool->lone_count)
        return;
    while (needed > pool->free_count && prefix_cache_evict_page(&engine->prefix_cache))
        continue;
}

/* Ensures that the pages that are needed can be taken, by removing others from the prefix cache. */
static enum salvo_status make_room(
    struct salvo_session *session, uint32_t begin_page, uint32_t end_page, uint32_t end)
{
    struct salvo_engine *engine = session->engine;
    const struct page_pool *pool = &engine->page_pool;
    uint32_t needed = count_needed(session, begin_page, end_page);
    evict_pages(engine, needed);
    if (needed > pool->free_count) {
        needed -= give_up_shared(session, begin_page, end_page);
        evict_pages(engine, needed);
    }
    if (needed <= pool->free_count)
        return SALVO_OK;
    return fail(SALVO_ERROR_MEMORY,
        "the KV memory is full: %" PRIu32 " tokens need %" PRIu32
        " more of its pages of %d positions, %" PRIu32 " of %" PRIu32 " are free",
        end, needed, PAGE_POSITIONS, pool->free_count, pool->count);
}

enum salvo_status session_take_pages(struct salvo_session *session, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    const uint32_t first_page = first / PAGE_POSITIONS, end_page = session_pages_of(end);
    const uint32_t begin_page = first_page < session->page_count ? first_page : session->page_count;
    if (!engine->has_caches)
        goto cleanup;
    TRY(make_room(session, begin_page, end_page, end));
    if (session_must_copy_page(session, first)) {
        const uint32_t copy = page_pool_take(&engine->page_pool), shared = session->pages[first_page];
        status = state_copy_page(engine->backend, engine->executor, copy, shared);
        page_pool_drop(&engine->page_pool, status == SALVO_OK ? shared : copy);
        TRY(status);
        session->pages[first_page] = copy;
    }
    for (uint32_t i = begin_page; i < end_page; i++) {
        if (i < session->page_count && !is_shared(session, i))
            continue;
        if (i < session->page_count)
            page_pool_drop(&engine->page_pool, session->pages[i]);
        session->pages[i] = page_pool_take(&engine->page_pool);
        if (session->page_count <= i)
            session->page_count = i + 1;
    }
cleanup:
    return status;
}

static void keep_pages(struct salvo_session *session, uint32_t count)
{
    while (session->page_count > count) {
        uint32_t *page = &session->pages[--session->page_count];
        page_pool_drop(&session->engine->page_pool, *page);
        *page = NO_PAGE;
    }
}

void session_trim_pages(struct salvo_session *session)
{
    keep_pages(session, session_pages_of(session->computed));
}

void session_drop_pages(struct salvo_session *session)
{
    keep_pages(session, 0);
}

void session_share_pages(struct salvo_session *to, const struct salvo_session *from, uint32_t positions)
{
    session_drop_pages(to);
    if (!from->engine->has_caches)
        return;
    for (; to->page_count < session_pages_of(positions); to->page_count++) {
        to->pages[to->page_count] = from->pages[to->page_count];
        page_pool_hold(&to->engine->page_pool, to->pages[to->page_count]);
    }
}
