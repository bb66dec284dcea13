#include "loop_watch.h"

#include <salvo/salvo.h>

#include <string.h>

const char *finish_or_loop(uint32_t finish, uint32_t length)
{
    return length ? "loop" : salvo_finish_name(finish);
}

uint32_t find_loop(const int32_t *tokens, size_t count)
{
    if (count < LOOP_WINDOW)
        return 0;
    const int32_t *window = tokens + count - LOOP_WINDOW;
    for (uint32_t length = 1; length <= LOOP_LONGEST; length++) {
        if (memcmp(window, window + length, (LOOP_WINDOW - length) * sizeof *window) == 0)
            return length;
    }
    return 0;
}

uint32_t loop_watch_add(struct loop_watch *watch, int32_t id)
{
    if (watch->count == 2 * LOOP_WINDOW) {
        watch->count = LOOP_WINDOW;
        memmove(watch->ids, watch->ids + LOOP_WINDOW, LOOP_WINDOW * sizeof id);
    }
    watch->ids[watch->count++] = id;
    return find_loop(watch->ids, watch->count);
}
