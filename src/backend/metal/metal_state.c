/* KV caches in pages of [heads][256 positions][elements, scales], and recurrent state in versions, in memory
 * that the host reads and writes. */
#include "backend/metal/metal_executor.h"

#include <string.h>

uint32_t metal_head_bytes(const struct executor *executor, buffer_id cache)
{
    return (uint32_t)executor->state.caches[cache].page.position_step;
}

static enum salvo_status allocate(
    struct executor *executor, enum state_memory kind, buffer_id cache, uint64_t bytes, const char *name)
{
    struct metal_buffer *out = kind == STATE_KV_PAGES    ? &executor->kv_pages[cache]
                               : kind == STATE_RECURRENT ? &executor->recurrent
                                                         : &executor->kept_states;
    const enum salvo_status status = metal_buffer_open(&executor->device, bytes, name, out);
    if (status == SALVO_OK && kind == STATE_RECURRENT)
        memset(out->bytes, 0, out->size);
    executor->counters.state_bytes += out->size;
    return status;
}

enum salvo_status metal_states_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(state_layout_open(executor->program, &executor->options, 1, &executor->tables, &executor->state));
    TRY(ARENA_NEW(&executor->tables, &executor->kv_pages, executor->program->buffer_count));
    TRY(state_allocate(&executor->state, METAL_VERSIONS, executor, allocate));
cleanup:
    return status;
}

static uint8_t *page_at(const struct executor *executor, buffer_id buffer, uint32_t page)
{
    return executor->kv_pages[buffer].bytes + page * kv_page_bytes(&executor->state.caches[buffer]);
}

static enum salvo_status move_page(
    struct executor *executor, buffer_id buffer, uint32_t page, uint32_t count, uint8_t *saved, bool restores)
{
    kv_page_copy(&executor->state.caches[buffer], page_at(executor, buffer, page), count, saved, restores);
    return SALVO_OK;
}

/* The state of a slot, or a kept state. */
static uint8_t *recurrent_at(const struct executor *executor, uint32_t number)
{
    const struct metal_buffer *states =
        number < executor->options.slots ? &executor->recurrent : &executor->kept_states;
    return states->bytes + step_queue_recurrent_place(&executor->queue, number) *
                               executor->state.recurrent_elements * sizeof(float);
}

static enum salvo_status move_recurrent(
    struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores)
{
    (void)positions;
    uint8_t *memory = recurrent_at(executor, number);
    memcpy(restores ? memory : saved, restores ? saved : memory,
        executor->state.recurrent_elements * sizeof(float));
    return SALVO_OK;
}

static enum salvo_status copy_page(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from)
{
    memcpy(page_at(executor, buffer, to), page_at(executor, buffer, from),
        kv_page_bytes(&executor->state.caches[buffer]));
    return SALVO_OK;
}

static enum salvo_status copy_recurrent(struct executor *executor, uint32_t to, uint32_t from)
{
    memcpy(recurrent_at(executor, to), recurrent_at(executor, from),
        executor->state.recurrent_elements * sizeof(float));
    return SALVO_OK;
}

static enum salvo_status write_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    memcpy((int32_t *)(void *)executor->tokens.bytes + slot_tokens_at(&executor->options, slot), ids,
        count * sizeof *ids);
    memcpy(metal_host_ids(executor, slot), ids, count * sizeof *ids);
    return SALVO_OK;
}

static enum salvo_status begin(struct executor *executor)
{
    return step_queue_complete_all(&executor->queue);
}

const struct backend_state metal_state = {.begin = begin,
    .move_page = move_page,
    .move_recurrent = move_recurrent,
    .copy_page = copy_page,
    .copy_recurrent = copy_recurrent,
    .write_tokens = write_tokens};
