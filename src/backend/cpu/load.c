/*
 * Loads the weights: packs the matrices of matmuls into tiles and converts vectors to floats; an embedding
 * table that is only looked up stays in the file. Mapped pages are released as soon as they are packed, so
 * that no weight is in memory twice.
 */
#include "backend/common/weights.h"
#include "backend/cpu/executor.h"

#include "backend/cpu/packing.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/memory_gaps.h"
#include "quant/quant.h"

#include <string.h>

struct packing_job {
    struct executor *executor;
    const struct program_buffer *buffer;
    uint8_t *tiles;
    size_t tile_bytes;
};

enum { TILES_PER_TASK = 64 };

static uint64_t tile_count(const struct program_buffer *buffer)
{
    return (buffer->rows + TILE_ROWS - 1) / TILE_ROWS;
}

static void pack_some(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)thread;
    const struct packing_job *job = context;
    uint64_t end = (uint64_t)(task + 1) * TILES_PER_TASK, tiles = tile_count(job->buffer);
    for (uint64_t i = (uint64_t)task * TILES_PER_TASK; i < end && i < tiles; i++)
        packing_pack_tile(job->buffer->type, weight_rows(job->buffer), job->buffer->rows,
            job->buffer->columns, i * TILE_ROWS, job->tiles + i * job->tile_bytes);
}

/* The team writes to `tiles`. */
static void pack_matrix(
    struct executor *executor, buffer_id id, uint8_t *tiles) // NOLINT(readability-non-const-parameter)
{
    const struct program_buffer *buffer = &executor->program->buffers[id];
    struct weight *weight = &executor->weights[id];
    struct packing_job job = {executor, buffer, tiles, weight->tile_bytes};
    uint32_t tasks = (uint32_t)((tile_count(buffer) + TILES_PER_TASK - 1) / TILES_PER_TASK);
    team_run(executor->team,
        &(struct team_job){.context = &job, .tasks = &tasks, .phase_count = 1, .work = pack_some});
    weight->tiles = tiles;
    gguf_release(executor->program->gguf, buffer->tensor);
}

static enum salvo_status load_vector(struct executor *executor, buffer_id id)
{
    const struct program_buffer *buffer = &executor->program->buffers[id];
    float *values;
    enum salvo_status status = ARENA_NEW(&executor->tables, &values, buffer->rows * buffer->columns);
    if (status == SALVO_OK) {
        dequantize(buffer->type, weight_rows(buffer), buffer->rows * buffer->columns, values);
        executor->weights[id].vector = values;
    }
    return status;
}

enum salvo_status load_weights(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    uint8_t *uses = NULL;
    size_t total = 0, place = 0;
    TRY(NEW(&uses, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->weights, program->buffer_count));
    weight_uses(program, uses);

    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if (!(uses[i] & WEIGHT_MULTIPLIED))
            continue;
        if (!packing_supported(buffer->type, buffer->columns)) {
            TRY(fail(SALVO_ERROR_UNSUPPORTED,
                "tensor '%s': type %s with rows of %llu elements cannot be multiplied", buffer->name,
                tensor_type_info(buffer->type)->name, (unsigned long long)buffer->columns));
        }
        executor->weights[i].tile_bytes = packing_tile_bytes(buffer->type, buffer->columns);
        size_t bytes;
        if (!checked_mul(executor->weights[i].tile_bytes, tile_count(buffer), &bytes) ||
            !checked_add(total, (bytes + 63) / 64 * 64 + MEMORY_GAP, &total))
            TRY(fail(SALVO_ERROR_MEMORY, "tensor '%s' is too large", buffer->name));
    }
    TRY(memory_map(total, PAGES_HUGE, &executor->weight_memory));
    executor->weight_bytes = total;

    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if (uses[i] & WEIGHT_VECTOR)
            TRY(load_vector(executor, (buffer_id)i));
        if (uses[i] & WEIGHT_MULTIPLIED) {
            const size_t bytes = executor->weights[i].tile_bytes * tile_count(buffer),
                         all = (bytes + 63) / 64 * 64 + MEMORY_GAP;
            memory_forbid(executor->weight_memory + place + bytes, all - bytes);
            pack_matrix(executor, (buffer_id)i, executor->weight_memory + place);
            place += all;
            if (options->progress)
                options->progress(options->progress_user, place, total);
        } else if (uses[i] & WEIGHT_LOOKED_UP) {
            executor->weights[i].rows = weight_rows(buffer);
        }
    }
    TRY(gguf_check(program->gguf));
cleanup:
    memory_free(uses);
    return status;
}
