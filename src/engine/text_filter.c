#include "engine/text_filter.h"

#include "base/memory.h"
#include "engine/arguments.h"
#include "text/tokenizer.h"

#include <string.h>

/* The number of bytes at the end of the text that are a beginning of the stop string. */
static size_t begun_at_end(const char *text, size_t size, const char *stop)
{
    size_t length = strlen(stop);
    for (size_t tail = length - 1 < size ? length - 1 : size; tail > 0; tail--) {
        if (memcmp(text + size - tail, stop, tail) == 0)
            return tail;
    }
    return 0;
}

bool text_filter_scan(const struct text_filter *filter, size_t *out_ready)
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
        /* The stop string that is complete first, and the longest of these: independent of the pieces that
         * the text came in. */
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

/* ---- The public object ---- */

struct salvo_text_filter {
    struct text_filter filter;
    char **strings;  /* copies that `filter` points at */
    size_t returned; /* bytes at the beginning of `held` that the last call returned */
    bool stopped;
};

enum salvo_status salvo_text_filter_open(
    const char *const *stop_strings, size_t stop_count, struct salvo_text_filter **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text_filter *filter = NULL;
    REQUIRE(out);
    *out = NULL;
    if (stop_count)
        REQUIRE(stop_strings);
    TRY(NEW(&filter, 1));
    TRY(NEW(&filter->strings, stop_count));
    for (size_t i = 0; i < stop_count; i++) {
        if (!stop_strings[i])
            TRY(fail(SALVO_ERROR_ARGUMENT, "stop string %zu of %zu is NULL", i + 1, stop_count));
        const size_t size = strlen(stop_strings[i]) + 1;
        TRY(NEW(&filter->strings[i], size));
        memcpy(filter->strings[i], stop_strings[i], size);
        filter->filter.stop_count++;
    }
    filter->filter.stop_strings = (const char *const *)filter->strings;
    *out = filter;
    filter = NULL;
cleanup:
    salvo_text_filter_close(filter);
    return status;
}

void salvo_text_filter_close(struct salvo_text_filter *filter)
{
    if (!filter)
        return;
    for (size_t i = 0; i < filter->filter.stop_count; i++)
        memory_free(filter->strings[i]);
    memory_free(filter->strings);
    buffer_free(&filter->filter.held);
    memory_free(filter);
}

enum salvo_status salvo_text_filter_push(struct salvo_text_filter *filter, const char *data, size_t size,
    struct salvo_text *out, bool *out_stopped)
{
    enum salvo_status status = SALVO_OK;
    size_t ready = 0;
    REQUIRE(out);
    REQUIRE(out_stopped);
    *out = (struct salvo_text){"", 0};
    *out_stopped = false;
    REQUIRE(filter);
    if (size)
        REQUIRE(data);
    text_filter_drop(&filter->filter, filter->returned);
    filter->returned = 0;
    if (!filter->stopped) {
        TRY(buffer_append(&filter->filter.held, data, size));
        filter->stopped = text_filter_scan(&filter->filter, &ready);
    }
    if (ready)
        *out = (struct salvo_text){filter->filter.held.data, ready};
    filter->returned = filter->stopped ? filter->filter.held.size : ready;
    *out_stopped = filter->stopped;
cleanup:
    return status;
}

enum salvo_status salvo_text_filter_finish(struct salvo_text_filter *filter, struct salvo_text *out)
{
    REQUIRE(out);
    *out = (struct salvo_text){"", 0};
    REQUIRE(filter);
    text_filter_drop(&filter->filter, filter->returned);
    const size_t rest = text_filter_end(&filter->filter);
    if (rest)
        *out = (struct salvo_text){filter->filter.held.data, rest};
    filter->returned = filter->filter.held.size;
    filter->stopped = false;
    return SALVO_OK;
}

void salvo_text_filter_reset(struct salvo_text_filter *filter)
{
    if (!filter)
        return;
    filter->filter.held.size = filter->returned = 0;
    filter->stopped = false;
}
