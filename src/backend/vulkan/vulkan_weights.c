/*
 * Loads the weights. Matrices are stored in the order in which ops use them, so that the matrices of one
 * dispatch are in one buffer; a matrix that the device cannot bind as a whole is sliced by rows.
 */
#include "backend/vulkan/vulkan_executor.h"
#include "backend/vulkan/vulkan_format.h"
#include "base/checked.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The largest buffer that every driver allocates. */
static const uint64_t largest_buffer = UINT64_C(1) << 30;

static uint64_t align(uint64_t size)
{
    return (size + SLICE_ALIGNMENT - 1) / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
}

static uint64_t plane_bytes(uint32_t words, uint64_t rows)
{
    return (words * rows * 4 + 15) / 16 * 16;
}

static uint64_t slice_bytes(struct row_planes planes, uint64_t rows)
{
    return plane_bytes(planes.codes, rows) + plane_bytes(planes.high, rows) +
           plane_bytes(planes.scales, rows);
}

/* Slices a matrix and sets the places of its slices, in the last buffer or a new one. */
static enum salvo_status place_matrix(
    struct executor *executor, buffer_id id, uint64_t *used, uint64_t *floats)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer *buffer = &executor->program->buffers[id];
    struct vulkan_weight *weight = &executor->weights[id];
    const uint64_t range = executor->device.physical->limits.maxStorageBufferRange;
    const uint64_t limit =
        (range < largest_buffer ? range : largest_buffer) / SLICE_ALIGNMENT * SLICE_ALIGNMENT;
    struct row_planes planes;
    if (!vulkan_format_planes(buffer->type, buffer->columns, &planes)) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "tensor '%s': type %s with rows of %llu elements has no Vulkan kernel", buffer->name,
            tensor_type_info(buffer->type)->name, (unsigned long long)buffer->columns));
    }
    const uint64_t row_bytes = slice_bytes(planes, 1) + 48;
    const uint64_t most = limit / row_bytes;
    if (most == 0 || buffer->rows > UINT32_MAX / 2)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "tensor '%s': a row of %llu elements is more than %s can bind",
            buffer->name, (unsigned long long)buffer->columns, executor->device.physical->name));
    weight->slice_count = (uint32_t)((buffer->rows + most - 1) / most);
    TRY(ARENA_NEW(&executor->tables, &weight->slices, weight->slice_count));
    for (uint32_t i = 0; i < weight->slice_count; i++) {
        struct weight_slice *slice = &weight->slices[i];
        const uint64_t first = i * most, rows = buffer->rows - first < most ? buffer->rows - first : most;
        slice->first_row = (uint32_t)first;
        slice->rows = (uint32_t)rows;
        slice->range = (uint32_t)(*floats)++;
        slice->bytes = slice_bytes(planes, rows);
        if (executor->weight_buffer_count == executor->imported_buffers || *used + slice->bytes > limit) {
            TRY(RESIZE(&executor->weight_buffers, executor->weight_buffer_count + 1));
            executor->weight_buffers[executor->weight_buffer_count++] = (struct vulkan_buffer){0};
            *used = 0;
        }
        slice->buffer = executor->weight_buffer_count - 1;
        slice->offset = *used;
        slice->codes = (uint32_t)(*used / 4);
        slice->high = slice->codes + (uint32_t)(plane_bytes(planes.codes, rows) / 4);
        slice->scales = slice->high + (uint32_t)(plane_bytes(planes.high, rows) / 4);
        *used = align(*used + slice->bytes);
        executor->weight_buffers[slice->buffer].size = *used;
    }
cleanup:
    return status;
}

enum salvo_status vulkan_weights_place(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    uint8_t *uses = NULL;
    uint64_t used = 0, floats = 0;
    TRY(NEW(&uses, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->weights, program->buffer_count));
    TRY(ARENA_NEW(&executor->tables, &executor->vector_offsets, program->buffer_count));
    weight_uses(program, uses);
    floats =
        weight_vectors_place(program, uses, 4, executor->vector_offsets); /* shaders read four at a time */
    if (floats > UINT32_MAX / 8)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the vectors have %llu elements together, which are too many",
            (unsigned long long)floats));
    TRY(vulkan_weights_import(executor, uses));
    /* In the order of use, which may differ from the order of the buffers. */
    for (uint32_t i = 0; i < program->op_count; i++) {
        const buffer_id input = program->ops[i].inputs[0];
        if (input == NO_BUFFER || !(uses[input] & WEIGHT_MATRIX))
            continue;
        uses[input] &= (uint8_t)~WEIGHT_MATRIX;
        TRY(place_matrix(executor, input, &used, &floats));
    }
    for (uint32_t i = executor->imported_buffers; i < executor->weight_buffer_count; i++) {
        uint64_t size = executor->weight_buffers[i].size;
        TRY(vulkan_buffer_open(
            &executor->device, size, PLACE_DEVICE, "weights", &executor->weight_buffers[i]));
        executor->counters.weight_bytes += executor->weight_buffers[i].size;
    }
    TRY(vulkan_buffer_open(&executor->device, floats * 4, PLACE_DEVICE, "vectors", &executor->vectors));
    executor->counters.weight_bytes += executor->vectors.size;
cleanup:
    memory_free(uses);
    return status;
}

/* Bytes of a slice that are packed and copied at a time. */
static const uint64_t piece_bytes = 4 << 20;

/* If device memory is mapped, rows are packed in place. */
static void pack_mapped(const struct program_buffer *buffer, const struct weight_slice *slice,
    struct row_planes planes, uint8_t *out)
{
    const uint64_t file_row = weight_row_bytes(buffer);
    uint32_t *words = (uint32_t *)(void *)out;
    memset(out + slice->offset, 0, slice->bytes);
    for (size_t i = 0; i < slice->rows; i++) {
        vulkan_format_pack(buffer->type, weight_rows(buffer) + (slice->first_row + i) * file_row,
            buffer->columns, words + slice->codes + i * planes.codes, words + slice->high + i * planes.high,
            words + slice->scales + i * planes.scales);
    }
}

static enum salvo_status load_slice(
    struct executor *executor, buffer_id id, const struct weight_slice *slice, uint32_t *staging)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer *buffer = &executor->program->buffers[id];
    struct vulkan_buffer *target = &executor->weight_buffers[slice->buffer];
    struct row_planes planes;
    (void)vulkan_format_planes(buffer->type, buffer->columns, &planes);
    const uint64_t file_row = weight_row_bytes(buffer);
    const uint32_t words = planes.codes + planes.high + planes.scales;
    if (target->mapped) {
        pack_mapped(buffer, slice, planes, target->mapped);
        return SALVO_OK;
    }
    const uint32_t most = (uint32_t)(piece_bytes / 4 / words);
    const uint32_t at_once = most ? most : 1;
    for (uint32_t first = 0; first < slice->rows; first += at_once) {
        const uint32_t rows = slice->rows - first < at_once ? slice->rows - first : at_once;
        uint32_t *codes = staging, *high = codes + (size_t)rows * planes.codes,
                 *scales = high + (size_t)rows * planes.high;
        memset(staging, 0, (size_t)rows * words * 4);
        for (uint32_t i = 0; i < rows; i++) {
            vulkan_format_pack(buffer->type, weight_rows(buffer) + (slice->first_row + first + i) * file_row,
                buffer->columns, codes + (size_t)i * planes.codes, high + (size_t)i * planes.high,
                scales + (size_t)i * planes.scales);
        }
        TRY(vulkan_write_later(&executor->transfer, target,
            (slice->codes + (uint64_t)first * planes.codes) * 4, codes, (uint64_t)rows * planes.codes * 4));
        TRY(vulkan_write_later(&executor->transfer, target, (slice->high + (uint64_t)first * planes.high) * 4,
            high, (uint64_t)rows * planes.high * 4));
        TRY(vulkan_write_later(&executor->transfer, target,
            (slice->scales + (uint64_t)first * planes.scales) * 4, scales,
            (uint64_t)rows * planes.scales * 4));
    }
cleanup:
    return status;
}

static uint64_t largest_row_bytes(const struct program *program)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        struct row_planes planes;
        if (program->buffers[i].kind == BUFFER_WEIGHT &&
            vulkan_format_planes(program->buffers[i].type, program->buffers[i].columns, &planes)) {
            uint64_t bytes = (uint64_t)(planes.codes + planes.high + planes.scales) * 4;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* The power of two that brings the largest element of a slice to at most 2^15, half the range of f16. */
static float range_of(const struct program_buffer *buffer, const struct weight_slice *slice)
{
    enum { LARGEST = 15, MOST = 120 };
    const uint64_t file_row = weight_row_bytes(buffer);
    float largest = 0;
    int exponent;
    for (uint64_t i = 0; i < slice->rows; i++) {
        const float row = vulkan_format_largest(
            buffer->type, weight_rows(buffer) + (slice->first_row + i) * file_row, buffer->columns);
        largest = row > largest ? row : largest;
    }
    if (largest == 0 || !isfinite(largest))
        return 1;
    (void)frexpf(largest, &exponent);
    exponent = LARGEST - exponent;
    return ldexpf(1, exponent > MOST ? MOST : exponent < -MOST ? -MOST : exponent);
}

/* Sets the range of all slices, for weights that are converted to halves. */
static void find_ranges(const struct executor *executor, buffer_id id, float *vectors)
{
    const struct vulkan_weight *weight = &executor->weights[id];
    const struct program_buffer *buffer = &executor->program->buffers[id];
    for (uint32_t i = 0; i < weight->slice_count && !weight->is_imported; i++)
        vectors[weight->slices[i].range] = range_of(buffer, &weight->slices[i]);
}

enum salvo_status vulkan_weights_load(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const struct backend_options *options = &executor->options;
    const bool has_ranges = executor->device.physical->features.coop_matrix;
    uint32_t *staging = NULL;
    float *vectors = NULL;
    uint64_t done = 0, row = largest_row_bytes(program);
    TRY(NEW(&staging, (row > piece_bytes ? row : piece_bytes) / 4 + 16));
    TRY(NEW(&vectors, executor->vectors.size / sizeof *vectors));
    weight_vectors_read(program, executor->vector_offsets, vectors);
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct vulkan_weight *weight = &executor->weights[i];
        if (has_ranges)
            find_ranges(executor, (buffer_id)i, vectors);
        for (uint32_t j = 0; j < weight->slice_count; j++) {
            if (!weight->is_imported)
                TRY(load_slice(executor, (buffer_id)i, &weight->slices[j], staging));
            done += weight->slices[j].bytes;
            if (options->progress)
                options->progress(options->progress_user, done, executor->counters.weight_bytes);
        }
        if (weight->slice_count && !weight->is_imported)
            gguf_release(program->gguf, program->buffers[i].tensor);
    }
    TRY(vulkan_write(&executor->transfer, &executor->vectors, 0, vectors, executor->vectors.size));
    TRY(gguf_check(program->gguf));
cleanup:
    memory_free(vectors);
    memory_free(staging);
    return status;
}
