/*
 * The prefix cache: computed tokens that later sessions may begin with. It is a tree whose nodes each hold
 * the tokens of one KV page and that page; the path from the root to a node is a sequence of tokens. Nodes of
 * full pages are found by a hash of all tokens up to the page's end, and the tokens are compared. Nodes with
 * fewer tokens, the ends of sequences, have no children.
 *
 * For models with recurrent state, a node may hold the state after its last token: a kept state of the
 * device, which snapshots of sessions may hold as well. The number of these states is limited.
 *
 * The least recently used page goes first; of a path used at one time, the end goes first.
 */
#ifndef ENGINE_PREFIX_CACHE_H
#define ENGINE_PREFIX_CACHE_H

#include "engine/page_pool.h"

#define NO_NODE UINT32_MAX

struct prefix_node;

struct prefix_cache {
    bool is_on;
    struct page_pool *pool;    /* count 0: the model has no KV caches */
    struct prefix_node *nodes; /* [node_count] */
    int32_t *tokens;           /* [node_count][PAGE_POSITIONS] */
    uint32_t *buckets;         /* [bucket_count]: first node with a hash */
    uint32_t *page_nodes;      /* [pool->count]: the node that holds a page */
    uint32_t node_count, bucket_count, free_node, first_root;

    struct page_pool *states; /* count 0: the model has no recurrent state */
    uint32_t state_limit, state_count;

    uint64_t now; /* counts uses */
    uint64_t lookups, hits, reused_tokens, evictions;
};

/* `state_limit`: the number of recurrent states that it may hold. */
enum salvo_status prefix_cache_open(
    struct prefix_cache *cache, struct page_pool *pool, struct page_pool *states, uint32_t state_limit);
void prefix_cache_close(struct prefix_cache *cache);

/*
 * Adds a sequence whose KV pages are `pages`, of which the cache becomes a holder. Tokens that are there
 * already keep their pages. Returns the node of its end, or NO_NODE if there is no room or, unless `exact`,
 * if the last page has few tokens or is the beginning of one that is there.
 */
uint32_t prefix_cache_add(
    struct prefix_cache *cache, const int32_t *tokens, uint32_t count, const uint32_t *pages, bool exact);

/* Whether the state at the node's end can be added: the node has none, and a kept state is free or can be
 * evicted. `node` may be NO_NODE. */
bool prefix_cache_takes_state(struct prefix_cache *cache, uint32_t node);

/* Then: adds the state, of which the cache becomes a holder. */
void prefix_cache_add_state(struct prefix_cache *cache, uint32_t node, uint32_t state);

/*
 * The longest beginning of `tokens` that the cache has. Fills the table of its pages, of which the caller
 * becomes a holder; *out_state is the recurrent state after it, which the caller may hold, or NO_PAGE.
 */
uint32_t prefix_cache_find(struct prefix_cache *cache, const int32_t *tokens, uint32_t count, uint32_t *pages,
    uint32_t *out_page_count, uint32_t *out_state);

/* The number of first tokens that the cache has. Holds nothing, and is no use of them. */
uint32_t prefix_cache_peek(struct prefix_cache *cache, const int32_t *tokens, uint32_t count);

/* Gives back a page that only the cache holds; false if there is none. */
bool prefix_cache_evict_page(struct prefix_cache *cache);

/* Removes a sequence, except nodes that other sequences continue. */
void prefix_cache_forget(struct prefix_cache *cache, const int32_t *tokens, uint32_t count);

/* Gives back this page, which a session will write to, and the pages after it; false if the cache does not
 * hold it. */
bool prefix_cache_give_up(struct prefix_cache *cache, uint32_t page);

#endif
