/* An answer that has become one cycle of tokens: a small model may write it until the context is full. */
#ifndef TOOLS_LOOP_WATCH_H
#define TOOLS_LOOP_WATCH_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

enum { LOOP_WINDOW = 256, LOOP_LONGEST = 64 };

/* One line about a text that ended with a cycle of `length` tokens; and how a text ended, "loop" included. */
#define LOOP_NOTICE \
    "the answer repeats itself and ends here: 256 tokens are a cycle of %" PRIu32 "; --allow-loops goes on"
const char *finish_or_loop(uint32_t finish, uint32_t length);

/* The length of the cycle that the last LOOP_WINDOW of the tokens are exactly, at most LOOP_LONGEST; 0: they
 * are none, or there are fewer. */
uint32_t find_loop(const int32_t *tokens, size_t count);

#endif
