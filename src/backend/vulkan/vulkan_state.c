/* KV caches in pages of [heads][256 positions][elements, scales], and recurrent state in versions. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

#include <string.h>

uint32_t vulkan_head_words(const struct executor *executor, buffer_id cache)
{
    return (uint32_t)(executor->state.caches[cache].page.position_step / sizeof(uint32_t));
}

/* Shaders bind all states but the kept ones, so the size of each is limited. */
static enum salvo_status allocate(
    struct executor *executor, enum state_memory kind, buffer_id cache, uint64_t bytes, const char *name)
{
    const struct backend_options *options = &executor->options;
    const uint32_t most = executor->device.physical->limits.maxStorageBufferRange;
    struct vulkan_buffer *out = kind == STATE_KV_PAGES    ? &executor->kv_pages[cache]
                                : kind == STATE_RECURRENT ? &executor->recurrent
                                                          : &executor->kept_states;
    if (bytes > most && kind != STATE_KEPT) {
        return fail(SALVO_ERROR_MEMORY, "%s for %u sessions of %u tokens take %llu MB; %s can bind %u MB",
            name, options->slots, options->context, (unsigned long long)(bytes / 1000000),
            executor->device.physical->name, most / 1000000);
    }
    const enum salvo_status status = vulkan_buffer_open(&executor->device, bytes, PLACE_DEVICE, name, out);
    executor->counters.state_bytes += out->size;
    return status;
}

enum salvo_status vulkan_states_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(state_layout_open(executor->program, &executor->options, 1, &executor->tables, &executor->state));
    TRY(ARENA_NEW(&executor->tables, &executor->kv_pages, executor->program->buffer_count));
    TRY(state_allocate(&executor->state, RECURRENT_VERSIONS, executor, allocate));
cleanup:
    return status;
}

/* ---- Saving and restoring ---- */

/* Restoring reads a page, changes its first positions and writes it back. */
static enum salvo_status move_page(
    struct executor *executor, buffer_id buffer, uint32_t page, uint32_t count, uint8_t *saved, bool restores)
{
    enum salvo_status status = SALVO_OK;
    const struct kv_cache *cache = &executor->state.caches[buffer];
    struct vulkan_buffer *pages = &executor->kv_pages[buffer];
    const size_t bytes = kv_page_bytes(cache);
    const uint64_t offset = page * (uint64_t)bytes;
    uint8_t *copy = NULL;
    TRY(NEW(&copy, bytes));
    TRY(vulkan_read(&executor->transfer, pages, offset, copy, bytes));
    kv_page_copy(cache, copy, count, saved, restores);
    if (restores)
        TRY(vulkan_write(&executor->transfer, pages, offset, copy, bytes));
cleanup:
    memory_free(copy);
    return status;
}

/* The state of a slot, or a kept state. */
static struct vulkan_buffer *recurrent_buffer(struct executor *executor, uint32_t number)
{
    return number < executor->options.slots ? &executor->recurrent : &executor->kept_states;
}

static uint64_t recurrent_offset(const struct executor *executor, uint32_t number)
{
    return step_queue_recurrent_place(&executor->queue, number) * executor->state.recurrent_elements *
           sizeof(float);
}

static enum salvo_status move_recurrent(
    struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores)
{
    const size_t bytes = executor->state.recurrent_elements * sizeof(float);
    struct vulkan_buffer *states = recurrent_buffer(executor, number);
    const uint64_t offset = recurrent_offset(executor, number);
    (void)positions;
    if (bytes == 0)
        return SALVO_OK;
    return restores ? vulkan_write(&executor->transfer, states, offset, saved, bytes)
                    : vulkan_read(&executor->transfer, states, offset, saved, bytes);
}

static enum salvo_status copy_page(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from)
{
    const uint64_t bytes = kv_page_bytes(&executor->state.caches[buffer]);
    struct vulkan_buffer *pages = &executor->kv_pages[buffer];
    return vulkan_copy(&executor->transfer, pages, to * bytes, pages, from * bytes, bytes);
}

static enum salvo_status copy_recurrent(struct executor *executor, uint32_t to, uint32_t from)
{
    return vulkan_copy(&executor->transfer, recurrent_buffer(executor, to), recurrent_offset(executor, to),
        recurrent_buffer(executor, from), recurrent_offset(executor, from),
        executor->state.recurrent_elements * sizeof(float));
}

static enum salvo_status write_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    const uint64_t at = slot_tokens_at(&executor->options, slot) * sizeof *ids;
    memcpy((uint8_t *)executor->host_tokens.mapped + at, ids, count * sizeof *ids);
    return vulkan_write(&executor->transfer, &executor->tokens, at, ids, count * sizeof *ids);
}

static enum salvo_status begin(struct executor *executor)
{
    return step_queue_complete_all(&executor->queue);
}

const struct backend_state vulkan_state = {.begin = begin,
    .move_page = move_page,
    .move_recurrent = move_recurrent,
    .copy_page = copy_page,
    .copy_recurrent = copy_recurrent,
    .write_tokens = write_tokens};
