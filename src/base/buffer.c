#include "base/buffer.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

enum salvo_status buffer_reserve(struct buffer *buffer, size_t more)
{
    size_t needed;
    if (!checked_add(buffer->size, more, &needed) || needed > SIZE_MAX / 2)
        return fail(SALVO_ERROR_MEMORY, "out of memory: %zu more bytes were requested", more);
    if (needed <= buffer->capacity)
        return SALVO_OK;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    enum salvo_status status = RESIZE(&buffer->data, capacity);
    if (status == SALVO_OK)
        buffer->capacity = capacity;
    return status;
}

enum salvo_status buffer_append(struct buffer *buffer, const void *data, size_t size)
{
    enum salvo_status status = buffer_reserve(buffer, size);
    if (status == SALVO_OK && size) {
        memcpy(buffer->data + buffer->size, data, size);
        buffer->size += size;
    }
    return status;
}

void buffer_free(struct buffer *buffer)
{
    memory_free(buffer->data);
    *buffer = (struct buffer){0};
}
