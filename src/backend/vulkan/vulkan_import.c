/*
 * Weights that are read from the mapped file. Float matrices have the same layout in the file and on the
 * device, so a device with unified memory can read the mapped file (VK_EXT_external_memory_host). All
 * matrices that cannot be imported are packed and copied.
 */
#include "backend/common/file_windows.h"
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

/* The largest size that can be allocated and bound at once, as in vulkan_weights.c. */
static uint64_t largest_window(const struct vulkan_physical *physical)
{
    const uint64_t range = physical->limits.maxStorageBufferRange, piece = UINT64_C(1) << 30;
    return range < piece ? range : piece;
}

static bool is_float(enum tensor_type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

/* Shaders load four elements at a time, so rows must be multiples of four and matrices 16-byte aligned. */
static bool is_as_in_the_file(const struct program_buffer *buffer)
{
    return is_float(buffer->type) && buffer->columns % 4 == 0 && (uintptr_t)weight_rows(buffer) % 16 == 0;
}

static enum salvo_status place_in_window(
    struct executor *executor, buffer_id id, const struct file_window *window, uint32_t number)
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
static enum salvo_status import_window(
    struct executor *executor, const struct file_window *window, const bool *chosen, uint8_t *uses)
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
        if (!chosen[i] || !(uses[i] & WEIGHT_MATRIX) || !file_window_contains(window, &program->buffers[i]))
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
    bool *chosen = NULL;
    struct file_window *windows = NULL;
    uint32_t count;
    if (!physical->features.host_import)
        return SALVO_OK;
    TRY(NEW(&chosen, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *buffer = &program->buffers[i];
        chosen[i] = (uses[i] & WEIGHT_MATRIX) && is_as_in_the_file(buffer) &&
                    weight_pages(buffer, physical->import_alignment).size <= largest_window(physical);
    }
    TRY(file_windows_find(
        program, chosen, physical->import_alignment, largest_window(physical), &windows, &count));
    for (uint32_t i = 0; i < count; i++)
        TRY(import_window(executor, &windows[i], chosen, uses));
cleanup:
    memory_free(chosen);
    memory_free(windows);
    return status;
}
