/* A growing array of bytes. A zeroed buffer is empty and ready. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include "base/status.h"

struct buffer {
    char *data;
    size_t size, capacity;
};

enum salvo_status buffer_reserve(struct buffer *buffer, size_t more);
enum salvo_status buffer_append(struct buffer *buffer, const void *data, size_t size);
void buffer_free(struct buffer *buffer);

#endif
