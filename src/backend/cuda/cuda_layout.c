/* Layout of the device's memory. Each function is called twice: to count, and with addresses. */
#include "backend/common/steps.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "backend/cuda/sample_plan.h"
#include "base/checked.h"

#include <string.h>

/* ---- Weights ---- */

enum salvo_status cuda_check_weights(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    TRY(ARENA_NEW(&executor->tables, &executor->weights, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->weight_uses, program->buffer_count));
    weight_uses(program, executor->weight_uses);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        struct cuda_weight *weight = &executor->weights[i];
        if (!(executor->weight_uses[i] & WEIGHT_MATRIX))
            continue;
        if (!cuda_weight_tiles_supported(buffer->type, buffer->columns) || buffer->rows > UINT32_MAX / 2) {
            TRY(fail(SALVO_ERROR_UNSUPPORTED,
                "tensor '%s': type %s with %llu rows of %llu elements cannot be multiplied", buffer->name,
                tensor_type_info(buffer->type)->name, (unsigned long long)buffer->rows,
                (unsigned long long)buffer->columns));
        }
        if (executor->weight_uses[i] & WEIGHT_LOOKED_UP)
            weight->matrix_index = executor->matrix_count++;
    }
cleanup:
    return status;
}

void cuda_layout_weights(struct executor *executor, struct cuda_region *region)
{
    const struct program *program = executor->program;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        struct cuda_weight *weight = &executor->weights[i];
        if (executor->weight_uses[i] & WEIGHT_LOOKED_UP &&
            weight->matrix.tile_rows == 0) { /* never multiplied: any shape is valid */
            const uint32_t tile_rows = (uint32_t)((buffer->rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS);
            weight->matrix = cuda_matrix_shape(buffer->type, (uint32_t)buffer->rows,
                (uint32_t)buffer->columns, (tile_rows + executor->blocks - 1) / executor->blocks);
        }
        if (weight->matrix.tile_rows)
            weight->matrix.base = cuda_region_take(region, cuda_matrix_bytes(&weight->matrix));
        if (executor->weight_uses[i] & WEIGHT_VECTOR)
            weight->vector = cuda_region_take(region, buffer->rows * buffer->columns * sizeof(float));
    }
}

/* ---- State ---- */

static struct kv_page_layout page_layout(const struct kv_cache *cache)
{
    const size_t position_bytes = (size_t)cache->head_dim * cache->element_bytes;
    return (struct kv_page_layout){
        .head_bytes = PAGE_POSITIONS * kv_head_bytes(cache),
        .position_step = position_bytes,
        .element_step = cache->element_bytes,
        .scales_at = PAGE_POSITIONS * position_bytes,
        .scale_position_step = cache->scales * sizeof(uint16_t),
        .scale_step = sizeof(uint16_t),
    };
}

enum salvo_status cuda_find_states(struct executor *executor)
{
    enum { ALIGNMENT = 4 }; /* recurrent states begin at multiples of 16 bytes */
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    bool has_cache = false;
    TRY(state_layout_open(program, &executor->options, ALIGNMENT, &executor->tables, &executor->state));
    TRY(ARENA_NEW(&executor->tables, &executor->kv_addresses, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct kv_cache *cache = &executor->state.caches[i];
        cache->page = page_layout(cache);
        has_cache = has_cache || cache->heads;
    }
    if (!has_cache)
        executor->state.pages_per_slot = 0;
cleanup:
    return status;
}

void cuda_layout_state(struct executor *executor, struct cuda_region *region)
{
    const struct backend_options *options = &executor->options;
    struct cuda_machine *machine = &executor->machine;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct kv_cache *cache = &executor->state.caches[i];
        if (cache->heads)
            executor->kv_addresses[i] =
                cuda_region_take(region, (uint64_t)kv_page_bytes(cache) * executor->state.pages);
    }
    machine->slot_states = cuda_region_take(region, options->slots * sizeof(struct cuda_slot));
    machine->tokens =
        cuda_region_take(region, (uint64_t)options->slots * (options->context + 1) * sizeof(int32_t));
    machine->recurrent = cuda_region_take(region, ((uint64_t)options->slots * 2 + options->states) *
                                                      executor->state.recurrent_elements * sizeof(float));
    machine->recurrent_elements = executor->state.recurrent_elements;
    executor->bias =
        cuda_region_take(region, (uint64_t)options->slots * executor->program->vocabulary * sizeof(float));
    executor->resident_masks = cuda_region_take(
        region, RESIDENT_MASKS * step_mask_words(executor->program->vocabulary) * sizeof(uint32_t));
}

/* ---- Scratch ---- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The plans run one after the other and share memory. */
void cuda_layout_scratch(struct executor *executor, struct cuda_region *region)
{
    struct cuda_machine *machine = &executor->machine;
    const struct backend_options *options = &executor->options;
    uint64_t arena_bytes = executor->single.plan.arena_bytes, packed_input_bytes = 0;
    const uint64_t angles =
        (uint64_t)options->batch * executor->program->rope_count * executor->rope_pairs * sizeof(float);
    for (uint32_t i = 0; i < executor->many_count; i++) {
        arena_bytes = most(arena_bytes, executor->many[i].plan.arena_bytes);
        packed_input_bytes = most(packed_input_bytes, executor->many[i].tables.packed_input_memory);
    }
    struct cuda_scratch scratch = {
        .arena = cuda_region_take(region, arena_bytes),
        .offsets = executor->single.plan.offsets,
        .spilled = cuda_region_take(region, executor->single.plan.private_bytes),
        .packed_inputs = cuda_region_take(region, packed_input_bytes),
        .tagged_words = cuda_region_take(region, executor->single.tables.tagged_words),
    };
    executor->single.scratch = scratch;
    for (uint32_t i = 0; i < executor->many_count; i++) {
        executor->many[i].scratch = scratch;
        executor->many[i].scratch.offsets = executor->many[i].plan.offsets;
    }
    machine->cosines = cuda_region_take(region, angles);
    machine->sines = cuda_region_take(region, angles);
    machine->sampling =
        cuda_region_take(region, options->outputs * cuda_sample_row_bytes(executor->program->vocabulary));
    machine->barrier = cuda_region_take(region, CUDA_BARRIER_WORDS * sizeof(uint32_t));
    machine->sequence = cuda_region_take(region, sizeof(uint32_t));
    machine->epoch = cuda_region_take(region, sizeof(uint32_t));
    machine->step = cuda_region_take(region, machine->step_bytes);
}

/* ---- Steps, in mapped memory ---- */

static uint32_t step_part(uint32_t *used, uint64_t count, size_t size)
{
    const uint32_t at = *used;
    *used = (uint32_t)((at + count * size + 15) / 16 * 16);
    return at;
}

/* Where the parts of a step lie. */
void cuda_layout_step(struct executor *executor)
{
    struct cuda_machine *machine = &executor->machine;
    const struct backend_options *options = &executor->options;
    uint32_t used = 0;
    step_part(&used, 1, sizeof(struct cuda_step));
    machine->runs_at = step_part(&used, options->slots, sizeof(struct cuda_run));
    machine->rows_at = step_part(&used, options->batch, sizeof(struct cuda_row));
    machine->outputs_at = step_part(&used, options->outputs, sizeof(uint32_t));
    machine->ids_at = step_part(&used, options->batch, sizeof(int32_t));
    machine->pages_at =
        step_part(&used, (uint64_t)options->slots * executor->state.pages_per_slot, sizeof(uint32_t));
    machine->step_bytes = (used + 255) / 256 * 256;
    machine->outputs = options->outputs;
    machine->slots = options->slots;
    machine->context = options->context;
    machine->vocabulary = executor->program->vocabulary;
    machine->pages_per_slot = executor->state.pages_per_slot;
    machine->step_ring_entries = CUDA_STEP_RING_ENTRIES;
    machine->rope_count = executor->program->rope_count;
    machine->rope_pairs = executor->rope_pairs;
    machine->time_limit_ms = 2000;
}

/* A piece of the mapped memory: where the host finds it, and where the device does. */
static uint8_t *mapped_part(struct cuda_region *region, uint8_t *host, uint64_t bytes, cuda_address *out)
{
    const cuda_address address = cuda_region_take(region, bytes);
    *out = address;
    return host ? host + (address - region->base) : NULL;
}

void cuda_layout_mapped(struct executor *executor, struct cuda_region *region, uint8_t *host)
{
    struct cuda_machine *machine = &executor->machine;
    const uint64_t slots = executor->options.slots;
    void *parts[10];
    cuda_address unused;
    executor->step_ring = mapped_part(
        region, host, (uint64_t)CUDA_STEP_RING_ENTRIES * machine->step_bytes, &machine->step_ring);
    parts[0] = mapped_part(
        region, host, CUDA_STEP_RING_ENTRIES * slots * sizeof(struct cuda_result), &machine->results);
    parts[1] = mapped_part(region, host, CUDA_STEP_RING_ENTRIES * sizeof(uint32_t), &machine->done);
    parts[2] = mapped_part(region, host, CUDA_STEP_RING_ENTRIES * sizeof(uint32_t), &machine->progress);
    parts[3] = mapped_part(region, host, sizeof(uint32_t), &machine->cancel);
    parts[4] = mapped_part(region, host, sizeof(uint32_t), &machine->abort);
    parts[5] = mapped_part(region, host, sizeof(uint32_t), &machine->error);
    parts[6] = mapped_part(
        region, host, slots * (executor->options.context + 1) * sizeof(int32_t), &machine->host_tokens);
    parts[7] = mapped_part(region, host, executor->program->vocabulary * sizeof(float), &unused);
    parts[8] = mapped_part(region, host,
        slots * step_mask_words(executor->program->vocabulary) * sizeof(uint32_t), &executor->mask_address);
    parts[9] = mapped_part(region, host,
        (uint64_t)executor->options.outputs * (1 + MAX_TOP_LOGPROBS) * sizeof *executor->logprobs,
        &executor->logprob_address);
    executor->results = parts[0];
    executor->done = parts[1];
    executor->progress = parts[2];
    executor->cancel = parts[3];
    executor->abort = parts[4];
    executor->error = parts[5];
    executor->host_tokens = parts[6];
    executor->host_logits = parts[7];
    executor->masks = parts[8];
    executor->logprobs = parts[9];
}
