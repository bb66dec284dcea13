/* Detects an answer that has become a cycle of tokens: small models repeat themselves until the context is
 * full. */
#ifndef TOOLS_LOOP_WATCH_H
#define TOOLS_LOOP_WATCH_H

#include <stddef.h>
#include <stdint.h>

enum { LOOP_WINDOW = 256, LOOP_LONGEST = 64 };

/* The period of the last LOOP_WINDOW tokens, if it is at most LOOP_LONGEST; 0: none, or there are fewer
 * tokens. */
uint32_t find_loop(const int32_t *tokens, size_t count);

/* Format of the warning; takes the period. */
#define LOOP_WARNING                                                                       \
    "the answer repeats itself and ends here: its last 256 tokens are a cycle of %" PRIu32 \
    "; --allow-loops continues it"

#endif
