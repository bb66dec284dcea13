/* The KV pages of an engine. Sessions take pages when they compute positions and give them back when the
 * positions are removed. Several sessions, and the prefix cache, may hold the same page, which then is
 * read-only. The kept recurrent states of an engine are such a pool, too. */
#ifndef ENGINE_PAGE_POOL_H
#define ENGINE_PAGE_POOL_H

#include "base/status.h"

/* An entry of a page table without a page. */
#define NO_PAGE UINT32_MAX

struct page_pool {
    uint32_t count, free_count;
    uint32_t lone_count; /* pages that only the prefix cache holds */
    uint32_t *holders;   /* [count]: 0 for a free page */
    bool *is_cached;     /* [count]: the prefix cache is a holder */
    uint32_t *free;      /* [free_count]: numbers of free pages; the last one is taken next */
};

enum salvo_status page_pool_open(struct page_pool *pool, uint32_t count);
void page_pool_close(struct page_pool *pool);

/* A page with one holder; NO_PAGE: none is free. */
uint32_t page_pool_take(struct page_pool *pool);

/* Adds a holder to a page that has one, or removes one. */
void page_pool_hold(struct page_pool *pool, uint32_t page);
void page_pool_drop(struct page_pool *pool, uint32_t page);

/* The same for the prefix cache. */
void page_pool_hold_cached(struct page_pool *pool, uint32_t page);
void page_pool_drop_cached(struct page_pool *pool, uint32_t page);

bool page_pool_is_shared(const struct page_pool *pool, uint32_t page);

#endif
