/*
 * Text on its way to the caller: held back while it may be the beginning of a stop string, and until its
 * UTF-8 characters are complete.
 */
#ifndef ENGINE_TEXT_FILTER_H
#define ENGINE_TEXT_FILTER_H

#include "base/buffer.h"

struct text_filter {
    const char *const *stop_strings;
    size_t stop_count;
    struct buffer held;
};

/* What may be handed over now: the first *out_ready bytes of `held`. True when a stop string came: they are
 * all the text before it, and nothing follows. */
bool text_filter_look(const struct text_filter *filter, size_t *out_ready);

/* What may be handed over when no more text comes: all of it but a character that was not completed. */
size_t text_filter_end(const struct text_filter *filter);

/* Forgets the first `size` bytes. */
void text_filter_drop(struct text_filter *filter, size_t size);

#endif
