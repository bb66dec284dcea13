/* An answer that has become one cycle of tokens: a small model may write it until the context is full. */
#ifndef TOOLS_LOOP_WATCH_H
#define TOOLS_LOOP_WATCH_H

#include <stddef.h>
#include <stdint.h>

enum { LOOP_WINDOW = 256, LOOP_LONGEST = 64 };

/* The length of the cycle that the last LOOP_WINDOW of the tokens are exactly, at most LOOP_LONGEST; 0: they
 * are none, or there are fewer. */
uint32_t find_loop(const int32_t *tokens, size_t count);

#endif
