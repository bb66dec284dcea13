/* A slot's state, saved and restored. KV pages go through pinned memory one by one. */
#include "backend/common/checks.h"
#include "backend/common/steps.h"
#include "backend/cuda/cuda_executor.h"

#include <string.h>

size_t cuda_state_size(const struct executor *executor, uint32_t positions)
{
    return state_saved_bytes(executor->program, &executor->state, positions);
}

/* Elements beyond the last position of a page stay as they are: they are written before they are read. */
static enum salvo_status move_page(
    struct executor *executor, buffer_id buffer, uint32_t page, uint32_t count, uint8_t *saved, bool restores)
{
    enum salvo_status status = SALVO_OK;
    const struct kv_cache *cache = &executor->state.caches[buffer];
    const size_t bytes = kv_page_bytes(cache);
    const cuda_address address = executor->kv_addresses[buffer] + (uint64_t)page * bytes;
    if (!restores || count < PAGE_POSITIONS)
        TRY(cuda_copy_out(executor, executor->staging, address, bytes));
    kv_page_copy(cache, executor->staging, count, saved, restores);
    if (restores) {
        TRY(cuda_copy_in(executor, address, executor->staging, bytes));
        TRY(cuda_queue_wait(executor));
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

enum salvo_status cuda_hidden(struct executor *executor, uint32_t row, uint32_t count, float *out)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_scratch *scratch = &executor->last_plan->scratch;
    const buffer_id hidden = executor->program->hidden;
    const size_t row_bytes = executor->program->buffers[hidden].columns * sizeof *out;
    TRY(cuda_context_enter(&executor->context));
    status = copy_staged(executor, scratch->arena + scratch->offsets[hidden] + row * (uint64_t)row_bytes,
        (uint8_t *)out, count * row_bytes, true);
    cuda_context_leave(&executor->context);
    executor->counters.bytes_read_back += count * row_bytes;
cleanup:
    return status;
}

/* The address of a slot's state, whose version only the device knows, or of a kept state. The device is idle.
 */
static enum salvo_status find_recurrent(struct executor *executor, uint32_t number, cuda_address *out)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t slots = executor->options.slots;
    struct cuda_slot slot = {0};
    if (number < slots)
        TRY(cuda_copy_out(
            executor, &slot, executor->machine.slot_states + number * sizeof slot, sizeof slot));
    const uint64_t place = number < slots ? (uint64_t)number * 2 + slot.version : (uint64_t)slots + number;
    *out = executor->machine.recurrent + place * executor->state.recurrent_elements * sizeof(float);
cleanup:
    return status;
}

/* Buffers that lie side by side there and here are copied at once. */
static enum salvo_status copy_recurrent(struct executor *executor, uint32_t number, uint8_t *data, bool out)
{
    enum salvo_status status = SALVO_OK;
    cuda_address base;
    TRY(find_recurrent(executor, number, &base));
    uint64_t first = 0, end = 0; /* elements */
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct program_buffer *buffer = &executor->program->buffers[i];
        if (buffer->kind != BUFFER_RECURRENT)
            continue;
        if (executor->state.recurrent_offsets[i] != end) {
            const size_t bytes = (size_t)(end - first) * sizeof(float);
            TRY(copy_staged(executor, base + first * sizeof(float), data, bytes, out));
            data += bytes;
            first = executor->state.recurrent_offsets[i];
        }
        end = executor->state.recurrent_offsets[i] + buffer->columns;
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
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(kv_pages_save(executor->program, &executor->state, pages, positions, out, executor, move_page));
    if (executor->state.recurrent_elements)
        TRY(copy_recurrent(executor, slot,
            out + state_saved_kv_bytes(executor->program, &executor->state, positions), true));
cleanup:
    return status;
}

enum salvo_status cuda_state_save(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_slot(&executor->options, slot, positions));
    TRY(cuda_context_enter(&executor->context));
    status = save(executor, slot, pages, positions, out);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

static enum salvo_status copy_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    const size_t first = slot_tokens_at(&executor->options, slot);
    if (count == 0)
        return SALVO_OK;
    memcpy(executor->host_tokens + first, ids, count * sizeof *ids);
    return cuda_copy_in(executor, executor->machine.tokens + first * sizeof *ids,
        executor->host_tokens + first, count * sizeof *ids);
}

static enum salvo_status restore(struct executor *executor, uint32_t slot, const uint32_t *pages,
    uint32_t positions, const int32_t *ids, uint8_t *data)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_slot state = {.next = positions};
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(copy_tokens(executor, slot, ids, positions));
    TRY(kv_pages_restore(executor->program, &executor->state, pages, positions, data, executor, move_page));
    if (slot < executor->options.slots)
        TRY(cuda_copy_in(
            executor, executor->machine.slot_states + slot * sizeof state, &state, sizeof state));
    TRY(copy_recurrent(
        executor, slot, data + state_saved_kv_bytes(executor->program, &executor->state, positions), false));
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
    TRY(backend_check_slot(&executor->options, slot, positions));
    TRY(cuda_context_enter(&executor->context));
    status = restore(executor, slot, pages, positions, ids, pointer.to);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

/* ---- Within the device ---- */

static enum salvo_status copy_within(
    struct executor *executor, cuda_address to, cuda_address from, size_t bytes)
{
    return bytes ? CUDA_CALL(&executor->context, copy_within, (to, from, bytes, executor->queue)) : SALVO_OK;
}

static enum salvo_status copy_page(struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_entries_finish(executor, executor->entries));
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct kv_cache *cache = &executor->state.caches[i];
        const uint64_t bytes = cache->heads ? kv_page_bytes(cache) : 0;
        TRY(copy_within(executor, executor->kv_addresses[i] + to * bytes,
            executor->kv_addresses[i] + from * bytes, bytes));
    }
    TRY(cuda_queue_wait(executor));
cleanup:
    return status;
}

enum salvo_status cuda_page_copy(struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_context_enter(&executor->context));
    status = copy_page(executor, to, from);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

static enum salvo_status copy_recurrent_within(struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    cuda_address to_address, from_address;
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(find_recurrent(executor, to, &to_address));
    TRY(find_recurrent(executor, from, &from_address));
    TRY(copy_within(
        executor, to_address, from_address, (size_t)executor->state.recurrent_elements * sizeof(float)));
    TRY(cuda_queue_wait(executor));
cleanup:
    return status;
}

enum salvo_status cuda_recurrent_copy(struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    if (!executor->state.recurrent_elements)
        goto cleanup;
    TRY(cuda_context_enter(&executor->context));
    status = copy_recurrent_within(executor, to, from);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

enum salvo_status cuda_set_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_slot(&executor->options, slot, count));
    TRY(cuda_context_enter(&executor->context));
    status = cuda_entries_finish(executor, executor->entries);
    if (status == SALVO_OK)
        status = copy_tokens(executor, slot, ids, count);
    if (status == SALVO_OK)
        status = cuda_queue_wait(executor);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}
