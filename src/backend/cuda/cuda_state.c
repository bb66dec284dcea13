/* A slot's state, saved and restored. KV pages go through pinned memory one by one. */
#include "backend/common/steps.h"
#include "backend/cuda/cuda_executor.h"

#include <string.h>

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

static enum salvo_status move_recurrent(
    struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_slot slot = {.next = positions};
    if (restores && number < executor->options.slots)
        TRY(cuda_copy_in(executor, executor->machine.slot_states + number * sizeof slot, &slot, sizeof slot));
    if (executor->state.recurrent_elements)
        TRY(copy_recurrent(executor, number, saved, !restores));
cleanup:
    return status;
}

static enum salvo_status write_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    const size_t first = slot_tokens_at(&executor->options, slot);
    memcpy(executor->host_tokens + first, ids, count * sizeof *ids);
    return cuda_copy_in(executor, executor->machine.tokens + first * sizeof *ids,
        executor->host_tokens + first, count * sizeof *ids);
}

/* ---- Within the device ---- */

static enum salvo_status copy_within(
    struct executor *executor, cuda_address to, cuda_address from, size_t bytes)
{
    return CUDA_CALL(&executor->context, copy_within, (to, from, bytes, executor->queue));
}

static enum salvo_status copy_page(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from)
{
    const cuda_address pages = executor->kv_addresses[buffer];
    const size_t bytes = kv_page_bytes(&executor->state.caches[buffer]);
    return copy_within(executor, pages + to * (uint64_t)bytes, pages + from * (uint64_t)bytes, bytes);
}

static enum salvo_status copy_recurrent_within(struct executor *executor, uint32_t to, uint32_t from)
{
    enum salvo_status status = SALVO_OK;
    cuda_address to_address, from_address;
    TRY(find_recurrent(executor, to, &to_address));
    TRY(find_recurrent(executor, from, &from_address));
    TRY(copy_within(
        executor, to_address, from_address, (size_t)executor->state.recurrent_elements * sizeof(float)));
cleanup:
    return status;
}

static enum salvo_status begin(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_context_enter(&executor->context));
    status = cuda_entries_finish(executor, executor->entries);
    if (status != SALVO_OK)
        cuda_context_leave(&executor->context);
cleanup:
    return status;
}

static enum salvo_status end(struct executor *executor, enum salvo_status status)
{
    if (status == SALVO_OK)
        status = cuda_queue_wait(executor);
    cuda_context_leave(&executor->context);
    return status;
}

const struct backend_state cuda_state = {.begin = begin,
    .end = end,
    .move_page = move_page,
    .move_recurrent = move_recurrent,
    .copy_page = copy_page,
    .copy_recurrent = copy_recurrent_within,
    .write_tokens = write_tokens};
