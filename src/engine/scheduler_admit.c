/* Which waiting request gets a free session. */
#include "engine/scheduler.h"
#include "engine/session_pages.h"

enum {
    LOOKED_AT = 32,      /* waiting requests among which one with a cached prefix is preferred */
    MOST_OVERTAKEN = 16, /* requests that may be preferred to an earlier one */
};

void waiting_count(struct salvo_scheduler *scheduler, struct request *request)
{
    request->is_waiting = true;
    scheduler->counters.waiting++;
    scheduler->waiting_cancelled += request->is_cancelled;
    scheduler->waiting_paused += request->is_paused;
}

void waiting_uncount(struct salvo_scheduler *scheduler, struct request *request)
{
    request->is_waiting = false;
    scheduler->counters.waiting--;
    scheduler->waiting_cancelled -= request->is_cancelled;
    scheduler->waiting_paused -= request->is_paused;
}

void waiting_cancel_all(struct salvo_scheduler *scheduler)
{
    for (struct request *request = scheduler->first_waiting; request; request = request->next)
        request->is_cancelled = true;
    scheduler->waiting_cancelled = scheduler->counters.waiting;
}

static void remove_waiting(struct salvo_scheduler *scheduler, struct request *request)
{
    struct request *before = NULL;
    for (struct request *i = scheduler->first_waiting; i != request; i = i->next)
        before = i;
    if (before)
        before->next = request->next;
    else
        scheduler->first_waiting = request->next;
    if (scheduler->last_waiting == request)
        scheduler->last_waiting = before;
    request->next = NULL;
    waiting_uncount(scheduler, request);
}

struct request *waiting_take_cancelled(struct salvo_scheduler *scheduler)
{
    struct request *request = scheduler->waiting_cancelled ? scheduler->first_waiting : NULL;
    while (request && !request->is_cancelled)
        request = request->next;
    if (request)
        remove_waiting(scheduler, request);
    return request;
}

/* ---- Pages ---- */

/* Tokens of a request that the prefix cache has. */
static uint32_t cached_tokens_of(struct salvo_scheduler *scheduler, const struct request *request)
{
    struct prefix_cache *cache = &scheduler->engine->prefix_cache;
    return cache->is_on && request->uses_cache ? prefix_cache_peek(cache, request->ids, request->known - 1)
                                               : 0;
}

/* Pages of a request with its longest answer. */
static uint32_t most_pages(const struct salvo_scheduler *scheduler, const struct request *request)
{
    const uint64_t positions = (uint64_t)request->prompt_count + request->limit,
                   context = scheduler->engine->options.context;
    return session_pages_of((uint32_t)(positions < context ? positions : context));
}

/* Pages that can be taken, without the pages that requests with a session need for their known tokens, and
 * without a reserve for growing answers. */
static uint32_t free_pages(const struct salvo_scheduler *scheduler)
{
    const struct page_pool *pool = &scheduler->engine->page_pool;
    const uint32_t available = pool->free_count + pool->lone_count;
    uint32_t promised = 0, running = 0, growth = 0;
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        const struct request *request = scheduler->running[i];
        if (!request || request->is_over)
            continue;
        const uint32_t needed = session_pages_of(request->known + 1), held = request->session->page_count,
                       taken = needed > held ? needed : held, most = most_pages(scheduler, request);
        promised += taken - held;
        growth += most > taken ? most - taken : 0;
        running++;
    }
    promised += growth < running / 8 ? growth : running / 8;
    return available > promised ? available - promised : 0;
}

/* Whether the request's tokens fit besides the tokens of the others. If no other request runs it need not
 * wait: waiting would not free pages. */
static bool fits(struct salvo_scheduler *scheduler, const struct request *request)
{
    const struct page_pool *pool = &scheduler->engine->page_pool;
    bool is_alone = true;
    for (uint32_t i = 0; i < scheduler->slots; i++)
        is_alone &= !scheduler->running[i];
    if (is_alone || !scheduler->engine->has_caches)
        return true;
    /* Cached pages are counted as available if only the cache holds them. */
    const uint32_t cached = cached_tokens_of(scheduler, request) / PAGE_POSITIONS,
                   lone = cached < pool->lone_count ? cached : pool->lone_count;
    return session_pages_of(request->known + 1) - cached + lone <= free_pages(scheduler);
}

/* ---- The choice ---- */

static bool may_have(const struct request *request, uint32_t slot)
{
    return !request->is_paused && (request->wanted == NO_SESSION || request->wanted == slot);
}

/* This request, or the first behind it that may have the session of the slot. */
static struct request *first_for(struct request *request, uint32_t slot)
{
    while (request && !may_have(request, slot))
        request = request->next;
    return request;
}

/* The first request that may have the session of the slot. */
static struct request *first_waiting_for(const struct salvo_scheduler *scheduler, uint32_t slot)
{
    const bool some = scheduler->waiting_paused < scheduler->counters.waiting;
    return some ? first_for(scheduler->first_waiting, slot) : NULL;
}

/* The first request; or a later one of which a page or more is cached than of the first. No request is
 * overtaken more than MOST_OVERTAKEN times, and none that was put back. */
static struct request *choose(struct salvo_scheduler *scheduler, uint32_t slot)
{
    struct request *first = first_waiting_for(scheduler, slot), *chosen = first;
    if (!first || !scheduler->engine->prefix_cache.is_on)
        return first;
    uint32_t most = cached_tokens_of(scheduler, first) + PAGE_POSITIONS, seen = 1;
    for (struct request *i = first; seen < LOOKED_AT; seen++) {
        if (i->overtaken == MOST_OVERTAKEN || i->was_put_back)
            break;
        i = first_for(i->next, slot);
        if (!i)
            break;
        const uint32_t cached = cached_tokens_of(scheduler, i);
        if (cached >= most) {
            most = cached + 1;
            chosen = i;
        }
    }
    return chosen;
}

struct request *waiting_take_next(struct salvo_scheduler *scheduler, uint32_t slot)
{
    struct request *chosen = choose(scheduler, slot);
    if (!chosen || !fits(scheduler, chosen))
        return NULL;
    for (struct request *i = scheduler->first_waiting; i != chosen; i = i->next)
        i->overtaken += may_have(i, slot);
    remove_waiting(scheduler, chosen);
    return chosen;
}

bool waiting_wants(struct salvo_scheduler *scheduler, uint32_t slot)
{
    const struct request *first = first_waiting_for(scheduler, slot);
    bool has_session = false;
    for (uint32_t i = 0; first && i < scheduler->slots; i++)
        has_session |= !scheduler->running[i] && may_have(first, i);
    return first && (!has_session || !fits(scheduler, first));
}
