#include "engine/prefix_cache.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "program/step.h"

#include <string.h>

enum {
    FEWEST_TOKENS = 16,   /* of a page that is not full: fewer are not worth a page and a copy */
    NODES_PER_STATE = 64, /* of a model without KV caches: pages of tokens on the way to a state */
    MOST_STATE_NODES = 1 << 16,
};

struct prefix_node {
    uint64_t hash; /* of all tokens up to the end of this page */
    uint64_t used; /* the last use of this node or of one behind it */
    uint32_t parent, first_child, next_sibling, next_in_bucket;
    uint32_t depth; /* pages before it */
    uint32_t count; /* tokens, at most PAGE_POSITIONS; 0: the node is free, linked by next_sibling */
    uint32_t page, state;
};

enum salvo_status prefix_cache_open(
    struct prefix_cache *cache, struct page_pool *pool, struct page_pool *states, uint32_t state_limit)
{
    enum salvo_status status = SALVO_OK;
    *cache = (struct prefix_cache){.pool = pool,
        .states = states,
        .state_limit = state_limit,
        .free_node = NO_NODE,
        .first_root = NO_NODE};
    const uint64_t state_nodes = (uint64_t)state_limit * NODES_PER_STATE;
    cache->node_count = state_nodes < MOST_STATE_NODES ? (uint32_t)state_nodes : MOST_STATE_NODES;
    cache->node_count += pool->count;
    cache->bucket_count = 1;
    while (cache->bucket_count < cache->node_count && cache->bucket_count < UINT32_C(1) << 31)
        cache->bucket_count *= 2;
    TRY(NEW(&cache->nodes, cache->node_count));
    TRY(NEW(&cache->tokens, (size_t)cache->node_count * PAGE_POSITIONS));
    TRY(NEW(&cache->buckets, cache->bucket_count));
    TRY(NEW(&cache->page_nodes, pool->count));
    memset(cache->buckets, 0xff, cache->bucket_count * sizeof *cache->buckets); /* NO_NODE */
    for (uint32_t i = cache->node_count; i > 0; i--) {
        cache->nodes[i - 1].next_sibling = cache->free_node;
        cache->free_node = i - 1;
    }
    cache->is_on = true;
cleanup:
    return status;
}

void prefix_cache_close(struct prefix_cache *cache)
{
    memory_free(cache->nodes);
    memory_free(cache->tokens);
    memory_free(cache->buckets);
    memory_free(cache->page_nodes);
    *cache = (struct prefix_cache){0};
}

/* ---- The tree ---- */

static int32_t *tokens_of(const struct prefix_cache *cache, uint32_t node)
{
    return cache->tokens + (size_t)node * PAGE_POSITIONS;
}

static uint32_t *children_of(struct prefix_cache *cache, uint32_t node)
{
    return node == NO_NODE ? &cache->first_root : &cache->nodes[node].first_child;
}

static uint64_t hash_after(
    const struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count)
{
    const uint64_t parts[] = {
        parent == NO_NODE ? 0 : cache->nodes[parent].hash, checksum64(tokens, count * sizeof *tokens)};
    return checksum64(parts, sizeof parts);
}

static uint32_t *bucket_of(struct prefix_cache *cache, uint64_t hash)
{
    return &cache->buckets[hash & (cache->bucket_count - 1)];
}

/* The node behind `parent` with exactly these tokens. */
static uint32_t find_exact(struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count)
{
    const uint64_t hash = hash_after(cache, parent, tokens, count);
    uint32_t node = *bucket_of(cache, hash);
    for (; node != NO_NODE; node = cache->nodes[node].next_in_bucket) {
        const struct prefix_node *found = &cache->nodes[node];
        if (found->hash == hash && found->parent == parent && found->count == count &&
            memcmp(tokens_of(cache, node), tokens, count * sizeof *tokens) == 0)
            break;
    }
    return node;
}

/* Number of first tokens that a node has in common with `tokens`. */
static uint32_t count_common(
    const struct prefix_cache *cache, uint32_t node, const int32_t *tokens, uint32_t count)
{
    const int32_t *own = tokens_of(cache, node);
    uint32_t common = 0;
    count = count < cache->nodes[node].count ? count : cache->nodes[node].count;
    while (common < count && own[common] == tokens[common])
        common++;
    return common;
}

static void drop_state(struct prefix_cache *cache, uint32_t node)
{
    if (cache->nodes[node].state == NO_PAGE)
        return;
    page_pool_drop_cached(cache->states, cache->nodes[node].state);
    cache->nodes[node].state = NO_PAGE;
    cache->state_count--;
}

static void unlink_node(struct prefix_cache *cache, uint32_t node)
{
    uint32_t *link = children_of(cache, cache->nodes[node].parent);
    while (*link != node)
        link = &cache->nodes[*link].next_sibling;
    *link = cache->nodes[node].next_sibling;
    link = bucket_of(cache, cache->nodes[node].hash);
    while (*link != node)
        link = &cache->nodes[*link].next_in_bucket;
    *link = cache->nodes[node].next_in_bucket;
}

/* Removes a node without children and gives back its page and state. */
static void remove_node(struct prefix_cache *cache, uint32_t node)
{
    struct prefix_node *removed = &cache->nodes[node];
    unlink_node(cache, node);
    drop_state(cache, node);
    if (removed->page != NO_PAGE)
        page_pool_drop_cached(cache->pool, removed->page);
    *removed = (struct prefix_node){.next_sibling = cache->free_node};
    cache->free_node = node;
}

/* Removes a node and all behind it, ends first. */
static void remove_branch(struct prefix_cache *cache, uint32_t node)
{
    uint32_t at = node, parent;
    do {
        while (cache->nodes[at].first_child != NO_NODE)
            at = cache->nodes[at].first_child;
        parent = at == node ? NO_NODE : cache->nodes[at].parent;
        remove_node(cache, at);
        cache->evictions++;
        at = parent;
    } while (at != NO_NODE);
}

/* Removes a node that holds nothing, has no children and is not used now, then its parents for which this
 * becomes true. */
static void remove_empty(struct prefix_cache *cache, uint32_t node)
{
    while (node != NO_NODE) {
        const struct prefix_node *empty = &cache->nodes[node];
        const uint32_t parent = empty->parent;
        if (empty->used == cache->now || empty->first_child != NO_NODE || empty->page != NO_PAGE ||
            empty->state != NO_PAGE)
            break;
        remove_node(cache, node);
        node = parent;
    }
}

/* ---- Eviction ---- */

static bool goes_before(const struct prefix_cache *cache, uint32_t node, uint32_t other)
{
    const struct prefix_node *a = &cache->nodes[node];
    if (other == NO_NODE)
        return true;
    const struct prefix_node *b = &cache->nodes[other];
    return a->used < b->used || (a->used == b->used && a->depth > b->depth);
}

/* The oldest node with a page and without children. */
static uint32_t find_oldest_page(const struct prefix_cache *cache, bool is_lone)
{
    uint32_t oldest = NO_NODE;
    for (uint32_t i = 0; i < cache->node_count; i++) {
        const struct prefix_node *node = &cache->nodes[i];
        if (node->count && node->page != NO_PAGE && node->first_child == NO_NODE &&
            page_pool_is_shared(cache->pool, node->page) != is_lone && goes_before(cache, i, oldest))
            oldest = i;
    }
    return oldest;
}

bool prefix_cache_evict_page(struct prefix_cache *cache)
{
    if (!cache->is_on || cache->pool->lone_count == 0)
        return false;
    uint32_t oldest;
    /* A page that only the cache holds may precede pages of sessions: these sessions have computed the same
     * tokens in pages of their own. */
    while ((oldest = find_oldest_page(cache, true)) == NO_NODE)
        remove_node(cache, find_oldest_page(cache, false));
    remove_node(cache, oldest);
    cache->evictions++;
    return true;
}

bool prefix_cache_give_up(struct prefix_cache *cache, uint32_t page)
{
    if (!cache->is_on)
        return false;
    const uint32_t node = cache->page_nodes[page];
    if (cache->nodes[node].count == 0 || cache->nodes[node].page != page)
        return false;
    remove_branch(cache, node);
    return true;
}

/* A free node, for a path whose nodes are used now and stay. NO_NODE: all are used now. */
static uint32_t take_node(struct prefix_cache *cache)
{
    uint32_t oldest = NO_NODE;
    if (cache->free_node == NO_NODE) {
        for (uint32_t i = 0; i < cache->node_count; i++) {
            const struct prefix_node *node = &cache->nodes[i];
            if (node->first_child == NO_NODE && node->used < cache->now && goes_before(cache, i, oldest))
                oldest = i;
        }
        if (oldest == NO_NODE)
            return NO_NODE;
        remove_node(cache, oldest);
        cache->evictions++;
    }
    const uint32_t node = cache->free_node;
    cache->free_node = cache->nodes[node].next_sibling;
    return node;
}

static bool evict_state(struct prefix_cache *cache)
{
    uint32_t oldest = NO_NODE;
    for (uint32_t i = 0; i < cache->node_count; i++) {
        const struct prefix_node *node = &cache->nodes[i];
        if (node->count && node->state != NO_PAGE && node->used < cache->now && goes_before(cache, i, oldest))
            oldest = i;
    }
    if (oldest == NO_NODE)
        return false;
    drop_state(cache, oldest);
    remove_empty(cache, oldest);
    cache->evictions++;
    return true;
}

/* ---- Adding ---- */

static uint32_t add_node(
    struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count, uint32_t page)
{
    if (page != NO_PAGE && cache->pool->is_cached[page])
        return NO_NODE; /* with other tokens */
    const uint32_t node = take_node(cache);
    if (node == NO_NODE)
        return NO_NODE;
    const uint64_t hash = hash_after(cache, parent, tokens, count);
    uint32_t *siblings = children_of(cache, parent), *bucket = bucket_of(cache, hash);
    cache->nodes[node] = (struct prefix_node){
        .hash = hash,
        .used = cache->now,
        .parent = parent,
        .first_child = NO_NODE,
        .next_sibling = *siblings,
        .next_in_bucket = *bucket,
        .depth = parent == NO_NODE ? 0 : cache->nodes[parent].depth + 1,
        .count = count,
        .page = page,
        .state = NO_PAGE,
    };
    *siblings = *bucket = node;
    memcpy(tokens_of(cache, node), tokens, count * sizeof *tokens);
    if (page != NO_PAGE) {
        page_pool_hold_cached(cache->pool, page);
        cache->page_nodes[page] = node;
    }
    return node;
}

/* Removes shorter siblings with the same tokens, which a new node makes useless. */
static void remove_covered(struct prefix_cache *cache, uint32_t node)
{
    const struct prefix_node *cover = &cache->nodes[node];
    for (uint32_t i = *children_of(cache, cover->parent), next; i != NO_NODE; i = next) {
        const struct prefix_node *sibling = &cache->nodes[i];
        next = sibling->next_sibling;
        if (sibling->count < cover->count && sibling->state == NO_PAGE &&
            count_common(cache, i, tokens_of(cache, node), cover->count) == sibling->count)
            remove_node(cache, i);
    }
}

static bool is_covered(struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = *children_of(cache, parent); i != NO_NODE; i = cache->nodes[i].next_sibling) {
        if (count_common(cache, i, tokens, count) == count) {
            cache->nodes[i].used = cache->now;
            return true;
        }
    }
    return false;
}

uint32_t prefix_cache_add(
    struct prefix_cache *cache, const int32_t *tokens, uint32_t count, const uint32_t *pages, bool exact)
{
    uint32_t parent = NO_NODE;
    cache->now++;
    for (uint32_t at = 0; at < count; at += PAGE_POSITIONS) {
        const uint32_t left = count - at, now = left < PAGE_POSITIONS ? left : PAGE_POSITIONS;
        uint32_t node = find_exact(cache, parent, tokens + at, now);
        if (node == NO_NODE && now < PAGE_POSITIONS && !exact &&
            (now < FEWEST_TOKENS || is_covered(cache, parent, tokens + at, now)))
            return NO_NODE;
        if (node == NO_NODE) {
            const uint32_t page = cache->pool->count ? pages[at / PAGE_POSITIONS] : NO_PAGE;
            node = add_node(cache, parent, tokens + at, now, page);
            if (node == NO_NODE)
                return NO_NODE;
            remove_covered(cache, node);
        }
        cache->nodes[node].used = cache->now;
        parent = node;
    }
    return parent;
}

bool prefix_cache_takes_state(struct prefix_cache *cache, uint32_t node)
{
    if (node == NO_NODE || cache->nodes[node].state != NO_PAGE)
        return false;
    return cache->state_count < cache->state_limit || evict_state(cache);
}

void prefix_cache_add_state(struct prefix_cache *cache, uint32_t node, uint32_t state)
{
    page_pool_hold_cached(cache->states, state);
    cache->nodes[node].state = state;
    cache->state_count++;
}

/* ---- Finding ---- */

/* The best end of a path behind `parent`: how many of `tokens` it adds, and its node. */
static uint32_t find_end(
    struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count, uint32_t *out_node)
{
    uint32_t most = cache->state_limit ? 0 : FEWEST_TOKENS - 1;
    *out_node = NO_NODE;
    for (uint32_t i = *children_of(cache, parent); i != NO_NODE; i = cache->nodes[i].next_sibling) {
        const uint32_t common = count_common(cache, i, tokens, count);
        /* A recurrent state belongs to the end of a node. */
        if (cache->state_limit && (common < cache->nodes[i].count || cache->nodes[i].state == NO_PAGE))
            continue;
        if (common > most) {
            most = common;
            *out_node = i;
        }
    }
    return *out_node == NO_NODE ? 0 : most;
}

/* The longest beginning of `tokens` that the cache has; *out_node is its end, NO_NODE: none. */
static uint32_t find_longest(
    struct prefix_cache *cache, const int32_t *tokens, uint32_t count, uint32_t *out_node)
{
    uint32_t parent = NO_NODE, at = 0, end_at = 0, last;
    *out_node = NO_NODE;
    while (at + PAGE_POSITIONS <= count) {
        const uint32_t node = find_exact(cache, parent, tokens + at, PAGE_POSITIONS);
        if (node == NO_NODE)
            break;
        at += PAGE_POSITIONS;
        parent = node;
        if (!cache->state_limit || cache->nodes[node].state != NO_PAGE) {
            *out_node = node;
            end_at = at;
        }
    }
    const uint32_t more = find_end(cache, parent, tokens + at, count - at, &last);
    if (more) {
        *out_node = last;
        end_at = at + more;
    }
    return end_at;
}

uint32_t prefix_cache_peek(struct prefix_cache *cache, const int32_t *tokens, uint32_t count)
{
    uint32_t end;
    return find_longest(cache, tokens, count, &end);
}

uint32_t prefix_cache_find(struct prefix_cache *cache, const int32_t *tokens, uint32_t count, uint32_t *pages,
    uint32_t *out_page_count, uint32_t *out_state)
{
    uint32_t end;
    *out_page_count = 0;
    *out_state = NO_PAGE;
    cache->now++;
    cache->lookups++;
    const uint32_t end_at = find_longest(cache, tokens, count, &end);
    if (end == NO_NODE)
        return 0;
    *out_page_count = cache->pool->count ? cache->nodes[end].depth + 1 : 0;
    *out_state = cache->nodes[end].state;
    for (uint32_t node = end; node != NO_NODE; node = cache->nodes[node].parent) {
        cache->nodes[node].used = cache->now;
        if (cache->pool->count) {
            pages[cache->nodes[node].depth] = cache->nodes[node].page;
            page_pool_hold(cache->pool, cache->nodes[node].page);
        }
    }
    cache->hits++;
    cache->reused_tokens += end_at;
    return end_at;
}

/* ---- Removing ---- */

/* Removes the nodes behind `parent` that end sequences and have the same tokens, as far as both go. */
static void forget_ends(struct prefix_cache *cache, uint32_t parent, const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = *children_of(cache, parent), next; i != NO_NODE; i = next) {
        const struct prefix_node *node = &cache->nodes[i];
        const uint32_t least = node->count < count ? node->count : count;
        next = node->next_sibling;
        if (least && node->first_child == NO_NODE && count_common(cache, i, tokens, count) == least)
            remove_node(cache, i);
    }
}

void prefix_cache_forget(struct prefix_cache *cache, const int32_t *tokens, uint32_t count)
{
    uint32_t parent = NO_NODE, at = 0;
    for (; count - at >= PAGE_POSITIONS; at += PAGE_POSITIONS) {
        const uint32_t node = find_exact(cache, parent, tokens + at, PAGE_POSITIONS);
        if (node == NO_NODE || cache->nodes[node].first_child == NO_NODE)
            break;
        parent = node;
    }
    forget_ends(cache, parent, tokens + at, count - at);
    while (parent != NO_NODE) {
        const uint32_t node = parent;
        parent = cache->nodes[node].parent;
        at -= PAGE_POSITIONS;
        /* Removes shorter ends beside it, and the page itself if it has no children any more. */
        forget_ends(cache, parent, tokens + at, PAGE_POSITIONS);
    }
}
