/*
 * State: keys and values in pages of [heads][256 positions], each position's elements together, and recurrent
 * state in versions. A saved state has the program's layout: position after position.
 */
#include "backend/vulkan/vulkan_executor.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

enum { GROUP = 32 };

/* Bytes of one head at one position as it is saved: elements, then for q8_0 the scales. */
static size_t saved_head_bytes(const struct executor *executor, const struct vulkan_state *state)
{
    switch (executor->options.kv_type) {
    case TYPE_F32:
        return state->head_dim * sizeof(float);
    case TYPE_F16:
        return state->head_dim * sizeof(uint16_t);
    default:
        return state->head_dim + (state->head_dim + GROUP - 1) / GROUP * sizeof(uint16_t);
    }
}

static void find_states(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct op *op = op_that_appends(executor->program, (buffer_id)i);
        struct vulkan_state *state = &executor->states[i];
        if (!op)
            continue;
        state->heads = op->kv_append.kv_heads;
        state->head_dim = op->kv_append.head_dim;
        state->head_words = (uint32_t)((saved_head_bytes(executor, state) + 3) / 4);
    }
}

static enum salvo_status open_recurrent(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    uint64_t elements = 0;
    TRY(ARENA_NEW(&executor->tables, &executor->recurrent_offsets, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->recurrent_slots, executor->options.slots));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (program->buffers[i].kind == BUFFER_RECURRENT) {
            executor->recurrent_offsets[i] = elements;
            elements += program->buffers[i].columns;
        }
    }
    const uint64_t all = elements * executor->options.slots * RECURRENT_VERSIONS;
    if (all * 4 > executor->device.physical->limits.maxStorageBufferRange) {
        TRY(fail(SALVO_ERROR_MEMORY, "the states of %u sessions take %llu MB; %s can bind %u MB",
            executor->options.slots, (unsigned long long)(all * 4 / 1000000), executor->device.physical->name,
            executor->device.physical->limits.maxStorageBufferRange / 1000000));
    }
    executor->recurrent_elements = (uint32_t)elements;
    TRY(vulkan_buffer_open(
        &executor->device, all * 4, PLACE_DEVICE, "recurrent states", &executor->recurrent));
    executor->state_bytes += executor->recurrent.size;
cleanup:
    return status;
}

enum salvo_status vulkan_states_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    const uint64_t pages =
        (uint64_t)options->slots * ((options->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
    executor->pages = (uint32_t)pages;
    TRY(ARENA_NEW(&executor->tables, &executor->states, program->buffer_count));
    find_states(executor);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct vulkan_state *state = &executor->states[i];
        const uint64_t bytes = pages * PAGE_POSITIONS * state->heads * state->head_words * 4;
        if (!state->heads)
            continue;
        if (bytes > executor->device.physical->limits.maxStorageBufferRange) {
            TRY(fail(SALVO_ERROR_MEMORY,
                "a context of %u tokens for %u sessions takes %llu MB a layer; %s can bind %u MB",
                options->context, options->slots, (unsigned long long)(bytes / 1000000),
                executor->device.physical->name,
                executor->device.physical->limits.maxStorageBufferRange / 1000000));
        }
        TRY(vulkan_buffer_open(
            &executor->device, bytes, PLACE_DEVICE, program->buffers[i].name, &state->buffer));
        executor->state_bytes += state->buffer.size;
    }
    TRY(open_recurrent(executor));
cleanup:
    return status;
}

/* ---- Saving and restoring ---- */

size_t vulkan_state_size(const struct executor *executor, uint32_t positions)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++)
        bytes += executor->states[i].heads * saved_head_bytes(executor, &executor->states[i]);
    return positions * bytes + executor->recurrent_elements * sizeof(float);
}

/* Copies `count` positions of one page between the device's layout in `page` and the saved rows. */
static void copy_page(const struct executor *executor, const struct vulkan_state *state, uint8_t *page,
    uint8_t *rows, uint32_t count, bool out)
{
    const size_t saved = saved_head_bytes(executor, state), own = state->head_words * sizeof(uint32_t);
    for (uint32_t head = 0; head < state->heads; head++) {
        for (uint32_t i = 0; i < count; i++) {
            uint8_t *here = page + ((size_t)head * PAGE_POSITIONS + i) * own;
            uint8_t *there = rows + ((size_t)i * state->heads + head) * saved;
            memcpy(out ? there : here, out ? here : there, saved);
        }
    }
}

static enum salvo_status copy_states(
    struct executor *executor, const uint32_t *pages, uint32_t positions, uint8_t **data, bool out)
{
    enum salvo_status status = SALVO_OK;
    uint8_t *page = NULL;
    size_t largest = 0;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        size_t bytes =
            (size_t)executor->states[i].heads * executor->states[i].head_words * 4 * PAGE_POSITIONS;
        largest = bytes > largest ? bytes : largest;
    }
    TRY(NEW(&page, largest));
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        struct vulkan_state *state = &executor->states[i];
        const size_t page_bytes = (size_t)state->heads * state->head_words * 4 * PAGE_POSITIONS;
        const size_t row = state->heads * saved_head_bytes(executor, state);
        for (uint32_t first = 0; state->heads && first < positions; first += PAGE_POSITIONS) {
            const uint32_t count = positions - first < PAGE_POSITIONS ? positions - first : PAGE_POSITIONS;
            const uint64_t offset = pages[first / PAGE_POSITIONS] * (uint64_t)page_bytes;
            TRY(vulkan_read(&executor->transfer, &state->buffer, offset, page, page_bytes));
            copy_page(executor, state, page, *data, count, out);
            if (!out)
                TRY(vulkan_write(&executor->transfer, &state->buffer, offset, page, page_bytes));
            *data += count * row;
        }
    }
cleanup:
    memory_free(page);
    return status;
}

static uint64_t recurrent_offset(const struct executor *executor, uint32_t slot)
{
    return ((uint64_t)slot * RECURRENT_VERSIONS + executor->recurrent_slots[slot].committed) *
           executor->recurrent_elements * sizeof(float);
}

static enum salvo_status check_positions(const struct executor *executor, uint32_t slot, uint32_t positions)
{
    if (slot >= executor->options.slots || positions > executor->options.context)
        return fail(SALVO_ERROR_ARGUMENT, "slot %u of %u, %u positions of %u", slot, executor->options.slots,
            positions, executor->options.context);
    return SALVO_OK;
}

enum salvo_status vulkan_state_save(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(check_positions(executor, slot, positions));
    TRY(vulkan_wait_for_all(executor));
    TRY(copy_states(executor, pages, positions, &out, true));
    if (executor->recurrent_elements)
        TRY(vulkan_read(&executor->transfer, &executor->recurrent, recurrent_offset(executor, slot), out,
            executor->recurrent_elements * sizeof(float)));
cleanup:
    return status;
}

enum salvo_status vulkan_state_restore(struct executor *executor, uint32_t slot, const uint32_t *pages,
    uint32_t positions, const int32_t *ids, const uint8_t *data)
{
    enum salvo_status status = SALVO_OK;
    const uint64_t tokens_at = (uint64_t)slot * (executor->options.context + 1) * sizeof(int32_t);
    union {
        const uint8_t *from;
        uint8_t *to;
    } pointer = {data}; /* only read */
    TRY(check_positions(executor, slot, positions));
    TRY(vulkan_wait_for_all(executor));
    if (positions) {
        memcpy((uint8_t *)executor->mirror.mapped + tokens_at, ids, positions * sizeof *ids);
        TRY(vulkan_write(&executor->transfer, &executor->tokens, tokens_at, ids, positions * sizeof *ids));
    }
    TRY(copy_states(executor, pages, positions, &pointer.to, false));
    if (executor->recurrent_elements)
        TRY(vulkan_write(&executor->transfer, &executor->recurrent, recurrent_offset(executor, slot),
            pointer.from, executor->recurrent_elements * sizeof(float)));
cleanup:
    return status;
}
