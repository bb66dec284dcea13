/*
 * A slot's state, saved and restored in the program's logical layout: buffer after buffer, the keys and
 * values of each position, head after head with its scales; then the recurrent states. Pages go through
 * pinned memory one by one.
 */
#include "backend/cuda/cuda_executor.h"

#include <string.h>

static size_t element_bytes(enum tensor_type type)
{
    return type == TYPE_F32 ? 4 : type == TYPE_F16 ? 2 : 1;
}

static size_t scale_bytes(const struct executor *executor, const struct cuda_kv_state *state)
{
    return executor->options.kv_type == TYPE_Q8_0 ? (state->head_dim + 31) / 32 * sizeof(uint16_t) : 0;
}

static size_t row_bytes(const struct executor *executor, const struct cuda_kv_state *state)
{
    return state->heads *
           (state->head_dim * element_bytes(executor->options.kv_type) + scale_bytes(executor, state));
}

size_t cuda_state_size(const struct executor *executor, uint32_t positions)
{
    size_t size = 0;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        if (executor->kv_states[i].heads)
            size += positions * row_bytes(executor, &executor->kv_states[i]);
        if (executor->program->buffers[i].kind == BUFFER_RECURRENT)
            size += (size_t)executor->program->buffers[i].columns * sizeof(float);
    }
    return size;
}

static enum salvo_status check_positions(const struct executor *executor, uint32_t slot, uint32_t positions)
{
    if (slot >= executor->options.slots || positions > executor->options.context)
        return fail(SALVO_ERROR_ARGUMENT, "slot %u of %u, %u positions of %u", slot, executor->options.slots,
            positions, executor->options.context);
    return SALVO_OK;
}

/* ---- Keys and values ---- */

/* Copies bytes between a page and the packed rows; which way, `out` says. */
static void copy(uint8_t *page, uint8_t *packed, size_t size, bool out)
{
    memcpy(out ? packed : page, out ? page : packed, size);
}

/* The first `count` positions of a page as they lie in the staging memory, and packed. */
static void rearrange_page(const struct executor *executor, const struct cuda_kv_state *state, uint32_t count,
    uint8_t *packed, bool out)
{
    const size_t elements = state->head_dim * element_bytes(executor->options.kv_type),
                 scales = scale_bytes(executor, state);
    for (uint32_t position = 0; position < count; position++) {
        for (uint32_t head = 0; head < state->heads; head++) {
            uint8_t *memory = executor->staging + head * state->head_bytes;
            copy(memory + position * elements, packed, elements, out);
            packed += elements;
            copy(memory + CUDA_PAGE * elements + position * scales, packed, scales, out);
            packed += scales;
        }
    }
}

/* Elements beyond the last position of a page stay as they are: they are written before they are read. */
static enum salvo_status copy_page(struct executor *executor, const struct cuda_kv_state *state,
    uint32_t page, uint32_t count, uint8_t *packed, bool out)
{
    enum salvo_status status = SALVO_OK;
    const cuda_address address = state->base + (uint64_t)page * state->page_bytes;
    if (out || count < CUDA_PAGE)
        TRY(cuda_copy_out(executor, executor->staging, address, state->page_bytes));
    rearrange_page(executor, state, count, packed, out);
    if (!out) {
        TRY(cuda_copy_in(executor, address, executor->staging, state->page_bytes));
        TRY(cuda_queue_wait(executor));
    }
cleanup:
    return status;
}

static enum salvo_status copy_pages(
    struct executor *executor, const uint32_t *pages, uint32_t positions, uint8_t **data, bool out)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct cuda_kv_state *state = &executor->kv_states[i];
        for (uint32_t first = 0; state->heads && first < positions; first += CUDA_PAGE) {
            const uint32_t count = positions - first < CUDA_PAGE ? positions - first : CUDA_PAGE;
            TRY(copy_page(executor, state, pages[first / CUDA_PAGE], count, *data, out));
            *data += count * row_bytes(executor, state);
        }
    }
cleanup:
    return status;
}

/* ---- Recurrent states ---- */

/* Through pinned memory, which is several times faster than to and from any other. */
static enum salvo_status copy_staged(
    struct executor *executor, cuda_address address, uint8_t *data, size_t bytes, bool out)
{
    enum salvo_status status = SALVO_OK;
    for (size_t done = 0, now; done < bytes; done += now) {
        now = bytes - done < executor->staging_bytes ? bytes - done : executor->staging_bytes;
        if (out) {
            TRY(cuda_copy_out(executor, executor->staging, address + done, now));
            memcpy(data + done, executor->staging, now);
        } else {
            memcpy(executor->staging, data + done, now);
            TRY(cuda_copy_in(executor, address + done, executor->staging, now));
            TRY(cuda_queue_wait(executor));
        }
    }
cleanup:
    return status;
}

/* Buffers that lie side by side there and here are copied at once. */
static enum salvo_status copy_recurrent(
    struct executor *executor, const struct cuda_slot *slot_state, uint32_t slot, uint8_t *data, bool out)
{
    enum salvo_status status = SALVO_OK;
    const cuda_address base = executor->machine.recurrent + ((uint64_t)slot * 2 + slot_state->version) *
                                                                executor->recurrent_elements * sizeof(float);
    uint64_t first = 0, end = 0; /* elements */
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct program_buffer *buffer = &executor->program->buffers[i];
        if (buffer->kind != BUFFER_RECURRENT)
            continue;
        if (executor->recurrent_offsets[i] != end) {
            const size_t bytes = (size_t)(end - first) * sizeof(float);
            TRY(copy_staged(executor, base + first * sizeof(float), data, bytes, out));
            data += bytes;
            first = executor->recurrent_offsets[i];
        }
        end = executor->recurrent_offsets[i] + buffer->columns;
    }
    TRY(copy_staged(
        executor, base + first * sizeof(float), data, (size_t)(end - first) * sizeof(float), out));
cleanup:
    return status;
}

/* ---- Both ---- */

static enum salvo_status save(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_slot state;
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(copy_pages(executor, pages, positions, &out, true));
    if (executor->recurrent_elements) {
        TRY(cuda_copy_out(
            executor, &state, executor->machine.slot_states + slot * sizeof state, sizeof state));
        TRY(copy_recurrent(executor, &state, slot, out, true));
    }
cleanup:
    return status;
}

enum salvo_status cuda_state_save(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(check_positions(executor, slot, positions));
    TRY(cuda_context_enter(&executor->context));
    status = save(executor, slot, pages, positions, out);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

static enum salvo_status restore(struct executor *executor, uint32_t slot, const uint32_t *pages,
    uint32_t positions, const int32_t *ids, uint8_t *data)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_slot state = {.next = positions};
    const size_t first = (size_t)slot * (executor->options.context + 1);
    TRY(cuda_entries_finish(executor, executor->entries));
    if (positions) {
        memcpy(executor->host_tokens + first, ids, positions * sizeof *ids);
        TRY(cuda_copy_in(executor, executor->machine.tokens + first * sizeof *ids,
            executor->host_tokens + first, positions * sizeof *ids));
    }
    TRY(copy_pages(executor, pages, positions, &data, false));
    TRY(cuda_copy_in(executor, executor->machine.slot_states + slot * sizeof state, &state, sizeof state));
    TRY(copy_recurrent(executor, &state, slot, data, false));
cleanup:
    return status;
}

enum salvo_status cuda_state_restore(struct executor *executor, uint32_t slot, const uint32_t *pages,
    uint32_t positions, const int32_t *ids, const uint8_t *data)
{
    enum salvo_status status = SALVO_OK;
    union {
        const uint8_t *from;
        uint8_t *to;
    } pointer = {data}; /* read only: copies go in */
    TRY(check_positions(executor, slot, positions));
    TRY(cuda_context_enter(&executor->context));
    status = restore(executor, slot, pages, positions, ids, pointer.to);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}
