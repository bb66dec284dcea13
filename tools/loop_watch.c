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
