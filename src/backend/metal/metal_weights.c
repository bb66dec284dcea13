/* Weights. Matrices stay in the mapped file, in GGUF's own layout; the device reads them through buffers that
 * cover the file's pages. Vectors become floats. */
#include "backend/metal/metal_executor.h"

#include "base/memory.h"
#include "quant/quant.h"

#include <stdlib.h>

enum { WEIGHT_MATRIX = WEIGHT_MULTIPLIED | WEIGHT_LOOKED_UP };

/* A range of a mapped file, in whole pages. */
struct window {
    const uint8_t *begin;
    uint64_t size;
    uint32_t part; /* of a split model */
};

static int by_place(const void *a, const void *b)
{
    const struct program_buffer *const *x = a, *const *y = b;
    const uint32_t part_x = (*x)->tensor->part, part_y = (*y)->tensor->part;
    if (part_x != part_y)
        return part_x < part_y ? -1 : 1;
    return weight_rows(*x) < weight_rows(*y) ? -1 : weight_rows(*x) > weight_rows(*y);
}

static struct window pages_of(const struct program_buffer *weight)
{
    const uint64_t page = metal_page();
    const uint8_t *begin = weight_rows(weight) - (uintptr_t)weight_rows(weight) % page;
    const uint64_t size = (uint64_t)(weight_rows(weight) - begin) + weight->rows * weight_row_bytes(weight);
    return (struct window){begin, (size + page - 1) / page * page, weight->tensor->part};
}

/* Ranges of at most `largest` bytes that contain all matrices; ranges may overlap. */
static uint32_t find_windows(
    const struct program_buffer **matrices, uint32_t count, uint64_t largest, struct window *windows)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct window pages = pages_of(matrices[i]);
        struct window *last = found ? &windows[found - 1] : NULL;
        const uint64_t size =
            last && last->part == pages.part ? (uint64_t)(pages.begin - last->begin) + pages.size : 0;
        if (size && size <= largest)
            last->size = size > last->size ? size : last->size;
        else
            windows[found++] = pages;
    }
    return found;
}

static enum salvo_status check_size(const struct executor *executor, const struct program_buffer *weight)
{
    const uint64_t bytes = pages_of(weight).size, most = executor->device.largest_buffer;
    if (bytes > most) {
        return fail(SALVO_ERROR_UNSUPPORTED, "%s has %llu MB; a buffer of %s has %llu MB at most",
            weight->name, (unsigned long long)(bytes / 1000000), executor->device.physical->name,
            (unsigned long long)(most / 1000000));
    }
    return SALVO_OK;
}

static void place_in_windows(struct executor *executor, const struct window *windows, const uint8_t *uses)
{
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct program_buffer *weight = &executor->program->buffers[i];
        for (uint32_t j = 0; (uses[i] & WEIGHT_MATRIX) && j < executor->window_count; j++) {
            const struct window pages = pages_of(weight), *window = &windows[j];
            if (window->part != pages.part || pages.begin < window->begin ||
                pages.begin + pages.size > window->begin + window->size)
                continue;
            executor->weights[i].window = j;
            executor->weights[i].offset = (uint64_t)(weight_rows(weight) - window->begin);
            break;
        }
    }
}

/* Buffers over the pages with matrices. */
static enum salvo_status map_matrices(struct executor *executor, const uint8_t *uses)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const uint64_t largest = executor->device.largest_buffer / metal_page() * metal_page();
    const struct program_buffer **matrices = NULL;
    struct window *windows = NULL;
    uint32_t count = 0;
    TRY(NEW(&matrices, program->buffer_count));
    TRY(NEW(&windows, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (!(uses[i] & WEIGHT_MATRIX))
            continue;
        TRY(check_size(executor, &program->buffers[i]));
        matrices[count++] = &program->buffers[i];
    }
    if (count)
        qsort(matrices, count, sizeof *matrices, by_place);
    count = find_windows(matrices, count, largest, windows);
    TRY(ARENA_NEW(&executor->tables, &executor->windows, count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(metal_buffer_map(&executor->device, windows[i].begin, windows[i].size, &executor->windows[i]));
        executor->window_count++;
        executor->counters.weight_bytes += windows[i].size;
    }
    place_in_windows(executor, windows, uses);
cleanup:
    memory_free(matrices);
    memory_free(windows);
    return status;
}

enum salvo_status metal_weights_place(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    uint8_t *uses = NULL;
    uint64_t floats = 0;
    TRY(NEW(&uses, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->weights, program->buffer_count));
    weight_uses(program, uses);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        executor->weights[i].vector = METAL_NO_OPERAND;
        if (!(uses[i] & WEIGHT_VECTOR))
            continue;
        executor->weights[i].vector = (uint32_t)floats;
        floats += program->buffers[i].rows * program->buffers[i].columns;
    }
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
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *weight = &program->buffers[i];
        if (weight->kind == BUFFER_WEIGHT && executor->weights[i].vector != METAL_NO_OPERAND)
            dequantize(weight->type, weight_rows(weight), weight->rows * weight->columns,
                (float *)(void *)executor->vectors.bytes + executor->weights[i].vector);
    }
    if (options->progress)
        options->progress(
            options->progress_user, executor->counters.weight_bytes, executor->counters.weight_bytes);
    return gguf_check(program->gguf);
}
