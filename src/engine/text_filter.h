/* Text on its way to the caller: held back while it may be the beginning of a stop string, and until its
 * UTF-8 characters are complete. The public salvo_text_filter and generation both use it. */
#ifndef ENGINE_TEXT_FILTER_H
#define ENGINE_TEXT_FILTER_H

#include "base/buffer.h"

struct text_filter {
    const char *const *stop_strings;
    size_t stop_count;
    struct buffer held;
};

/* *out_ready bytes of `held` can be passed on now. True: a stop string is complete, and they are the text
 * before it. */
bool text_filter_scan(const struct text_filter *filter, size_t *out_ready);

/* The number of bytes that can be passed on at the end of the text: all but an incomplete character. */
size_t text_filter_end(const struct text_filter *filter);

/* Removes the first `size` bytes. */
void text_filter_drop(struct text_filter *filter, size_t size);

#endif
