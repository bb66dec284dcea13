/*
 * Weights that are read from the mapped file. Float matrices have the same layout in the file and on the
 * device, so a device with unified memory can read the mapped file (VK_EXT_external_memory_host). All
 * matrices that cannot be imported are packed and copied.
 */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

#include <stdlib.h>

/* The largest size that can be allocated and bound at once, as in vulkan_weights.c. */
static uint64_t largest_window(const struct vulkan_physical *physical)
{
    const uint64_t range = physical->limits.maxStorageBufferRange, piece = UINT64_C(1) << 30;
    return range < piece ? range : piece;
}

/* A range of a mapped file. */
struct window {
    const uint8_t *begin; /* page-aligned */
    uint64_t size;
    uint32_t part; /* of a split model */
};

static bool is_float(enum tensor_type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

/* Shaders load four elements at a time, so rows must be multiples of four and matrices 16-byte aligned. */
static bool is_as_in_the_file(const struct program_buffer *buffer)
{
    return is_float(buffer->type) && buffer->columns % 4 == 0 && (uintptr_t)weight_rows(buffer) % 16 == 0;
}

static int by_place(const void *a, const void *b)
{
    const struct program_buffer *const *x = a, *const *y = b;
    const uint32_t part_x = (*x)->tensor->part, part_y = (*y)->tensor->part;
    if (part_x != part_y)
        return part_x < part_y ? -1 : 1;
    return weight_rows(*x) < weight_rows(*y) ? -1 : weight_rows(*x) > weight_rows(*y);
}

/* The pages that contain a matrix; the file's mapping also ends at a page. */
static struct window pages_of(const struct program_buffer *buffer, uint64_t page)
{
    const uint8_t *begin = weight_rows(buffer) - (uintptr_t)weight_rows(buffer) % page;
    const uint64_t size = (uint64_t)(weight_rows(buffer) - begin) + buffer->rows * weight_row_bytes(buffer);
    return (struct window){begin, (size + page - 1) / page * page, buffer->tensor->part};
}

/* Finds ranges that contain all matrices; gaps between matrices are included. */
static uint32_t find_windows(const struct program_buffer **matrices, uint32_t count,
    const struct vulkan_physical *physical, struct window *windows)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct window pages = pages_of(matrices[i], physical->import_alignment);
        struct window *last = found ? &windows[found - 1] : NULL;
        const uint64_t size =
            last && last->part == pages.part ? (uint64_t)(pages.begin - last->begin) + pages.size : 0;
        if (size && size <= largest_window(physical))
            last->size = size > last->size ? size : last->size;
        else
            windows[found++] = pages;
    }
    return found;
}

static enum salvo_status place_in_window(
    struct executor *executor, buffer_id id, const struct window *window, uint32_t number)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer *buffer = &executor->program->buffers[id];
    struct vulkan_weight *weight = &executor->weights[id];
    const uint64_t place = (uint64_t)(weight_rows(buffer) - window->begin);
    TRY(ARENA_NEW(&executor->tables, &weight->slices, 1));
    weight->slice_count = 1;
    weight->slices[0] = (struct weight_slice){
        .rows = (uint32_t)buffer->rows,
        .buffer = number,
        .offset = place,
        .bytes = buffer->rows * weight_row_bytes(buffer),
        .codes = (uint32_t)(place / 4),
    };
    weight->is_imported = true;
cleanup:
    return status;
}

/* Imports a window as a buffer and sets the places of its matrices. Does nothing if the device refuses. */
static enum salvo_status import_window(struct executor *executor, const struct window *window, uint8_t *uses)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    struct vulkan_buffer buffer;
    if (!vulkan_buffer_import(&executor->device, window->begin, window->size, &buffer))
        return SALVO_OK;
    const uint32_t number = executor->weight_buffer_count;
    TRY(RESIZE(&executor->weight_buffers, number + 1));
    executor->weight_buffers[executor->weight_buffer_count++] = buffer;
    buffer = (struct vulkan_buffer){0};
    executor->counters.weight_bytes += window->size;
    executor->imported_buffers++;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *matrix = &program->buffers[i];
        if (!(uses[i] & WEIGHT_MATRIX) || !is_as_in_the_file(matrix) ||
            matrix->tensor->part != window->part || weight_rows(matrix) < window->begin ||
            weight_rows(matrix) + matrix->rows * weight_row_bytes(matrix) > window->begin + window->size)
            continue;
        TRY(place_in_window(executor, (buffer_id)i, window, number));
        uses[i] &= (uint8_t)~WEIGHT_MATRIX;
    }
cleanup:
    vulkan_buffer_close(&executor->device, &buffer);
    return status;
}

enum salvo_status vulkan_weights_import(struct executor *executor, uint8_t *uses)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct vulkan_physical *physical = executor->device.physical;
    const struct program_buffer **matrices = NULL;
    struct window *windows = NULL;
    uint32_t count = 0;
    if (!physical->features.host_import)
        return SALVO_OK;
    TRY(NEW(&matrices, program->buffer_count));
    TRY(NEW(&windows, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        if ((uses[i] & WEIGHT_MATRIX) && is_as_in_the_file(buffer) &&
            pages_of(buffer, physical->import_alignment).size <= largest_window(physical))
            matrices[count++] = buffer;
    }
    if (count)
        qsort(matrices, count, sizeof *matrices, by_place);
    count = find_windows(matrices, count, physical, windows);
    for (uint32_t i = 0; i < count; i++)
        TRY(import_window(executor, &windows[i], uses));
cleanup:
    memory_free(matrices);
    memory_free(windows);
    return status;
}
