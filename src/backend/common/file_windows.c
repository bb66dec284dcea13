#include "backend/common/file_windows.h"

#include "backend/common/weights.h"
#include "base/memory.h"

#include <stdlib.h>

struct file_window weight_pages(const struct program_buffer *weight, uint64_t page)
{
    const uint8_t *begin = weight_rows(weight) - (uintptr_t)weight_rows(weight) % page;
    const uint64_t size = (uint64_t)(weight_rows(weight) - begin) + weight->rows * weight_row_bytes(weight);
    return (struct file_window){begin, (size + page - 1) / page * page, weight->tensor->part};
}

bool file_window_contains(const struct file_window *window, const struct program_buffer *weight)
{
    return weight->tensor->part == window->part && weight_rows(weight) >= window->begin &&
           weight_rows(weight) + weight->rows * weight_row_bytes(weight) <= window->begin + window->size;
}

static int by_place(const void *a, const void *b)
{
    const struct program_buffer *const *x = a, *const *y = b;
    const uint32_t part_x = (*x)->tensor->part, part_y = (*y)->tensor->part;
    if (part_x != part_y)
        return part_x < part_y ? -1 : 1;
    return weight_rows(*x) < weight_rows(*y) ? -1 : weight_rows(*x) > weight_rows(*y);
}

enum salvo_status file_windows_find(const struct program *program, const bool *chosen, uint64_t page,
    uint64_t largest, struct file_window **out, uint32_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer **weights = NULL;
    uint32_t count = 0;
    *out_count = 0;
    TRY(NEW(out, program->buffer_count));
    TRY(NEW(&weights, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        if (chosen[i])
            weights[count++] = &program->buffers[i];
    }
    if (count)
        qsort(weights, count, sizeof *weights, by_place);
    for (uint32_t i = 0; i < count; i++) {
        const struct file_window pages = weight_pages(weights[i], page);
        struct file_window *last = *out_count ? &(*out)[*out_count - 1] : NULL;
        const uint64_t size =
            last && last->part == pages.part ? (uint64_t)(pages.begin - last->begin) + pages.size : 0;
        if (size && size <= largest)
            last->size = size > last->size ? size : last->size;
        else
            (*out)[(*out_count)++] = pages;
    }
cleanup:
    memory_free(weights);
    return status;
}
