/*
 * The pool of KV pages: [heads][256 positions]. Within a head, positions are innermost in keys, elements in
 * values (see kernels.h); the scales of q8_0 follow the elements.
 */
#include "backend/cpu/executor.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/memory_gaps.h"

#include <string.h>

static struct kv_page_layout page_layout(const struct kv_cache *cache)
{
    const size_t element = cache->element_bytes, scale = sizeof(uint16_t),
                 scales_at = (size_t)cache->head_dim * PAGE_POSITIONS * element;
    return (struct kv_page_layout){
        .head_bytes = scales_at + cache->scales * PAGE_POSITIONS * scale,
        .position_step = cache->is_key ? element : cache->head_dim * element,
        .element_step = cache->is_key ? PAGE_POSITIONS * element : element,
        .scales_at = scales_at,
        .scale_position_step = cache->is_key ? scale : cache->scales * scale,
        .scale_step = cache->is_key ? PAGE_POSITIONS * scale : scale,
    };
}

enum salvo_status kv_pool_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    struct state_layout *state = &executor->state;
    size_t total = 0, place = 0;
    TRY(state_layout_open(program, options, 1, &executor->tables, state));
    TRY(ARENA_NEW(&executor->tables, &executor->kv_pages, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct kv_cache *cache = &state->caches[i];
        size_t bytes;
        if (!cache->heads)
            continue;
        cache->page = page_layout(cache);
        if (!checked_mul(kv_page_bytes(cache), (size_t)state->pages, &bytes) ||
            !checked_add(bytes, MEMORY_GAP, &bytes) || !checked_add(total, bytes, &total))
            TRY(fail(SALVO_ERROR_MEMORY, "a context of %u tokens for %u sessions is too large",
                options->context, options->slots));
    }
    status = memory_map(total, PAGES_NORMAL, &executor->state_memory);
    if (status != SALVO_OK) {
        TRY(fail(status,
            "a context of %u tokens for %u sessions needs %zu bytes, more memory than is available",
            options->context, options->slots, total));
    }
    executor->state_bytes = total;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!state->caches[i].heads)
            continue;
        executor->kv_pages[i] = executor->state_memory + place;
        place += kv_page_bytes(&state->caches[i]) * state->pages;
        memory_forbid(executor->state_memory + place, MEMORY_GAP);
        place += MEMORY_GAP;
    }
cleanup:
    return status;
}

static uint8_t *page_of(const struct executor *executor, buffer_id buffer, uint32_t page)
{
    return executor->kv_pages[buffer] + page * kv_page_bytes(&executor->state.caches[buffer]);
}

struct kv_room kv_pool_room(
    const struct executor *executor, buffer_id keys, buffer_id values, uint32_t page, uint32_t head)
{
    const struct kv_cache *caches = executor->state.caches;
    uint8_t *key_memory = page_of(executor, keys, page) + head * caches[keys].page.head_bytes,
            *value_memory = page_of(executor, values, page) + head * caches[values].page.head_bytes;
    return (struct kv_room){
        .keys = key_memory,
        .values = value_memory,
        .key_scales = (uint16_t *)(void *)(key_memory + caches[keys].page.scales_at),
        .value_scales = (uint16_t *)(void *)(value_memory + caches[values].page.scales_at),
        .type = executor->options.kv_type,
        .head_dim = caches[keys].head_dim,
    };
}

enum salvo_status kv_pool_copy_page(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from)
{
    memcpy(page_of(executor, buffer, to), page_of(executor, buffer, from),
        kv_page_bytes(&executor->state.caches[buffer]));
    return SALVO_OK;
}

enum salvo_status kv_pool_move_page(
    struct executor *executor, buffer_id buffer, uint32_t page, uint32_t count, uint8_t *saved, bool restores)
{
    kv_page_copy(&executor->state.caches[buffer], page_of(executor, buffer, page), count, saved, restores);
    return SALVO_OK;
}
