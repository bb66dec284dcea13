/*
 * salvo/memory.h: the KV memory that the sessions of an engine share.
 *
 * KV caches are divided into pages of `page_positions` positions. All pages are reserved when the engine is
 * opened (`kv_memory` in struct salvo_engine_options). A session takes pages when it computes tokens and
 * gives them back when it is rolled back or closed; `context` only limits a session. So many more sessions
 * may be open than could fill their contexts. Tokens for which there are not enough pages fail with
 * SALVO_ERROR_MEMORY, without effect; in a batch only that run fails.
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

struct salvo_memory {
    size_t size;
    uint32_t page_positions;
    uint32_t pages;      /* of the engine; 0 for a model without KV caches */
    uint32_t free_pages; /* neither held by a session nor kept */
    uint32_t used_pages; /* held by sessions; a shared page counts once */
};
#define SALVO_MEMORY_INIT                       \
    {                                           \
        sizeof(struct salvo_memory), 0, 0, 0, 0 \
    }

SALVO_API enum salvo_status salvo_engine_memory(const struct salvo_engine *engine, struct salvo_memory *out);

#ifdef __cplusplus
}
#endif

#endif
