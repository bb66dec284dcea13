#include "engine/session_pages.h"

#include <inttypes.h>

static uint32_t pages_of(uint32_t positions)
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

/* Fails, without effect, if fewer than `needed` pages can be taken. */
static enum salvo_status check_room(const struct salvo_engine *engine, uint32_t needed, uint32_t end)
{
    const struct page_pool *pool = &engine->page_pool;
    if (needed <= pool->free_count)
        return SALVO_OK;
    return fail(SALVO_ERROR_MEMORY,
        "the KV memory is full: %" PRIu32 " tokens need %" PRIu32 " more pages of %d positions, %" PRIu32
        " of %" PRIu32 " are free",
        end, needed, PAGE_POSITIONS, pool->free_count, pool->count);
}

enum salvo_status session_take_pages(struct salvo_session *session, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    const uint32_t first_page = first / PAGE_POSITIONS, end_page = pages_of(end);
    const uint32_t begin_page = first_page < session->page_count ? first_page : session->page_count;
    uint32_t needed = 0;
    if (!engine->has_caches)
        goto cleanup;
    for (uint32_t i = begin_page; i < end_page; i++)
        needed += i >= session->page_count || is_shared(session, i);
    TRY(check_room(engine, needed, end));
    if (session_must_copy_page(session, first)) {
        const uint32_t copy = page_pool_take(&engine->page_pool), shared = session->pages[first_page];
        status = engine->backend->page_copy(engine->executor, copy, shared);
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
    keep_pages(session, pages_of(session->computed));
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
    for (; to->page_count < pages_of(positions); to->page_count++) {
        to->pages[to->page_count] = from->pages[to->page_count];
        page_pool_hold(&to->engine->page_pool, to->pages[to->page_count]);
    }
}
