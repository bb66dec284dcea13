#include "engine/text_filter.h"

#include "text/tokenizer.h"

#include <string.h>

/* How many bytes at the end of the text begin the stop string. */
static size_t begun_at_end(const char *text, size_t size, const char *stop)
{
    size_t length = strlen(stop);
    for (size_t tail = length - 1 < size ? length - 1 : size; tail > 0; tail--) {
        if (memcmp(text + size - tail, stop, tail) == 0)
            return tail;
    }
    return 0;
}

bool text_filter_look(const struct text_filter *filter, size_t *out_ready)
{
    const char *text = filter->held.data;
    size_t size = filter->held.size, begin = size, end = size + 1, kept = 0;
    *out_ready = 0;
    if (size == 0)
        return false;
    for (size_t i = 0; i < filter->stop_count; i++) {
        const char *stop = filter->stop_strings[i];
        if (!*stop)
            continue;
        const size_t length = strlen(stop);
        const char *found = memmem(text, size, stop, length);
        const size_t at = found ? (size_t)(found - text) : size;
        /* The first to be complete, and of those the longest: whichever pieces the text came in. */
        if (found && (at + length < end || (at + length == end && at < begin))) {
            begin = at;
            end = at + length;
        }
        size_t begun = begun_at_end(text, size, stop);
        kept = begun > kept ? begun : kept;
    }
    *out_ready = begin < size ? begin : size - kept;
    *out_ready -= *out_ready ? utf8_incomplete_tail(text, *out_ready) : 0;
    return begin < size;
}

size_t text_filter_end(const struct text_filter *filter)
{
    size_t size = filter->held.size;
    return size ? size - utf8_incomplete_tail(filter->held.data, size) : 0;
}

void text_filter_drop(struct text_filter *filter, size_t size)
{
    filter->held.size -= size;
    if (filter->held.size)
        memmove(filter->held.data, filter->held.data + size, filter->held.size);
}
