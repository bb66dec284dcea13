/*
 * The pool of KV pages. Inside a page each head has its keys with positions innermost and its values position
 * by position (kernels.h says why); a saved state has neither: position after position, as the program sees
 * it.
 */
#include "backend/cpu/executor.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/memory_gaps.h"

#include <string.h>

static size_t element_bytes(enum tensor_type type)
{
    return type == TYPE_F32 ? 4 : type == TYPE_F16 ? 2 : 1;
}

static size_t scales_of(const struct executor *executor, const struct kv_state *state)
{
    return executor->options.kv_type == TYPE_Q8_0 ? (state->head_dim + GROUP - 1) / GROUP : 0;
}

/* Where a head's scales begin, after its elements. */
static size_t scales_offset(const struct executor *executor, const struct kv_state *state)
{
    return (size_t)state->head_dim * KV_TILE * element_bytes(executor->options.kv_type);
}

/* Finds which buffers are KV states, and how they are divided into heads. */
static void find_states(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct op *op = op_that_appends(executor->program, (buffer_id)i);
        if (op) {
            executor->states[i] = (struct kv_state){.heads = op->kv_append.kv_heads,
                .head_dim = op->kv_append.head_dim,
                .is_key = op->kv_append.key_state == (buffer_id)i};
        }
    }
}

enum salvo_status kv_pool_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    size_t total = 0, place = 0;
    TRY(ARENA_NEW(&executor->tables, &executor->states, program->buffer_count));
    find_states(executor);
    uint64_t pages = (uint64_t)options->slots * ((options->context + KV_TILE - 1) / KV_TILE);
    executor->pages = (uint32_t)pages;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct kv_state *state = &executor->states[i];
        if (!state->heads)
            continue;
        state->head_bytes =
            scales_offset(executor, state) + scales_of(executor, state) * KV_TILE * sizeof(uint16_t);
        state->page_bytes = state->head_bytes * state->heads;
        size_t bytes;
        if (!checked_mul(state->page_bytes, pages, &bytes) || !checked_add(bytes, MEMORY_GAP, &bytes) ||
            !checked_add(total, bytes, &total))
            TRY(fail(SALVO_ERROR_MEMORY, "a context of %u tokens for %u sessions is too large",
                options->context, options->slots));
    }
    status = memory_map(total, PAGES_NORMAL, &executor->state_memory);
    if (status != SALVO_OK)
        TRY(fail(status, "a context of %u tokens for %u sessions needs %zu bytes, more than there are",
            options->context, options->slots, total));
    executor->state_bytes = total;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!executor->states[i].heads)
            continue;
        executor->states[i].memory = executor->state_memory + place;
        place += executor->states[i].page_bytes * pages;
        memory_forbid(executor->state_memory + place, MEMORY_GAP);
        place += MEMORY_GAP;
    }
cleanup:
    return status;
}

static uint8_t *head_of(const struct kv_state *state, uint32_t page, uint32_t head)
{
    return state->memory + page * state->page_bytes + head * state->head_bytes;
}

struct kv_room kv_pool_room(
    const struct executor *executor, buffer_id keys, buffer_id values, uint32_t page, uint32_t head)
{
    const struct kv_state *key_state = &executor->states[keys], *value_state = &executor->states[values];
    uint8_t *key_memory = head_of(key_state, page, head), *value_memory = head_of(value_state, page, head);
    return (struct kv_room){
        .keys = key_memory,
        .values = value_memory,
        .key_scales = (uint16_t *)(void *)(key_memory + scales_offset(executor, key_state)),
        .value_scales = (uint16_t *)(void *)(value_memory + scales_offset(executor, value_state)),
        .type = executor->options.kv_type,
        .head_dim = key_state->head_dim,
    };
}

size_t kv_pool_position_bytes(const struct executor *executor)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct kv_state *state = &executor->states[i];
        bytes += state->heads * (state->head_dim * element_bytes(executor->options.kv_type) +
                                    scales_of(executor, state) * sizeof(uint16_t));
    }
    return bytes;
}

/* Copies `count` elements between a head's memory, `stride` elements apart, and the packed row; which way,
 * `out` says. */
static void copy_elements(uint8_t *memory, size_t stride, size_t count, size_t size, uint8_t *row, bool out)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *element = memory + i * stride * size, *packed = row + i * size;
        memcpy(out ? packed : element, out ? element : packed, size);
    }
}

static uint8_t *copy_head(const struct executor *executor, const struct kv_state *state, uint32_t page,
    uint32_t head, uint32_t position, uint8_t *row, bool out)
{
    uint8_t *memory = head_of(state, page, head);
    size_t size = element_bytes(executor->options.kv_type), scales = scales_of(executor, state);
    size_t stride = state->is_key ? KV_TILE : 1;
    size_t first = state->is_key ? position : (size_t)position * state->head_dim;
    copy_elements(memory + first * size, stride, state->head_dim, size, row, out);
    row += state->head_dim * size;
    first = state->is_key ? position : position * scales;
    copy_elements(memory + scales_offset(executor, state) + first * sizeof(uint16_t), stride, scales,
        sizeof(uint16_t), row, out);
    return row + scales * sizeof(uint16_t);
}

static void copy_states(
    const struct executor *executor, const uint32_t *pages, uint32_t positions, uint8_t *data, bool out)
{
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct kv_state *state = &executor->states[i];
        for (uint32_t position = 0; state->heads && position < positions; position++) {
            for (uint32_t head = 0; head < state->heads; head++)
                data = copy_head(
                    executor, state, pages[position / KV_TILE], head, position % KV_TILE, data, out);
        }
    }
}

void kv_pool_copy_out(
    const struct executor *executor, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    copy_states(executor, pages, positions, out, true);
}

void kv_pool_copy_in(
    const struct executor *executor, const uint32_t *pages, uint32_t positions, const uint8_t *data)
{
    union {
        const uint8_t *from;
        uint8_t *to;
    } pointer = {data}; /* read only: `out` is false */
    copy_states(executor, pages, positions, pointer.to, false);
}
