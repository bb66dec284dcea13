#include "backend/common/state.h"

#include "backend/common/checks.h"
#include "base/checked.h"

#include <string.h>

enum { SCALE_GROUP = 32, SCALE_BYTES = sizeof(uint16_t) };

size_t kv_head_bytes(const struct kv_cache *cache)
{
    return (size_t)cache->head_dim * cache->element_bytes + (size_t)cache->scales * SCALE_BYTES;
}

/* A page [heads][256 positions][elements, scales]; positions begin at multiples of 4 bytes. */
static struct kv_page_layout page_by_position(const struct kv_cache *cache)
{
    const size_t position_bytes = (kv_head_bytes(cache) + 3) / 4 * 4;
    return (struct kv_page_layout){
        .head_bytes = PAGE_POSITIONS * position_bytes,
        .position_step = position_bytes,
        .element_step = cache->element_bytes,
        .scales_at = (size_t)cache->head_dim * cache->element_bytes,
        .scale_position_step = position_bytes,
        .scale_step = SCALE_BYTES,
    };
}

static void find_caches(
    const struct program *program, enum tensor_type type, struct kv_cache *caches /* [buffers] */)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct op *op = op_that_appends(program, (buffer_id)i);
        if (!op)
            continue;
        const uint32_t head_dim = op->kv_append.head_dim;
        caches[i] = (struct kv_cache){
            .heads = op->kv_append.kv_heads,
            .head_dim = head_dim,
            .is_key = op->kv_append.key_state == (buffer_id)i,
            .element_bytes = type == TYPE_F32   ? 4
                             : type == TYPE_F16 ? 2
                                                : 1,
            .scales = type == TYPE_Q8_0 ? (head_dim + SCALE_GROUP - 1) / SCALE_GROUP : 0,
        };
        caches[i].page = page_by_position(&caches[i]);
    }
}

enum salvo_status state_layout_open(const struct program *program, const struct backend_options *options,
    uint32_t alignment, struct arena *tables, struct state_layout *out)
{
    enum salvo_status status = SALVO_OK;
    size_t elements = 0;
    *out = (struct state_layout){.program = program, .options = options};
    TRY(ARENA_NEW(tables, &out->caches, program->buffer_count));
    TRY(ARENA_NEW(tables, &out->recurrent_offsets, program->buffer_count));
    find_caches(program, options->kv_type, out->caches);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (program->buffers[i].kind != BUFFER_RECURRENT)
            continue;
        out->recurrent_offsets[i] = elements;
        if (!checked_add(elements, (size_t)program->buffers[i].columns + alignment - 1, &elements))
            TRY(fail(SALVO_ERROR_MEMORY, "state '%s' is too large", program->buffers[i].name));
        elements = elements / alignment * alignment;
    }
    out->recurrent_elements = elements;
    out->pages_per_slot = (options->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    const uint64_t pages = options->pages ? options->pages : (uint64_t)options->slots * out->pages_per_slot;
    if (pages > UINT32_MAX)
        TRY(fail(SALVO_ERROR_MEMORY, "a context of %u tokens for %u sessions is too large", options->context,
            options->slots));
    out->pages = (uint32_t)pages;
cleanup:
    return status;
}

size_t kv_page_bytes(const struct kv_cache *cache)
{
    return cache->heads * cache->page.head_bytes;
}

/* Copies `count` elements that are `step` bytes apart in `memory` and adjacent in `saved`. */
static void copy_elements(
    uint8_t *memory, size_t step, size_t count, size_t size, uint8_t *saved, bool restores)
{
    if (step == size) {
        size *= count;
        count = 1;
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *element = memory + i * step, *packed = saved + i * size;
        memcpy(restores ? element : packed, restores ? packed : element, size);
    }
}

void kv_page_copy(const struct kv_cache *cache, uint8_t *page, uint32_t count, uint8_t *saved, bool restores)
{
    const struct kv_page_layout *layout = &cache->page;
    const size_t element_bytes = (size_t)cache->head_dim * cache->element_bytes;
    for (uint32_t position = 0; position < count; position++) {
        for (uint32_t head = 0; head < cache->heads; head++) {
            uint8_t *memory = page + head * layout->head_bytes;
            copy_elements(memory + position * layout->position_step, layout->element_step, cache->head_dim,
                cache->element_bytes, saved, restores);
            copy_elements(memory + layout->scales_at + position * layout->scale_position_step,
                layout->scale_step, cache->scales, SCALE_BYTES, saved + element_bytes, restores);
            saved += kv_head_bytes(cache);
        }
    }
}

/* ---- The engine's side ---- */

/* Bytes of the first `positions` positions of all KV caches. */
static size_t saved_kv_bytes(const struct state_layout *layout, uint32_t positions)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < layout->program->buffer_count; i++)
        bytes += layout->caches[i].heads * kv_head_bytes(&layout->caches[i]);
    return positions * bytes;
}

enum salvo_status state_allocate(const struct state_layout *layout, uint32_t versions,
    struct executor *executor, state_allocate_function allocate)
{
    enum salvo_status status = SALVO_OK;
    const uint64_t state_bytes = layout->recurrent_elements * sizeof(float);
    for (uint32_t i = 0; i < layout->program->buffer_count; i++) {
        const struct kv_cache *cache = &layout->caches[i];
        if (cache->heads)
            TRY(allocate(executor, STATE_KV_PAGES, (buffer_id)i,
                layout->pages * (uint64_t)kv_page_bytes(cache), layout->program->buffers[i].name));
    }
    TRY(allocate(
        executor, STATE_RECURRENT, 0, state_bytes * layout->options->slots * versions, "recurrent states"));
    TRY(allocate(executor, STATE_KEPT, 0, state_bytes * layout->options->states, "kept recurrent states"));
cleanup:
    return status;
}

size_t state_size(const struct backend *backend, const struct executor *executor, uint32_t positions)
{
    const struct state_layout *layout = backend->info(executor).state;
    size_t bytes = saved_kv_bytes(layout, positions);
    for (uint32_t i = 0; i < layout->program->buffer_count; i++) {
        if (layout->program->buffers[i].kind == BUFFER_RECURRENT)
            bytes += (size_t)layout->program->buffers[i].columns * sizeof(float);
    }
    return bytes;
}

static enum salvo_status begin(const struct backend *backend, struct executor *executor)
{
    return backend->state->begin ? backend->state->begin(executor) : SALVO_OK;
}

static enum salvo_status end(
    const struct backend *backend, struct executor *executor, enum salvo_status status)
{
    return backend->state->end ? backend->state->end(executor, status) : status;
}

/* KV caches page by page, then recurrent states. */
static enum salvo_status move_state(const struct backend *backend, struct executor *executor, uint32_t slot,
    const uint32_t *pages, uint32_t positions, uint8_t *saved, bool restores)
{
    enum salvo_status status = SALVO_OK;
    const struct state_layout *layout = backend->info(executor).state;
    for (uint32_t i = 0; i < layout->program->buffer_count; i++) {
        const struct kv_cache *cache = &layout->caches[i];
        for (uint32_t first = 0; cache->heads && first < positions; first += PAGE_POSITIONS) {
            const uint32_t left = positions - first, count = left < PAGE_POSITIONS ? left : PAGE_POSITIONS;
            TRY(backend->state->move_page(
                executor, (buffer_id)i, pages[first / PAGE_POSITIONS], count, saved, restores));
            saved += count * cache->heads * kv_head_bytes(cache);
        }
    }
    TRY(backend->state->move_recurrent(executor, slot, positions, saved, restores));
cleanup:
    return status;
}

enum salvo_status state_save(const struct backend *backend, struct executor *executor, uint32_t slot,
    const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_slot(backend->info(executor).state->options, slot, positions));
    TRY(begin(backend, executor));
    status = end(backend, executor, move_state(backend, executor, slot, pages, positions, out, false));
cleanup:
    return status;
}

enum salvo_status state_restore(const struct backend *backend, struct executor *executor, uint32_t slot,
    const uint32_t *pages, uint32_t positions, const int32_t *ids, const uint8_t *data)
{
    enum salvo_status status = SALVO_OK;
    union {
        const uint8_t *from;
        uint8_t *saved;
    } pointer = {data}; /* only read: `restores` is set */
    TRY(backend_check_slot(backend->info(executor).state->options, slot, positions));
    TRY(begin(backend, executor));
    if (positions)
        status = backend->state->write_tokens(executor, slot, ids, positions);
    if (status == SALVO_OK)
        status = move_state(backend, executor, slot, pages, positions, pointer.saved, true);
    status = end(backend, executor, status);
cleanup:
    return status;
}

enum salvo_status state_copy_page(
    const struct backend *backend, struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    const struct state_layout *layout = backend->info(executor).state;
    TRY(begin(backend, executor));
    for (uint32_t i = 0; i < layout->program->buffer_count && status == SALVO_OK; i++) {
        if (layout->caches[i].heads)
            status = backend->state->copy_page(executor, (buffer_id)i, to, from);
    }
    status = end(backend, executor, status);
cleanup:
    return status;
}

enum salvo_status state_copy_recurrent(
    const struct backend *backend, struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    if (!backend->info(executor).state->recurrent_elements)
        return SALVO_OK;
    TRY(begin(backend, executor));
    status = end(backend, executor, backend->state->copy_recurrent(executor, to, from));
cleanup:
    return status;
}

enum salvo_status state_set_tokens(const struct backend *backend, struct executor *executor, uint32_t slot,
    const int32_t *ids, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_slot(backend->info(executor).state->options, slot, count));
    if (count == 0)
        return SALVO_OK;
    TRY(begin(backend, executor));
    status = end(backend, executor, backend->state->write_tokens(executor, slot, ids, count));
cleanup:
    return status;
}
