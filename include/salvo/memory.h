/*
 * salvo/memory.h: the KV memory that the sessions of an engine share.
 *
 * KV caches are divided into pages of `page_positions` positions. All pages are reserved when the engine is
 * opened (`kv_memory` in struct salvo_engine_options). A session takes pages when it computes tokens and
 * gives them back when it is rolled back or closed; `context` only limits a session. So many more sessions
 * may be open than could fill their contexts. Tokens for which there are not enough pages fail with
 * SALVO_ERROR_MEMORY, without effect; in a batch only that run fails.
 *
 * PREFIX CACHE. With `prefix_cache` the engine keeps what sessions have computed: full pages at once, the
 * last page of a session when it is closed, rolled back or begins anew. salvo_session_prefill_cached begins a
 * session with as many tokens of a prompt as are kept. Pages of the cache count as taken, but are given up
 * when a session needs them, those first that were not used for the longest time. A recurrent model has no
 * pages; the cache then keeps its states at the ends of pages and before the last token of prompts
 * (salvo_session_mark keeps one, too): on the device, in memory of `prefix_states_mb`. On the CPU, results
 * with and without the cache have the same bits; on GPUs they differ within the tolerances of salvo_verify.
 *
 * salvo_session_copy within an engine shares pages: the copy takes pages of its own for the tokens that it
 * computes itself.
 */
#ifndef SALVO_MEMORY_H
#define SALVO_MEMORY_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A value of `kv_memory`: 90 % of a GPU's memory beside the weights, or a quarter of main memory, of which
 * only what is used is touched; without a prefix cache no more than full contexts need. */
#define SALVO_KV_MEMORY_MOST UINT64_MAX

struct salvo_memory {
    size_t size;
    uint32_t page_positions;
    uint32_t pages; /* of the engine; 0 for a model without KV caches */
    uint32_t free_pages;
    uint32_t used_pages;   /* held by sessions; a shared page counts once */
    uint32_t cached_pages; /* held by the prefix cache alone */
    uint32_t states;       /* recurrent states that the prefix cache has room for */
    uint32_t cached_states;
    uint64_t state_bytes;   /* of one recurrent state */
    uint64_t lookups, hits; /* calls of salvo_session_prefill_cached; calls that found tokens */
    uint64_t reused_tokens; /* tokens that these calls found */
    uint64_t evictions;     /* pages and states removed from the prefix cache to make room */
    /* Recurrent states that the device has memory for, beside one for each session: for the prefix cache, and
     * for a few earlier states of each session, to roll it back. */
    uint32_t kept_states;
    uint32_t
        used_states; /* kept states in use; a state that a session and the prefix cache share counts once */
};
#define SALVO_MEMORY_INIT                                                     \
    {                                                                         \
        sizeof(struct salvo_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

SALVO_API enum salvo_status salvo_engine_memory(const struct salvo_engine *engine, struct salvo_memory *out);

/*
 * Begins a session with the first tokens of a prompt: replaces its contents by the longest part of
 * ids[0 .. count - 2] that need not be computed. *out_cached is the number of these tokens; nothing is
 * computed, and the caller goes on with ids[*out_cached .. count - 1]. Without a prefix cache, the session
 * keeps the tokens that it has in common with the prompt. Ids that are not valid or do not fit into the
 * context are an error without effect.
 */
SALVO_API enum salvo_status salvo_session_prefill_cached(
    struct salvo_session *session, const int32_t *ids, size_t count, uint32_t *out_cached);

/* Removes tokens from the prefix cache, but for beginnings that others have gone on from. No session of the
 * engine may be in use by another thread. */
SALVO_API enum salvo_status salvo_engine_forget(
    struct salvo_engine *engine, const int32_t *ids, size_t count);

#ifdef __cplusplus
}
#endif

#endif
