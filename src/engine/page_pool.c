#include "engine/page_pool.h"

#include "base/memory.h"

#include <assert.h>

enum salvo_status page_pool_open(struct page_pool *pool, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(&pool->holders, count));
    TRY(NEW(&pool->is_cached, count));
    TRY(NEW(&pool->free, count));
    pool->count = pool->free_count = count;
    for (uint32_t i = 0; i < count; i++)
        pool->free[i] = count - 1 - i; /* low numbers first, so that the upper memory stays untouched */
cleanup:
    return status;
}

void page_pool_close(struct page_pool *pool)
{
    memory_free(pool->holders);
    memory_free(pool->is_cached);
    memory_free(pool->free);
    *pool = (struct page_pool){0};
}

uint32_t page_pool_take(struct page_pool *pool)
{
    if (pool->free_count == 0)
        return NO_PAGE;
    const uint32_t page = pool->free[--pool->free_count];
    pool->holders[page] = 1;
    return page;
}

void page_pool_hold(struct page_pool *pool, uint32_t page)
{
    assert(pool->holders[page] > 0);
    pool->lone_count -= pool->is_cached[page] && pool->holders[page] == 1;
    pool->holders[page]++;
}

void page_pool_drop(struct page_pool *pool, uint32_t page)
{
    assert(pool->holders[page] > 0);
    if (--pool->holders[page] == 0)
        pool->free[pool->free_count++] = page;
    pool->lone_count += pool->is_cached[page] && pool->holders[page] == 1;
}

void page_pool_hold_cached(struct page_pool *pool, uint32_t page)
{
    assert(!pool->is_cached[page]);
    page_pool_hold(pool, page);
    pool->is_cached[page] = true;
}

void page_pool_drop_cached(struct page_pool *pool, uint32_t page)
{
    assert(pool->is_cached[page]);
    pool->lone_count -= pool->holders[page] == 1;
    pool->is_cached[page] = false;
    page_pool_drop(pool, page);
}

bool page_pool_is_shared(const struct page_pool *pool, uint32_t page)
{
    return pool->holders[page] > 1;
}
