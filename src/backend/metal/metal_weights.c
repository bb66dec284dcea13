/* Weights. Matrices stay in the mapped file, in GGUF's own layout; the device reads them through buffers that
 * cover the file's pages. Vectors become floats. */
#include "backend/common/file_windows.h"
#include "backend/metal/metal_executor.h"

#include "base/memory.h"

static enum salvo_status check_size(const struct executor *executor, const struct program_buffer *weight)
{
    const uint64_t bytes = weight_pages(weight, metal_page()).size, most = executor->device.largest_buffer;
    if (bytes > most) {
        return fail(SALVO_ERROR_UNSUPPORTED, "%s has %llu MB; a buffer of %s has %llu MB at most",
            weight->name, (unsigned long long)(bytes / 1000000), executor->device.physical->name,
            (unsigned long long)(most / 1000000));
    }
    return SALVO_OK;
}

/* Buffers over the pages with matrices. */
static enum salvo_status map_matrices(struct executor *executor, const uint8_t *uses)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const uint64_t page = metal_page(), largest = executor->device.largest_buffer / page * page;
    bool *chosen = NULL;
    struct file_window *windows = NULL;
    uint32_t count;
    TRY(NEW(&chosen, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        chosen[i] = (uses[i] & WEIGHT_MATRIX) != 0;
        if (chosen[i])
            TRY(check_size(executor, &program->buffers[i]));
    }
    TRY(file_windows_find(program, chosen, page, largest, &windows, &count));
    TRY(ARENA_NEW(&executor->tables, &executor->windows, count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(metal_buffer_map(&executor->device, windows[i].begin, windows[i].size, &executor->windows[i]));
        executor->window_count++;
        executor->counters.weight_bytes += windows[i].size;
    }
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        uint32_t window = 0;
        if (!chosen[i])
            continue;
        while (!file_window_contains(&windows[window], &program->buffers[i]))
            window++;
        executor->weights[i].window = window;
        executor->weights[i].offset = (uint64_t)(weight_rows(&program->buffers[i]) - windows[window].begin);
    }
cleanup:
    memory_free(chosen);
    memory_free(windows);
    return status;
}

enum salvo_status metal_weights_place(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    uint8_t *uses = NULL;
    TRY(NEW(&uses, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->weights, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->vector_offsets, program->buffer_count));
    weight_uses(program, uses);
    const uint64_t floats = weight_vectors_place(program, uses, 1, executor->vector_offsets);
    TRY(metal_buffer_open(&executor->device, floats * sizeof(float), "vectors", &executor->vectors));
    executor->counters.weight_bytes += executor->vectors.size;
    TRY(map_matrices(executor, uses));
cleanup:
    memory_free(uses);
    return status;
}

enum salvo_status metal_weights_load(struct executor *executor)
{
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    weight_vectors_read(program, executor->vector_offsets, (float *)(void *)executor->vectors.bytes);
    if (options->progress)
        options->progress(
            options->progress_user, executor->counters.weight_bytes, executor->counters.weight_bytes);
    return gguf_check(program->gguf);
}
